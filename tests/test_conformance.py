"""The checks for plugin authors: the built-in plugins pass them, and each broken law is named."""

import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from result_checks import check_made, random_rows, with_gaps

import collapse
from collapse import (
    CollapseError,
    LogMeanExp,
    Mean,
    State,
    Statistic,
    Std,
    ValidationStatistic,
    class_metric,
    metric,
    pair_metric,
    row_cosine,
)
from collapse.measurement.comparable import mixed
from collapse.plugin.plugin_manager import plugins
from collapse.testing import LawBroken, check_metric, check_statistic

OTHERS = {"corpus_id": "e" * 64, "validation_id": "f" * 64, "dtype": "bfloat16", "chunk_length": 32}
"""Settings with which rows cannot be compared to those of random_rows."""


@pytest.mark.parametrize("name", [each.called for each in plugins().metrics])
def test_built_in_metrics_keep_every_law(name):
    # as they are now, not when tests were collected: mutate.py puts others in their place
    (function,) = (each.function for each in plugins().metrics if each.called == name)
    of_coordinates = name == "collapse_geometry.anisotropy.rogue_share"
    check_metric(function, without=["rotation"] if of_coordinates else [])


@pytest.mark.parametrize("name", plugins().statistics)
def test_built_in_statistics_keep_every_law(name):
    check_statistic(plugins().statistics[name])


@pytest.mark.parametrize("name", plugins().analyses)
def test_built_in_analyses_accept_gaps_and_note_mixed_rows(name):
    options = {"permutation": {"n": 99}, "paired": {"by": "decay"}}.get(name, {})
    drawn = random_rows(12, sorted(plugins().measurements()))
    named = [replace(row, model=f"{1 + i // 2}x64_01{'dL'[i % 2]}") for i, row in enumerate(drawn)]
    given = collapse.Results(named)
    check_made(lambda results: collapse.analyze(name, results, **options), given, with_gaps(given))
    for field, other in OTHERS.items():
        rows = [replace(row, **{field: other}) for row in named[::2]] + named[1::2]
        with suppress(CollapseError):
            assert {*mixed(rows)} <= {*collapse.analyze(name, collapse.Results(rows), **options).notes}


def scalar(function, **declared):
    return metric("mine.x", **declared)(function)


def by_class(function, **declared):
    return class_metric(Mean("mine.x"), **declared)(function)


def by_pair(function, measure=Mean, **declared):
    return pair_metric(measure("mine.x"), **declared)(function)


def ratio(norms):
    return norms.max() / norms.min()


def unseen(validation, ids):
    seen = torch.isin(validation.classes, ids)
    return torch.where(seen, validation.counts.double(), torch.nan).sum()


