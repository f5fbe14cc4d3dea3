"""The monitor gives the numbers of a store of the same batches, and leaves a training as it was."""

import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import collapse
from collapse.errors import CollapseError, UsageError
from collapse.testing import random_features

C, D = 12, 5


def arrays(spread=None):
    """Features of a file in float64; with a small ``spread``, the classes are nearly constant."""
    held = random_features(C, D, 300)
    for name, values in held.items():
        held[name] = values.double() if values.is_floating_point() else values
    for name in () if spread is None else ("train", "validation"):
        centres = 1 + held["classifier"]
        held[f"{name}_features"] = centres[held[f"{name}_labels"]] + spread * held[f"{name}_features"]
    return held


def stored(held):
    names = {"features": "train_features", "labels": "train_labels", "classifier": "classifier"}
    names |= {name: name for name in ("validation_features", "validation_labels")}
    return collapse.measure(collapse.collect_arrays(**{name: held[key] for name, key in names.items()}))


def filled(monitor, held, size=32):
    for h, y in zip(held["train_features"].split(size), held["train_labels"].split(size), strict=True):
        monitor.update(h, y)
    return monitor


def validation(held):
    return held["validation_features"], held["validation_labels"]


def assert_equal(found, expected, tolerance=1e-12):
    for name, value in expected.items():
        assert value is None or found[name] == pytest.approx(value, rel=tolerance, abs=tolerance, nan_ok=True), name


@pytest.mark.parametrize("classes", [C, C + 7, None])
@pytest.mark.parametrize("spread", [None, 1e-4, 0])
@pytest.mark.parametrize("without", ["nc1.covariance_ratio", ""], ids=["no statistic", "a statistic"])
def test_the_numbers_are_those_of_a_store(classes, spread, without):
    held = arrays(spread)
    expected = {name: value for name, value in stored(held).items() if name not in (without, "n_params")}
    monitor = filled(collapse.Monitor(list(expected), classes), held)
    found = monitor.compute(validation(held), classifier=held["classifier"])
    assert_equal(found, expected)
    row = monitor.to_row("run", 7)
    assert (row.model, row.step, row.samples) == ("run", 7, 300)


def test_the_validation_samples_have_their_own_nc1():
    held = arrays()
    h, y = validation(held)
    found = filled(collapse.Monitor("nc1,nc3", C), held).compute((h, y))
    own = collapse.measure(features=h, labels=y, metrics="nc1")
    assert_equal({name: found[f"val_{name}"] for name in own}, own)
    assert not [name for name in found if name.startswith(("nc3", "val_loss", "nc4"))]  # there is no classifier
    batches = [*zip(h.numpy().reshape(5, 15, D), y.numpy().reshape(5, 15), strict=True)]
    assert_equal(filled(collapse.Monitor("nc1,nc3", C), held).compute(batches), found)


