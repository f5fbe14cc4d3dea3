"""Plugins that write, lie, raise, print and exit: each costs its own numbers and changes no other."""

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import collapse
from collapse.cli import _add_commands, _run
from collapse.errors import PluginError
from collapse.measurement.measuring import vectors
from collapse.numerics.lending import copied, tensors_of
from collapse.plugin import measures, plugin_manager
from collapse.precision import newer_settings
from collapse.testing import random_features

PRELUDE = """
import sys
import torch
from collapse import CoV, Mean, Noted, Statistic, Std, class_metric, hookimpl, metric, pair_metric
from collapse.plugin.metrics import LogMeanExp

held = []
"""
OFFER = """

@hookimpl
def collapse_metrics():
    return [each for each in globals().values() if hasattr(each, "__collapse_declaration__")]

@hookimpl
def collapse_statistics():
    return [each for each in globals().values() if isinstance(each, type) and Statistic in each.__bases__]
"""


def scalar(body: str, **about: object) -> str:
    words = "".join(f", {key}={value}" for key, value in about.items())
    return (
        f"@metric('bad.x', needs=['means', 'validation', 'classifier', 'covariance']{words})\ndef x(s):\n    {body}\n"
    )


def of_classes(body: str) -> str:
    return f"@class_metric(needs=['means'], measures=[Mean('bad.x'), Std('bad.y')])\ndef x(s):\n    {body}\n"


def of_pairs(body: str, measure: str = "Mean('bad.x')") -> str:
    return f"@pair_metric(needs=['means'], over='all', measures=[{measure}])\ndef x(pair):\n    {body}\n"


