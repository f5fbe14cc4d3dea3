"""Choose classes of a store: by their texts, by their ids, or by rank."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from collapse.errors import UsageError, counted, some
from collapse.hub.opening import load
from collapse.measurement.measuring import Measurable
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.stores.store import Store
from collapse.vocabulary.finding_tokenizer import find_tokenizer_of
from collapse.vocabulary.token_texts import TokenTexts, quoted, variant

_MOST_EXPLAINED = 5


@dataclass(frozen=True)
class Chosen:
    """Classes of a store.

    Attributes:
        store: The store, opened.
        texts: The texts of the store's classes with at least ``min_count`` samples.
        ids: Token ids in the requested order, without duplicates; None for all classes.
        notes: For each requested text that is not a class, why; and remarks on the tokenizer.
    """

    store: Store | EmbeddingStatistics
    texts: TokenTexts
    ids: list[int] | None = None
    notes: list[str] = field(default_factory=list)


def choose(
    store: Measurable,
    tokens: str | Iterable[str] | None = None,
    ids: Iterable[int] | None = None,
    *,
    tokenizer: Any = None,
    min_count: int = 1,
    variants: bool = False,
    every: bool = False,
) -> Chosen:
    """Choose classes of a store by their texts and ids, as :func:`collapse.tokens` does, before any measurement.

    With ``variants``, each text is also looked up with a leading space added, or removed if it has one. With ``every``,
    all classes are chosen if neither tokens nor ids are given.

    Raises:
        UsageError: No token is given, an id is not a class, none of the texts is a class, or texts are given but no
            tokenizer is found.
        CollapseError: The store or the tokenizer cannot be read.
    """
    opened = load(store) if isinstance(store, str | Path) else store
    found, remark = find_tokenizer_of(opened if isinstance(opened, Store) else None, tokenizer)
    s = opened.statistics() if isinstance(opened, Store) else opened
    texts = TokenTexts(found, s.classes[s.counts >= min_count].tolist())
    notes = [remark] if remark else []
    if every and tokens is None and ids is None:
        return Chosen(opened, texts, None, notes)
    wanted, wanted_ids = [tokens] if isinstance(tokens, str) else list(tokens or ()), list(ids or ())
    if not wanted and not wanted_ids:
        raise UsageError("no token is given: give texts (--token, --file) or ids (--ids)")
    if wanted and found is None:
        raise UsageError(f"tokens cannot be found by text ({remark}): give --tokenizer, or token ids with --ids")
    _check_ids(wanted_ids, texts, min_count)
    chosen, unknown = [], []
    for each in wanted:
        unknown += [] if texts.find(each) else [each]
        chosen += texts.find(each) + (texts.find(variant(each)) if variants else [])
    missing = [texts.explain(each) for each in unknown[:_MOST_EXPLAINED]]
    if more := unknown[_MOST_EXPLAINED:]:
        missing.append(f"{counted(len(more), 'more text')} without a class: {', '.join(map(quoted, more))}")
    if not chosen and not wanted_ids:
        raise UsageError("; ".join(missing))
    return Chosen(opened, texts, list(dict.fromkeys([*chosen, *wanted_ids])), [*notes, *missing])


def rank(values: Tensor, top: int, least: int) -> list[int]:
    """Return the positions of the ``top`` largest values, descending, then of the ``least`` smallest, ascending.

    nan is skipped, and no position occurs twice.

    >>> import torch
    >>> rank(torch.tensor([2.0, float("nan"), 5.0, 1.0]), 2, 1)
    [2, 0, 3]
    """
    having = (~values.isnan()).nonzero().flatten()
    rising, falling = (having[values[having].argsort(stable=True, descending=each)] for each in (False, True))
    return list(dict.fromkeys([*falling[:top].tolist(), *rising[:least].tolist()]))


def _check_ids(ids: list[int], texts: TokenTexts, min_count: int) -> None:
    if absent := sorted(set(ids) - set(texts.classes)):
        named = some([f"{each} ({texts.shown(each)})" if texts.text(each) else str(each) for each in absent], 10)
        fewer = f", or has fewer than {min_count:,} samples (--min-count)" if min_count > 1 else ""
        raise UsageError(
            f"not a class of this store: {named}. Such a token is not the next token of any training sample{fewer}. "
            "Choose other ids"
        )
