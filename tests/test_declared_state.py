"""Statistics that declare their tensors: valid declarations, and how they are merged."""

from typing import ClassVar

import pytest
import torch

import collapse
from collapse import State, Statistic, ValidationStatistic, metric
from collapse.errors import PluginError
from collapse.testing import LawBroken, check_statistic


def by_class(batch, reduction):
    """A number of each class and dimension."""
    start = {"sum": 0.0, "amax": -torch.inf, "amin": torch.inf}[reduction]
    held = batch.h.new_full((len(batch.classes), batch.h.shape[1]), start)
    return held.scatter_reduce_(0, batch.inverse[:, None].expand_as(batch.h), batch.h, reduction)


@pytest.mark.parametrize("reduction", ["sum", "max", "min"])
def test_tensors_of_every_shape_merge_to_the_whole(reduction):
    torch_name = {"max": "amax", "min": "amin"}.get(reduction, "sum")
    shapes = {"one": (), "pair": (2,), "each": ("d",), "square": ("d", "d"), "rows": ("C",), "cells": ("C", 2, "d")}

    class Reduced(Statistic):
        """Sums, maxima or minima of numbers of the samples."""

        name = "reduced"
        state: ClassVar = {name: State(shape, reduction=reduction) for name, shape in shapes.items()}

        def update(self, batch):
            self.one = getattr(batch.h, torch_name)()
            self.each = getattr(batch.h, torch_name)(dim=0)
            self.pair = self.each[:2].clone()
            self.square = getattr(batch.h[:, :, None] * batch.h[:, None], torch_name)(dim=0)
            cells = by_class(batch, torch_name)
            self.rows = cells[:, 0].clone()
            self.cells = torch.stack([cells, cells], dim=1)

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
        ({"shape": ("d", "C")}, "first can be 'C'"),
        ({"shape": "C"}, "give a tuple of numbers"),
        ({"reduction": "chan", "shape": ("C", "d")}, "with reduction='chan'"),
    ],
)
def test_what_cannot_be_declared_is_refused(declared, said):
    with pytest.raises(PluginError, match=said):
        State(**declared)


def test_deviations_have_no_means_of_the_validation_text():
    with pytest.raises(PluginError, match="reduction='chan' is only for training statistics"):
        type("Mine", (ValidationStatistic,), {"name": "mine", "state": {"x": State(("d",), reduction="chan")}})


@pytest.mark.parametrize("total", [lambda batch: batch.h.sum(dim=0).float(), lambda batch: batch.h.sum()])
def test_what_is_filled_is_what_was_declared(total):
    def update(self, batch):
        self.values = total(batch)

    kind = type("Mine", (Statistic,), {"name": "mine", "state": {"values": State(("d",))}, "update": update})
    with pytest.raises(
        LawBroken,
        match=r"values must be a tensor of the shape and dtype that `state` declares .*float64\), but is .*float",
    ):
        check_statistic(kind)


def test_a_function_reads_the_statistic_of_its_module():
    class Energy(Statistic):
        """Σ‖h‖², not registered."""

        name = "energy"
        state: ClassVar = {"total": State()}

        def update(self, batch):
            self.total += batch.h.double().square().sum()

    names = {"metric": metric, "Energy": Energy}
    exec("@metric('mine.energy')\ndef mean_energy(energy):\n    return energy['total']\n", names)
    h, y = torch.arange(24.0).reshape(8, 3), torch.arange(8) % 2
    store = collapse.collect_arrays(h, y, torch.eye(2, 3), statistics=[Energy])
    row = collapse.measure(store, metrics=[names["mean_energy"]])
    assert row["mine.energy"] == pytest.approx(float((h.double() ** 2).sum()))
