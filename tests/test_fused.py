"""The compiled pair sweep gives the numbers of the eager one, and leaves to it what it cannot do."""

import logging
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from collapse import EmbeddingStatistics, Max, Mean, MeanLog, Std, pair_metric
from collapse.numerics.fused import Fused
from collapse.numerics.pairs import Sweep, sweep
from collapse.plugin.metrics import declaration
from collapse.plugin.plugin_manager import plugins
from collapse.testing import statistics_of

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch's own compiler
compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler")
MIXED = ["nc1.cdnv", "nc1.cdnv_std", "nc1.log_cdnv", "nc2.interference", "gnc2.log_kernel_std", "gnc2.log_riesz"]


def statistics(classes: int = 150, dim: int = 6) -> EmbeddingStatistics:
    """Statistics with equal and near means, some of one direction, and one class at the global mean."""
    draw = torch.Generator().manual_seed(0)
    means = torch.randn(classes, dim, generator=draw, dtype=torch.float64)
    means[20] = means[70]  # of different tiles
    means[21] = means[71] + 1e-7
    means[22] = 2 * means[72] - means.mean(dim=0)
    return EmbeddingStatistics(
        classes=torch.arange(classes),
        counts=torch.randint(2, 9, (classes,), generator=draw),
        means=means,
        variances=torch.rand(classes, generator=draw, dtype=torch.float64),
    )


def built_in(names):
    known = plugins().measurements()
    return [(known[name][0], [known[name][1]]) for name in names]


def numbers(swept: Sweep) -> dict[str, float]:
    return {name: float(each) for one in swept.metrics for name, each in one.taken.numbers.items()}


@pytest.fixture
def said(caplog):
    """Everything that the sweeps say, also of metrics that stay eager."""
    caplog.set_level(logging.DEBUG, "collapse")
    return lambda: [each.getMessage() for each in caplog.records if each.name == "collapse"]


def declared(function, *measures, over="all"):
    made = pair_metric(needs=["means"], over=over, measures=list(measures), source="a test", equation="f")(function)
    return declaration(made), list(measures)


@compiler
def test_compiled_numbers_are_those_of_the_eager_sweep(said):
    s, wanted = statistics(), built_in(MIXED)
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert not said()
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-12)
    assert compiled.close_pairs == eager.close_pairs == 1
    assert compiled.rounded == eager.rounded
    for name, a, b in zip(MIXED, compiled.metrics, eager.metrics, strict=True):
        assert a.taken.left_out(name) == b.taken.left_out(name), name
        assert a.taken.weight == b.taken.weight


@compiler
def test_a_metric_that_cannot_be_compiled_is_measured_eagerly(said):
    def looks(pair):
        return pair.cosine if bool((pair.cosine > 2).any()) else pair.cosine + 1

    def takes_rows(pair):
        return pair.rows("means") @ pair.columns("means").T

    def writes(pair):
        return pair.gram.mul_(2)

    wanted = [declared(looks, Mean("x.looks")), declared(takes_rows, Std("x.rows")), declared(writes, Mean("x.writes"))]
    wanted += [declared(lambda pair: pair.cosine.square(), Mean("x.squares"), MeanLog("x.logs"), Max("x.max"))]
    s = statistics(90)
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    for swept in (eager, compiled):
        assert "wrote to gram" in str(swept.metrics.pop(2))
    assert [each.split(" is not compiled")[0][-5:] for each in said()] == ["looks", "_rows"]
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-12)


@compiler
def test_compiled_numbers_that_differ_are_not_taken(said):
    def other(pair):
        return pair.cosine * (1 if type(pair.gram) is torch.Tensor else 2)  # only where it is traced

    wanted = [declared(other, Mean("x.other")), declared(lambda pair: pair.cosine, Mean("x.cosine"))]
    wanted += [declared(lambda pair: pair.cosine.float().exp(), Mean("x.float"))]
    s = statistics(90)
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    for name in ("x.other", "x.float"):
        assert numbers(compiled)[name] == numbers(eager)[name]
    assert numbers(compiled)["x.cosine"] == pytest.approx(numbers(eager)["x.cosine"], rel=1e-12)
    assert len(said()) == 2
    assert "it returns torch.float32, whose rounding compiled code leaves out" in said()[0]
    assert said()[1].endswith("other is not compiled: it then gave other numbers")


