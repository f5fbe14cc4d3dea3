"""The data for training a model: a training text, a validation text and a tokenizer, packed as in a collection."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapse.core.paths import home
from collapse.core.progress import Report
from collapse.errors import CollapseError, UsageError
from collapse.hub.corpus import Corpus
from collapse.hub.references import ModelReference, find_tokenizer
from collapse.inputs.accepted_options import accepts
from collapse.inputs.chunk_files import Chunks
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.model_loading import load_tokenizer
from collapse.inputs.packing import pack
from collapse.inputs.text_pair import Texts, find_texts
from collapse.stores.files import sha256_of
from collapse.stores.lock import locked
from collapse_zoo.recipes import DATA_SET, TOKENIZER, Name, Recipe
from collapse_zoo.stories import stories, train_tokenizer, write_stories

STORIES = 10_000
"""Default number of generated stories: 1.4 million tokens."""

_TOKENIZER_STORIES, _VOCABULARY = 2_000, 2_048
_CUT = ("shards", "eos_between", "max_chunks", "max_validation_chunks")


@dataclass(frozen=True)
class Source:
    """Texts and a tokenizer.

    Attributes:
        texts: The training text, and a validation text if there is one.
        reference: Reference to the tokenizer.
        tokenizer: The loaded tokenizer.
        label: The part of a model's name before its size, such as TinyStories.
        spec: Options of a collection. Packing uses those that say how to tokenize the texts and cut them into chunks.
    """

    texts: Texts
    reference: ModelReference
    tokenizer: Any
    label: str
    spec: CollectionSpec

    @property
    def corpus(self) -> Corpus:
        """The training text."""
        assert self.texts.training is not None  # find_source() finds it
        return self.texts.training

    @property
    def tokenizer_name(self) -> str:
        """A name of the tokenizer that is valid in any folder on this machine."""
        location = self.reference.location
        return str(Path(location).absolute()) if self.reference.is_local else f"{location}@{self.reference.revision}"

    def recipe(self, name: Name, **values: Any) -> Recipe:
        """Return the recipe for a name, with the tokenizer's vocabulary size; ``values`` override its values."""
        return name.changed(**{"vocabulary": len(self.tokenizer)} | values).recipe

    def identity(self) -> dict[str, Any]:
        """Return the identity of the texts and of the tokenizer, and how the texts are cut into chunks."""
        texts = {"corpus": self.corpus, "validation": self.texts.validation}
        of_texts = {name: text.identity() if text else None for name, text in texts.items()}
        cut = {name: getattr(self.spec, name) for name in _CUT}
        cut |= {} if self.spec.special_tokens else {"special_tokens": False}
        return {**of_texts, "tokenizer": self.reference.tokenizer, **cut}

    def chunks(self, chunk_length: int, progress: Report | None = None) -> Chunks:
        """Pack the training text; raises the exceptions of :func:`collapse.inputs.packing.pack`."""
        return self._pack(self.corpus, self.spec, chunk_length, progress)

    def validation_chunks(self, chunk_length: int, progress: Report | None = None) -> Chunks | None:
        """Pack the validation text; return None if there is none, or if the data set has no such split."""
        return self.texts.pack_validation(
            lambda corpus: self._pack(corpus, self.spec.of_validation, chunk_length, progress)
        )

    def collecting(self, chunk_length: int) -> dict[str, Any]:
        """Return keyword arguments of :func:`collapse.collect` for the same texts, cut in the same way."""
        corpus, validation = self.corpus, self.texts.validation
        options = {name: getattr(self.spec, name) for name in (*_CUT, "special_tokens")}
        options["chunk_length"] = chunk_length
        options |= {"text": _again(corpus), "split": corpus.split, "text_column": corpus.column}
        if validation is not None and not self.texts.may_be_absent:  # collect() finds an unnamed split itself
            options |= {"validation_text": _again(validation), "validation_split": validation.split}
        return {name: value for name, value in options.items() if value is not None}

    def _pack(self, corpus: Corpus, spec: CollectionSpec, chunk_length: int, progress: Report | None) -> Chunks:
        spec, key = replace(spec, chunk_length=chunk_length), self.reference.tokenizer
        return pack(corpus, self.tokenizer, spec, tokenizer_key=key, progress=progress)


