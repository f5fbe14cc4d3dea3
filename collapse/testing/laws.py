"""What a check of laws says: which laws are broken, by what, and with which numbers."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from collapse.errors import near_names


@dataclass(frozen=True)
class Breach:
    """One law that does not hold.

    Attributes:
        law: Its name, as in docs/plugins.md.
        of: What breaks it: a measurement, a tensor of a statistic, an analysis.
        text: What was found, with numbers.
    """

    law: str
    of: str
    text: str


class LawBroken(AssertionError):
    """A plugin breaks laws that it is held to.

    Attributes:
        breaches: One for each law and what breaks it.
    """

    def __init__(self, breaches: Sequence[Breach]) -> None:
        super().__init__("\n".join(f"{each.of} breaks the law of {each.law}: {each.text}" for each in breaches))
        self.breaches = tuple(breaches)

    @property
    def laws(self) -> set[str]:
        """Names of the laws that are broken."""
        return {breach.law for breach in self.breaches}


class Checked:
    """The breaches that one check finds: a ``with`` block that ends by raising :class:`LawBroken` if there are any.

    Args:
        laws: Names of the laws that the check knows.
        without: Those that it does not look at.

    Raises:
        ValueError: ``without`` names a law that there is not.
    """

    def __init__(self, laws: Collection[str], without: Collection[str]) -> None:
        without = [without] if isinstance(without, str) else without
        for name in without:
            if name not in laws:
                raise ValueError(f"there is no law of {name}; {near_names(name, laws)}")
        self._laws, self._breaches = set(laws) - set(without), dict[tuple[str, str], Breach]()

    def __enter__(self) -> "Checked":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._breaches:
            raise LawBroken(list(self._breaches.values()))

    @property
    def broken(self) -> bool:
        """Whether a breach was found so far."""
        return bool(self._breaches)

    def looks_at(self, law: str) -> bool:
        """Whether a law is looked at."""
        return law in self._laws

    def breach(self, law: str, of: str, text: str) -> None:
        """Note a breach; the first one of a law by one thing is shown."""
        if law in self._laws:
            self._breaches.setdefault((law, of), Breach(law, of, text))


def close(a: float | None, b: float | None, *, rel: float = 1e-8, least: float = 1e-11) -> bool:
    """Whether two measurements are equal up to rounding; none and nan equal themselves only."""
    if a is None or b is None or math.isnan(a) or math.isnan(b):
        return a is b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))
    return a == b or abs(a - b) <= max(rel * max(abs(a), abs(b)), least)


def shown(value: float | None) -> str:
    """A measurement in an error."""
    return "nothing" if value is None else f"{value:.10g}"
