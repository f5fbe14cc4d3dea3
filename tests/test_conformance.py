"""The checks that plugin authors use: the built-ins pass them, and each law that is broken is named."""

import logging
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import collapse
from collapse import (
    CollapseError,
    CoV,
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
    cosine,
    metric,
    pair_metric,
)
from collapse.measurement.comparing import mixed
from collapse.plugin.plugin_manager import plugins
from collapse.plugin.reducers import Reducer
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


def scalar(function, needs=("means",), **declared):
    return metric("mine.x", needs=list(needs), **declared)(lambda s: function(s))  # each its own declaration


def by_class(function, measure=Mean, **declared):
    return class_metric(measure("mine.x"), needs=["means"], **declared)(function)


def by_pair(function, measure=Mean, over="all", **declared):
    return pair_metric(measure("mine.x"), needs=["means", "counts"], over=over, **declared)(function)


def spread(s):
    return s.norms.square().mean()


def by_memory(s):
    by_memory.calls += 1
    return s.norms.mean() / s.norms.mean() * by_memory.calls


by_memory.calls = 0


def rounding(s):  # the seventh digit of a number
    return 2 + (1e7 * s.norms.mean()).sin()


def ratio(s):
    return s.norms.max() / s.norms.min()


def unseen(s):
    seen = torch.isin(s.validation.classes, s.classes)
    return torch.where(seen, s.validation.counts.double(), torch.nan).sum()


