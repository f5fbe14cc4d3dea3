"""Compute the numbers that are frozen: ten small stores, and the published table.

``python tests/frozen/freeze.py`` writes them to ``expected/``, which is done only for a change of definition that
CHANGELOG names. The inputs are arrays, texts and models as others write them, in no format of ours: only this module
knows how they are collected. All were drawn at random once:

- ``train.jsonl``, ``validation.jsonl``: 120 and 60 stories of invented words by Zipf's law.
- ``tied``, ``untied``: a GPT-Neo, and a GPT-2 with a head of its own, with large weights; their tokenizer has 160
  tokens of these stories. Neither has rotary positions, whose float32 sines depend on the processor.
- ``float32``, ``bfloat16``, ``few``, ``many``: embeddings around random class means, labels by Zipf's law in ids with
  gaps, a classifier near the means, a validation part; ``float32`` and ``few`` have a bias.
- ``degenerate``: classes of one sample, of equal means, without variance, at the centre, and with rows of W that are
  0 or equal; a validation label that training lacks.
- ``collapsed``: nine classes that are nearly a simplex in eight dimensions, and a classifier that is its dual.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import collapse
from collapse import CollapseError, Results, Row, Store
from collapse.plugin.figures import numbers_of
from collapse.plugin.plugin_manager import plugins

HERE = Path(__file__).parent
EXPECTED = HERE / "expected"
_MOST = 40  # class values of a store that are kept, evenly among all

SEEDS, GRID = "model=02x0768_01d*", "seed="
ANALYSES: dict[str, tuple[str, dict[str, Any]]] = {
    "permutation": ("permutation", {"n": 999}),
    "permutation-seeds": ("permutation", {"n": 999, "columns": "paper", "where": SEEDS}),
    "permutation-within": ("permutation", {"n": 999, "within": "architecture"}),
    "correlation": ("correlation", {}),
    "correlation-cluster": ("correlation", {"cluster": "architecture"}),
    "correlation-within": ("correlation", {"within": "architecture", "columns": "paper"}),
    "correlation-crossed": ("correlation", {"within": "architecture,recipe", "where": GRID, "resamples": 999}),
    "correlation-control": ("correlation", {"control": ["log(width)", "log(depth)"], "columns": "paper"}),
    "correlation-strata": ("correlation", {"within": "width", "strata": True, "columns": "paper"}),
    "paired": ("paired", {"by": "decay", "where": [GRID, "checkpoint=9"]}),
    "scaling": ("scaling", {"columns": "paper", "where": GRID}),
}
"""The analyses of the published table, with their options."""


def collected(folder: Path) -> dict[str, Store]:
    """Collect the ten stores into a folder."""
    texts = {"text": str(HERE / "train.jsonl"), "chunk_length": 32, "dtype": "float64"}
    validated = {**texts, "validation_text": str(HERE / "validation.jsonl")}
    made = {
        "tied": collapse.collect(HERE / "tied", store=folder / "tied", **validated),
        "untied": collapse.collect(HERE / "untied", store=folder / "untied", **validated),
        "unvalidated": collapse.collect(HERE / "untied", store=folder / "unvalidated", **texts, max_chunks=60),
    }
    parts = [collapse.collect(HERE / "tied", store=folder / f"part-{k}", **validated, part=(k, 3)) for k in (3, 1, 2)]
    made["parts"] = collapse.merge(parts, store=folder / "parts")
    for name in ("float32", "bfloat16", "few", "many", "degenerate", "collapsed"):
        made[name] = collapse.collect(HERE / f"{name}.safetensors", store=folder / name)
    return made


def numbers_of_stores(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the numbers of each store, and those that compare stores."""
    stores = collected(folder)
    for name, store in stores.items():
        row = collapse.measure(store)
        yield name, of_row(row) | {"class values": class_values(store, row)}
    tied = stores["tied"]
    yield (
        "together",
        {
            "min_count": of_row(collapse.measure(tied, min_count=20)),
            "classes_of": of_row(collapse.measure(tied, classes_of=[stores["unvalidated"]])),
            "compare": {
                each["measurement"]: dict(list(each.items())[:6])  # without what they mean
                for each in collapse.compare(tied, stores["untied"]).records()
            },
            "convergence": collapse.convergence([folder / f"part-{k}" for k in (1, 2, 3)]).records(),
            "neighbours": collapse.neighbours(tied, ids=[5, 20, 40], most=3).records(),
            "confusable": collapse.confusable_pairs(tied, most=10).records(),
            "matched": collapse.frequency_matched(tied, ids=[5, 20, 40], draws=99).records(),
            "nulls": collapse.measure_with_nulls(
                HERE / "tied", text=str(HERE / "train.jsonl"), chunk_length=32, dtype="float64"
            ).nulls["shuffled"],
            "figures": figures([stores["tied"], stores["untied"]]),
        },
    )


def of_row(row: Row) -> dict[str, Any]:
    """Return the measurements of a row, their standard errors, and the kinds of its notes."""
    about = {name: getattr(row, name) for name in ("classes", "dim", "samples")}
    notes = sorted({f"{note.measurement}: {note.kind}" for note in row.notes})
    return about | {"measurements": row.measurements, "standard errors": row.standard_errors, "notes": notes}


def class_values(store: Store, row: Row) -> dict[str, Any]:
    """Return the values per class behind each measurement that has them; for many classes, only some."""
    found = {}
    s = store.statistics()
    for name in ["counts", "variances", *row.measurements]:
        try:
            ids, values = (s.classes, getattr(s, name)) if name not in row else collapse.vectors(store, name)
        except CollapseError:
            continue
        step = max(1, len(ids) // _MOST)
        found[name] = dict(zip(map(str, ids.tolist()[::step]), values.double().tolist()[::step], strict=True))
    return found


def figures(source: Any) -> dict[str, Any]:
    """Return the numbers of every figure that a source allows, column by column."""
    found = {}
    for name in plugins().figures:
        try:
            rows = numbers_of(collapse.draw(name, source).spec)
        except CollapseError:
            continue
        found[name] = {key: [row.get(key) for row in rows] for key in rows[0]} if rows else {}
    return found


def analyses() -> dict[str, Any]:
    """Return the records of the analyses of the published table."""
    return {key: collapse.analyze(name, "paper", **how).records() for key, (name, how) in ANALYSES.items()}


OF_TABLE: dict[str, Callable[[], Any]] = {"analyses": analyses, "figures": lambda: figures(Results.read("paper"))}


def plain(value: Any) -> Any:
    """Convert numbers for JSON; numbers that are not finite become text."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "item"):
        value = value.item()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    """Write each group of numbers as a file."""
    EXPECTED.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        found = dict(numbers_of_stores(Path(folder))) | {name: make() for name, make in OF_TABLE.items()}
    for name, numbers in found.items():
        (EXPECTED / f"{name}.json").write_text(json.dumps(plain(numbers), indent=0) + "\n")


if __name__ == "__main__":
    main()
