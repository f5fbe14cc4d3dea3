"""Grids of models: the paper's, repeats of one model, or combinations of depths, widths and recipes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from collapse.errors import UsageError, near_names
from collapse_zoo.recipes import Name, parse

DEPTHS = (1, 2, 4, 8, 12)
WIDTHS = (64, 128, 256, 512, 768, 1024)

# The runs of each architecture, and the checkpoints that the paper measured. There is no 03L. Checkpoint @5 is in the
# middle of a run of 10 epochs.
_RUNS = {"01d": (0,), "01L": (0,), "03d": (2,), "10d": (5, 9), "10L": (5, 9)}
_PRODUCT = re.compile(r"(?P<depths>[\d,]+)x(?P<widths>[\d,]+)(?:_(?P<runs>[0-9A-Za-z,]+))?")


@dataclass(frozen=True)
class GridMember:
    """A run of a grid.

    Attributes:
        name: The run's name.
        checkpoints: The checkpoints to measure, as numbers k; checkpoint k is saved after epoch k + 1.
    """

    name: Name
    checkpoints: tuple[int, ...]


def grid(
    text: str, *, vary: str | None = None, seeds: Sequence[int] = (), data_seeds: Sequence[int] = ()
) -> list[GridMember]:
    """Return the members of a grid, in order.

    Args:
        text: ``paper``, ``seeds``, or depths and widths. ``paper`` is 30 architectures x {01d, 01L, 03d, 10d, 10L}.
            ``seeds`` is 02x0768_01d and 20 repeats. Depths and widths, such as ``1,2x64,128``, give a run for each
            combination, and the last checkpoint of each run is measured. Recipes may follow after ``_``, such as
            ``2x768_01d,10L`` (see recipes.py).
        vary: What varies between the repeats of ``seeds``: "data" (the order of the chunks, as in §3.8 of the paper;
            the default), "init" (the initialization, which §1.3 also names) or "both".
        seeds: Seeds of the initialization; each member is repeated with each seed.
        data_seeds: Seeds of the order of the chunks. With ``seeds`` too, each member is repeated with each pair.

    Raises:
        UsageError: There is no such grid, or a member is invalid.

    >>> len(grid("paper")), sum(len(member.checkpoints) for member in grid("paper")), len(grid("seeds"))
    (150, 210, 21)
    >>> [member.name.short for member in grid("1,2x64", data_seeds=[0, 1])]
    ['01x0064_01d00', '01x0064_01d01', '02x0064_01d00', '02x0064_01d01']
    """
    if vary is not None and text != "seeds":
        raise UsageError(
            f"--vary {vary} works only with the grid named seeds, not with {text}: remove it; to vary seeds here, use "
            "--seeds or --data-seeds"
        )
    if text == "paper":
        sizes = product(DEPTHS, WIDTHS, _RUNS.items())
        members = [GridMember(parse(f"{depth}x{width}_{run}"), ks) for depth, width, (run, ks) in sizes]
    elif text == "seeds":
        fields = {"data": ["data_seed"], "init": ["seed"], "both": ["data_seed", "seed"]}[vary or "data"]
        repeats = [parse("2x768").changed(**dict.fromkeys(fields, n)) for n in (None, *range(20))]
        members = [GridMember(name, (0,)) for name in repeats]
    else:
        members = _product(text)
    if seeds:
        members = [replace(each, name=each.name.changed(seed=n)) for each, n in product(members, seeds)]
    if data_seeds:
        members = [replace(each, name=each.name.changed(data_seed=n)) for each, n in product(members, data_seeds)]
    return members


def _product(text: str) -> list[GridMember]:
    match = _PRODUCT.fullmatch(text)
    if not match:
        near = near_names(text, ("paper", "seeds"))
        raise UsageError(
            f"no grid is called {text!r}; {near}. Or give depths x widths (1,2x64,128 for 4 models), with recipes "
            "after _ (2x768_01d,10L for 2 models: 1 epoch with weight decay 0.0005, 10 epochs with 0.1)"
        )
    depths, widths, runs = ((match[part] or "01d").strip(",").split(",") for part in ("depths", "widths", "runs"))
    names = [parse(f"{depth}x{width}_{run}") for depth, width, run in product(depths, widths, runs)]
    return [GridMember(name, (name.recipe.epochs - 1,)) for name in names]