@accepts()
def find_source(
    *, generated: int | None = None, words: int | None = None, vocabulary: int | None = None, **options: Any
) -> Source:
    """Find the texts and tokenizer to train on.

    Args:
        generated: Number of generated stories to use instead of a text; nothing is downloaded.
        words: Number of entries that generated stories use of each list of words or sentences; None for all entries.
        vocabulary: Maximum number of tokens of generated stories' tokenizer. None and numbers above 2,048 mean 2,048.
        {options}

    The default text is roneneldan/TinyStories. The default tokenizer is EleutherAI/gpt-neo-125M; generated stories have
    their own tokenizer.

    Raises:
        CollapseError: A text or the tokenizer is not available; the message says what to do.
    """
    spec = CollectionSpec(**options)
    if generated is not None:
        tokens = min(vocabulary or _VOCABULARY, _VOCABULARY)
        train, validation, tokenizer = map(str, _generate(generated, words, tokens))
        spec = replace(spec, text=train, validation_text=validation, tokenizer=spec.tokenizer or tokenizer)
    try:
        texts = find_texts(replace(spec, text=spec.text or DATA_SET))
        reference = find_tokenizer(spec.tokenizer or TOKENIZER)
        loaded = load_tokenizer(reference)
    except CollapseError as error:
        if isinstance(error, UsageError) or (spec.text and spec.tokenizer):
            raise
        raise type(error)(
            f"{error}. The zoo also needs a tokenizer: hf download {TOKENIZER}; or give --text FILES and --tokenizer "
            "DIR, or --generated to train offline on generated stories"
        ) from error
    assert texts.training is not None
    spec = texts.fitted(spec)
    return Source(texts, reference, loaded, "stories" if generated is not None else _label(texts.training), spec)


def _generate(n: int, words: int | None, vocabulary: int) -> tuple[Path, Path, Path]:
    """Generate training stories, validation stories and a tokenizer in the cache; equal arguments give equal files.

    Tables show the names of the files, so the names describe the texts.
    """
    about = {"stories": n, "tokenizer_stories": _TOKENIZER_STORIES, "vocabulary": vocabulary, "words": words}
    folder = home() / "stories" / sha256_of(about)[:16]
    others = max(n // 20, 100)
    train, validation = folder / f"generated-{n}-stories.jsonl", folder / f"generated-{others}-other-stories.jsonl"
    tokenizer, done = folder / "tokenizer", folder / "complete"
    with locked(folder, wait=True):
        if not done.is_file():
            write_stories(train, n, 1, words)
            write_stories(validation, others, 2, words)
            train_tokenizer(stories(_TOKENIZER_STORIES, 1, words), tokenizer, vocabulary=vocabulary)
            done.touch()
    return train, validation, tokenizer


def _label(corpus: Corpus) -> str:
    """Return the label of a text in the names of runs: the name of the data set or file.

    For several files, or for a file such as train.jsonl, the label is the name of the folder.
    """
    if corpus.split:
        return corpus.name.split("/")[-1].replace(":", ".")
    file = Path(f"{corpus.packed.files.name}/{corpus.name}" if corpus.packed else corpus.files[0]).resolve()
    alone = len(corpus.files) == 1 and not re.match(r"train(ing)?\b", file.stem, re.IGNORECASE)
    name = file.stem if alone else file.parent.name
    return re.sub(r"[^A-Za-z0-9.]+", ".", name).strip(".")


def _again(corpus: Corpus) -> str | list[str]:
    """Return a name of the corpus that find_corpus() understands in any folder on this machine."""
    if corpus.packed:
        name = corpus.packed.name
        return str(Path(name).absolute()) if Path(name).is_dir() else name
    if corpus.files:
        return [str(Path(file).absolute()) for file in corpus.files]
    return f"{corpus.name}@{corpus.revision}"
