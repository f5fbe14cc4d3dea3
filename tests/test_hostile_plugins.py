"""Plugins that write, lie and raise: each costs its own numbers and changes no other."""

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

import collapse
from collapse.cli import _add_commands, _run
from collapse.errors import PluginError
from collapse.measurement.measuring import vectors
from collapse.numerics.lending import copied, tensors_of
from collapse.plugin import measures, plugin_manager
from collapse.testing import random_features

PRELUDE = """
import sys
import torch
from collapse import CoV, Mean, Noted, Statistic, Std, class_metric, hookimpl, metric, pair_metric
from collapse.plugin.metrics import LogMeanExp

held = []
"""
OFFER = """

"""


def scalar(body: str, **about: object) -> str:
    words = "".join(f", {key}={value}" for key, value in about.items())
    return (
        f"@metric('bad.x', needs=['means', 'validation', 'classifier', 'covariance']{words})\ndef x(s):\n    {body}\n"
    )


def of_classes(body: str) -> str:
    return f"@class_metric(Mean('bad.x'), Std('bad.y'), needs=['means'])\ndef x(s):\n    {body}\n"


def of_pairs(body: str, measure: str = "Mean('bad.x')") -> str:
    return f"@pair_metric({measure}, needs=['means'], over='all')\ndef x(pair):\n    {body}\n"


# What the plugin does, and what its note says.
HOSTILE = {
    "writes_means": (scalar("s.means.mul_(2); return 1.0"), "wrote to"),
    "writes_a_slice": (scalar("s.centred_means[1:, 0] = 7.0; return 1.0"), "wrote to centred_means"),
    "writes_validation": (scalar("s.validation.agreements.zero_(); return 1.0"), "wrote to validation.agreements"),
    "writes_a_statistic": (scalar("s.statistic('covariance')['scatter'].abs_(); return 1.0"), "covariance.scatter"),
    "writes_and_raises": (scalar("s.norms.zero_(); raise ValueError('late')"), "wrote to norms"),
    "writes_norms": (of_classes("return s.norms.log_()"), "wrote to norms"),
    "writes_in_times": (
        "def spoil(s):\n    s.norms.zero_()\n    return 2.0\n"
        + of_pairs("return pair.gram", "Mean('bad.x', times=spoil)"),
        "wrote to norms",
    ),
    "writes_a_field": (of_pairs("return pair.cosine.abs_()"), "wrote to cosine"),
    "writes_a_field_late": (
        of_pairs("return pair.cosine.abs_() if len(pair.gram) > 12 else pair.cosine.abs()"),
        "wrote to cosine",
    ),
    "writes_rows": (of_pairs("pair.rows('means').mul_(2); return pair.gram"), "wrote to"),
    "writes_rows_late": (
        of_pairs("len(pair.gram) > 12 and pair.rows('variances').zero_(); return pair.gram"),
        "wrote to variances",
    ),
    "wrong_tile": (of_pairs("return pair.gram[0]"), "must return a tile of shape (30, 30)"),
    "complex_tile": (of_pairs("return pair.gram.to(torch.complex128)"), "real, dense numbers"),
    "wrong_class_shape": (of_classes("return s.means"), "must return shape (30,)"),
    "complex_classes": (of_classes("return s.norms + 0j"), "real, dense numbers"),
    "too_large": (scalar("return 10**400"), "OverflowError"),
    "text": (scalar("return '0.5'"), "must return a number, not '0.5'"),
    "raises": (scalar("raise ZeroDivisionError('on\\npurpose')"), "ZeroDivisionError: on"),
    "raises_at_length": (scalar("raise ValueError('x' * 10**6)"), "ValueError: xxx"),
    "nan": (scalar("return float('nan')"), "came out as nan"),
    "recurses": ("def deep(n): return deep(n + 1)\n" + scalar("return deep(0)"), "RecursionError"),
    "odd_exponent": (
        of_pairs("return pair.gram", "LogMeanExp('bad.x', exponent=lambda C, d: 1 / 0)"),
        "ZeroDivisionError",
    ),
    "forgets_to_return": (scalar("s.norms.mean()"), "it returned None: return collapse.Noted(None, reason)"),
    "limit_raises": (scalar("return 1.0", towards="lambda C, d: 1 / 0"), "towards= of bad.x"),
    "limit_of_text": (scalar("return 1.0", reachable="lambda C, d: '0'"), "returned '0'"),
}
# What is odd but harmless, and what it gives.
ODD = {
    "long_note": (scalar("return Noted(1.0, 'x' * 10**6)"), 1.0),
    "integers": (of_pairs("return torch.full(pair.gram.shape, 3)"), 3.0),
    "booleans": (of_pairs("return pair.gram < float('inf')"), 1.0),
    "gradients": (of_pairs("return torch.full_like(pair.gram, 2.0, requires_grad=True)"), 2.0),
    "expanded": (of_pairs("return torch.ones(1, 1).expand(pair.gram.shape)"), 1.0),
    "half_classes": (of_classes("return torch.ones(s.n_classes).bfloat16()"), 1.0),
}