# What the plugin does, and what its note says.
HOSTILE = {
    "writes_means": (scalar("s.means.mul_(2); return 1.0"), "wrote to"),
    "writes_a_slice": (scalar("s.centred_means[1:, 0] = 7.0; return 1.0"), "wrote to centred_means"),
    "writes_validation": (scalar("s.validation.agreements.zero_(); return 1.0"), "wrote to validation.agreements"),
    "writes_a_statistic": (scalar("s.statistic('covariance')['scatter'].abs_(); return 1.0"), "covariance.scatter"),
    "writes_and_raises": (scalar("s.norms.zero_(); raise ValueError('late')"), "wrote to norms"),
    "writes_by_numpy": (scalar("s.means.numpy()[0] = 3.0; return 1.0"), "wrote to means"),
    "writes_by_data": (scalar("s.classifier.data.neg_(); return 1.0"), "wrote to classifier"),
    "sorts_by_numpy": (of_classes("s.variances.numpy().sort(); return s.norms"), "wrote to variances"),
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
    "writes_a_field_by_numpy": (of_pairs("pair.sqdist.numpy()[:] = 1; return pair.gram"), "wrote to sqdist"),
    "writes_rows": (of_pairs("pair.rows('means').mul_(2); return pair.gram"), "wrote to"),
    "writes_rows_late": (
        of_pairs("len(pair.gram) > 12 and pair.rows('variances').zero_(); return pair.gram"),
        "wrote to variances",
    ),
    "writes_rows_late_by_numpy": (
        of_pairs("if len(pair.gram) > 12: pair.rows('means').numpy()[:] = 1\n    return pair.gram"),
        "wrote to",
    ),
    "replaces_a_field": (of_pairs("pair.distance = pair.gram; return pair.distance"), "wrote to distance"),
    "asymmetric": (of_pairs("return pair.norms[0] - 0 * pair.gram"), "not symmetric"),
    "random": (of_pairs("return torch.rand(pair.gram.shape)"), "called twice"),
    "tile_mean": (of_pairs("return pair.gram - pair.gram.mean()"), "depends on the tile"),
    "tile_mean_that_is_kept": (
        of_pairs("return pair.gram - vars(pair._points).setdefault('kept', pair.gram.mean())"),
        "depends on the tile",
    ),
    "wrong_tile": (of_pairs("return pair.gram[0]"), "must return a tile of shape (12, 12)"),
    "complex_tile": (of_pairs("return pair.gram.to(torch.complex128)"), "real, dense numbers"),
    "wrong_class_shape": (of_classes("return s.means"), "must return shape (30,)"),
    "complex_classes": (of_classes("return s.norms + 0j"), "real, dense numbers"),
    "too_large": (scalar("return 10**400"), "OverflowError"),
    "text": (scalar("return '0.5'"), "must return a number, not '0.5'"),
    "raises": (scalar("raise ZeroDivisionError('on\\npurpose')"), "ZeroDivisionError: on"),
    "raises_at_length": (scalar("raise ValueError('x' * 10**6)"), "ValueError: xxx"),
    "nan": (scalar("return float('nan')"), "came out as nan"),
    "exits": (scalar("sys.exit('bye')"), "called sys.exit('bye')"),
    "closes": (scalar("raise GeneratorExit"), "it raised GeneratorExit, which is not an Exception"),
    "cancels": (scalar("import asyncio; raise asyncio.CancelledError"), "it raised CancelledError"),
    "exits_in_a_tile": (of_pairs("sys.exit(0)"), "called sys.exit(0)"),
    "recurses": ("def deep(n): return deep(n + 1)\n" + scalar("return deep(0)"), "RecursionError"),
    "odd_exponent": (
        of_pairs("return pair.gram", "LogMeanExp('bad.x', exponent=lambda classes, dim: 1 / 0)"),
        "ZeroDivisionError",
    ),
    "forgets_to_return": (scalar("s.norms.mean()"), "it returned None: return collapse.Noted(None, reason)"),
    "limit_raises": (scalar("return 1.0", towards="lambda classes, dim: 1 / 0"), "towards= of bad.x"),
    "limit_exits": (scalar("return 1.0", reachable="lambda classes, dim: sys.exit(1)"), "reachable= of bad.x"),
    "limit_of_text": (scalar("return 1.0", reachable="lambda classes, dim: '0'"), "returned '0'"),
}
# What is odd but harmless, and what it gives.
ODD = {
    "prints": (scalar("print('{\"a\": 1}'); return 1.0"), 1.0),
    "sets_dtype": (scalar("torch.set_default_dtype(torch.float16); return 1.0"), 1.0),
    "sets_threads": (scalar("torch.set_num_threads(7); return 1.0"), 1.0),
    "no_grad_mode": (scalar("torch.set_grad_enabled(False); return 1.0"), 1.0),
    "stays_in_inference": (scalar("held.append(torch.inference_mode()); held[-1].__enter__(); return 1.0"), 1.0),
    "leaves_autocast_on": (
        scalar("torch.set_autocast_enabled('cpu', True); torch.set_autocast_cache_enabled(False); return 1.0"),
        1.0,
    ),
    "enters_autocast": (scalar("held.append(torch.autocast('cpu', torch.float16).__enter__()); return 1.0"), 1.0),
    "newer_precision": (scalar("torch.backends.cuda.matmul.fp32_precision = 'tf32'; return 1.0"), 1.0),
    "older_precision": (scalar("torch.set_float32_matmul_precision('medium'); return 1.0"), 1.0),
    "numpy_raises": (scalar("import numpy; numpy.seterr(all='raise'); return 1.0"), 1.0),
    "closes_stdout": (scalar("sys.stdout.close(); return 1.0"), 1.0),
    "closes_stderr": (scalar("with sys.stderr: print('x', file=sys.stderr)\n    return 1.0"), 1.0),
    "changes_folder": (scalar("import os; os.chdir('/'); return 1.0"), 1.0),
    "default_device": (scalar("torch.set_default_device('meta'); return 1.0"), 1.0),
    "enters_a_device": (scalar("torch.device('meta').__enter__(); return 1.0"), 1.0),
    "long_note": (scalar("return Noted(1.0, 'x' * 10**6)"), 1.0),
    "replaces_attributes": (scalar("vars(s)['norms'] = s.norms * 0; return 1.0"), 1.0),
    "requires_grad": (scalar("return s.means.requires_grad_().sum() * 0 + 1"), 1.0),
    "integers": (of_pairs("return torch.full(pair.gram.shape, 3)"), 3.0),
    "booleans": (of_pairs("return pair.gram < float('inf')"), 1.0),
    "gradients": (of_pairs("return torch.full_like(pair.gram, 2.0, requires_grad=True)"), 2.0),
    "expanded": (of_pairs("return torch.ones(1, 1).expand(pair.gram.shape)"), 1.0),
    "half_classes": (of_classes("return torch.ones(s.n_classes).bfloat16()"), 1.0),
}


