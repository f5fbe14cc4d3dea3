"""Plugins that write to shared tensors, return wrong types or raise: each loses only its own numbers."""

from copy import deepcopy
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

import collapse
from collapse.errors import PluginError
from collapse.numerics.values import copied
from collapse.testing import random_features

PRELUDE = """
import torch
from collapse import LogMeanExp, Mean, Std, class_metric, derived, metric, pair_derived, pair_metric
"""


def scalar(body: str, asks: str = "means", **about: object) -> str:
    words = "".join(f", {key}={value}" for key, value in about.items())
    return f"@metric('bad.x'{words})\ndef x({asks}):\n    {body}\n"


def of_classes(body: str, asks: str = "norms") -> str:
    return f"@class_metric(Mean('bad.x'), Std('bad.y'))\ndef x({asks}):\n    {body}\n"


def of_pairs(body: str, asks: str = "gram", measure: str = "Mean('bad.x')") -> str:
    return f"@pair_metric({measure})\ndef x({asks}):\n    {body}\n"


WROTE = "it wrote to a tensor that other functions also read"

# What the plugin does, and what its note says.
HOSTILE = {
    "writes_a_slice": (scalar("centred_means[1:, 0] = 7.0; return 1.0", "centred_means"), WROTE),
    "writes_validation": (scalar("validation.agreements.zero_(); return 1.0", "validation"), WROTE),
    "writes_a_statistic": (scalar("covariance['scatter'].abs_(); return 1.0", "covariance"), WROTE),
    "writes_and_raises": (scalar("norms.zero_(); raise ValueError('late')", "norms"), WROTE),
    "writes_norms": (of_classes("return norms.log_()"), WROTE),
    "writes_a_field": (of_pairs("return cosine.abs_()", "cosine"), WROTE),
    "writes_rows": (of_pairs("row_means.mul_(2); return gram", "row_means, gram"), WROTE),
    "writes_a_derived": (
        "@derived\ndef half(norms):\n    return norms / 2\n\n@metric('bad.z')\ndef z(half):\n    return half.sum()\n\n"
        + scalar("return half.mul_(2).sum()", "half"),
        WROTE,
    ),
    "writes_rows_of_a_derived": (
        "@derived\ndef half(norms):\n    return norms / 2\n\n"
        + of_pairs("row_half.mul_(3); return gram", "row_half, gram"),
        WROTE,
    ),
    "writes_a_derived_inference_tensor": (
        "@derived\n@torch.inference_mode()\ndef part(norms):\n    return norms / 2\n\n"
        + scalar("return part.zero_().sum()", "part"),
        WROTE,
    ),
    "writes_in_inference_mode": (
        "@metric('bad.x')\n@torch.inference_mode()\ndef x(norms):\n    norms /= norms.max()\n    return norms.std()\n",
        WROTE,
    ),
    "replaces_an_entry": (
        scalar("covariance['scatter'] = covariance['scatter'] / 2; return 1.0", "covariance"),
        "does not support item assignment",
    ),
    "wrong_tile": (of_pairs("return gram[0]"), "must return a tensor of shape (30, 30), not (30,)"),
    "complex": (of_classes("return norms + 0j"), "not (30,), complex128"),
    "text": (scalar("return 'half'"), "must return a number, not str 'half'"),
    "odd_exponent": (of_pairs("return gram", measure="LogMeanExp('bad.x', exponent=lambda C: 1 / 0)"), "division"),
    "forgets_to_return": (scalar("means.mean()"), "it returned None: return collapse.Noted(None, reason)"),
}
# What is odd but harmless, and what it gives.
ODD = {
    "integers": (of_pairs("return torch.full(gram.shape, 3)"), 3.0),
    "gradients": (of_pairs("return torch.full_like(gram, 2.0, requires_grad=True)"), 2.0),
    "half_classes": (of_classes("return torch.ones(C).bfloat16()", "C"), 1.0),
    "caches": (
        "import dataclasses, functools\n\n@dataclasses.dataclass(frozen=True)\nclass Held:\n    a: object\n\n"
        "    @functools.cached_property\n    def b(self):\n        return self.a * 0 + 3\n\n"
        "@derived\ndef held(norms):\n    return Held(norms)\n\n" + scalar("return held.b.mean()", "held"),
        3.0,
    ),
    "slots": (
        "import dataclasses\n\n@dataclasses.dataclass(slots=True)\nclass Held:\n    a: object\n\n"
        "@derived\ndef held(norms):\n    return Held(norms * 0 + 4)\n\n" + scalar("return held.a.mean()", "held"),
        4.0,
    ),
    "shared": ("@pair_derived\ndef two(gram):\n    return gram * 0 + 2\n" + of_pairs("return two", "two"), 2.0),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> SimpleNamespace:
    """The same store in memory and on disk, and their measurements without the hostile plugins."""
    folder = tmp_path_factory.mktemp("undisturbed")
    save_file(random_features(30, 6, 400), folder / "features.safetensors")
    memory = collapse.collect(folder / "features.safetensors")
    return SimpleNamespace(memory=memory, disk=memory.save(folder / "store"), row=collapse.measure(memory))


def same_numbers(row: collapse.Row, undisturbed: SimpleNamespace) -> None:
    """Check that all numbers and notes of other plugins are unchanged, bit for bit."""

    def notes(row: collapse.Row) -> list[collapse.Note]:
        return [note for note in row.notes if not note.measurement.startswith("bad.") and note.kind != "missing"]

    own = {name: value for name, value in row.measurements.items() if not name.startswith("bad.")}
    assert own == undisturbed.row.measurements
    assert notes(row) == notes(undisturbed.row)
    assert row.excluded == undisturbed.row.excluded


def test_each_costs_its_own_number_only(load_plugin, undisturbed):
    for name, (text, _) in (HOSTILE | ODD).items():
        load_plugin(PRELUDE + text.replace("bad.", f"bad.{name}."), name)
    given = copied(undisturbed.memory.statistics())
    before = deepcopy(given)
    for store in (undisturbed.disk, given):
        row = collapse.measure(store)
        same_numbers(row, undisturbed)
        for name, (_, told) in HOSTILE.items():
            (note,) = {note.text for note in row.notes if note.measurement.startswith(f"bad.{name}.")}
            assert told in note
            assert f"collapse_plugin_{name}.x" in note
            assert row.measurements[f"bad.{name}.x"] is None
        for name, (_, value) in ODD.items():
            assert row.measurements[f"bad.{name}.x"] == value
    for name in ("classes", "counts", "means", "variances", "classifier"):
        assert torch.equal(getattr(given, name), getattr(before, name))
    assert torch.equal(given.validation.agreements, before.validation.agreements)
    assert torch.equal(given.statistic("covariance")["scatter"], before.statistic("covariance")["scatter"])


def test_the_values_behind_a_measurement_are_nobody_elses(load_plugin, undisturbed):
    load_plugin(PRELUDE + HOSTILE["writes_norms"][0])
    for name in ("nc2.norm", "nc2.interference", "nc4.agreement"):
        expected = [each.clone() for each in collapse.vectors(undisturbed.memory, name)]
        for each in collapse.vectors(undisturbed.memory, name):
            each.zero_()
        assert all(map(torch.equal, collapse.vectors(undisturbed.memory, name), expected)), name
    with pytest.raises(collapse.CollapseError, match=WROTE):
        collapse.vectors(undisturbed.memory, "bad.x")
    same_numbers(collapse.measure(undisturbed.memory), undisturbed)


def test_an_error_names_the_function_that_raised(load_plugin, undisturbed):
    load_plugin(
        PRELUDE + "@derived\ndef base(norms):\n    raise KeyError('lost')\n" + of_classes("return base", "base")
    )
    with pytest.raises(PluginError, match=r"plugin .*mine.py: collapse_plugin_mine.base failed: KeyError: 'lost'"):
        collapse.vectors(undisturbed.memory, "bad.x")
