"""Choose classes of a store: by their texts, by their ids, or by rank."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

from torch import Tensor

from collapse.errors import UsageError, counted
from collapse.hub.opening import load
from collapse.numerics.statistics import EmbeddingStatistics
from collapse.stores.store import Store
from collapse.vocabulary.finding_tokenizer import find_tokenizer_of
from collapse.vocabulary.token_texts import TokenTexts, check_tokens, quoted, variant

_MOST_EXPLAINED = 5


@dataclass(frozen=True)
class Chosen:
    """Classes of a store.

    Attributes:
        store: The store, opened.
        texts: The texts of its classes.
        ids: Token ids in the order asked for, each once; None for all classes.
        notes: Which texts are no class, and what is to be known of the tokenizer.
    """

    store: Store | EmbeddingStatistics
    texts: TokenTexts
    ids: list[int] | None = None
    notes: list[str] = field(default_factory=list)


def choose(
    store: Store | EmbeddingStatistics | str | Path,
    tokens: str | Iterable[str] | None = None,
    ids: Iterable[int] | None = None,
    *,
    tokenizer: Any = None,
    min_count: int = 1,
    variants: bool = False,
) -> Chosen:
    """Choose classes of a store by their texts and ids, before anything is measured.

    Args:
        store: A store, its folder or name on the Hub, or bare statistics.
        tokens: Texts, verbatim.
        ids: Token ids.
        tokenizer: A folder, a Hub id, or a tokenizer of transformers; None for the store's own.
        min_count: Classes with fewer samples are left out.
        variants: Also choose the class of each text with, or without, a leading space.

    Raises:
        UsageError: An id is not a class, no text is a class, or there is no tokenizer.
        CollapseError: The store or the tokenizer cannot be read.
    """
    opened = load(store) if isinstance(store, str | Path) else store
    if not isinstance(opened, Store | EmbeddingStatistics):
        raise UsageError(f"store must be a store, its folder or statistics, got a {type(store).__name__}")
    check_number(min_count, "min_count")
    wanted = None if tokens is None else check_tokens(tokens)
    wanted_ids = None if ids is None else _checked_ids(ids)
    found, remark = find_tokenizer_of(opened if isinstance(opened, Store) else None, tokenizer)
    texts = TokenTexts(found, _classes(opened, min_count).tolist())
    notes = [remark] if remark else []
    if wanted is None and wanted_ids is None:
        return Chosen(opened, texts, None, notes)
    if not wanted and not wanted_ids:
        raise UsageError("no token is given: give texts (--token, --file) or ids (--ids)")
    if wanted and found is None:
        raise UsageError(f"a tokenizer is needed to find tokens by their text: {remark}; or give --ids")
    chosen, missing = _by_text(wanted or [], texts, variants=variants)
    chosen += _by_id(wanted_ids or [], texts, min_count)
    if not chosen:
        raise UsageError("; ".join(missing))
    return Chosen(opened, texts, list(dict.fromkeys(chosen)), [*notes, *missing])


def rank(values: Tensor, top: int, least: int) -> list[int]:
    """Return the positions of the largest values, then of the smallest, each group from its extreme; nan has no rank.

    >>> import torch
    >>> rank(torch.tensor([2.0, float("nan"), 5.0, 1.0]), 2, 1)
    [2, 0, 3]
    """
    having = (~values.isnan()).nonzero().flatten()
    rising, falling = (having[values[having].argsort(stable=True, descending=each)] for each in (False, True))
    return list(dict.fromkeys([*falling[:top].tolist(), *rising[:least].tolist()]))


def check_number(number: Any, name: str, most: int | None = None) -> int:
    """Return a whole number of at least one; raises UsageError for anything else, or for more than ``most``."""
    if not isinstance(number, int) or isinstance(number, bool) or number < 1 or (most and number > most):
        range_ = f"from 1 to {most:,}" if most else "of 1 or more"
        raise UsageError(f"{name} must be a whole number {range_}, got {number!r:.40}")
    return number


def _classes(opened: Store | EmbeddingStatistics, min_count: int) -> Tensor:
    """Return the ids of the classes that are kept."""
    if isinstance(opened, EmbeddingStatistics):
        return opened.keep(min_count).classes
    train = opened.tensors("train")
    return train["classes"][train["counts"] >= min_count]


def _by_text(wanted: Sequence[str], texts: TokenTexts, *, variants: bool) -> tuple[list[int], list[str]]:
    """Return the classes of some texts, and a message for each text that is not a class."""
    chosen: list[int] = []
    unknown: list[str] = []
    for each in wanted:
        found = texts.find(each)
        if not found:
            unknown.append(each)
        chosen += found + (texts.find(variant(each)) if variants else [])
    missing = [texts.explain(each) for each in unknown[:_MOST_EXPLAINED]]
    if more := unknown[_MOST_EXPLAINED:]:
        missing.append(f"{counted(len(more), 'more text')} that are no class: {', '.join(map(quoted, more))}")
    return chosen, missing


def _checked_ids(ids: Iterable[int]) -> list[int]:
    if not isinstance(ids, Iterable):
        raise UsageError(f"ids must be a list of token ids, got {ids!r:.40}")
    listed = list(ids)
    for each in listed:
        if not isinstance(each, Integral) or isinstance(each, bool):
            raise UsageError(f"token ids must be whole numbers, got {each!r:.40}")
    return [int(each) for each in listed]


def _by_id(ids: Sequence[int], texts: TokenTexts, min_count: int) -> list[int]:
    there = set(texts.classes)
    absent = [each for each in ids if each not in there]
    if not absent:
        return list(ids)
    shown = ", ".join(f"{each} ({texts.shown(each)})" if texts.text(each) else str(each) for each in absent[:10])
    fewer = f", or one with fewer than {min_count:,} samples" if min_count > 1 else ""
    ids_there = f"its {counted(len(there), 'class')} have ids from {min(there):,} to {max(there):,}" if there else ""
    raise UsageError(
        f"{shown}{', …' if len(absent) > 10 else ''}: not a class of this store, because no such token follows another "
        f"in the training text{fewer}; {ids_there or 'it has no class'}"
    )