class NoSynchronization(TorchDispatchMode):
    """Refuses the operations for which a GPU would be waited for."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert not any(word in str(func) for word in ("local_scalar", "nonzero", "unique", "is_nonzero")), func
        return func(*args, **(kwargs or {}))


def test_an_update_reads_nothing_from_the_device():
    held = arrays()
    with NoSynchronization():
        monitor = filled(collapse.Monitor("nc1.cdnv,nc3", C), held)
    assert monitor.compute()["nc1.cdnv"] > 0


def test_merged_monitors_are_as_one_and_a_reset_one_is_empty():
    held = arrays()
    for metrics in ("nc1.cdnv", "nc1"):
        whole = filled(collapse.Monitor(metrics, C), held)
        parts = [collapse.Monitor(metrics, C) for _ in range(3)]
        for at, (h, y) in enumerate(zip(held["train_features"].split(40), held["train_labels"].split(40), strict=True)):
            parts[at % 2].update(h, y)
        parts[2].merge(parts[0])
        parts[2].merge(parts[1])
        parts[2].merge(collapse.Monitor(metrics, C))
        assert_equal(parts[2].compute(), whole.compute())
        parts[2].update(*validation(held))
        whole.update(*validation(held))
        assert_equal(parts[2].compute(), whole.compute())
        whole.reset()
        with pytest.raises(UsageError, match="no samples to measure"):
            whole.compute()
    with pytest.raises(UsageError, match="same classes and metrics"):
        whole.merge(collapse.Monitor("nc1", C + 1))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 5), nn.Identity())


def samples():
    draw = torch.Generator().manual_seed(1)
    y = torch.arange(200) % 5
    return torch.eye(5, 20)[y] + torch.randn(200, 20, generator=draw), y


@pytest.mark.parametrize("way", ["plain", "compiled", "autocast"])
def test_a_training_with_an_attached_monitor_is_as_without(way):
    x, y = samples()
    monitor = collapse.Monitor("nc1.cdnv_ratio,nc3.self_duality,nc4.agreement", 5)

    def train(monitored):
        model = network()
        if monitored:
            monitor.attach(model)
        torch.compiler.reset()  # otherwise the code without a hook is used again
        run = torch.compile(model, backend="aot_eager", fullgraph=True) if way == "compiled" else model
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", enabled=way == "autocast")
        seen = []
        for _ in range(2):
            for inputs, labels in zip(x.split(50), y.split(50), strict=True):
                with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
                    loss = nn.functional.cross_entropy(run(inputs), labels)
                scaler.scale(loss).backward()
                if monitored:
                    seen.append(monitor._head.h)
                    monitor.update(y=labels)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            if monitored:
                values = monitor.compute(validation=[(x, y)])
                assert values.keys() == {"nc1.cdnv_ratio", "nc3.self_duality", "nc4.agreement", "val_nc1.cdnv_ratio"}
                h = torch.cat(seen)
                direct = collapse.measure(features=h, labels=y.repeat(len(h) // 200), classifier=model[3].weight)
                assert values["nc1.cdnv_ratio"] == pytest.approx(direct["nc1.cdnv_ratio"], rel=1e-12)
                assert values["nc3.self_duality"] == pytest.approx(direct["nc3.self_duality"], rel=1e-12)
        assert torch.is_grad_enabled()
        return [*model.parameters()], torch.rand(3), [each.training for each in model.modules()]

    expected, found = train(False), train(True)
    for one, other in zip([*expected[0], expected[1]], [*found[0], found[1]], strict=True):
        assert torch.equal(one, other)
    assert expected[2] == found[2]


def test_a_model_is_run_on_a_loader_in_evaluation_mode():
    (x, y), model = samples(), network()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32, shuffle=True)
    with collapse.Monitor(classes=5).attach(model, head="3") as monitor:
        random = torch.get_rng_state()
        monitor.run(loader)
        found = monitor.compute(validation=loader)
        assert torch.equal(random, torch.get_rng_state())
        assert all(each.training for each in model.modules())
    model.eval()
    with torch.no_grad():
        h = model[:3](x)
        loss = nn.functional.cross_entropy(model[3](h).double(), y)
    given = {"features": h, "labels": y, "classifier": model[3].weight, "bias": model[3].bias}
    row = collapse.measure(**given, validation_features=h, validation_labels=y)
    assert_equal(found, {name: row[name] for name in found if name in row}, 1e-6)
    assert found["val_loss"] == pytest.approx(float(loss), rel=1e-6)
    assert found["val_nc1.cdnv"] == pytest.approx(found["nc1.cdnv"])
    assert not model[3]._forward_pre_hooks


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
dist.destroy_process_group()
"""


@pytest.mark.parametrize("metrics", ["nc1.cdnv,nc2,nc3,nc4,val_loss", "nc1,nc3,nc4"])
def test_two_processes_give_the_numbers_of_one(warm_here, tmp_path, metrics):
    if sys.platform == "darwin":
        pytest.skip("gloo needs a host name there")
    files = [(tmp_path / f"out{rank}", tmp_path / f"err{rank}") for rank in range(2)]
    started = [
        warm_here.start([rank, tmp_path / "init", metrics], err, program=RANK, out=out, environment={}, folder=tmp_path)
        for rank, (out, err) in enumerate(files)
    ]
    assert [warm_here.wait(pid) for pid in started] == [0, 0], files[0][1].read_text()
    held = random_features(C, D, 300)
    expected = filled(collapse.Monitor(metrics, C), held).compute(validation(held), classifier=held["classifier"])
    for out, err in files:
        assert_equal(eval(out.read_text(), {"nan": np.nan}), expected, 1e-10)
        assert "rank 1: " in err.read_text()
        assert "NaN" in err.read_text()


