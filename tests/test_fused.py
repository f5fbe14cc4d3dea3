"""The compiled pair sweep gives the numbers of the eager one, and leaves to it what it cannot do."""

import logging
import os
import shutil
import subprocess
import sys

import pytest
import torch

from collapse import EmbeddingStatistics, Max, Mean, MeanLog, Std, pair_metric
from collapse.numerics.pairs import Sweep, sweep
from collapse.plugin.metrics import declaration
from collapse.plugin.plugin_manager import plugins

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
        return pair.cosine * (2 if hasattr(pair, "least") else 1)  # only where it is traced

    wanted = [declared(other, Mean("x.other")), declared(lambda pair: pair.cosine, Mean("x.cosine"))]
    wanted += [declared(lambda pair: pair.cosine.float().exp(), Mean("x.float"))]
    s = statistics(90)
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse) for fuse in (False, True))
    assert numbers(compiled)["x.other"] == numbers(eager)["x.other"]
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-6)
    assert numbers(compiled)["x.cosine"] == pytest.approx(numbers(eager)["x.cosine"], rel=1e-12)
    assert len(said()) == 1
    assert said()[0].endswith("other is not compiled: it then gave other numbers")


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


def test_without_a_compiler_the_sweep_goes_on(tmp_path):
    environment = os.environ | {"CXX": str(tmp_path / "no-compiler"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", WITHOUT], env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("pairs are measured without torch.compile") == 1
    assert "C++ compiler, such as g++" in done.stderr
    assert "Traceback" not in done.stderr


@compiler
def test_float32_is_compiled_too(said):
    s, wanted = statistics(90, 40), built_in(["nc2.interference", "nc1.cdnv"])
    eager, compiled = (sweep(s, wanted, tile=16, fuse=fuse, dtype=torch.float32) for fuse in (False, True))
    assert not said()
    assert numbers(compiled) == pytest.approx(numbers(eager), rel=1e-4)
