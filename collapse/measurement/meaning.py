"""Say in a word what the difference of two models means for each measurement, and add caveats and notes."""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from collapse.errors import counted
from collapse.measurement.columns import Column, direction, one_width
from collapse.measurement.part_errors import Error
from collapse.measurement.results import Row
from collapse.measurement.row_tables import remarks_by_text
from collapse.plugin.plugin_manager import plugins

Errors = Mapping[str, Mapping[str, Error]]
"""The errors that B − A is compared with: for each yardstick (NOISE or SEEDS), an error for each measurement.

For NOISE, an error is the standard error of B − A. For SEEDS, it is the standard deviation over seeds.
"""
NOISE, SEEDS = "noise", "seed noise"
_YARDSTICKS = {NOISE: (1.0, "|t| ≤ {:.1f}"), SEEDS: (math.sqrt(2), "|B−A| ≤ {:.1f} seeds' sd")}
"""For each yardstick, the factor from its errors to standard errors of B − A, and the text for its limit in notes."""

_SAID = {
    "better": "better, worse: beyond noise; better is nearer to full collapse, or less loss",
    "rounding": "rounding: B−A is less than a millionth of A or B",
    "unknown": "unknown: no standard error; use --parts or --seeds",
}
_SAID["worse"] = _SAID["better"]
_SAID["higher"] = _SAID["lower"] = "higher, lower: neither is better, or it is unknown (units differ between widths)"
_ROUNDING = 1e-6  # losses are exact to a millionth, and embeddings have 24 bits


def meaning_of(name: str, rows: Sequence[Row], yardsticks: Errors, different: Container[str]) -> str | None:
    """Return a word that says whether B is better, worse, higher or lower than A, or why this is not known.

    A yardstick ("noise" or "seed noise") has an error for each measurement. If the difference is within the limit that
    :func:`_limit` gives for this error, the word is the yardstick's name. Return None for a measurement of the
    validation text if the tokenizers differ. ``rows`` are those of A and B, and have a number for the measurement.
    ``different`` has the fields in which A and B differ.
    """
    import pandas as pd

    a, b = values = np.array([row.measurements[name] for row in rows], dtype=np.float64)
    if "tokenizer" in different and "validation" in _needs(name):
        return None
    if a == b:
        return "equal"
    if _needs(name) != {"n_params"}:
        if abs(b - a) <= _ROUNDING * abs(values).max():
            return "rounding"
        for word, errors in yardsticks.items():
            if name in errors and abs(b - a) <= _limit(word, errors[name][1]) * errors[name][0]:
                return word
        if not any(name in errors for errors in yardsticks.values()):
            return "unknown"
    frame = pd.DataFrame({"classes": [row.classes for row in rows], "dim": [row.dim for row in rows]})
    lower = direction(Column(name, name, (name,), values), frame, one_width(frame))
    return ("higher" if b > a else "lower") if lower is None else "worse" if lower * (b - a) > 0 else "better"


def _limit(word: str, degrees: int) -> float:
    """Return f: |B − A| exceeds f times the error of the yardstick ``word`` by chance in 5 % of comparisons.

    ``degrees`` is the number of degrees of freedom of this error.
    """
    from scipy.special import stdtrit

    return _YARDSTICKS[word][0] * float(stdtrit(degrees, 0.975))


def caveats_of(rows: Sequence[Row], names: Iterable[str], different: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the caveats of each measurement. A caveat on only one model begins with A or B.

    ``different`` has the values of each field in which A and B differ.
    """
    remarks, caveats = [remarks_by_text(row, row.measurements, errors=True) for row in rows], {}
    for name in names:
        said: dict[str, str] = {}
        for side, by_text in zip("AB", remarks, strict=True):
            for text, of in by_text.items():
                if name in of or ("*" in of and "validation" in _needs(name)):
                    said[text] = said.get(text, "") + side
        caveats[name] = [text if sides == "AB" else f"{sides}: {text}" for text, sides in said.items()]
        for field, values in different.items() if _needs(name) != {"n_params"} else ():
            if "validation" not in field or "validation" in _needs(name):
                caveats[name].append(f"A and B differ in {values}")
    return caveats


def _needs(name: str) -> set[str]:
    return {*plugins().measurements()[name][0].needs}


def notes_on(records: Sequence[Mapping[str, Any]], marks: Sequence[str], yardsticks: Errors) -> list[str]:
    """Return the notes below a comparison.

    ``records`` are the rows of the comparison. The notes are the numbered caveats (``marks``), the largest differences
    that the errors in ``yardsticks`` explain, how many of the 95 % intervals of B − A would exclude 0 by chance, and
    the definitions of the words in the column ``meaning``.
    """
    notes = [f"[{at}] {text}" for at, text in enumerate(marks, 1)]
    compared = [each["measurement"] for each in records if each["meaning"]]
    used = [(word, *errors[name][1:]) for word, errors in yardsticks.items() for name in compared if name in errors]
    for word, degrees, how in dict.fromkeys(used):
        notes.append(f"{how}; {word}: {_YARDSTICKS[word][1].format(_limit(word, degrees))}")
    if used:
        by_chance = f"about {len(used) / 20:.2g} would exclude 0 by chance"
        notes.append(f"{counted(len(used), 'interval')} at 95 %, uncorrected: {by_chance}")
    return notes + sorted({_SAID[each["meaning"]] for each in records if each["meaning"] in _SAID})
