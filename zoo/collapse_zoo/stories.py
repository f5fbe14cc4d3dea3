"""A seeded generator of children's stories and a small tokenizer, for training and measuring offline.

A story has a hero, a friend, a place, a thing and a wish; something goes wrong, somebody helps, and there is a small
lesson. Words are drawn with Zipf-like weights, so that a few tokens are frequent and many are rare, as in real text.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from collapse.stores.writing import replacing

_Lists = dict[str, list[str]]
_WORDS: _Lists = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_BLANKS = [each.split() for each in _WORDS["blanks"]]
"""Blanks whose words are drawn again for each sentence: pairs of the blank's name and the name of its list of words."""

_WEIGHTS = list(accumulate(1 / k for k in range(1, 200)))

END = "<|endoftext|>"


def stories(n: int, seed: int = 0, words: int | None = None) -> Iterator[str]:
    """Generate n stories; the same seed gives the same stories.

    Stories are made from lists: names, things, feelings, sentences with blanks, and others. ``words`` is the number of
    entries that are used of each list; None means all. With few entries, the vocabulary is small, and the next word is
    often certain.

    >>> next(stories(1, seed=1)) == next(stories(1, seed=1))
    True
    """
    draw, lists = Random(seed), {name: there[:words] for name, there in _WORDS.items()}
    for _ in range(n):
        yield _story(draw, lists)


def write_stories(path: Path, n: int, seed: int = 0, words: int | None = None) -> None:
    """Write n stories as JSON lines of ``{"text": …}``, atomically; the arguments are those of :func:`stories`."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        for story in stories(n, seed, words):
            file.write(json.dumps({"text": story}) + "\n")


def train_tokenizer(texts: Iterable[str], folder: Path, *, vocabulary: int = 2048) -> Any:
    """Train a byte-level BPE tokenizer and save it for ``AutoTokenizer.from_pretrained``.

    Args:
        texts: Texts from which to learn merges.
        folder: Folder for the tokenizer.
        vocabulary: Maximum vocabulary size, including the end-of-text token and 256 bytes. If it is below 257, only the
            bytes that occur in the texts are included.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if vocabulary > 256 else [],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)
    made.save_pretrained(folder)
    return made


def _story(draw: Random, lists: _Lists) -> str:
    hero, friend = _word(draw, lists["names"]), _word(draw, lists["names"])
    fixed = {"hero": hero, "friend": friend, "thing": _word(draw, lists["things"])}
    fixed["animal"] = _word(draw, lists["animals"])
    middles = [draw.choice(lists["middles"]) for _ in range(draw.randint(3, 7))]
    plan = [draw.choice(lists["openings"]), *middles]
    plan.append(f"But then something went wrong. {draw.choice(lists['mishaps'])}.")
    plan += [f"{hero} was {_word(draw, lists['feelings'])}.", f"{draw.choice(lists['helps'])}."]
    plan += draw.sample(lists["ends"], k=draw.randint(1, min(3, len(lists["ends"]))))
    return " ".join(_filled(draw, sentence, fixed, lists) for sentence in plan)


def _filled(draw: Random, sentence: str, fixed: dict[str, str], lists: _Lists) -> str:
    """Fill the blanks of a sentence: some with the words that are ``fixed`` for the story, others with drawn words."""
    drawn = {blank: _word(draw, lists[words]) for blank, words in _BLANKS}
    numbers = {"number": draw.choice(lists["numbers"]), "number2": draw.choice(lists["numbers"]).capitalize()}
    return sentence.format(**fixed, **drawn, **numbers)


def _word(draw: Random, there: list[str]) -> str:
    """Draw a word from a list; the k-th word has weight 1/k."""
    return draw.choices(there, cum_weights=_WEIGHTS[: len(there)])[0]
