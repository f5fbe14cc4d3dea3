"""What figures of stores share: names of stores, and a limit on the points that a specification holds."""

from collections.abc import Sequence

from collapse import Store

MOST = 2_000
"""Points of a figure, at most about: a specification is read by browsers and editors."""


def names_of(stores: Sequence[Store]) -> list[str]:
    """Return a different name for each store: its model, with the text or the digest where models share a name."""
    for made in (
        [each.model or str(each) for each in stores],
        [f"{each.model} on {each.corpus}" for each in stores],
        [f"{each.model} ({each.digest[:8]})" for each in stores],
    ):
        if len(set(made)) == len(stores):
            return made
    return [f"{index + 1}: {each.model}" for index, each in enumerate(stores)]