@compiler
def test_what_a_metric_reads_may_change_between_sweeps(said):
    factors = {"of": 1.0}

    def scaled(pair):
        return pair.cosine.where(pair.rows("classes").unsqueeze(1) < 60, pair.cosine * factors["of"])

    s, wanted = statistics(90), [declared(scaled, Mean("x.scaled"), Std("x.scaled_std"))]
    for factors["of"] in (1.0, 7.0, 1.0):
        eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
        assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-12)
    assert not said()


@compiler
def test_a_metric_may_make_and_read_tensors(said):
    factors = torch.ones(3, dtype=torch.float64)

    def made(pair):
        return pair.cosine * torch.tensor(factor, dtype=torch.float64)

    def read(pair):  # it cannot be traced
        return pair.cosine * factors.sum()

    s, wanted = statistics(90), [declared(made, Mean("x.made")), declared(read, Mean("x.read"))]
    for factor in (1.0, 2.0):
        factors.fill_(factor)
        eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
        assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-12)
    assert all("read is not compiled" in each for each in said())


@compiler
def test_operations_that_the_compiler_rounds_or_bounds_otherwise_stay_eager(said):
    def floors(pair):  # 0.5 // 0.1 is 4 as the exact quotient, and 5 as the rounded one; first seen in a late tile
        rows, columns = pair.counts
        return torch.floor_divide(torch.minimum(rows, columns).double() / torch.maximum(rows, columns), 0.1)

    def rounds(pair):
        rows, columns = pair.counts
        return torch.div(torch.minimum(rows, columns) / torch.maximum(rows, columns), 0.1, rounding_mode="floor")

    def looks_up(pair):
        table = torch.arange(90, dtype=torch.float64)
        return pair.cosine * table[pair.rows("classes") - 100].unsqueeze(1) * table[pair.columns("classes") - 100]

    s, draw = statistics(90), torch.Generator().manual_seed(1)
    counts = torch.cat([torch.randint(*each, generator=draw) for each in ((1000, 100_000, (30,)), (1, 9, (60,)))])
    s = replace(s, classes=s.classes + 100, counts=counts)
    wanted = [declared(each, Mean(f"x.{each.__name__}")) for each in (floors, rounds, looks_up)]
    wanted += built_in(["nc2.interference"])
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-12)
    for name in ("x.floors", "x.rounds", "x.looks_up"):
        assert numbers(compiled)[name] == numbers(eager)[name]
    assert "it calls aten.floor_divide.default, which is not elementwise" in said()[0]
    assert len(said()) == 3


@compiler
def test_numbers_that_are_rounded_to_fewer_digits_stay_eager(said):
    def products(pair):  # exact in the first tiles only
        rows, columns = pair.counts
        return (rows.bfloat16() * columns.bfloat16()).double()

    def exponentials(pair):
        rows, columns = (pair.rows("classes").unsqueeze(1), pair.columns("classes"))
        return pair.cosine.float().exp().double().where((rows >= 60) & (columns >= 60), pair.cosine)

    def ratios(pair):  # of integers, hence float32
        rows, columns = pair.counts
        return (rows / columns).log().abs().double()

    s = statistics(90)
    s.counts[50:] = torch.randint(300, 300_000, (40,), generator=torch.Generator().manual_seed(0))
    wanted = [declared(each, Mean(f"x.{each.__name__}")) for each in (products, exponentials, ratios)]
    wanted += [declared(lambda pair: pair.cosine * torch.tensor(0.5), Mean("x.half"))]
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert numbers(compiled).pop("x.half") == pytest.approx(numbers(eager).pop("x.half"), rel=1e-12)
    for name in ("x.products", "x.exponentials", "x.ratios"):
        assert numbers(compiled)[name] == numbers(eager)[name], name
    dtypes = ("bfloat16", "float32", "float32")
    assert [each.partition(" in ")[2] for each in said()] == [
        f"torch.{dtype}, which compiled code rounds otherwise" for dtype in dtypes
    ]


@compiler
def test_integers_that_may_fail_stay_eager(said):
    def remainders(pair):
        rows, columns = pair.counts
        return ((rows * columns) % (torch.minimum(rows, columns) - 1)).double()

    s = statistics(90)
    s.counts[70] = 1
    wanted = [declared(remainders, Mean("x.remainders")), declared(lambda pair: pair.cosine, Mean("x.cosine"))]
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert str(compiled.metrics.pop(0)) == str(eager.metrics.pop(0)) == "ZeroDivisionError"
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-12)
    assert len(said()) == 1
    assert "of integers, which may fail" in said()[0]


