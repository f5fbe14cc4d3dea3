"""Values of single tokens and the most confusable pairs, against the sweep that gives the two scalars only."""

from collections.abc import Callable

import collapse
from benchmarks.record import Goal, Row, Table
from benchmarks.timing import in_turn
from collapse import EmbeddingStatistics
from collapse.measurement.class_values import measure_classes

TWO = ["nc1.cdnv", "nc2.interference"]


def measured(s: EmbeddingStatistics, *, rounds: int) -> tuple[list[Table], list[Goal]]:
    """Return the table and the goals."""
    works: dict[str, Callable[[], object]] = {
        "CDNV and interference": lambda: collapse.measure(s, metrics=TWO),
        "both for each class": lambda: measure_classes(s, TWO),
        "100 most confusable pairs": lambda: collapse.confusable_pairs(s, 100),
        "table of 20 tokens": lambda: collapse.tokens(s, top=20),
    }
    times = in_turn(works, rounds)
    scalar, by_class, pairs, _ = times.values()
    n_pairs = s.n_classes * (s.n_classes - 1) / 2
    rows = [Row(what, seconds, n_pairs / seconds, scalar / seconds) for what, seconds in times.items()]
    title = f"single tokens, C = {s.n_classes:,}, d = {s.dim:,}"
    goals = [
        Goal("values of each class over the two scalars", by_class / scalar, 1.3),
        Goal("most confusable pairs over the same", pairs / scalar, 1.5),
    ]
    return [Table(title, rows, unit="pairs", limit="the sweep for the two scalars")], goals