def settings() -> tuple[object, ...]:
    """What a plugin may not leave changed."""
    return (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.get_default_device(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.get_float32_matmul_precision(),
        newer_settings(),
        np.geterr(),
    )


@pytest.fixture
def load(tmp_path, monkeypatch) -> Iterator[Callable[..., None]]:
    """Load plugins from their texts, as -p does, for one test."""
    monkeypatch.setattr(plugin_manager, "_extra", [])
    folder = Path.cwd()
    state = settings()

    def load(**texts: str) -> None:
        for name, text in texts.items():
            (tmp_path / f"{name}.py").write_text(PRELUDE + text + OFFER)
            plugin_manager.add_plugins([str(tmp_path / f"{name}.py")])

    yield load
    plugin_manager.plugins.cache_clear()
    assert state == settings()
    assert Path.cwd() == folder


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
def test_an_odd_metric_changes_nothing_else(load, undisturbed, capsys, name):
    text, value = ODD[name]
    load(**{name: text})
    for store in (undisturbed.memory, undisturbed.disk):
        row = collapse.measure(store)
        same_numbers(row, undisturbed)
        assert row.measurements["bad.x"] == value
        assert all(len(note.text) < 1000 for note in row.notes)
    assert capsys.readouterr().out == ""


def test_all_of_them_at_once(load, undisturbed):
    texts = HOSTILE | ODD
    load(**{name: text.replace("bad.", f"bad.{name}.") for name, (text, _) in texts.items()})
    row = collapse.measure(undisturbed.disk)
    same_numbers(row, undisturbed)
    for name, (_, value) in ODD.items():
        assert row.measurements[f"bad.{name}.x"] == value


@pytest.mark.parametrize("open_write", ["s.means.zero_()", "s.classes.add_(1)", "s.centred_means.mul_(2)"])
def test_an_open_write_does_not_hide_another_plugins_write(load, undisturbed, open_write):
    load(
        hides=scalar("s.means.numpy()[:] = 0; return 1.0").replace("bad.", "bad.a."),
        sees=scalar("return s.means.abs().sum()").replace("bad.", "bad.b."),
        writes=scalar(f"{open_write}; return 1.0").replace("bad.", "bad.c."),
    )
    for store in (undisturbed.memory, undisturbed.disk):
        row = collapse.measure(store)
        same_numbers(row, undisturbed)
        assert row.measurements["bad.b.x"] == float(undisturbed.memory.statistics().means.abs().sum())
        notes = {note.measurement: note.text for note in row.notes}
        assert "wrote to means" in notes["bad.a.x"]
        assert "wrote to" in notes["bad.c.x"]


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


def test_filters_of_warnings_are_put_back(load, undisturbed):
    load(ignoring=scalar("import warnings; warnings.simplefilter('ignore'); return 1.0"))
    collapse.measure(undisturbed.memory, metrics=["nc2.norm"])  # a first use may add filters of libraries
    before = list(warnings.filters)
    assert collapse.measure(undisturbed.memory, metrics=["bad.x"]).measurements == {"bad.x": 1.0}
    assert list(warnings.filters) == before


def test_an_interrupt_passes_through(load, undisturbed):
    load(stop=scalar("raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        collapse.measure(undisturbed.memory)


def test_the_command_line_with_hostile_plugins(load, undisturbed, tmp_path, capsys):
    for name in ("prints", "limit_raises", "exits"):
        text = (HOSTILE | ODD)[name][0].replace("bad.", f"bad.{name}.")
        (tmp_path / f"{name}.py").write_text(PRELUDE + text + OFFER)
    words = [word for name in ("prints", "limit_raises", "exits") for word in ("-p", str(tmp_path / f"{name}.py"))]
    _add_commands()
    assert _run([*words, "measure", str(undisturbed.disk.path), "--json"]) == 0
    shown = capsys.readouterr()
    (row,) = json.loads(shown.out)
    assert row["measurements"]["bad.prints.x"] == 1.0
    assert '{"a": 1}' in shown.err
    assert "exits.py: collapse_plugin_exits.x failed: it called sys.exit('bye')" in shown.err
    assert "towards= of bad.limit_raises.x (collapse_plugin_limit_raises.x) is not shown" in shown.err
    for command in (["measure", str(undisturbed.disk.path)], ["metrics"]):
        assert _run(command) == 0
        shown = capsys.readouterr()
        assert "bad.limit_raises.x" in shown.out + shown.err
    assert "towards= of bad.limit_raises.x" in shown.err


GUILTY = {
    "exponent": "LogMeanExp('bad.guilty', exponent=lambda classes, dim: 1 / 0)",
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
    body = f"measures=[Mean('bad.innocent'), {GUILTY[kind]}])\ndef x(s):\n    return "
    declared = {
        "class": "@class_metric(needs=['means'], " + body + "s.norms\n",
        "pair": "@pair_metric(needs=['means'], over='all', " + body + "s.gram\n",
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
        getattr(measures, kind)("mine.x", lambda classes, dim: 1.0)


WRITES_VALUES = """
from collapse.plugin.reducers import Moments

class Zeroing(Moments):
    def add(self, values, weights=None):
        values.numpy()[:] = 0
        super().add(values, weights)

class Zeroed(Mean):
    def reducer(self, classes, dim):
        return Zeroing()

class Emptied(Mean):
    def of(self, reducer):
        reducer.mean.zero_()
        return reducer.mean

"""


@pytest.mark.parametrize("over", ["class", "pair"])
@pytest.mark.parametrize("guilty", ["Zeroed", "Emptied"])
def test_a_measure_that_writes_does_not_change_its_neighbour(load, undisturbed, guilty, over):
    body = f"measures=[{guilty}('bad.guilty'), Mean('bad.innocent')])\ndef x(s):\n    return "
    declared = {
        "class": "@class_metric(needs=['means'], over='all', " + body + "s.norms\n",
        "pair": "@pair_metric(needs=['means'], over='directions', " + body + "s.cosine\n",
    }
    load(mine=WRITES_VALUES + declared[over])
    row = collapse.measure(undisturbed.memory)
    same_numbers(row, undisturbed)
    same = {"class": "nc2.norm", "pair": "nc2.interference"}[over]
    assert row.measurements["bad.innocent"] == row.measurements[same]


def test_a_statistic_that_is_not_declared_is_each_readers_own(load, undisturbed):
    def reading(name, code=""):
        body = f"held = s.statistic('covariance')['samples']; {code}return float(held.sum())"
        return f"@metric('bad.{name}', needs=['counts'])\ndef x(s):\n    {body}\n"

    load(a=reading("a"), b=reading("b", "held.mul_(100); "), c=reading("c"))
    for store in (undisturbed.memory, undisturbed.disk):
        row = collapse.measure(store)
        same_numbers(row, undisturbed)
        assert row.measurements["bad.a"] == row.measurements["bad.c"] > 0


def test_what_a_plugin_raises_in_vectors_is_told_as_its_own(load, undisturbed):
    over = "over=lambda pair: pair.missing, measures=[Mean('bad.x')]"
    load(mine=f"@pair_metric(needs=['means'], {over})\ndef x(pair):\n    return pair.sqdist\n")
    with pytest.raises(PluginError, match=r"x failed: AttributeError: .*missing"):
        collapse.vectors(undisturbed.memory, "bad.x")