@compiler
def test_a_long_recurrence_stays_eager(said):
    def chebyshev(pair):  # compiled, each step would stand in it as often as the later ones use it
        before, now = torch.ones_like(pair.cosine), pair.cosine
        for _ in range(40):
            before, now = now, 2 * pair.cosine * now - before
        return now

    def powers(pair):
        power = pair.cosine
        for _ in range(30):
            power = power * power
        return power

    wanted = [declared(each, Mean(f"x.{each.__name__}")) for each in (chebyshev, powers)]
    wanted += [declared(lambda pair: pair.cosine, Mean("x.cosine"))]
    s = statistics(90)
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-12)
    assert [each.partition("it has ")[2][:24] for each in said()] == ["more than 500 operations"] * 2


FORKED = """
import os, signal
import torch
from collapse import Mean, pair_metric
from collapse.numerics.pairs import sweep
from collapse.plugin.metrics import declaration
from collapse.testing import statistics_of

torch.set_num_threads(1)  # OpenMP's threads do not outlive a fork
s = statistics_of(torch.randn(60, 5, generator=torch.Generator().manual_seed(0)).tolist())
def mean(function):
    measures = [Mean("x.mean")]
    metric = declaration(pair_metric(needs=["means"], over="all", measures=measures)(function))
    found = [sweep(s, [(metric, measures)], tile=16, fuse=each) for each in (True, False)]
    compiled, eager = (float(each.metrics[0].taken.number("x.mean")) for each in found)
    assert abs(compiled - eager) < 1e-12 * abs(eager)
mean(lambda pair: pair.cosine.square() + 0.5)
child = os.fork()
if child == 0:
    signal.alarm(60)
    mean(lambda pair: pair.cosine * 3 + 1.125)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@compiler
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_compiles_too(tmp_path):
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    words = [sys.executable, "-W", "ignore", "-c", FORKED]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")


@compiler
def test_a_metric_that_is_not_finite_or_overflows_leaves_the_others_compiled(said, monkeypatch):
    def large(pair):
        return (pair.cosine + 2) * 1e153

    def endless(pair):
        return (pair.cosine - 0.2).log()

    def remainders(pair):  # those of a count of 0 are not finite, and there is none
        rows, columns = (each.double() for each in pair.counts)
        return ((rows % columns) + (columns % rows)) * pair.cosine

    taken, take = [], Fused.take
    monkeypatch.setattr(Fused, "take", lambda self, pair: taken.append(list(take(self, pair))) or taken[-1])
    s = statistics_of(torch.randn(40, 5, generator=torch.Generator().manual_seed(0)).tolist())
    odd = (large, endless, remainders)
    wanted = [declared(each, Mean(f"x.{each.__name__}"), Std(f"x.{each.__name__}_std")) for each in odd]
    wanted += [declared(lambda pair: pair.cosine.clamp_min(0), MeanLog("x.logs"))]
    wanted += built_in(["nc2.interference"])
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-12, nan_ok=True)
    assert len(taken) == 6
    assert all({2, 4} <= set(each) and not {1, 3} & set(each) for each in taken[1:])
    assert not said()


@compiler
def test_integers_of_any_width_are_read_as_they_are(said):
    s = statistics(90)
    s = replace(s, counts=s.counts.to(torch.int32))
    wanted = [declared(lambda pair: pair.cosine * pair.counts[0] * pair.counts[1], Mean("x.counts"))]
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-12)
    assert not said()


@compiler
def test_sweeps_of_several_threads_are_compiled(said):
    s = statistics(90)
    metrics = [declared(lambda pair, by=by: pair.cosine * by, Mean("x.by")) for by in (1.5, 2.5, 3.5)]
    expected = [numbers(sweep(s, [each], tile=16, fuse=False)) for each in metrics]
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda each: numbers(sweep(s, [each], tile=16, fuse=True)), metrics * 2))
    for a, b in zip(found, expected * 2, strict=True):
        assert a == pytest.approx(b, rel=1e-12)
    assert not said()


@compiler
def test_the_number_of_threads_may_change_between_sweeps(said):
    s, wanted, before = statistics(90), built_in(["nc2.interference", "nc2.interference_std"]), torch.get_num_threads()
    expected = numbers(sweep(s, wanted, tile=16, fuse=False))
    try:
        for threads in (1, 3, 2):
            torch.set_num_threads(threads)
            assert numbers(sweep(s, wanted, tile=16, fuse=True)) == pytest.approx(expected, rel=1e-12)
    finally:
        torch.set_num_threads(before)
    assert not said()


@compiler
@pytest.mark.parametrize("classes", [17, 31, 32, 33, 47])
def test_diagonal_and_incomplete_tiles_are_compiled(said, monkeypatch, classes):
    taken = []
    take = Fused.take
    monkeypatch.setattr(Fused, "take", lambda self, pair: taken.append(take(self, pair)) or taken[-1])
    wanted = built_in(["nc2.interference", "nc2.interference_std"])
    wanted += [declared(lambda pair: pair.cosine.square(), Max("x.max"), Mean("x.mean"), MeanLog("x.logs"))]
    s = statistics_of(torch.randn(classes, 5, generator=torch.Generator().manual_seed(classes)).tolist())
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-12)
    for a, b in zip(compiled.metrics, eager.metrics, strict=True):
        assert a.taken.weight == b.taken.weight
    left = [not each for each in taken]
    # the first gives the centres of the next, and the last may be without a pair
    assert left == [index == 0 or (index == len(left) - 1 and classes % 16 == 1) for index in range(len(left))]
    assert not said()


@compiler
def test_a_metric_of_where_its_tile_lies_is_not_compiled(said):
    def apart(pair):
        rows, columns = (torch.arange(run.start, run.stop) for run in pair.runs)
        return pair.cosine * (rows[:, None] - columns).abs()

    s, wanted = statistics(90), [declared(apart, Mean("x.apart"), Std("x.apart_std"))]
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert numbers(compiled) == numbers(eager)
    assert "it reads which classes the tile is of" in said()[0]


@compiler
@pytest.mark.parametrize("gap", [0.0, 1e-7])
def test_near_pairs_in_the_first_tiles_do_not_stop_compiling(said, gap):
    s = statistics(90)
    s.means[3] = s.means[20] + gap
    wanted = built_in(["nc1.cdnv"])
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-12)
    assert not said()


WITHOUT = """
import torch
from collapse.numerics.pairs import sweep
from collapse.plugin.plugin_manager import plugins
from collapse.testing import statistics_of
metric, measure = plugins().measurements()["nc2.interference"]
s = statistics_of(torch.randn(60, 5, generator=torch.Generator().manual_seed(0)).tolist())
found = [float(sweep(s, [(metric, [measure])], tile=16, fuse=each).metrics[0].taken.number(measure.name))
    for each in (True, False)]