@pytest.fixture
def load(tmp_path, monkeypatch) -> Iterator[Callable[..., None]]:
    """Load plugins from their texts, as -p does, for one test."""
    monkeypatch.setattr(plugin_manager, "_extra", [])

    def load(**texts: str) -> None:
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(PRELUDE + text + OFFER)
            plugin_manager.add_plugins([str(tmp_path / f"{name}.py")])

    yield load
    plugin_manager.plugins.cache_clear()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> SimpleNamespace:
    """A store in memory and the same on disk, and what they measure without any guest."""
    folder = tmp_path_factory.mktemp("undisturbed")
    save_file(random_features(30, 6, 400), folder / "features.safetensors")
    memory = collapse.collect(folder / "features.safetensors")
    disk = memory.save(folder / "store")
    return SimpleNamespace(memory=memory, disk=disk, row=collapse.measure(memory), text=PRELUDE)


def notes(row: collapse.Row) -> list[collapse.Note]:
    return [note for note in row.notes if not note.measurement.startswith("bad.") and note.kind != "missing"]


def same_numbers(row: collapse.Row, undisturbed: SimpleNamespace) -> None:
    """Every number but the guest's is what it was, bit for bit, and so is every note."""
    own = {name: value for name, value in row.measurements.items() if not name.startswith("bad.")}
    assert own == undisturbed.row.measurements
    assert notes(row) == notes(undisturbed.row)
    assert row.excluded == undisturbed.row.excluded


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_metric_costs_its_own_number_only(load, undisturbed, name):
    text, told = HOSTILE[name]
    load(**{name: text})
    given = copied(undisturbed.memory.statistics())
    before = {key: tensor.clone() for key, tensor in tensors_of(given).items()}
    for store in (undisturbed.memory, undisturbed.disk, given):
        row = collapse.measure(store)
        same_numbers(row, undisturbed)
        (note,) = {note.text for note in row.notes if note.measurement.startswith("bad.")}
        assert told in note
        assert name == "nan" or f"collapse_plugin_{name}.x" in note
        assert len(note) < 1000
        assert (row.measurements["bad.x"] is None) == (not name.startswith("limit_"))
    assert all(torch.equal(tensors_of(given)[key], value) for key, value in before.items())


@pytest.mark.parametrize("name", ODD)
def test_an_odd_metric_changes_nothing_else(load, undisturbed, name):
    text, value = ODD[name]
    load(**{name: text})
    for store in (undisturbed.memory, undisturbed.disk):
        row = collapse.measure(store)
        same_numbers(row, undisturbed)
        assert row.measurements["bad.x"] == value
        assert all(len(note.text) < 1000 for note in row.notes)


def test_all_of_them_at_once(load, undisturbed):
    texts = HOSTILE | ODD
    load(**{name: text.replace("bad.", f"bad.{name}.") for name, (text, _) in texts.items()})
    row = collapse.measure(undisturbed.disk)
    same_numbers(row, undisturbed)
    for name, (_, value) in ODD.items():
        assert row.measurements[f"bad.{name}.x"] == value


def test_less_exact_values_are_cast_and_the_row_says_so(load, undisturbed):
    load(low=of_pairs("return pair.cosine.bfloat16()", "Mean('bad.x'), Std('bad.y')"))
    row = collapse.measure(undisturbed.disk)
    assert row.measurements["bad.x"] == pytest.approx(row.measurements["nc2.interference"], abs=1e-2)
    assert row.measurements["bad.y"] == pytest.approx(row.measurements["nc2.interference_std"], rel=1e-2)
    assert {note.measurement for note in row.notes if "returned bfloat16" in note.text} == {"bad.x", "bad.y"}


