"""Values of parameters: each name gives its value, which is computed once."""

import json
from dataclasses import replace

import pytest
import torch

from collapse import Mean, Noted, class_metric, derived, metric, pair_derived, pair_metric
from collapse.errors import PluginError
from collapse.numerics.values import Values, values_of
from collapse.plugin.parameter_names import HELD, OF_CLASSES, OF_PAIRS, PER_CLASS, need_of
from collapse.plugin.parameters import asked, check, needs
from collapse.testing import tiny_statistics, two_classes, value

calls = []


@derived
def shared(norms):
    calls.append(1)
    return norms.sum()


@metric("mine.first")
def first(shared):
    return shared


@metric("mine.second")
def second(shared, first, d):
    return shared + first + d


@derived
def nothing():
    return Noted(None, "not here")


@class_metric(Mean("mine.nothing"))
def asks_nothing(nothing):
    return nothing


@metric("mine.optional")
def optional(bias=None, absent=None):
    return float(bias is None) + float(absent is None)


@pair_derived
def halved(sqdist):
    return sqdist / 2


@pytest.mark.parametrize("name", [*HELD, *OF_CLASSES])
def test_every_name_has_a_value(name):
    other = {"ood": tiny_statistics(), "previous": tiny_statistics()}
    s = replace(tiny_statistics(), bias=torch.zeros(3).double(), seen=torch.arange(3), **other)
    (one,) = asked(eval(f"lambda {name}: {name}"))
    found = Values(s).argument(one)
    assert found is not None
    assert (name in PER_CLASS) == (
        isinstance(found, torch.Tensor) and len(found.shape) > 0 and name not in ("global_mean", "seen")
    )
    assert need_of(name) is None or s.has(need_of(name))


def test_a_value_is_computed_once():
    calls.clear()
    values = values_of(two_classes(distance=4, variances=(1, 1)))
    assert [float(values.value(each)) for each in (first, second, first)] == [4.0, 9.0, 4.0]
    assert len(calls) == 1


def test_a_default_makes_a_value_optional():
    assert value(optional, tiny_statistics()) == 2.0
    assert value(optional, replace(tiny_statistics(), extra={"absent": {}}, bias=torch.zeros(3).double())) == 0.0
    assert needs(optional) == ()


def test_blocks_of_vectors_are_the_rows_of_a_tiles_classes():
    @pair_metric(Mean("mine.direct"))
    def direct(row_means, column_means):
        return (row_means.unsqueeze(1) - column_means).square().sum(dim=2)

    s = tiny_statistics()
    torch.testing.assert_close(value(direct, s), torch.cdist(s.means, s.means).square())


@pytest.mark.parametrize(
    ("function", "pairs", "told"),
    [
        (lambda nroms: nroms, False, "parameter 'nroms', which names no known value; did you mean norms"),
        (lambda row_nroms: row_nroms, True, "parameter 'nroms', which names no known value; did you mean norms"),
        (lambda gram: gram, False, "which is a value of class pairs"),
        (lambda halved: halved, False, "which is a value of class pairs"),
        (lambda means: means, True, "use row_means and column_means"),
        (lambda asks_nothing: asks_nothing, True, "use row_asks_nothing and column_asks_nothing"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(function, pairs, told):
    with pytest.raises(PluginError, match=told):
        check(function, pairs=pairs, statistics=[])


def test_the_command_lists_names(out):
    listed = {each["name"] for each in json.loads(out("metrics", "--names", "--json"))["rows"]}
    assert {*HELD, *OF_CLASSES, *OF_PAIRS, "covariance", "measured"} <= listed