@pytest.mark.parametrize("classes", [C, None])
def test_samples_with_the_ignored_label_are_left_out(classes):
    held = arrays()
    expected = filled(collapse.Monitor("nc1.cdnv", classes), held).compute(validation(held))
    monitor = filled(collapse.Monitor("nc1.cdnv", classes), held)
    nothing = torch.full((3, 4, D), torch.nan), torch.full((3, 4), -100)
    monitor.update(*nothing)
    h, y = validation(held)
    given = torch.cat([h, nothing[0].reshape(-1, D)]), torch.cat([y, nothing[1].reshape(-1)])
    assert monitor.compute(given) == expected


@pytest.mark.parametrize("classes", [C, None])
def test_wrong_samples_are_reported_by_compute(classes):
    held = arrays()
    for h, y, said in (
        (held["train_features"] * torch.nan, held["train_labels"], "NaN"),
        (held["train_features"] * 1e200, held["train_labels"], "too large"),
        (held["train_features"], held["train_labels"] - 1, r"labels (below 0|outside 0 to 11)"),
    ):
        monitor = collapse.Monitor("nc1.cdnv", classes)
        monitor.update(h, y)
        filled(monitor, held)
        with pytest.raises(CollapseError, match=said):
            monitor.compute()
        monitor.reset()
        assert filled(monitor, held).compute()["nc1.cdnv"] > 0


def test_mistakes_are_refused_in_a_line():
    (x, y), model = samples(), network()
    monitor = collapse.Monitor("nc1.cdnv,nc3", 5)
    monitor.update(x, y)
    h = torch.eye(5, 16)[y]
    attached = collapse.Monitor("nc1.cdnv", 5).attach(model)
    attached.update(h, y)
    for call, said in (
        (lambda: collapse.Monitor("nc9"), "no metric is called 'nc9'"),
        (lambda: monitor.update(x, y[:3]), r"integer labels of shape \(200,\), got torch.int64 of shape \(3,\)"),
        (lambda: monitor.update(x, y.float()), "integer labels"),
        (lambda: monitor.update(h, y), "embeddings have 16 dimensions, but earlier ones 20"),
        (lambda: monitor.update(y=y), "no model is attached"),
        (lambda: monitor.compute(classifier=h[:4, :]), "label 4 has no row in the classifier, which has 4 rows"),
        (
            lambda: monitor.compute(classifier=h[:5]),
            "has 16 columns, but the embeddings have 20 dimensions",
        ),
        (lambda: monitor.to_row(), "call compute"),
        (lambda: monitor.attach(model, "fc"), "Sequential has no module 'fc'; known: 0, 3"),
        (lambda: monitor.attach(model, "1"), "module '1' of Sequential is a ReLU, not linear"),
        (lambda: monitor.attach(model[1]), "ReLU has no linear module"),
        (lambda: attached.update(y=y), "did not run since the last update"),
        (lambda: attached.run([x]), "must be a pair"),
        (lambda: attached.run([{"x": x}]), "a batch has no labels, only x"),
        (lambda: attached.compute(validation=(h, y + 1)), "40 labels outside 0 to 4"),
    ):
        with pytest.raises(CollapseError, match=said):
            call()
    assert model.training


def test_a_head_that_is_not_linear_is_refused():
    class Normalized(nn.Linear):
        def forward(self, h):
            return super().forward(nn.functional.normalize(h, dim=-1))

    (x, y), model = samples(), nn.Sequential(nn.Linear(20, 16), Normalized(16, 5))
    monitor = collapse.Monitor("nc1.cdnv", 5).attach(model)
    monitor.run([(x, y)])
    with pytest.raises(CollapseError, match="the head, a Normalized, does not compute W h"):
        monitor.compute()
