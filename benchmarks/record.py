"""What a benchmark measures, as tables for a terminal, Markdown and JSON. Imports no torch, for the docs' generator."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from collapse.measurement.table import Table as Printed

RESULTS = Path(__file__).parent / "results"


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
    seconds: float
    rate: float | None = None
    of_limit: float | None = None
    peak: int | None = None


@dataclass(frozen=True)
class Table:
    """Pieces of work on the same data, whose sizes are in the title.

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
            f"{self.unit}/s": [each.rate and float(f"{each.rate:.3g}") for each in self.rows],
            "% of limit": [each.of_limit and round(100 * each.of_limit) for each in self.rows],
            "peak MB": [each.peak and round(each.peak / 1e6) for each in self.rows],
        }
        columns = {name: values for name, values in columns.items() if any(value is not None for value in values)}
        cells = [list(row) for row in zip([each.what for each in self.rows], *columns.values(), strict=True)]
        return Printed(self.title, ["", *columns], cells, notes=[f"limit: {self.limit}"] if self.limit else [])


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
        measured = f"{self.value:.3g} {self.unit}".strip()
        return [self.what, measured, f"{sign} {self.bound:g} {self.unit}".strip(), "yes" if self.met else "no"]


@dataclass
class Record:
    """The results of one benchmark.

    Attributes:
        benchmark: Its name.
        about: What it compares, in a sentence.
        tables: Times, throughputs, shares of limits and peaks.
        goals: The goals; none for sizes to which they do not apply.
        notes: Whatever else a reader must know.
        run: The machine, versions, commit and settings.
    """

    benchmark: str
    about: str
    tables: list[Table] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)

    def printed(self) -> Iterator[Printed]:
        """Yield the tables, and one of the goals with the notes below it."""
        for table in self.tables:
            yield table.printed()
        goals = [goal.row() for goal in self.goals]
        yield Printed(self.about, ["goal", "measured", "required", "met"], goals, notes=self.notes)

    def write(self, folder: Path) -> Path:
        """Write it as JSON into a folder; return the file."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.benchmark}.json"
        file.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return file

    @classmethod
    def read(cls, file: Path) -> "Record":
        """Read what :meth:`write` has written."""
        made = json.loads(file.read_text(encoding="utf-8"))
        made["tables"] = [Table(**{**each, "rows": [Row(**row) for row in each["rows"]]}) for each in made["tables"]]
        made["goals"] = [Goal(**each) for each in made["goals"]]
        return cls(**made)

    def markdown(self) -> str:
        """Return a section for docs/benchmarks.md: one table of all the work, and one of the goals."""
        machine, versions = self.run["machine"], self.run["versions"]
        where = (
            f"{machine['cpu']} with {machine['instructions']}, {machine['cores']} cores; {self.run['threads']} "
            f"threads; torch {versions['torch']}; commit {self.run['commit']}"
        )
        parts = [f"## {self.benchmark}", f"{self.about} {where}."]
        if self.tables:
            parts.append(_joined(self.tables).markdown())
        goals = [goal.row() for goal in self.goals]
        parts.append(Printed("", ["goal", "measured", "required", "met"], goals).markdown())
        return "\n\n".join(parts)


def page(results: Path = RESULTS) -> str:
    """Return the sections of all benchmarks, the newest record of each."""
    records = [Record.read(file) for file in results.glob("*/*.json")]
    newest = {each.benchmark: each for each in sorted(records, key=lambda each: str(each.run["date"]))}
    return "\n\n".join(newest[name].markdown() for name in sorted(newest))


def _joined(tables: list[Table]) -> Printed:
    """Return one table of several, whose titles stand in a column."""
    made = [table.printed() for table in tables]
    columns = list(dict.fromkeys(column for table in made for column in table.columns))
    rows = []
    for table in made:
        for at, row in enumerate(table.rows):
            cells = dict(zip(table.columns, row, strict=True))
            rows.append(["" if at else table.title, *(cells.get(column) for column in columns)])
    return Printed("", ["data", "work", *columns[1:]], rows)
