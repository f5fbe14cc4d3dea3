"""What figures of stores share: names of stores, and a limit on the points that a specification holds."""

from collections.abc import Sequence

from collapse import Part, Store
from collapse.errors import shortened

MOST = 2_000
"""Points of a figure, at most about: a specification is read by browsers and editors."""


_LONGEST = 60  # characters of a name


def names_of(stores: Sequence[Store | Part]) -> list[str]:
    """Return a different name for each store: its model, with the text or the digest where models share a name.

    Long names are cut in the middle, for captions and legends.
    """
    models = [shortened(each.model, _LONGEST) for each in stores]
    texts = [shortened(each.corpus, _LONGEST) for each in stores]
    for made in (
        [model or str(each) for model, each in zip(models, stores, strict=True)],
        [f"{model} on {text}" for model, text in zip(models, texts, strict=True)],
        [f"{model} ({each.digest[:8]})" for model, each in zip(models, stores, strict=True)],
    ):
        if len(set(made)) == len(stores):
            return made
    return [f"{index + 1}: {model}" for index, model in enumerate(models)]
