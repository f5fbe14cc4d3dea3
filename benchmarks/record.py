"""What a benchmark measures, as tables for a terminal, Markdown and JSON. Imports no torch, for the docs' generator."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from collapse.measurement.table import Table as Printed


@dataclass(frozen=True)
class Row:
    """One measured piece of work.

    Attributes:
        what: What was done.
        seconds: Median time of it.
        rate: How much of the table's unit it does a second.
        of_limit: Time of the measured limit over this time; 1 for the limit itself.
        peak: Largest growth of the process's memory while it ran, in bytes.
    """

    what: str
    seconds: float | None = None
    rate: float | None = None
    of_limit: float | None = None
    peak: int | None = None


@dataclass(frozen=True)
class Table:
    """Pieces of work on the same data: their sizes are in the title.

    Attributes:
        title: What, and its sizes.
        rows: The pieces of work.
        unit: What is counted for the throughput.
        limit: What the share of the limit refers to; "" where there is none.
    """

    title: str
    rows: list[Row]
    unit: str = ""
    limit: str = ""

    def printed(self) -> Printed:
        """Return it without the columns in which nothing is measured."""
        columns: dict[str, list[float | int | None]] = {
            "seconds": [each.seconds for each in self.rows],
            f"{self.unit}/s": [rounded(each.rate) for each in self.rows],
            "% of limit": [each.of_limit and round(100 * each.of_limit) for each in self.rows],
            "peak MB": [None if each.peak is None else round(each.peak / 1e6) for each in self.rows],
        }
        columns = {name: values for name, values in columns.items() if any(value is not None for value in values)}
        cells = [list(row) for row in zip([each.what for each in self.rows], *columns.values(), strict=True)]
        notes = [f"limit: {self.limit}"] if self.limit else []
        return Printed(self.title, ["", *columns], cells, notes=notes)


@dataclass(frozen=True)
class Goal:
    """A number that must be at most, or at least, another.

    Attributes:
        what: The number, with its sizes.
        value: What was measured.
        bound: What it is compared with.
        unit: Its unit; "×" for a quotient of times.
        at_least: Whether larger is better.
    """

    what: str
    value: float
    bound: float
    unit: str = "×"
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def row(self) -> list[str]:
        """Return its cells.

        >>> Goal("three measurements over the products", 1.86, 1.3).row()
        ['three measurements over the products', '1.86 ×', '≤ 1.3 ×', 'no']
        """
        sign = "≥" if self.at_least else "≤"
        value = "0" if not self.value else f"{self.value:.3g}" if self.value < 1000 else f"{self.value:,.0f}"
        told = (f"{value} {self.unit}".strip(), f"{sign} {self.bound:g} {self.unit}".strip())
        return [self.what, *told, "yes" if self.met else "no"]


@dataclass(frozen=True)
class Growth:
    """How time or memory grows with sizes: its exponents, by size."""

    what: str
    of: str
    exponents: Mapping[str, float]

    def text(self) -> str:
        """Return the law, as ``time ~ C^1.97 d^0.90``.

        >>> Growth("three measurements", "time", {"C": 1.968, "d": 0.9}).text()
        'three measurements: time ~ C^1.97 d^0.90'
        """
        return f"{self.what}: {self.of} ~ {' '.join(f'{name}^{value:.2f}' for name, value in self.exponents.items())}"


@dataclass(frozen=True)
class Record:
    """The results of one benchmark.

    Attributes:
        benchmark: Its name.
        about: What it compares, in a sentence.
        tables: Times, throughputs, shares of limits and peaks.
        goals: The goals; none for sizes to which they do not apply.
        growth: Exponents.
        notes: Whatever else a reader must know.
        run: The machine, versions, commit and settings.
    """

    benchmark: str
    about: str
    tables: list[Table]
    goals: list[Goal] = field(default_factory=list)
    growth: list[Growth] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)

    def printed(self) -> Iterator[Printed]:
        """Yield the tables, and one of the goals; the last one has the growth and the notes below it."""
        made = [table.printed() for table in self.tables]
        if self.goals:
            made.append(Printed("", ["goal", "measured", "required", "met"], [goal.row() for goal in self.goals]))
        notes = [*(each.text() for each in self.growth), *self.notes]
        for at, table in enumerate(made):
            last = at == len(made) - 1
            yield Printed(table.title, table.columns, table.rows, notes=[*table.notes, *(notes if last else [])])

    def write(self, folder: Path) -> Path:
        """Write it as JSON into a folder, which is made if it is not there; return the file."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.benchmark}.json"
        file.write_text(json.dumps(_rounded(asdict(self)), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return file

    @classmethod
    def read(cls, file: Path) -> "Record":
        """Read what :meth:`write` has written."""
        made = json.loads(file.read_text(encoding="utf-8"))
        tables = [Table(**{**each, "rows": [Row(**row) for row in each["rows"]]}) for each in made.pop("tables")]
        goals = [Goal(**each) for each in made.pop("goals")]
        growth = [Growth(**each) for each in made.pop("growth")]
        return cls(tables=tables, goals=goals, growth=growth, **made)


def rounded(value: float | None) -> float | None:
    """Round to three digits.

    >>> rounded(50_123_456.0)
    50100000.0
    """
    return None if value is None else float(f"{value:.3g}")


def _rounded(value: Any) -> Any:
    """Return a tree of JSON with six digits of each float."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
