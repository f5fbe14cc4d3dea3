"""Statistics that declare their tensors: what a declaration may say, and how it is merged."""

from typing import ClassVar

import pytest
import torch

from collapse import State, Statistic, ValidationStatistic
from collapse.errors import PluginError
from collapse.testing import LawBroken, check_statistic

SHAPES = [(), (3,), ("d",), ("C",), ("C", "d"), ("C", 2, "d"), ("d", "d")]


def by_sample(shape: tuple[object, ...], h_d: torch.Tensor) -> torch.Tensor:
    """A number or more of one sample, of a state's shape without its C."""
    values = {"d": h_d, 2: h_d.new_tensor([1, -1]), 3: h_d.new_tensor([1, 2, -3])}
    total = h_d.sum()
    for size in [size for size in shape if size != "C"][::-1]:
        total = torch.tensordot(values[size], total, dims=0)
    return total


@pytest.mark.parametrize("reduction", ["sum", "max", "min"])
@pytest.mark.parametrize("shape", SHAPES)
def test_tensors_of_every_shape_merge_to_the_whole(shape, reduction):
    class Reduced(Statistic):
        """Sums, maxima or minima of numbers of the samples."""

        name = "reduced"
        state: ClassVar = {"values": State(shape, reduction=reduction)}

        def update(self, batch):
            for label in range(len(batch.classes)) if "C" in shape else [...]:
                mine = batch.h if label is ... else batch.h[batch.inverse == label]
                values = torch.stack([by_sample(shape, h_d) for h_d in mine])
                self.values[label] = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}[reduction](values, dim=0)

    check_statistic(Reduced)


@pytest.mark.parametrize("shape", [(), ("d",), ("d", "d")])
def test_products_of_deviations_keep_every_law(shape):
    class Products(Statistic):
        """Sum of the products of deviations from the class means."""

        name = "products"
        state: ClassVar = {"scatter": State(shape, reduction="chan")}

        def update(self, batch):
            both = batch.deviations.T @ batch.deviations
            self.scatter = {0: torch.trace(both), 1: both.diagonal().clone(), 2: both}[len(shape)]

    check_statistic(Products)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"shape": ("d", "C")}, "'C' in the first place"),
        ({"shape": ("n",)}, "give numbers"),
        ({"reduction": "chan", "shape": ("C", "d")}, "with reduction='chan'"),
        ({"reduction": "mean"}, "there is no such reduction"),
    ],
)
def test_what_cannot_be_declared_is_refused(declared, said):
    with pytest.raises(PluginError, match=said):
        State(**declared)


@pytest.mark.parametrize("name", ["classes", "update", "not a name"])
def test_a_tensor_needs_a_name_of_its_own(name):
    with pytest.raises(PluginError, match="give the tensor another name"):
        type("Mine", (Statistic,), {"name": "mine", "state": {name: State()}})


def test_deviations_have_no_means_of_the_validation_text():
    with pytest.raises(PluginError, match="reduction='chan' is for training samples"):
        type("Mine", (ValidationStatistic,), {"name": "mine", "state": {"x": State(("d",), reduction="chan")}})


@pytest.mark.parametrize(
    ("update", "said"),
    [
        (lambda self, batch: setattr(self, "values", batch.h.sum(dim=0).float()), "is declared as .*float64, and is"),
        (lambda self, batch: setattr(self, "values", batch.h.sum()), "is declared as"),
        (lambda self, batch: setattr(self, "values", 3.0), "and is float"),
    ],
)
def test_what_is_filled_is_what_was_declared(update, said):
    kind = type("Mine", (Statistic,), {"name": "mine", "state": {"values": State(("d",))}, "update": update})
    with pytest.raises(LawBroken, match=said):
        check_statistic(kind)
