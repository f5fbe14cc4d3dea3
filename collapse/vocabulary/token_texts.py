"""Decode token ids to texts, find classes by their text, and explain why a text is not a class."""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from collapse.core.escaping import visible

_NOT_A_CHARACTER = "\ufffd"
_SENTENCEPIECE_SPACE = "▁"


def quoted(text: str) -> str:
    r"""Return a token's text for printing: in quotes, to show spaces, and with visible control characters.

    >>> print(quoted(" Tim"), quoted("\n"))
    " Tim" "\n"
    """
    return f'"{visible(text)}"'


def variant(text: str) -> str:
    """Remove a text's leading space, or add one if it has none.

    >>> variant(" Tim"), variant("Tim")
    ('Tim', ' Tim')
    """
    return text[1:] if text.startswith(" ") else f" {text}"


class TokenTexts:
    """The texts of a store's classes.

    Args:
        tokenizer: A tokenizer of transformers; for a classifier, the list of its classes' names; None for ids without
            texts.
        classes: Token ids of the classes.
    """

    def __init__(self, tokenizer: Any, classes: Iterable[int]) -> None:
        self.tokenizer = tokenizer
        self.classes = list(classes)
        self._known: dict[int, str | None] = {}

    def text(self, token: int) -> str | None:
        """Return a token's text; None if the token cannot be decoded.

        The text starts with a space if the token has this space inside a sentence. For a byte-level token that is not a
        whole character, return its entry in the vocabulary.
        """
        if token not in self._known:
            self._known[token] = None if self.tokenizer is None else self._decoded(token)
        return self._known[token]

    def shown(self, token: int) -> str:
        """Return a token's quoted text, or its id if it has none."""
        text = self.text(token)
        return f"token {token}" if text is None else quoted(text)

    def _decoded(self, token: int) -> str | None:
        if isinstance(self.tokenizer, list):
            return str(self.tokenizer[token])
        try:
            piece = self.tokenizer.convert_ids_to_tokens(token)
            text = str(self.tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False))
        except (OverflowError, IndexError, KeyError, TypeError, ValueError):  # the id is of another vocabulary
            return None
        if piece in (None, "") or _NOT_A_CHARACTER in text:
            return str(piece) if piece else None
        # some tokenizers drop the space before a word when they decode a single token
        return f" {text}" if str(piece).startswith(_SENTENCEPIECE_SPACE) and not text.startswith(" ") else text

    @cached_property
    def _by_text(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for token in self.classes:
            text = self.text(token)
            if text is not None:
                found.setdefault(text, []).append(token)
        return found

    def find(self, text: str) -> list[int]:
        """Return the classes with exactly this text; usually one or none."""
        return self._by_text.get(text, [])

    def explain(self, text: str) -> str:
        """Explain why a text is not a class, and name similar classes."""
        named = isinstance(self.tokenizer, list)
        pieces = [] if named else self.tokenizer.encode(text, add_special_tokens=False)
        if len(pieces) == 1 and self.text(pieces[0]) == text:
            said = f"{quoted(text)} is token {pieces[0]}, which is not a class of this store"
        elif pieces:  # a single piece can have another text, because some tokenizers add a space before the first word
            shown = " + ".join(f"{self.shown(each)} ({each})" for each in pieces)
            some = "encoded as another text" if len(pieces) == 1 else f"{len(pieces)} tokens"
            said = f"{quoted(text)} is {some}, {shown}"
        else:
            said = f"{quoted(text)} is not a token"
        near = self.near(text)
        return f"{said}; similar classes: {', '.join(map(quoted, near))}" if near else said

    def near(self, text: str) -> list[str]:
        """Return up to three similar texts of classes; texts that differ only in case and spaces come first."""
        plain = text.strip().casefold()
        same = [each for each in self._by_text if plain and each.strip().casefold() == plain]
        return list(dict.fromkeys([*same, *get_close_matches(text, list(self._by_text), n=3)]))[:3]
