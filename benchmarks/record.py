"""The results of a benchmark as a table, Markdown and JSON.

This module does not import torch, because ``__main__.py`` imports it before setting the number of threads.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from collapse.measurement.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass
class Record:
    """The results of one benchmark.

    Attributes:
        benchmark: Name of the benchmark.
        about: What the benchmark compares, in a sentence.
        rows: The table's rows, one for each piece of work: a dictionary from columns to cells.
        notes: Remarks below the table.
        run: Machine, versions, commit and settings, as returned by :func:`benchmarks.machine.described`.
    """

    benchmark: str
    about: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)

    def add(
        self,
        data: str,
        times: Mapping[str, float],
        *,
        amount: float = 0,
        unit: str = "",
        limit: str = "",
        peaks: Mapping[str, int | None] | None = None,
    ) -> None:
        """Add a row for each piece of work on the same data.

        Args:
            data: Description of the data and its sizes.
            times: Seconds of each piece of work, by its name.
            amount: Number of units that each piece of work processes.
            unit: The unit of the throughput, such as "tokens"; "" for no throughput.
            limit: Name of the piece of work whose speed is 100 % in the column ``% of limit``; "" for no such column.
            peaks: Peak growth of memory in bytes, by piece of work; None for work whose peak was not measured.
        """
        for work, seconds in times.items():
            row = {"data": data, "work": work, "seconds": float(f"{seconds:.4g}")}
            if unit:
                row[f"{unit}/s"] = float(f"{amount / seconds:.3g}")
            if limit:
                row["% of limit"] = round(100 * times[limit] / seconds)
            if peak := (peaks or {}).get(work):
                row["peak MB"] = round(peak / 1e6)
            self.rows.append(row)

    def table(self, title: str = "") -> Table:
        """Return the record as a table; equal values in the first column are shown once."""
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        cells: list[list[Any]] = []
        before = None
        for row in self.rows:
            first, *others = (row.get(column) for column in columns)
            cells.append(["" if first == before else first, *others])
            before = first
        return Table(title, columns, cells, notes=self.notes)

    def write(self, folder: Path) -> Path:
        """Write the record as JSON into a folder, and return the file."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.benchmark}.json"
        file.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return file

    @classmethod
    def read(cls, file: Path) -> "Record":
        """Read a file that :meth:`write` wrote."""
        return cls(**json.loads(file.read_text(encoding="utf-8")))

    def markdown(self) -> str:
        """Return the record as a section of docs/about/benchmarks.md; ``run`` must be set."""
        machine, versions = self.run["machine"], self.run["versions"]
        cpu = f"{machine['cpu']} with {machine['instructions']}, {machine['cores']} cores"
        where = f"{machine.get('gpu', cpu)}; {self.run['threads']} threads; torch {versions['torch']}"
        title = f"## {self.benchmark}{' on a GPU' if 'gpu' in machine else ''}"
        return "\n\n".join([title, f"{self.about} {where}; commit {self.run['commit']}.", self.table().markdown()])


def page(results: Path = RESULTS) -> str:
    """Return the sections of docs/about/benchmarks.md: each benchmark's newest record on a CPU and on a GPU."""
    records = [Record.read(file) for file in results.glob("*/*.json")]
    records.sort(key=lambda each: str(each.run["date"]))
    newest = {(each.benchmark, "gpu" in each.run["machine"]): each for each in records}
    return "\n\n".join(newest[which].markdown() for which in sorted(newest))