METRICS = {
    "keeps": (scalar(spread, scale=2.0), set()),
    "no scale": (scalar(spread), {"scale"}),
    "wrong scale": (scalar(spread, scale=1.0), {"scale"}),
    "too modest a scale": (scalar(spread, scale=None), {"scale"}),
    "no power": (scalar(lambda s: s.norms.log().mean(), scale=None), set()),
    "moves": (scalar(lambda s: s.global_mean.norm() / s.norms.mean()), {"translation"}),
    "too modest a translation": (scalar(ratio, translation=False), {"translation"}),
    "moves, declared": (scalar(lambda s: s.global_mean.norm() / s.norms.mean(), translation=False), set()),
    "turns": (scalar(lambda s: s.centred_means[:, 0].abs().mean() / s.norms.mean()), {"rotation"}),
    "order": (scalar(lambda s: s.norms[0] / s.norms[1]), {"class order"}),
    "ids": (scalar(lambda s: s.classes.double() @ s.norms / s.norms.sum()), {"class order"}),
    "all classes": (scalar(lambda s: ratio(s) + s.left_out), {"left-out classes"}),
    "float32": (scalar(rounding, scale=None), {"float32"}),
    "largest id": (scalar(lambda s: s.n_classes / (s.classes.max() + 1.0)), {"class order"}),
    "a count": (scalar(lambda s: (s.norms > 1e3).sum(), scale=None), set()),
    "an unseen label": (scalar(lambda s: unseen(s), needs=["validation"]), {"degenerate classes"}),
    "one simplex": (scalar(lambda s: s.n_classes - 1.0, needs=["counts"], towards=6.0), {"simplex"}),
    "a vector": (scalar(ratio, vector=lambda s: (s.classes, s.norms)), set()),
    "a vector that raises": (scalar(ratio, vector=lambda s: 1 // 0), {"value"}),
    "a vector that writes": (scalar(ratio, vector=lambda s: (s.classes, s.means.mul_(2)[:, 0])), {"value"}),
    "a vector of another length": (scalar(ratio, vector=lambda s: (s.classes, s.norms[1:])), {"value"}),
    "power means of no class": (
        class_metric(LogMeanExp("mine.x", scale=None), needs=["means"], over="directions")(lambda s: s.norms),
        set(),
    ),
    "no simplex": (scalar(ratio, towards=2.0), {"simplex"}),
    "simplex": (scalar(ratio, towards=1.0), set()),
    "raises for few": (scalar(lambda s: ratio(s) if s.n_classes > 2 else 1 // 0), {"degenerate classes"}),
    "nothing": (scalar(lambda s: None), {"value"}),
    "no statistic": (scalar(lambda s: 1.0, needs=["nowhere"]), {"value"}),
    "a class": (by_class(lambda s: cosine(s.centred_means, s.means), over="directions"), {"translation"}),
    "wrong shape": (by_class(lambda s: s.norms[:1]), None),
    "a pair": (by_pair(lambda pair: pair.distance, scale=1.0), set()),
    "a pair's cov": (by_pair(lambda pair: pair.distance, CoV, scale=1.0), {"scale"}),
    "tiles": (by_pair(lambda pair: pair.sqdist / pair.sqdist.amax()), {"tile size"}),
    "random": (by_pair(lambda pair: torch.rand_like(pair.gram)), None),
    "writes": (by_pair(lambda pair: pair.cosine.abs_()), None),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_that_breaks_a_law_is_told_which(name):
    function, laws = METRICS[name]
    if laws == set():
        check_metric(function)
        return
    with pytest.raises(LawBroken) as raised:
        check_metric(function)
    if laws is None:  # it cannot be computed at all
        assert raised.value.laws == {"value"}
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
    with pytest.raises(LawBroken, match=r"nothing gives maens \(did you mean means\?\): pass a statistic as"):
        check_metric(scalar(ratio, needs=["maens"]))
    with pytest.raises(ValueError, match="there is no law of scales; did you mean scale"):
        check_metric(METRICS["keeps"][0], without="scales")
    with pytest.raises(CollapseError, match="not declared"):
        check_metric(spread.__call__)


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


def test_a_metric_of_a_statistic_of_its_own():
    @metric("mine.total", needs=["sums"], scale=1.0, translation=False)
    def total(s):
        return s.statistic("sums")["total"].norm()

    check_metric(total, statistics=[Sums])
    with pytest.raises(LawBroken, match=r"nothing gives sums \(.*\): pass a statistic as statistics="):
        check_metric(total)


def test_a_statistic_that_breaks_a_law_is_named_with_its_tensor():
    with pytest.raises(LawBroken) as raised:
        check_statistic(MeanOfMeans)
    assert {breach.of for breach in raised.value.breaches} == {"sums.total"}


class Average(Reducer):
    """The mean, with the documented parameters of ``add``."""

    def __init__(self):
        self.count = self.total = torch.zeros(1, dtype=torch.float64)

    def add(self, values, weights):
        weights = torch.ones_like(values) if weights is None else weights
        self.count = self.count + weights.sum(1)
        self.total = self.total + (values.masked_fill(weights == 0, 0) * weights).sum(1)

    def merge(self, other):
        self.count, self.total = self.count + other.count, self.total + other.total

    def result(self):
        return self.total / self.count


class AverageOf(Measure):
    """The mean of the values, by a reducer of its own."""

    def reducer(self, classes, dim):
        return Average()


def test_a_reducer_whose_add_needs_both_arguments_keeps_every_law():
    check_metric(class_metric(AverageOf("mine.x"), needs=["means"], scale=1.0)(lambda s: s.norms))


class Unweighted(Average):
    """Takes values of weight 0 in too, and so classes that are left out."""

    def add(self, values, weights):
        super().add(values.nan_to_num(), None)


class UnweightedOf(AverageOf):
    def reducer(self, classes, dim):
        return Unweighted()


def test_a_reducer_that_takes_values_of_weight_0_is_told():
    wrong = class_metric(UnweightedOf("mine.x"), needs=["means"], scale=1.0)(lambda s: s.norms)
    with pytest.raises(LawBroken, match="weight 0"):
        check_metric(wrong)


class Counts(Sums):
    """Samples of each class, by id."""

    name, per_class = "by_class", True

    def __init__(self):
        self.total = torch.zeros(512, dtype=torch.float64)

    def update(self, batch):
        self.total = torch.bincount(batch.y, minlength=512).double()


@pytest.mark.parametrize("follows", [True, False])
def test_a_statistic_per_class_must_follow_the_classes_that_are_left(follows):
    @metric("mine.mean_count", needs=["by_class"])
    def mean_count(s):
        counts = s.statistic("by_class")["total"]
        return (counts[s.classes] if follows else counts[counts > 0]).mean()

    if follows:
        check_metric(mean_count, statistics=[Counts])
    else:
        with pytest.raises(LawBroken, match=r"law of left-out classes: \S+ of features without rare classes"):
            check_metric(mean_count, statistics=[Counts])


@pytest.mark.parametrize(("change", "told"), [({"phase": "valid"}, "phase"), ({"name": "No Name"}, "cannot name")])
def test_a_class_that_no_collection_takes_is_refused(change, told):
    with pytest.raises(CollapseError, match=told):
        check_statistic(type("Odd", (Sums,), change))


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
    "unlike": (unlike, {"repeatable", "files"}),
    "rows": (lambda results, table: replace(table, rows=[[len(results.rows)]]), {"files"}),
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
    with pytest.raises(CollapseError, match="largest is an analysis: use check_analysis"):
        check_metric(largest)
    with pytest.raises(CollapseError, match="is a metric: use check_metric"):
        check_analysis(METRICS["keeps"][0])


def test_std_of_classes_at_an_exact_simplex():
    check_metric(by_class(lambda s: s.norms, Std, scale=1.0))
