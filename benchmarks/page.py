"""The results of all machines as Markdown, for docs/benchmarks.md. Imports no torch."""

from itertools import groupby
from pathlib import Path

from benchmarks.record import Record

RESULTS = Path(__file__).parent / "results"


def page(results: Path = RESULTS) -> str:
    """Return a section for each machine, with a part for each benchmark."""
    records = [Record.read(file) for file in sorted(results.glob("*/*.json"))]
    parts = []
    for machine, some in groupby(records, key=lambda each: str(each.run["machine"]["name"])):
        parts += [f"## {machine}", *(_part(record) for record in some)]
    return "\n\n".join(parts) or "There are no results yet."


def _part(record: Record) -> str:
    tables = [table.markdown() for table in record.printed()]
    return "\n\n".join([f"### {record.benchmark}", f"{record.about} {_where(record)}", *tables])


def _where(record: Record) -> str:
    """Describe the machine, versions and commit in a sentence."""
    run = record.run
    machine, versions = run["machine"], run["versions"]
    gpu = f", {machine['gpu']}" if machine["gpu"] else ""
    processor = " with ".join(machine[name] for name in ("cpu", "instructions") if name in machine)
    commit = f", commit {run['commit']}{' with changes' if run['dirty'] else ''}" if run["commit"] else ""
    quick = " Quick: small sizes." if run["quick"] else ""
    return (
        f"{processor}, {machine['cores']} cores, {machine['memory_gib']:g} GiB{gpu}; {run['threads']} threads; "
        f"Python {versions['python']}, torch {versions['torch']}; {run['date']}{commit}.{quick}"
    )
