"""Checks of the keywords with which a metric is declared. Does not import torch."""

import math
from collections.abc import Iterable
from types import NoneType
from typing import Any

from collapse.errors import PluginError, near_names

_TYPES: dict[str, tuple[type, ...]] = {"version": (int,), "scale": (int, float, NoneType), "translation": (bool,)}
_OF_ONE_NUMBER = ("vector", "influence", "better")
_OF_A_MEASURE = ("towards", "reachable", "reached_by", "headline", "times")
_OVER = {
    "class": ("all", "directions", "dual_directions"),
    "pair": ("all", "distinct", "directions", "distinct_directions", "distinct_uncentred_directions"),
}


def check_keywords(kind: str, needs: Any, about: dict[str, Any]) -> None:
    """Refuse keywords of a decorator that do not exist, or values of another type.

    Args:
        kind: "scalar", "class" or "pair".
        needs: The declared needs, or None.
        about: The other keywords, but those of measures.

    Raises:
        PluginError: The message names the keyword.
    """
    own = _OF_ONE_NUMBER if kind == "scalar" else ("over",)
    for keyword in sorted(about.keys() - {*_TYPES, *own}):
        if kind != "scalar" and keyword in _OF_A_MEASURE:
            raise PluginError(f"{keyword}= belongs to a measure, such as Mean(name, {keyword}=…)")
        known = {*_TYPES, *own, "needs", *(_OF_A_MEASURE[:-1] if kind == "scalar" else ())}
        raise PluginError(f"it has no keyword {keyword}=; {near_names(keyword, known)}")
    listed = [] if needs is None else needs
    if isinstance(listed, str) or not isinstance(listed, Iterable) or not all(isinstance(each, str) for each in listed):
        raise PluginError(f"needs={needs!r:.60}: give a list of names, such as ['means']")
    _check_choice(about, "better", ("lower", "higher", None))
    if not callable(about.get("over")):
        _check_choice(about, "over", _OVER.get(kind, ()))
    for keyword, types in _TYPES.items():
        if keyword in about and type(about[keyword]) not in types:
            raise PluginError(f"{keyword}={about[keyword]!r:.40}: give {' or '.join(each.__name__ for each in types)}")
    if about.get("scale") is not None and not math.isfinite(about["scale"]):
        raise PluginError(f"scale={about['scale']!r}: give a finite number or None")
    if about.get("version", 1) < 1:
        raise PluginError(f"version={about['version']!r}: give a number from 1 on")
    for keyword in ("vector", "influence"):
        if about.get(keyword) is not None and not callable(about[keyword]):
            raise PluginError(f"{keyword}={about[keyword]!r:.40}: give a function of the statistics")


def _check_choice(about: dict[str, Any], keyword: str, allowed: tuple[str | None, ...]) -> None:
    if keyword in about and about[keyword] not in allowed:
        near = near_names(str(about[keyword]), [each for each in allowed if each])
        raise PluginError(f"{keyword}={about[keyword]!r:.40}: there is no such choice; {near}")
