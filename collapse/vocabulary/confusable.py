"""Find classes that are close to each other: the most confusable pairs, and the neighbours of given tokens.

Shapes: C classes, d dimensions.
"""

import math
from collections.abc import Iterable
from typing import Any

from jaxtyping import Float
from torch import Tensor

from collapse.core.precision import exact_arithmetic
from collapse.core.progress import Report, shows_progress
from collapse.measurement.measuring import Measurable, check_name, row_and_results
from collapse.measurement.table import Table
from collapse.numerics.pair_fields import ClassGeometry, Tile
from collapse.numerics.statistics import row_cosine
from collapse.numerics.values import Values, values_of
from collapse.plugin.guarding import outside_inference_mode
from collapse.plugin.plugin_manager import plugins
from collapse.vocabulary.chosen_classes import choose, rank
from collapse.vocabulary.token_table import positions, remarks, token_table

_CDNV = "nc1.cdnv"
_KEYS = 4
"""Number of columns that name a pair."""


@shows_progress
def confusable_pairs(
    store: Measurable,
    most: int = 20,
    *,
    by: str = _CDNV,
    tokenizer: Any = None,
    min_count: int = 1,
    progress: Report | None = None,
) -> Table:
    """Find the pairs of classes with the largest CDNV, which the model distinguishes least.

    The search is exact: one sweep visits all pairs and keeps the largest. Ties go to the pair with the lower ids. Pairs
    of equal means have no CDNV; a note counts them.

    Args:
        store: A store, its folder or name on the Hub, or an :class:`collapse.EmbeddingStatistics`.
        most: Number of pairs.
        by: The measurement of a pair metric to rank pairs by; ``nc2.interference`` gives the pairs with the largest
            cosine.
        tokenizer: As in :func:`collapse.tokens`.
        min_count: As in :func:`collapse.measure`.
        progress: Called as progress(what, done, total[, note]).

    Returns:
        A row per pair: ids, texts and counts of both classes, the value of ``by``, ‖μ_c − μ_c′‖ and the cosine of the
        centred means.

    Raises:
        UsageError: There is no such pair measurement.
        CollapseError: The store or the tokenizer cannot be read.

    >>> from collapse.testing import tiny_statistics
    >>> confusable_pairs(tiny_statistics(), 1).frame()[["id", "id 2", "nc1.cdnv"]].round(6).to_dict("records")
    [{'id': 0, 'id 2': 1, 'nc1.cdnv': 0.011719}]
    """
    of_pairs = [name for name, (metric, _) in plugins().measurements().items() if metric.kind == "pair"]
    check_name(by, of_pairs, "a measurement of pairs")
    chosen = choose(store, tokenizer=tokenizer, min_count=min_count, every=True)
    row, found = row_and_results(chosen.store, metrics=by, min_count=min_count, top_pairs=most, progress=progress)
    (top,) = (each.top_pairs for each in found.results)
    s, texts = found.s, chosen.texts
    columns = ["id", "text", "id 2", "text 2", "count", "count 2", by, "distance", "cosine"]
    rows: list[list[Any]] = []
    if top is not None:
        a, b = top.pairs.T
        apart = (s.means[a] - s.means[b]).norm(dim=1)
        angles = row_cosine(s.centred_means[a], s.centred_means[b])
        lists = [s.classes[a], s.classes[b], s.counts[a], s.counts[b], top.values, apart, angles]
        for one, other, *numbers in zip(*(each.tolist() for each in lists), strict=True):
            rows.append([one, texts.text(one), other, texts.text(other), *numbers])
    return token_table(row, columns, rows, [*chosen.notes, *remarks(row)], keys=_KEYS)


@outside_inference_mode
@exact_arithmetic()
def neighbours(
    store: Measurable,
    tokens: str | Iterable[str] | None = None,
    most: int = 5,
    *,
    ids: Iterable[int] | None = None,
    tokenizer: Any = None,
    min_count: int = 1,
) -> Table:
    """Find the classes nearest to some tokens (smallest ‖μ_c − μ_c′‖), and the most interfering ones (largest cosine).

    Args:
        store: A store, its folder or name on the Hub, or an :class:`collapse.EmbeddingStatistics`.
        tokens: Texts, verbatim.
        most: Number of nearest and of interfering classes per token.
        ids: Token ids.
        tokenizer: As in :func:`collapse.tokens`.
        min_count: As in :func:`collapse.measure`.

    Returns:
        A row per token and neighbour: the kind of neighbour (``nearest`` or ``interfering``), its rank, the distance
        and cosine of the centred means, and the CDNV of the pair. The CDNV is None for equal means.

    Raises:
        UsageError: A token or id is unknown, or none is given.
        CollapseError: The store or the tokenizer cannot be read.

    >>> from collapse.testing import tiny_statistics
    >>> neighbours(tiny_statistics(), ids=[3], most=1).frame()[["id", "kind", "id 2"]].values.tolist()
    [[3, 'nearest', 0], [3, 'interfering', 0]]
    """
    chosen = choose(store, tokens, ids, tokenizer=tokenizer, min_count=min_count)
    row, found = row_and_results(chosen.store, metrics="nc2.norm", min_count=min_count)
    texts, classes = chosen.texts, found.s.classes.tolist()
    values = values_of(found.s)
    geometry = ClassGeometry(values.s)
    rows: list[list[Any]] = []
    for at in positions(found.s, chosen.ids or []):
        measured = _from(geometry, values, at)
        distance_C, cosine_C, _ = measured
        for kind, nearness_C in (("nearest", -distance_C), ("interfering", cosine_C)):
            for number, other in enumerate(rank(nearness_C, most, 0), start=1):
                one, two = classes[at], classes[other]
                numbers = [float(each[other]) for each in measured]
                rows.append([one, texts.text(one), kind, number, two, texts.text(two), *numbers])
    columns = ["id", "text", "kind", "rank", "id 2", "text 2", "distance", "cosine", _CDNV]
    return token_table(row, columns, rows, chosen.notes, keys=_KEYS)


def _from(geometry: ClassGeometry, values: Values, at: int) -> tuple[Float[Tensor, " C"], ...]:
    """Return distance, cosine and CDNV between the class at position ``at`` and every class, each of shape (C,).

    The result is NaN for the class itself, and for a pair that has no finite number.
    """
    row = slice(at, at + 1)
    # a tile of one row, so that near pairs are corrected as in the sweep
    tile = Tile(geometry, values, row, slice(0, len(geometry.centred)))
    cdnv = tile.value(plugins().measurements()[_CDNV][0].function)
    found = []
    for field in (tile.field("distance"), tile.field("cosine"), cdnv):
        assert isinstance(field, Tensor)  # the registered CDNV has no remark
        field = field[0].where(field[0].isfinite(), math.nan)
        field[at] = math.nan
        found.append(field)
    return tuple(found)
