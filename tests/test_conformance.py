"""The checks for plugin authors: the built-in plugins pass them, and a broken law is named."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import collapse
from collapse import (
    CollapseError,
    LogMeanExp,
    Mean,
    Measure,
    Statistic,
    Std,
    Table,
    ValidationStatistic,
    analysis,
    class_metric,
    metric,
    pair_metric,
    row_cosine,
)
from collapse.measurement.comparing import mixed
from collapse.plugin.plugin_manager import plugins
from collapse.testing import LawBroken, check_analysis, check_metric, check_statistic, random_results


@pytest.mark.parametrize("name", [each.called for each in plugins().metrics])
def test_built_in_metrics_keep_every_law(name):
    # as they are now, not when tests were collected: mutate.py puts others in their place
    (function,) = (each.function for each in plugins().metrics if each.called == name)
    check_metric(function)


@pytest.mark.parametrize("name", plugins().statistics)
def test_built_in_statistics_keep_every_law(name):
    check_statistic(plugins().statistics[name])


@pytest.mark.parametrize("name", plugins().analyses)
def test_built_in_analyses_keep_every_law(name):
    few = {"permutation": {"n": 99}, "paired": {"by": "decay"}}.get(name, {})
    drawn = random_results(12, sorted(plugins().measurements()))
    named = [replace(row, model=f"{1 + i // 2}x64_01{'dL'[i % 2]}") for i, row in enumerate(drawn.rows)]
    check_analysis(plugins().analyses[name].function, results=collapse.Results(named), **few)


def scalar(function, **declared):
    return metric("mine.x", **declared)(function)


def by_class(function, measure=Mean, **declared):
    return class_metric(measure("mine.x"), **declared)(function)


def by_pair(function, measure=Mean, **declared):
    return pair_metric(measure("mine.x"), **declared)(function)


class AverageOf(Measure):
    """The mean, by a state of its own."""

    empty = (0.0, 0.0)

    def state(self, values, sums):
        return torch.stack([torch.full_like(sums, values.shape[1]), sums])

    def result(self, state):
        return state[1] / state[0]


class Sums(Statistic):
    """Sum of the embeddings: keeps every law."""

    name = "sums"

    def __init__(self):
        self.total = torch.zeros(1, dtype=torch.float64)

    def update(self, batch):
        self.total = batch.h.sum(dim=0)

    def merge(self, other, mine, theirs):
        self.total = self.total + other.total


class Totals(Sums):
    """Not installed: found in the module of the metric that asks for it."""

    name = "totals"


KEEPING = {
    "a power of the scale": scalar(lambda norms: norms.square().mean(), scale=2.0),
    "no power of the scale": scalar(lambda norms: norms.log().mean(), scale=None),
    "it moves": scalar(lambda global_mean, norms: global_mean.norm() / norms.mean(), translation=False),
    "a count": scalar(lambda norms: (norms > 1e3).sum(), scale=None),
    "a limit": scalar(lambda norms: norms.max() / norms.min(), towards=1.0),
    "a vector": scalar(lambda norms: norms.max() / norms.min(), vector=lambda ids, norms: (ids, norms)),
    "std of classes": by_class(lambda norms: norms, Std, scale=1.0),
    "power means": by_class(lambda norms: norms, LogMeanExp, scale=1),
    "a measure of its own": by_class(lambda norms: norms, AverageOf, scale=1.0),
    "pairs": by_pair(lambda distance: distance, scale=1.0),
    "logarithms of pairs": by_pair(lambda distance: distance.log(), Std, scale="log"),
    "a statistic of its module": scalar(lambda totals: totals["total"].norm(), scale=1.0, translation=False),
}


@pytest.mark.parametrize("name", KEEPING)
def test_a_metric_that_keeps_the_laws(name):
    check_metric(KEEPING[name])


def unseen(validation, ids):
    seen = torch.isin(validation.classes, ids)
    return torch.where(seen, validation.counts.double(), torch.nan).sum()


BREAKING = {
    "scale": [
        (scalar(lambda norms: norms.square().mean(), scale=1.0), r"\S+ becomes \S+ with 3·h, and .*: declare scale=2"),
        (scalar(lambda norms: norms.square().mean(), scale=None), r"multiplied by s\*\*2 .*: declare scale=2.0, not"),
    ],
    "translation": [
        (scalar(lambda global_mean, norms: global_mean.norm() / norms.mean()), "declare translation=False"),
        (scalar(lambda norms: norms.max() / norms.min(), translation=False), "declare translation=True, not False"),
        (by_class(lambda centred_means, means: row_cosine(centred_means, means)), "translation=False"),
    ],
    "rotation": [(scalar(lambda centred_means, norms: centred_means[:, 0].abs().mean() / norms.mean()), "becomes")],
    "class order": [
        (scalar(lambda norms: norms[0] / norms[1]), "becomes"),
        (scalar(lambda C, ids: C / (ids.max() + 1.0)), "becomes"),
    ],
    "left-out classes": [
        (scalar(lambda norms, left_out: norms.max() / norms.min() + left_out), "of features without rare classes")
    ],
    "tile size": [(by_pair(lambda sqdist: sqdist / sqdist.amax()), "in one tile")],
    "float32": [(scalar(lambda norms: 2 + (1e7 * norms.mean()).sin(), scale=None), "becomes")],
    "simplex": [(scalar(lambda C: C - 1.0, towards=6.0), "at an exact simplex")],
    "degenerate classes": [
        (scalar(lambda C, norms: norms[0] / norms[0] if C > 2 else 1 // 0), "ZeroDivisionError"),
        (scalar(unseen), "a label that training lacks"),
    ],
    "symmetry": [(by_pair(lambda row_norms, column_norms: row_norms / column_norms), "in the other order")],
    "value": [
        (scalar(lambda means: None), "value"),
        (scalar(lambda maens: 1.0), "nothing gives maens"),
        (by_class(lambda norms: norms[:1]), "value"),
        (by_pair(lambda cosine: cosine.abs_()), "value"),
        (scalar(lambda norms: norms.max() / norms.min(), vector=lambda ids: 1 // 0), "ZeroDivisionError"),
    ],
}


@pytest.mark.parametrize(
    ("law", "function", "said"), [(law, *case) for law, cases in BREAKING.items() for case in cases]
)
def test_a_metric_that_breaks_a_law(law, function, said):
    with pytest.raises(LawBroken, match=said) as raised:
        check_metric(function)
    assert law in raised.value.laws
    assert f"mine.x breaks the law of {law}: " in str(raised.value)
    if law not in ("value", "symmetry"):
        check_metric(function, without=raised.value.laws)


class ByPosition(Sums, ValidationStatistic):
    """Sums the loss by position: keeps every law of the validation phase."""

    name = "by_position"

    def update(self, batch):
        self.total = torch.zeros(8, dtype=torch.float64).index_add_(0, batch.position, batch.loss)


class FirstChunk(Sums, ValidationStatistic):
    """Counts from the first chunk of its batch."""

    name = "first_chunk"

    def update(self, batch):
        self.total = (batch.chunk - batch.chunk.min()).sum().reshape(1)


class Last(Sums):
    """Keeps what came last."""

    def update(self, batch):
        self.total = batch.h[-1].clone()

    def merge(self, other, mine, theirs):
        self.total = other.total


class Writes(Sums):
    """Writes to the batch."""

    def update(self, batch):
        self.total = batch.h.mul_(2).sum(dim=0)


class Forgets(Sums):
    """Holds state that no tensor keeps."""

    def merge(self, other, mine, theirs):
        self.parts = getattr(self, "parts", 0) + 1
        self.total = self.total + self.parts * other.total


class Seen(Sums, ValidationStatistic):
    """Relies on a mean for each label of the validation text."""

    name = "seen"

    def update(self, batch):
        self.total = batch.deviations.square().sum().reshape(1)


STATISTICS = {
    Sums: set(),
    ByPosition: set(),
    FirstChunk: {"batch size", "merge"},
    Last: {"sample order", "merge"},
    Writes: {"value"},
    Forgets: {"resume"},
    Seen: {"value"},
}


@pytest.mark.parametrize("kind", STATISTICS)
def test_a_statistic_that_breaks_a_law(kind):
    if not STATISTICS[kind]:
        check_statistic(kind)
        return
    with pytest.raises(LawBroken) as raised:
        check_statistic(kind)
    assert raised.value.laws >= STATISTICS[kind]
    assert {breach.of for breach in raised.value.breaches} <= {kind.name, f"{kind.name}.total"}


class Counts(Sums):
    """Samples of each class, by id."""

    name, per_class = "by_class", True

    def __init__(self):
        self.total = torch.zeros(512, dtype=torch.float64)

    def update(self, batch):
        self.total = torch.bincount(batch.y, minlength=512).double()


def test_a_statistic_per_class_must_follow_the_classes_that_are_left():
    check_metric(metric("mine.mean_count")(lambda by_class, ids: by_class["total"][ids].mean()))
    with pytest.raises(LawBroken, match="law of left-out classes"):
        check_metric(metric("mine.mean_count")(lambda by_class: by_class["total"][by_class["total"] > 0].mean()))


@analysis("largest")
def largest(results, *, column: str = "val_loss"):
    """The largest value of a column: keeps every law."""
    frame = results.frame()
    if not len(frame):
        raise CollapseError("no rows")
    return Table("Largest", ["largest"], [[float(frame[column].max())]], mixed(frame.to_dict("records")))


def changed(change):
    @analysis("changed")
    def function(results):
        return change(results, largest(results))

    return function


def written_to(results, table):
    results.rows[0].measurements["val_loss"] = 99.0
    return table


calls = []


def unlike(results, table):
    calls.append(0)
    return replace(table, rows=[[len(calls)]])


ANALYSES = [
    (lambda results, table: table.rows, "table"),
    (lambda results, table: replace(table, rows=[[1, 2]]), "table"),
    (lambda results, table: 1 / 0, "table"),
    (written_to, "reads only"),
    (unlike, "repeatable"),
    (lambda results, table: table if results.frame()["nc2.norm"].notna().all() else 1 / 0, "missing values"),
    (lambda results, table: table if len(results) > 2 else 1 / 0, "few rows"),
    (lambda results, table: replace(table, notes=[]), "mixed rows"),
]


@pytest.mark.parametrize(("change", "law"), ANALYSES)
def test_an_analysis_that_breaks_a_law(change, law):
    results = random_results(12, ["nc1.cdnv", "nc2.norm"])
    check_analysis(largest, results=results)
    with pytest.raises(LawBroken) as raised:
        check_analysis(changed(change), results=results)
    assert law in raised.value.laws


def test_each_check_refuses_what_is_not_its_own():
    with pytest.raises(CollapseError, match="largest is no metric: use check_analysis"):
        check_metric(largest)
    with pytest.raises(CollapseError, match="is no analysis: use check_metric"):
        check_analysis(KEEPING["pairs"])
    with pytest.raises(CollapseError, match="not declared"):
        check_metric(lambda norms: 1.0)
    with pytest.raises(CollapseError, match="cannot name"):
        check_statistic(type("Odd", (Sums,), {"name": "No Name"}))
    with pytest.raises(ValueError, match="there is no law of scales; did you mean scale"):
        check_metric(KEEPING["pairs"], without="scales")


def test_pytest_checks_what_a_plugin_declares(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from collapse import metric\n\n@metric('mine.good')\ndef good(C):\n    return C\n\n"
        "@metric('mine.bad')\ndef bad(norms):\n    return norms.mean()\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "collapse.testing.pytest_plugin", "--collapse-laws", "mine.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "1 failed, 1 passed" in done.stdout
    assert "mine.bad breaks the law of scale" in done.stdout