def test_the_values_behind_a_measurement_are_nobody_elses(load, undisturbed):
    load(hostile=HOSTILE["writes_norms"][0])
    for name in ("counts", "variances", "nc2.norm", "nc2.interference", "nc4.agreement"):
        expected = [each.clone() for each in vectors(undisturbed.memory, name)]
        for each in vectors(undisturbed.memory, name):
            each.zero_()
        assert all(map(torch.equal, vectors(undisturbed.memory, name), expected)), name
    with pytest.raises(collapse.CollapseError, match="wrote to norms"):
        vectors(undisturbed.memory, "bad.x")
    same_numbers(collapse.measure(undisturbed.memory), undisturbed)


def test_an_interrupt_passes_through(load, undisturbed):
    load(stop=scalar("raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        collapse.measure(undisturbed.memory)


def test_the_command_line_with_hostile_plugins(load, undisturbed, tmp_path, capsys):
    for name in ("long_note", "limit_raises", "raises"):
        text = (HOSTILE | ODD)[name][0].replace("bad.", f"bad.{name}.")
        (tmp_path / f"{name}.py").write_text(PRELUDE + text + OFFER)
    words = [word for name in ("long_note", "limit_raises", "raises") for word in ("-p", str(tmp_path / f"{name}.py"))]
    _add_commands()
    assert _run([*words, "measure", str(undisturbed.disk.path), "--json"]) == 0
    shown = capsys.readouterr()
    (row,) = json.loads(shown.out)
    assert row["measurements"]["bad.long_note.x"] == 1.0
    assert "raises.py: collapse_plugin_raises.x failed: ZeroDivisionError: on" in shown.err
    assert "towards= of bad.limit_raises.x (collapse_plugin_limit_raises.x) is not shown" in shown.err
    for command in (["measure", str(undisturbed.disk.path)], ["metrics"]):
        assert _run(command) == 0
        shown = capsys.readouterr()
        assert "bad.limit_raises.x" in shown.out + shown.err
    assert "towards= of bad.limit_raises.x" in shown.err


GUILTY = {
    "exponent": "LogMeanExp('bad.guilty', exponent=lambda C, d: 1 / 0)",
    "reducer": "Raising('bad.guilty')",
    "of": "Unread('bad.guilty')",
}
MEASURES = """
class Raising(Mean):
    def reducer(self, classes, dim):
        raise KeyError("lost")

class Unread(Mean):
    def of(self, reducer):
        raise KeyError("lost")

"""


@pytest.mark.parametrize("over", ["class", "pair"])
@pytest.mark.parametrize("kind", GUILTY)
def test_a_measure_that_costs_its_whole_metric_is_named(load, undisturbed, kind, over):
    body = f"Mean('bad.innocent'), {GUILTY[kind]})\ndef x("
    declared = {
        "class": "@class_metric(" + body + "norms):\n    return norms\n",
        "pair": "@pair_metric(" + body + "gram):\n    return gram\n",
    }
    load(mine=MEASURES + declared[over])
    row = collapse.measure(undisturbed.memory)
    same_numbers(row, undisturbed)
    lost = [note.text for note in row.notes if note.measurement.startswith("bad.")]
    assert lost
    assert all("bad.guilty" in text for text in lost)


@pytest.mark.parametrize("kind", ["Mean", "LogMeanExp"])
def test_what_a_measure_says_beside_its_name_is_given_by_keyword(kind):
    with pytest.raises(TypeError):
        getattr(measures, kind)("mine.x", lambda C, d: 1.0)


def test_what_a_plugin_raises_in_vectors_is_told_as_its_own(load, undisturbed):
    load(mine="@pair_metric(Mean('bad.x'), over=lambda pair: pair.missing)\ndef x(sqdist):\n    return sqdist\n")
    with pytest.raises(PluginError, match=r"x failed: AttributeError: .*missing"):
        collapse.vectors(undisturbed.memory, "bad.x")
