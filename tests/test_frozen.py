"""The frozen numbers: measurements, class values, kinds of notes, analyses and figures have not changed.

The inputs and the numbers are in tests/frozen. After a change of definition, which CHANGELOG must name, update them
with ``python tests/frozen/freeze.py``.
"""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent / "frozen"
sys.path.insert(0, str(HERE))

import freeze  # noqa: E402  # a script beside its data

RELATIVE, ROUNDING = 1e-12, 1e-15
LOSS = 1e-7
"""Tolerance for the loss and numbers derived from it: it sums float32 products, which depend on the processor."""


def differences(expected: Any, found: Any, at: str = "") -> Iterator[str]:
    """Yield where two groups of numbers differ."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in expected.keys() | found.keys():
            if key in expected and key in found:
                yield from differences(expected[key], found[key], f"{at}/{key}")
            else:
                yield f"{at}/{key}: {'missing' if key in expected else 'new'}"
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences(*pair, f"{at}/{index}")
    elif isinstance(expected, float) and isinstance(found, float):
        relative = LOSS if any(word in at for word in ("val_loss", "perplexity")) else RELATIVE
        if "equiangularity" in at:  # std / mean of cosines: a mean near 0 enlarges the rounding too
            relative *= max(1.0, abs(expected))
        if not math.isclose(expected, found, rel_tol=relative, abs_tol=ROUNDING):
            yield f"{at}: {expected!r} is now {found!r}, {abs(found / expected - 1) if expected else found:.1e}"
    elif expected != found:
        yield f"{at}: {expected!r} is now {found!r}"


def check(name: str, found: Any) -> None:
    """Compare the numbers of a group with those written down."""
    expected = json.loads((freeze.EXPECTED / f"{name}.json").read_text())
    found = json.loads(json.dumps(freeze.plain(found)))
    wrong = [f"{name}{each}" for each in differences(expected, found)]
    assert not wrong, "\n".join(wrong[:40])


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return dict(freeze.numbers_of_stores(tmp_path_factory.mktemp("stores")))


@pytest.mark.parametrize("name", sorted({each.stem for each in freeze.EXPECTED.glob("*.json")} - {*freeze.OF_TABLE}))
def test_a_store_has_the_numbers_that_were_frozen(stores, name):
    check(name, stores[name])


@pytest.mark.parametrize("name", freeze.OF_TABLE)
def test_the_published_table_has_the_numbers_that_were_frozen(name):
    check(name, freeze.OF_TABLE[name]())
