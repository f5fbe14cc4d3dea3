"""The results of one machine as Markdown, for docs/benchmarks.md. Imports no torch."""

from itertools import groupby
from pathlib import Path

from benchmarks.record import Record, Table
from collapse.measurement.table import Table as Printed

RESULTS = Path(__file__).parent / "results"
LEFT_OUT = ("neighbour",)  # about busy machines only: benchmarks/results has it


def page(results: Path = RESULTS) -> str:
    """Return a section for each benchmark, of the machine with the most results."""
    records = [Record.read(file) for file in sorted(results.glob("*/*.json"))]
    machines = [list(some) for _, some in groupby(records, key=lambda each: str(each.run["machine"]["name"]))]
    if not machines:
        return "There are no results yet."
    shown = max(machines, key=len)
    others = sorted(str(some[0].run["machine"]["name"]) for some in machines if some is not shown)
    parts = [_part(record) for record in shown if record.benchmark not in LEFT_OUT]
    elsewhere = f"\n\nResults of other machines are in `benchmarks/results`: {', '.join(others)}." if others else ""
    return "\n\n".join([_where(shown[0]) + elsewhere, *parts])


def _part(record: Record) -> str:
    """Return one table of all the work, and one of the goals."""
    changed = " with changes" if record.run["dirty"] else ""
    commit = f" Commit {record.run['commit']}{changed}." if record.run["commit"] else ""
    parts = [f"## {record.benchmark}", f"{record.about}{commit}"]
    if record.tables:
        parts.append(_joined(record.tables).markdown())
    if record.goals:
        goals = [goal.row() for goal in record.goals]
        parts.append(Printed("", ["goal", "measured", "required", "met"], goals).markdown())
    return "\n\n".join(parts)


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


def _where(record: Record) -> str:
    """Describe the machine and the versions in a sentence."""
    run = record.run
    machine, versions = run["machine"], run["versions"]
    gpu = f", {machine['gpu']}" if machine["gpu"] else ""
    processor = " with ".join(machine[name] for name in ("cpu", "instructions") if name in machine)
    return (
        f"{processor}, {machine['cores']} cores, {machine['memory_gib']:g} GiB{gpu}; {run['threads']} threads; "
        f"Python {versions['python']}, torch {versions['torch']}."
    )