GOOD = {
    "no power": scalar(lambda norms: norms.log().mean(), scale=None),
    "moves": scalar(lambda global_mean, norms: global_mean.norm() / norms.mean(), translation=False),
    "a count": scalar(lambda norms: (norms > 1e3).sum(), scale=None),
    "a vector": scalar(lambda norms: norms.max() / norms.min(), vector=lambda ids, norms: (ids, norms)),
    "power means": class_metric(LogMeanExp("mine.x"), scale=1)(lambda norms: norms),
    "a pair's logs": by_pair(lambda distance: distance.log(), Std, scale="log"),
}
BAD = {
    "no scale": (scalar(lambda norms: norms.square().mean()), r"scale: \S+ becomes \S+ with 3·h: declare scale=2.0"),
    "too modest a scale": (scalar(lambda norms: norms.square().mean(), scale=None), r"scale: .*scale=2.0, not None"),
    "moves": (scalar(lambda global_mean, norms: global_mean.norm() / norms.mean()), "translation: .*translation=False"),
    "stays": (scalar(lambda norms: ratio(norms), translation=False), r"translation: it stays .*translation=True"),
    "turns": (scalar(lambda centred_means, norms: centred_means[:, 0].abs().mean() / norms.mean()), "rotation"),
    "order": (scalar(lambda norms: norms[0] / norms[1]), "class order"),
    "all classes": (scalar(lambda norms, left_out: ratio(norms) + left_out), r"left-out classes: \S+ becomes"),
    "float32": (scalar(lambda norms: 2 + (1e7 * norms.mean()).sin(), scale=None), "float32"),
    "an unseen label": (scalar(unseen), "degenerate classes"),
    "one simplex": (scalar(lambda C: C - 1.0, towards=6.0), "simplex: towards= is 6, but the number"),
    "raises for few": (scalar(lambda C, norms: norms[0] / norms[0] if C > 2 else 1 // 0), "degenerate classes"),
    "a vector that raises": (scalar(lambda norms: ratio(norms), vector=lambda ids: 1 // 0), "value"),
    "nothing": (scalar(lambda means: None), "value: .*it returned None"),
    "a class": (by_class(lambda centred_means, means: row_cosine(centred_means, means)), "translation"),
    "tiles": (by_pair(lambda sqdist: sqdist / sqdist.amax()), "tile size"),
    "one-sided": (by_pair(lambda row_norms, column_norms: row_norms / column_norms), "symmetry"),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_metric_that_keeps_every_law_passes(name):
    check_metric(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_a_metric_that_breaks_a_law_is_told_which(name):
    function, law = BAD[name]
    with pytest.raises(LawBroken, match=f"mine.x breaks the law of {law}") as raised:
        check_metric(function)
    if raised.value.laws.isdisjoint({"value", "symmetry"}):
        check_metric(function, without=raised.value.laws)


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(CollapseError, match="not declared"):
        check_metric(lambda norms: 1.0)
    with pytest.raises(
        CollapseError, match="has the parameter 'maens', which names no known value; did you mean means"
    ):
        check_metric(scalar(lambda maens: 1.0))
    with pytest.raises(CollapseError, match="cannot be the name of a statistic"):
        check_statistic(statistic(lambda self, batch: None, name="No Name"))


def statistic(update, shape=("d",), *, base=Statistic, name="sums"):
    return type("Made", (base,), {"name": name, "state": {"total": State(shape)}, "update": update})


def of_validation(update, shape=()):
    return statistic(update, shape, base=ValidationStatistic)


def assign(value):
    """An update that sets ``total`` to a function of the batch."""
    return lambda self, batch: setattr(self, "total", value(batch))


BROKEN = {
    "first chunk": (of_validation(assign(lambda batch: (batch.chunk - batch.chunk.min()).sum().double())), "merge"),
    "unseen labels": (of_validation(assign(lambda batch: batch.deviations.square().sum())), "value: it is not finite"),
    "batches": (statistic(assign(lambda batch: torch.ones(5).double())), "batch size"),
    "means": (statistic(assign(lambda batch: batch.h.mean(dim=0))), "batch size"),
    "writes": (statistic(assign(lambda batch: batch.h.mul_(2).sum(dim=0))), "value: .*wrote to a tensor"),
    "writes in validation": (of_validation(assign(lambda batch: batch.h.zero_().sum())), "value: .*wrote to a tensor"),
    "idle": (statistic(lambda self, batch: None), "value: it still has its initial values"),
    "raises": (statistic(assign(lambda batch: 1 // 0)), "value: .*ZeroDivisionError"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_statistic_that_breaks_a_law_is_told_which(name):
    kind, law = BROKEN[name]
    with pytest.raises(LawBroken, match=f"sums(.total)? breaks the law of {law}"):
        check_statistic(kind)


class Totals(Statistic):
    """Not installed, but found in the module of the metric that asks for it."""

    name = "totals"
    state = {"counts": State(("C",), torch.int64)}  # noqa: RUF012

    def update(self, batch):
        self.counts = batch.counts


def test_a_metric_of_a_statistic_of_its_own():
    def kept(totals, ids):
        return totals["counts"][torch.searchsorted(totals["classes"], ids)].double().mean()

    check_metric(scalar(kept))
    with pytest.raises(LawBroken, match="law of left-out classes"):
        check_metric(scalar(lambda totals: totals["counts"].double().mean()))  # whatever classes are left


def test_pytest_checks_what_a_plugin_declares(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from collapse import metric\n\n@metric('mine.good')\ndef good(C):\n    return C\n\n"
        "@metric('mine.bad')\ndef bad(norms):\n    return norms.mean()\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "collapse.testing.pytest_plugin", "--collapse-laws", "mine.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "1 failed, 1 passed" in done.stdout
    assert "mine.bad breaks the law of scale" in done.stdout
    words[-1] = "the_name_of_a_plugin"
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "give a .py file or a module" in done.stderr
    (tmp_path / "mine.py").write_text("from statistics import mean\n")
    words[-1] = "mine.py"
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "--collapse-laws mine.py defines no metric or statistic" in done.stderr
    (tmp_path / "mine.py").write_text("def x(:\n")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "--collapse-laws mine.py: SyntaxError: " in done.stderr
    assert "INTERNALERROR" not in done.stdout
