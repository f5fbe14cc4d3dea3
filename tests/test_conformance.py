"""The checks that plugin authors use: the built-ins pass them, and each law that is broken is named."""

import logging
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import collapse
from collapse import (
    CollapseError,
    LogMeanExp,
    Mean,
    Measure,
    Results,
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


def rounding(norms):  # the seventh digit of a number
    return 2 + (1e7 * norms.mean()).sin()


def ratio(norms):
    return norms.max() / norms.min()


def same_ratio(norms):  # each its own declaration
    return norms.max() / norms.min()


def unseen(validation, ids):
    seen = torch.isin(validation.classes, ids)
    return torch.where(seen, validation.counts.double(), torch.nan).sum()


def vectored(vector):
    return scalar(lambda norms: norms.max() / norms.min(), vector=vector)


METRICS = {
    "keeps": (scalar(lambda norms: norms.square().mean(), scale=2.0), set()),
    "no scale": (scalar(lambda norms: norms.square().mean()), {"scale"}),
    "wrong scale": (scalar(lambda norms: norms.square().mean(), scale=1.0), {"scale"}),
    "too modest a scale": (scalar(lambda norms: norms.square().mean(), scale=None), {"scale"}),
    "no power": (scalar(lambda norms: norms.log().mean(), scale=None), set()),
    "moves": (scalar(lambda global_mean, norms: global_mean.norm() / norms.mean()), {"translation"}),
    "too modest a translation": (scalar(same_ratio, translation=False), {"translation"}),
    "moves, declared": (scalar(lambda global_mean, norms: global_mean.norm() / norms.mean(), translation=False), set()),
    "turns": (scalar(lambda centred_means, norms: centred_means[:, 0].abs().mean() / norms.mean()), {"rotation"}),
    "order": (scalar(lambda norms: norms[0] / norms[1]), {"class order"}),
    "ids": (scalar(lambda ids, norms: ids.double() @ norms / norms.sum()), {"class order"}),
    "all classes": (scalar(lambda norms, left_out: norms.max() / norms.min() + left_out), {"left-out classes"}),
    "float32": (scalar(rounding, scale=None), {"float32"}),
    "largest id": (scalar(lambda C, ids: C / (ids.max() + 1.0)), {"class order"}),
    "a count": (scalar(lambda norms: (norms > 1e3).sum(), scale=None), set()),
    "an unseen label": (scalar(unseen), {"degenerate classes"}),
    "one simplex": (scalar(lambda C: C - 1.0, towards=6.0), {"simplex"}),
    "a vector": (vectored(lambda ids, norms: (ids, norms)), set()),
    "a vector that raises": (vectored(lambda ids: 1 // 0), {"value"}),
    "a vector that writes": (vectored(lambda ids, means: (ids, means.mul_(2)[:, 0])), {"value"}),
    "power means": (class_metric(LogMeanExp("mine.x"), scale=1)(lambda norms: norms), set()),
    "no simplex": (scalar(lambda norms: norms.max() / norms.min(), towards=2.0), {"simplex"}),
    "simplex": (scalar(ratio, towards=1.0), set()),
    "raises for few": (scalar(lambda C, norms: norms[0] / norms[0] if C > 2 else 1 // 0), {"degenerate classes"}),
    "nothing": (scalar(lambda means: None), {"value"}),
    "no statistic": (scalar(lambda nowhere: 1.0), {"value"}),
    "a class": (by_class(lambda centred_means, means: row_cosine(centred_means, means)), {"translation"}),
    "wrong shape": (by_class(lambda norms: norms[:1]), None),
    "a pair": (by_pair(lambda distance: distance, scale=1.0), set()),
    "a pair's logs": (by_pair(lambda distance: distance.log(), Std, scale="log"), set()),
    "tiles": (by_pair(lambda sqdist: sqdist / sqdist.amax()), {"tile size"}),
    "one-sided": (by_pair(lambda row_norms, column_norms: row_norms / column_norms), None),
    "writes": (by_pair(lambda cosine: cosine.abs_()), None),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_that_breaks_a_law_is_told_which(name):
    function, laws = METRICS[name]
    if laws == set():
        check_metric(function)
        return
    with pytest.raises(LawBroken) as raised:
        check_metric(function)
    if laws is None:  # it cannot be computed at all, or means nothing
        assert raised.value.laws <= {"value", "symmetry"}
        return
    assert raised.value.laws >= laws
    if name != "tiles":
        assert raised.value.laws - laws <= {"float32", "left-out classes", "degenerate classes"}
    for breach in raised.value.breaches:
        assert f"mine.x breaks the law of {breach.law}: {breach.text}" in str(raised.value)
    if raised.value.laws != {"value"}:
        check_metric(function, without=raised.value.laws)


def test_what_an_error_says():
    with pytest.raises(LawBroken) as raised:
        check_metric(METRICS["wrong scale"][0])
    (line,) = str(raised.value).splitlines()
    assert re.fullmatch(
        r"mine.x breaks the law of scale: \S+ becomes \S+ with 3·h, and scale=1 says \S+: declare scale=2", line
    )
    with pytest.raises(
        LawBroken, match=r"it is multiplied by s\*\*2 when h is multiplied by s: declare scale=2.0, not None"
    ):
        check_metric(METRICS["too modest a scale"][0])
    with pytest.raises(LawBroken, match=r"becomes \S+; if that is meant, declare translation=False"):
        check_metric(METRICS["moves"][0])
    with pytest.raises(LawBroken, match=r"it stays \S+: declare translation=True, not False"):
        check_metric(METRICS["too modest a translation"][0])
    with pytest.raises(LawBroken, match="nothing gives maens"):
        check_metric(scalar(lambda maens: 1.0))
    with pytest.raises(ValueError, match="there is no law of scales; did you mean scale"):
        check_metric(METRICS["keeps"][0], without="scales")
    with pytest.raises(CollapseError, match="not declared"):
        check_metric(lambda norms: 1.0)


class Sums(Statistic):
    """Sum of the embeddings: keeps every law."""

    name = "sums"

    def __init__(self):
        self.total = torch.zeros(1, dtype=torch.float64)

    def update(self, batch):
        self.total = batch.h.sum(dim=0)

    def merge(self, other, mine, theirs):
        self.total = self.total + other.total


class Agreeing(Sums, ValidationStatistic):
    """The same of the validation phase: how many samples both rules decide alike."""

    name = "agreeing"

    def update(self, batch):
        self.total = (batch.linear == batch.ncc).sum().reshape(1)


class ByPosition(Sums, ValidationStatistic):
    """Sums the loss by position, and counts the chunks by the beginning and the end of each."""

    name = "by_position"

    def update(self, batch):
        by_position = torch.zeros(8, dtype=torch.float64).index_add_(0, batch.position, batch.loss)
        begins = (batch.position == 0).sum().reshape(1)
        self.total = torch.cat([by_position, begins, batch.chunk.sum().reshape(1)])


class FirstChunk(Sums, ValidationStatistic):
    """Counts from the first chunk of its batch."""

    name = "first_chunk"

    def update(self, batch):
        self.total = (batch.chunk - batch.chunk.min()).sum().reshape(1)


class Batches(Sums):
    """Counts batches, not samples."""

    def update(self, batch):
        self.total = torch.ones(1).double()


class Last(Sums):
    """Keeps what came last."""

    def update(self, batch):
        self.total = batch.h[-1].clone()

    def merge(self, other, mine, theirs):
        self.total = other.total


class MeanOfMeans(Sums):
    """Averages two sides without their counts."""

    def update(self, batch):
        self.total = batch.h.mean(dim=0)

    def merge(self, other, mine, theirs):
        self.total = (self.total + other.total) / 2


class Single(Sums):
    """Sums in float32."""

    def update(self, batch):
        self.total = batch.h.float().sum(dim=0)


class Writes(Sums):
    """Writes to the batch."""

    def update(self, batch):
        self.total = batch.h.mul_(2).sum(dim=0)


class Forgets(Sums):
    """Holds state that no tensor keeps."""

    def merge(self, other, mine, theirs):
        self.parts = getattr(self, "parts", 0) + 1
        self.total = self.total + self.parts * other.total


class Empty(Sums):
    """Holds nothing."""

    def __init__(self):
        pass

    def update(self, batch):
        pass

    def merge(self, other, mine, theirs):
        pass


class Idle(Sums):
    """Takes nothing in."""

    def merge(self, other, mine, theirs):
        pass


class Few(Sums):
    """Counts in a byte."""

    def __init__(self):
        self.total = torch.zeros(1, dtype=torch.uint8)

    def update(self, batch):
        self.total = torch.tensor([len(batch.y)]).clamp(max=255).to(torch.uint8)


class Small(Sums):
    """Counts classes of small ids."""

    def update(self, batch):
        self.total = torch.zeros(64).double().index_add_(0, batch.y, torch.ones(len(batch.y)).double())


class Seen(Sums, ValidationStatistic):
    """Relies on a mean for each label of the validation text."""

    name = "seen"

    def update(self, batch):
        self.total = batch.deviations.square().sum().reshape(1)


class Infinite(Sums):
    """Divides by nothing."""

    def update(self, batch):
        self.total = batch.h.sum(dim=0) / 0


STATISTICS = {
    Sums: set(),
    Agreeing: set(),
    ByPosition: set(),
    FirstChunk: {"batch size", "merge"},
    Batches: {"batch size", "merge"},
    Last: {"sample order", "merge"},
    MeanOfMeans: {"batch size", "merge"},
    Single: {"batch size", "sample order"},
    Writes: {"value"},
    Forgets: {"resume"},
    Empty: {"value"},
    Infinite: {"value"},
    Idle: {"value"},
    Few: {"batch size"},
    Small: {"value"},
    Seen: {"value"},
}


@pytest.mark.parametrize("kind", STATISTICS)
def test_a_statistic_that_breaks_a_law_is_told_which(kind, caplog):
    caplog.set_level(logging.ERROR)
    if not STATISTICS[kind]:
        check_statistic(kind)
        return
    with pytest.raises(LawBroken) as raised:
        check_statistic(kind)
    assert raised.value.laws >= STATISTICS[kind]


class Totals(Sums):
    """Not installed: found in the module of the metric that asks for it."""

    name = "totals"


def test_a_metric_of_a_statistic_of_its_own():
    check_metric(metric("mine.total", scale=1.0, translation=False)(lambda totals: totals["total"].norm()))


def test_a_statistic_that_breaks_a_law_is_named_with_its_tensor():
    with pytest.raises(LawBroken) as raised:
        check_statistic(MeanOfMeans)
    assert {breach.of for breach in raised.value.breaches} == {"sums.total"}


class AverageOf(Measure):
    """The mean of the values, by a state of its own."""

    empty = (0.0, 0.0)

    def state(self, values, sums):
        return torch.stack([torch.full_like(sums, values.shape[1]), sums])

    def result(self, state):
        return state[1] / state[0]


def test_a_measure_of_its_own_keeps_every_law():
    check_metric(by_class(lambda norms: norms, AverageOf, scale=1.0))


class Counts(Sums):
    """Samples of each class, by id."""

    name, per_class = "by_class", True

    def __init__(self):
        self.total = torch.zeros(512, dtype=torch.float64)

    def update(self, batch):
        self.total = torch.bincount(batch.y, minlength=512).double()


@pytest.mark.parametrize("follows", [True, False])
def test_a_statistic_per_class_must_follow_the_classes_that_are_left(follows):
    @metric("mine.mean_count")
    def mean_count(by_class, ids):
        counts = by_class["total"]
        return (counts[ids] if follows else counts[counts > 0]).mean()

    if follows:
        check_metric(mean_count)
    else:
        with pytest.raises(LawBroken, match=r"law of left-out classes: \S+ of features without rare classes"):
            check_metric(mean_count)


def test_a_class_that_no_collection_takes_is_refused():
    with pytest.raises(CollapseError, match="cannot name"):
        check_statistic(type("Odd", (Sums,), {"name": "No Name"}))


@analysis("largest")
def largest(results, *, column: str = "val_loss"):
    """The largest value of a column: keeps every law."""
    frame = results.frame()
    if not len(frame):
        raise CollapseError("no rows")
    return Table("Largest", ["largest"], [[float(frame[column].max())]], mixed(frame.to_dict("records")))


def changed(name, change):
    @analysis(name)
    def function(results):
        return change(results, largest(results))

    return function


def rows_written_to(results, table):
    results.rows[0].measurements["val_loss"] = 99.0
    return table


def unlike(results, table):
    unlike.calls += 1
    return replace(table, rows=[[unlike.calls]])


unlike.calls = 0


def alike(results):
    """The rows that can be compared with the first."""
    frame = results.frame()
    columns = ["corpus_id", "validation_id", "dtype", "min_count", "chunk_length", "max_chunks"]
    kept = frame[(frame[columns].fillna(-1) == frame[columns].iloc[:1].fillna(-1).to_numpy()).all(axis=1)]
    return SimpleNamespace(frame=lambda: kept)


ANALYSES = {
    "keeps": (lambda results, table: table, set()),
    "no table": (lambda results, table: table.rows, {"table"}),
    "ragged": (lambda results, table: replace(table, rows=[[1, 2]]), {"table"}),
    "raises": (lambda results, table: 1 / 0, {"table"}),
    "writes": (rows_written_to, {"reads only"}),
    "unlike": (unlike, {"repeatable"}),
    "gaps": (lambda results, table: table if results.frame()["nc2.norm"].notna().all() else 1 / 0, {"missing values"}),
    "few": (lambda results, table: table if len(results) > 2 else 1 / 0, {"few rows"}),
    "mixed": (lambda results, table: replace(table, notes=[]), {"mixed rows"}),
    "one remark": (
        lambda results, table: replace(table, notes=[each for each in table.notes if "dtypes" in each]),
        {"mixed rows"},
    ),
    "some rows": (lambda results, table: replace(largest(alike(results)), notes=[]), set()),
    "objects": (lambda results, table: replace(table, rows=[[{}]]), {"table"}),
}


@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_that_breaks_a_law_is_told_which(name):
    change, laws = ANALYSES[name]
    results = random_results(12, ["nc1.cdnv", "nc2.norm"])
    if not laws:
        check_analysis(changed(name, change), results=results)
        return
    with pytest.raises(LawBroken) as raised:
        check_analysis(changed(name, change), results=results)
    assert raised.value.laws >= laws
    assert all(breach.of == name for breach in raised.value.breaches)


def test_an_analysis_is_checked_on_rows_that_have_an_odd_value_already():
    results = random_results(12, ["nc1.cdnv", "nc2.norm"])
    odd = [replace(row, dtype="bfloat16", min_count=5, max_chunks=100, chunk_length=32) for row in results.rows]
    check_analysis(changed("some rows", ANALYSES["some rows"][0]), results=Results(odd))
    with pytest.raises(CollapseError, match="the results hold no rows"):
        check_analysis(changed("some rows", ANALYSES["some rows"][0]), results=Results([]))


def test_each_check_says_which_one_is_for_what():
    with pytest.raises(CollapseError, match="largest is no metric: use check_analysis"):
        check_metric(largest)
    with pytest.raises(CollapseError, match="is no analysis: use check_metric"):
        check_analysis(METRICS["keeps"][0])


def test_std_of_classes_at_an_exact_simplex():
    check_metric(by_class(lambda norms: norms, Std, scale=1.0))


def test_pytest_checks_what_a_plugin_declares(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from collapse import metric\n\n@metric('mine.good')\ndef good(C):\n    return C\n\n"
        "@metric('mine.bad')\ndef bad(norms):\n    return norms.mean()\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "collapse.testing.pytest_plugin", "--collapse-laws", "mine.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "1 failed, 1 passed" in done.stdout
    assert "mine.bad breaks the law of scale" in done.stdout
