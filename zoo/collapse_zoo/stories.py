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

_WORDS: dict[str, list[str]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_BLANKS = [each.split() for each in _WORDS["blanks"]]
"""Blanks that are filled anew in each sentence, in the order of drawing: name of the blank, and its list of words."""

_WEIGHTS = list(accumulate(1 / k for k in range(1, 200)))

END = "<|endoftext|>"


def stories(n: int, seed: int = 0) -> Iterator[str]:
    """Generate n stories; the same seed gives the same stories.

    >>> next(stories(1, seed=1)) == next(stories(1, seed=1))
    True
    """
    draw = Random(seed)
    for _ in range(n):
        yield _story(draw)


def write_stories(path: Path, n: int, seed: int = 0) -> None:
    """Write n stories as JSON lines of ``{"text": …}``, atomically."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8") as file:
        for story in stories(n, seed):
            file.write(json.dumps({"text": story}) + "\n")


def train_tokenizer(texts: Iterable[str], folder: Path, *, vocabulary: int = 2048) -> Any:
    """Train a byte-level BPE tokenizer and save it for ``AutoTokenizer.from_pretrained``.

    Args:
        texts: Texts from which to learn merges.
        folder: Folder for the tokenizer.
        vocabulary: Maximum vocabulary size, including 256 bytes and the end-of-text token.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)
    made.save_pretrained(folder)
    return made


def _story(draw: Random) -> str:
    hero, friend = _word(draw, "names"), _word(draw, "names")
    fixed = {"hero": hero, "friend": friend, "thing": _word(draw, "things"), "animal": _word(draw, "animals")}
    middles = [draw.choice(_WORDS["middles"]) for _ in range(draw.randint(3, 7))]
    plan = [draw.choice(_WORDS["openings"]), *middles]
    plan.append(f"But then something went wrong. {draw.choice(_WORDS['mishaps'])}.")
    plan += [f"{hero} was {_word(draw, 'feelings')}.", f"{draw.choice(_WORDS['helps'])}."]
    plan += draw.sample(_WORDS["ends"], k=draw.randint(1, 3))
    return " ".join(_filled(draw, sentence, fixed) for sentence in plan)


def _filled(draw: Random, sentence: str, fixed: dict[str, str]) -> str:
    """Fill the blanks of a sentence: ``fixed`` words are the same in the whole story, others are drawn."""
    drawn = {blank: _word(draw, words) for blank, words in _BLANKS}
    numbers = {"number": draw.choice(_WORDS["numbers"]), "number2": draw.choice(_WORDS["numbers"]).capitalize()}
    return sentence.format(**fixed, **drawn, **numbers)


def _word(draw: Random, words: str) -> str:
    """Draw a word from a list; the k-th word has weight 1/k."""
    there = _WORDS[words]
    return draw.choices(there, cum_weights=_WEIGHTS[: len(there)])[0]
