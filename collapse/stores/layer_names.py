"""Names of layers, numbered as in ``hidden_states`` of transformers.

Layers 0 to L − 1 are the inputs of the model's L blocks. ``top`` is layer L, the input of the output embedding.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from collapse.errors import UsageError

TOP = "top"
FOLDER = re.compile(rf"{TOP}|\d+")
"""Matches the name of a layer's folder in a store."""
FORM = re.compile(rf"all|every:[1-9]\d*|(-?\d+|{TOP})(,(-?\d+|{TOP}))*")
"""Matches a valid value of ``--layers``."""

V = TypeVar("V")


def layers_of(asked: Any, n_layers: int | None) -> list[str]:
    """Return the layers that ``--layers`` names, in order of depth; top is always one of them.

    ``n_layers`` is L, the number of the model's blocks, or None if it is unknown.

    Raises:
        UsageError: There is no such layer, or ``n_layers`` is None and other layers than ``top`` are named.

    >>> layers_of("all", 3), layers_of("every:2", 5), layers_of("-2,0", 4), layers_of(None, None)
    (['0', '1', '2', 'top'], ['0', '2', '4', 'top'], ['0', '3', 'top'], ['top'])
    """
    if asked in (None, TOP):
        return [TOP]
    if n_layers is None:
        raise UsageError(f"--layers {asked}: the number of layers is unknown, so only {TOP} works; remove --layers")
    if asked == "all" or asked.startswith("every:"):
        found = {*range(0, n_layers, 1 if asked == "all" else int(asked.removeprefix("every:")))}
    else:
        numbers = [n_layers if word == TOP else int(word) for word in asked.split(",")]
        if wrong := [each for each in numbers if not -n_layers - 1 <= each <= n_layers]:
            raise UsageError(
                f"--layers {wrong[0]}: there is no such layer; give 0 to {n_layers} or, from the end, -1 to "
                f"{-n_layers - 1} ({n_layers} and -1 mean {TOP})"
            )
        found = {each % (n_layers + 1) for each in numbers}
    return [*map(str, sorted(found - {n_layers})), TOP]


def by_depth(layers: Iterable[str]) -> list[str]:
    """Return distinct layers in order of depth.

    >>> by_depth(["top", "10", "9", "9"])
    ['9', '10', 'top']
    """
    return sorted({*layers}, key=lambda layer: (layer == TOP, int(layer) if layer != TOP else 0))


def joined_states(states: Mapping[str, Mapping[str, V]]) -> dict[str, V]:
    """Join the states of layers: tensors of ``top`` keep their names, and those of layer 4 get the prefix ``4/``.

    >>> joined_states({"4": {"counts": 1}, "top": {"counts": 2}})
    {'4/counts': 1, 'counts': 2}
    """
    return {
        name if layer == TOP else f"{layer}/{name}": each
        for layer, state in states.items()
        for name, each in state.items()
    }


def state_of(layer: str, state: Mapping[str, V]) -> dict[str, V]:
    """Return one layer's state from the result of :func:`joined_states`.

    A prefix is a number. No statistic is named by a number, so a prefix is not confused with a name.

    >>> state_of("top", {"4/counts": 1, "seen/total": 2}), state_of("4", {"4/counts": 1, "counts": 2})
    ({'seen/total': 2}, {'counts': 1})
    """
    if layer == TOP:
        return {name: each for name, each in state.items() if not name.partition("/")[0].isdecimal()}
    return {name.removeprefix(f"{layer}/"): each for name, each in state.items() if name.startswith(f"{layer}/")}
