"""Collect the result of checking laws: which laws are broken, what breaks them, and with which numbers."""

from collections.abc import Collection, Mapping


class LawBroken(AssertionError):
    """A plugin breaks laws; ``laws`` holds the names of these laws.

    Args:
        breaches: A description of each breach. Each key is a pair: the broken law, and the name of what breaks the law,
            such as a measurement.
    """

    def __init__(self, breaches: Mapping[tuple[str, str], str]) -> None:
        super().__init__("\n".join(f"{of} breaks the law of {law}: {text}" for (law, of), text in breaches.items()))
        self.laws = {law for law, _ in breaches}


class Checked:
    """Collect the breaches of one check; if there are any, the end of the ``with`` block raises :class:`LawBroken`.

    Args:
        without: Names of the laws to skip.
    """

    def __init__(self, without: Collection[str]) -> None:
        self._without, self._breaches = without, dict[tuple[str, str], str]()

    def __enter__(self) -> "Checked":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.broken:
            raise LawBroken(self._breaches)

    @property
    def broken(self) -> bool:
        """Whether a breach has been found so far."""
        return bool(self._breaches)

    def breach(self, law: str, of: str, text: str) -> None:
        """Record that ``of``, such as a measurement, breaks ``law``; ``text`` describes the breach.

        If ``of`` breaks the same law several times, only the first breach is recorded. Laws to skip are ignored.
        """
        if law not in self._without:
            self._breaches.setdefault((law, of), text)
