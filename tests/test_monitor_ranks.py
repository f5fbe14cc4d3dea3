"""Monitors in the processes of a distributed training give the numbers of one process."""

import sys

import numpy as np
import pytest
from test_monitor import C, D, assert_equal, filled, validation

import collapse
from collapse.testing import random_features

RANK = """
import sys
import torch
import torch.distributed as dist
import collapse
from collapse.testing import random_features

rank, place, metrics = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
held = random_features(12, 5, 300)
monitor = collapse.Monitor(metrics, 12)
for h, y in zip(held["train_features"].split(32)[rank::2], held["train_labels"].split(32)[rank::2]):
    monitor.update(h, y)
own = slice(40 * rank, 40 + 40 * rank)
share = held["validation_features"][own], held["validation_labels"][own]
for _ in range(2):  # the second time gives the same
    found = monitor.compute(share, classifier=held["classifier"])
print(found)
if rank:
    monitor.update(held["train_features"][:1] * torch.nan, held["train_labels"][:1])
try:
    monitor.compute()
except collapse.CollapseError as error:
    print(error, file=sys.stderr)
monitor.reset()
monitor.update(held["train_features"], held["train_labels"])
try:
    monitor.compute(share if rank else None)
except collapse.CollapseError as error:
    print(error, file=sys.stderr)
dist.destroy_process_group()
"""


def run_two(warm_here, folder, program, *words):
    if sys.platform == "darwin":
        pytest.skip("gloo needs a host name there")
    files = [(folder / f"out{rank}", folder / f"err{rank}") for rank in range(2)]
    started = [
        warm_here.start([rank, folder / "init", *words], err, program=program, out=out, environment={}, folder=folder)
        for rank, (out, err) in enumerate(files)
    ]
    assert [warm_here.wait(pid) for pid in started] == [0, 0], files[0][1].read_text()
    return [(eval(out.read_text(), {"nan": np.nan}), err.read_text()) for out, err in files]


@pytest.mark.parametrize("metrics", ["nc1.cdnv,nc2,nc3,nc4,val_loss", "nc1,nc3,nc4"])
def test_two_processes_give_the_numbers_of_one(warm_here, tmp_path, metrics):
    held = random_features(C, D, 300)
    expected = filled(collapse.Monitor(metrics, C), held).compute(validation(held), classifier=held["classifier"])
    for found, err in run_two(warm_here, tmp_path, RANK, metrics):
        assert_equal(found, expected, 1e-10)
        assert "rank 1: " in err
        assert "NaN" in err
        assert "some ranks have no validation" in err


NORMALIZED = """
import sys
import torch
import torch.distributed as dist
from torch import nn
import collapse

if ranks := len(sys.argv) > 1:
    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
else:
    rank = 0
torch.manual_seed(0)
x, y = torch.randn(120, 6).double(), torch.arange(120) % 4
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)).double()
run = nn.parallel.DistributedDataParallel(model) if ranks else model
draw = torch.Generator().manual_seed(rank)
run(torch.randn(32, 6, generator=draw).double() * (1 + rank))  # each rank has its own running statistics
own = [each.clone() for each in model.buffers()]
monitor = collapse.Monitor("nc1.cdnv,nc3.self_duality,nc4.agreement,val_loss", 4).attach(run)
loader = [*zip(x.split(10), y.split(10))]
monitor.run(loader[rank::2] if ranks else loader)
share = slice(rank, None, 2 if ranks else 1)
found = monitor.compute([(x[share][:40], y[share][:40]), (x[share][40:], y[share][40:])])
print({**found, "error": monitor.to_row().standard_errors["val_loss"]})
assert all(torch.equal(one, other) for one, other in zip(own, model.buffers(), strict=True))
if ranks:
    dist.destroy_process_group()
"""


def test_ranks_measure_one_model(warm_here, run_python, tmp_path):
    """DDP broadcasts the statistics of BatchNorm only in its own forward pass."""
    expected = eval(run_python(NORMALIZED).stdout)
    for found, _ in run_two(warm_here, tmp_path, NORMALIZED):
        assert_equal(found, expected, 1e-10)
