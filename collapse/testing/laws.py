"""The result of checking laws: which laws are broken, by what, and with which numbers."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from collapse.errors import near_names


@dataclass(frozen=True)
class Breach:
    """A broken law: its name in the docs, what breaks it (such as a measurement), and a description."""

    law: str
    of: str
    text: str


class LawBroken(AssertionError):
    """A plugin breaks laws. ``breaches`` has an entry for each law and each measurement or tensor that breaks it."""

    def __init__(self, breaches: Sequence[Breach]) -> None:
        super().__init__("\n".join(f"{each.of} breaks the law of {each.law}: {each.text}" for each in breaches))
        self.breaches = tuple(breaches)

    @property
    def laws(self) -> set[str]:
        """Names of the broken laws."""
        return {breach.law for breach in self.breaches}


class Checked:
    """Collect the breaches of one check; if there are any, the end of the ``with`` block raises :class:`LawBroken`.

    Args:
        laws: Names of the laws of the check.
        without: Names of the laws to skip.

    Raises:
        ValueError: ``without`` names an unknown law.
    """

    def __init__(self, laws: Collection[str], without: Collection[str]) -> None:
        for name in without:
            if name not in laws:
                raise ValueError(f"there is no law {name!r}; {near_names(name, laws)}")
        self._laws, self._breaches = set(laws) - set(without), dict[tuple[str, str], Breach]()

    def __enter__(self) -> "Checked":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.broken:
            raise LawBroken(list(self._breaches.values()))

    @property
    def broken(self) -> bool:
        """Whether a breach has been found so far."""
        return bool(self._breaches)

    def breach(self, law: str, of: str, text: str) -> None:
        """Record a breach; only the first breach for each pair of ``law`` and ``of`` is shown."""
        if law in self._laws:
            self._breaches.setdefault((law, of), Breach(law, of, text))