assert found[0] == found[1], found
"""


@pytest.mark.parametrize(("compiler", "folder"), [("no-compiler", "made"), ("", "a file/below")])
def test_without_a_compiler_or_its_folder_the_sweep_goes_on(tmp_path, compiler, folder):
    (tmp_path / "a file").write_text("")
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / folder)}
    environment |= {"CXX": str(tmp_path / compiler)} if compiler else {}
    done = subprocess.run([sys.executable, "-c", WITHOUT], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("pair metrics are not compiled") == 1
    assert "C++ compiler, such as g++" in done.stderr
    assert "Traceback" not in done.stderr


@compiler
def test_nothing_is_compiled_where_that_is_not_wanted(said, monkeypatch):
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    monkeypatch.setattr(Fused, "__init__", lambda *_: pytest.fail("it compiles"))
    sweep(statistics(90), built_in(["nc2.interference"]), tile=16, fuse=True)
    assert not said()


@compiler
def test_float32_is_compiled_too(said):
    s, wanted = statistics(90, 40), built_in(["nc2.interference", "nc1.cdnv"])
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse, dtype=torch.float32) for fuse in (False, True))
    assert not said()
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-4)


@compiler
def test_compiling_is_reported_before_the_first_tile():
    told = []
    sweep(statistics(), built_in(["nc1.cdnv"]), tile=50, fuse=True, progress=lambda *report: told.append(report))
    assert told[:2] == [("compiling pair metrics", 0, 1), ("compiling pair metrics", 1, 1)]
    assert told[2:] == [("sweeping pairs", done, 6) for done in range(1, 7)]
    told.clear()
    sweep(statistics(), built_in(["nc1.cdnv"]), tile=50, progress=lambda *report: told.append(report))
    assert told == [("sweeping pairs", done, 6) for done in range(1, 7)]


@compiler
def test_metrics_that_move_values_of_pairs_stay_eager(said):
    """A tile of fewer classes is filled up, and what fills it must not get among its pairs."""

    def mirrored(pair):
        return pair.cosine.T if pair.cosine.shape[0] == pair.cosine.shape[1] else pair.cosine

    wanted = [declared(mirrored, Mean("mirrored")), *built_in(["nc1.cdnv"])]
    eager, fused = (sweep(statistics(90), wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert numbers(fused) == pytest.approx(numbers(eager), rel=1e-12)
    assert any("mirrored is not compiled" in line or "not elementwise" in line for line in said())
