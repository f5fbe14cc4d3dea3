"""Statistics that declare their tensors: what a declaration may say, and how it is merged."""

from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapse import State, Statistic, ValidationStatistic
from collapse.errors import PluginError
from collapse.plugin.batch import Batch, Side
from collapse.plugin.registry import check_declared
from collapse.testing import LawBroken, check_statistic

SHAPES = [(), (3,), ("d",), ("C",), ("C", "d"), ("C", 2, "d"), ("d", "d")]


def batch_of(h_Bd: torch.Tensor, y_B: torch.Tensor) -> Batch:
    classes_K, inverse_B, counts_K = torch.unique(y_B, return_inverse=True, return_counts=True)
    means_Kd = torch.stack([h_Bd[y_B == label].mean(dim=0) for label in classes_K])
    return Batch(
        h=h_Bd,
        y=y_B,
        classes=classes_K,
        inverse=inverse_B,
        counts=counts_K,
        means=means_Kd,
        deviations=h_Bd - means_Kd[inverse_B],
    )


def by_sample(shape: tuple[object, ...], h_d: torch.Tensor) -> torch.Tensor:
    """A number or more of one sample, of a state's shape without its C."""
    values = {"d": h_d, 2: h_d.new_tensor([1, -1]), 3: h_d.new_tensor([1, 2, -3])}
    total = h_d.sum()
    for size in [size for size in shape if size != "C"][::-1]:
        total = torch.tensordot(values[size], total, dims=0)
    return total


def statistic_of(shape: tuple[object, ...], reduction: str) -> type[Statistic]:
    class Reduced(Statistic):
        """Sums, maxima or minima of numbers of the samples."""

        name = "reduced"
        state: ClassVar = {"values": State(shape, reduction=reduction)}

        def update(self, batch):
            for label in range(len(batch.classes)) if "C" in shape else [None]:
                mine = batch.h if label is None else batch.h[batch.inverse == label]
                values = torch.stack([by_sample(shape, h_d) for h_d in mine])
                reduced = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}[reduction](values, dim=0)
                if label is None:
                    self.values = reduced
                else:
                    self.values[label] = reduced

    return Reduced


def filled(kind: type[Statistic], batch: Batch) -> Statistic:
    made = kind()
    made._fill(batch)
    return made


@pytest.mark.parametrize("reduction", ["sum", "max", "min"])
@pytest.mark.parametrize("shape", SHAPES)
@settings(deadline=None)
@given(seed=st.integers(0, 99), cut=st.integers(1, 11))
def test_two_sides_merge_to_the_whole(shape, reduction, seed, cut):
    draw = torch.Generator().manual_seed(seed)
    h_Bd, y_B = torch.randn(12, 4, generator=draw, dtype=torch.float64), torch.randint(5, (12,), generator=draw)
    kind, nothing = statistic_of(shape, reduction), Side(classes=y_B[:0], counts=h_Bd[:0, 0], means=h_Bd[:0])
    whole = filled(kind, batch_of(h_Bd, y_B))
    merged = kind()
    for part in (slice(cut), slice(cut, None)):
        merged.merge(filled(kind, batch_of(h_Bd[part], y_B[part])), nothing, nothing)
    torch.testing.assert_close(merged.values, whole.values, rtol=1e-12, atol=1e-12)
    if "C" in shape:
        assert torch.equal(merged.classes, whole.classes)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_other_side_stays_as_it_is(shape):
    draw = torch.Generator().manual_seed(0)
    h_Bd, y_B = torch.randn(12, 4, generator=draw, dtype=torch.float64), torch.arange(12) % 3
    kind, nothing = statistic_of(shape, "sum"), Side(classes=y_B[:0], counts=h_Bd[:0, 0], means=h_Bd[:0])
    first, second, total = filled(kind, batch_of(h_Bd, y_B)), filled(kind, batch_of(2 * h_Bd, y_B)), kind()
    before, expected = first.values.clone(), first.values + second.values
    for other in (first, second):
        total.merge(other, nothing, nothing)
    torch.testing.assert_close(total.values, expected)
    assert torch.equal(first.values, before)


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
        ({"shape": (-1,)}, "give numbers"),
        ({"shape": (True,)}, "give numbers"),
        ({"shape": ("n",)}, "give numbers"),
        ({"dtype": torch.bool}, "bool adds as torch.int64"),
        ({"dtype": torch.complex64}, "give one of float64"),
        ({"reduction": "chan", "shape": ("C", "d")}, "with reduction='chan'"),
        ({"reduction": "chan", "shape": ("d",), "dtype": torch.float32}, "with reduction='chan' give torch.float64"),
    ],
)
def test_what_cannot_be_declared_is_refused(declared, said):
    with pytest.raises(PluginError, match=said):
        State(**declared)


@pytest.mark.parametrize("name", ["classes", "update", "merge", "per_class", "not a name"])
def test_a_tensor_needs_a_name_of_its_own(name):
    with pytest.raises(PluginError, match="give the tensor another name"):
        type("Mine", (Statistic,), {"name": "mine", "state": {name: State()}})


def test_a_state_is_a_dictionary_of_states():
    for state in ({"total": torch.zeros(1)}, [State()]):
        with pytest.raises(PluginError, match=r"must be a dictionary of collapse\.State by name"):
            type("Mine", (Statistic,), {"name": "mine", "state": state})


def test_deviations_have_no_means_of_the_validation_text():
    class Shifted(ValidationStatistic):
        """Declares deviations of validation samples."""

        name = "shifted"
        state: ClassVar = {"scatter": State(("d",), reduction="chan")}

        def update(self, batch):
            self.scatter = batch.h.sum(dim=0)

    with pytest.raises(PluginError, match="statistic shifted: reduction='chan' is for training samples"):
        check_declared(Shifted)


@pytest.mark.parametrize(
    ("update", "said"),
    [
        (lambda self, batch: setattr(self, "values", batch.h.sum(dim=0).float()), "is declared as .*float64, and is"),
        (lambda self, batch: setattr(self, "values", batch.h.sum()), "is declared as"),
        (lambda self, batch: setattr(self, "values", 3.0), "and is nothing"),
        (lambda self, batch: setattr(self, "more", batch.h.sum()), "it sets more, which its state does not declare"),
    ],
)
def test_what_is_filled_is_what_was_declared(update, said, caplog):
    kind = type("Mine", (Statistic,), {"name": "mine", "state": {"values": State(("d",))}, "update": update})
    with pytest.raises(LawBroken, match=said):
        check_statistic(kind)
