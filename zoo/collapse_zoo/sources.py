"""What a model is trained on: a training and a validation text and a tokenizer, packed as collection packs them."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collapse.errors import CollapseError, UsageError
from collapse.files import home, sha256_of
from collapse.lock import locked
from collapse.models import load_tokenizer
from collapse.packing import Chunks, pack
from collapse.references import ModelReference, find_tokenizer
from collapse.reporting import Report
from collapse.spec import CollectionSpec, accepts
from collapse.text import Corpus
from collapse.texts import Texts, find_texts
from collapse_zoo.names import CORPUS
from collapse_zoo.stories import stories, write_stories
from collapse_zoo.tokenizing import train_tokenizer

DATA_SET = "roneneldan/TinyStories"
TOKENIZER = "EleutherAI/gpt-neo-125M"
STORIES = 10_000
"""Generated stories, by default: 1.4 million tokens."""

_TOKENIZER_STORIES, _VOCABULARY = 2_000, 2_048
_PATIENCE_SECONDS = 600.0  # for another process that writes the same stories


@dataclass(frozen=True)
class Source:
    """Texts and a tokenizer, found.

    Attributes:
        texts: The training text, and a validation text if there is one.
        reference: Which tokenizer.
        tokenizer: The tokenizer itself.
        label: What stands before the size in a model's name: TinyStories.
        spec: How the text is cut, as a collection would: shards, eos_between, max_chunks.
    """

    texts: Texts
    reference: ModelReference
    tokenizer: Any
    label: str
    spec: CollectionSpec

    @property
    def corpus(self) -> Corpus:
        """The training text."""
        assert self.texts.training is not None  # find_source found it
        return self.texts.training

    @property
    def validation(self) -> Corpus | None:
        """The validation text, or None."""
        return self.texts.validation

    def identity(self) -> dict[str, Any]:
        """What makes it this text, cut this way."""
        return {
            "corpus": self.corpus.identity(),
            "validation": self.validation.identity() if self.validation else None,
            "tokenizer": self.reference.tokenizer,
            **self._cut(),
        }

    def chunks(self, chunk_length: int, progress: Report | None = None) -> Chunks:
        """The training text, packed; raises as :func:`collapse.packing.pack`."""
        return self._pack(self.corpus, chunk_length, progress)

    def validation_chunks(self, chunk_length: int, progress: Report | None = None) -> Chunks | None:
        """The validation text, packed; None where there is none, or its data set has no such split."""
        return self.texts.pack_validation(lambda corpus: self._pack(corpus, chunk_length, progress))

    def collecting(self) -> dict[str, Any]:
        """Keyword arguments of :func:`collapse.collect` that collect on the same texts, cut the same way."""
        validation: dict[str, Any] = {}
        if self.validation is not None and not self.texts.optional:  # an optional split may be absent there, too
            validation["validation_text"] = _again(self.validation)
            if self.validation.split:
                validation["validation_split"] = self.validation.split
        split = {"split": self.corpus.split} if self.corpus.split else {}
        return self._cut() | validation | split | {"text": _again(self.corpus), "text_column": self.corpus.column}

    def _cut(self) -> dict[str, Any]:
        return {name: getattr(self.spec, name) for name in ("shards", "eos_between", "max_chunks")}

    def _pack(self, corpus: Corpus, chunk_length: int, progress: Report | None) -> Chunks:
        spec = replace(self.spec, chunk_length=chunk_length)
        hashed = self.reference.tokenizer
        return pack(corpus, self.tokenizer, spec, tokenizer_hash=hashed, cache=home(), progress=progress)


@accepts(CollectionSpec)
def find_source(*, generated: int | None = None, **options: Any) -> Source:
    """Find what to train on.

    Args:
        generated: So many generated stories in place of a text; nothing is downloaded.
        {options}

    Without a text this is roneneldan/TinyStories; without a tokenizer that of EleutherAI/gpt-neo-125M, or the generated
    stories' own.

    Raises:
        CollapseError: Something is not there; the message says how to get it, or how to do without.
    """
    if generated is not None:
        folder = _generate(generated)
        options |= {"text": str(folder / "train.jsonl"), "validation_text": str(folder / "validation.jsonl")}
        options["tokenizer"] = options.get("tokenizer") or str(folder / "tokenizer")
    spec = CollectionSpec(**options)
    try:
        texts = find_texts(spec, lambda: DATA_SET)
        reference = find_tokenizer(spec.tokenizer or TOKENIZER)
        loaded = load_tokenizer(reference)
    except UsageError:
        raise
    except CollapseError as error:
        end = "" if str(error).endswith("?") else "."
        raise type(error)(f"{error}{end} {_advice(spec.text, spec.tokenizer)}") from error
    assert texts.training is not None
    label = "stories" if generated is not None else _label(texts.training)
    return Source(texts, reference, loaded, label, spec)


def _generate(n: int) -> Path:
    """Generated stories with their tokenizer, in the cache; the same number gives the same."""
    about = {"stories": n, "tokenizer_stories": _TOKENIZER_STORIES, "vocabulary": _VOCABULARY, "format": 1}
    folder = home() / "stories" / sha256_of(about)[:16]
    done = folder / "done"
    if not done.is_file():
        with locked(folder, option="COLLAPSE_HOME", patience=_PATIENCE_SECONDS):
            if not done.is_file():  # another process may have written them just now
                write_stories(folder / "train.jsonl", n, seed=1)
                write_stories(folder / "validation.jsonl", max(n // 20, 100), seed=2)
                train_tokenizer(stories(_TOKENIZER_STORIES, seed=1), folder / "tokenizer", vocabulary=_VOCABULARY)
                done.touch()
    return folder


def _advice(text: Any, tokenizer: Any) -> str:
    missing = []
    if text is None:
        missing.append(f"the text with: hf download {DATA_SET} --repo-type dataset")
    if tokenizer is None:
        missing.append(f"the tokenizer with: hf download {TOKENIZER}")
    if not missing:
        return "Or train on generated stories, offline: --generated"
    return (
        f"Where there is a network, get {' and '.join(missing)}; or give your own with --text FILES and "
        "--tokenizer DIR; or train on generated stories, offline: --generated"
    )


def _label(corpus: Corpus) -> str:
    if corpus.source == "hub":
        return corpus.name.split("/")[-1]
    name = Path(corpus.files[0]).resolve().parent.name
    return re.sub(r"[^A-Za-z0-9.]+", ".", name).strip(".") or CORPUS


def _again(corpus: Corpus) -> str | list[str]:
    """What names the corpus to find_corpus."""
    return list(corpus.files) if corpus.source == "files" else f"{corpus.name}@{corpus.revision}"
