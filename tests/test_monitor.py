"""The monitor gives the numbers of a store of the same batches, and leaves a training as it was."""

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
    filled(monitor, held)
    with pytest.raises(collapse.CollapseError, match="call compute"):  # samples were added since
        monitor.to_row()


def test_the_validation_samples_have_their_own_nc1():
    held = arrays()
    h, y = validation(held)
    found = filled(collapse.Monitor("nc1,nc3", C), held).compute((h, y))
    own = collapse.measure(features=h, labels=y, metrics="nc1")
    assert_equal({name: found[f"val_{name}"] for name in own}, own)
    assert not [name for name in found if name.startswith(("nc3", "val_loss", "nc4"))]  # there is no classifier
    listed = filled(collapse.Monitor(["val_loss", "nc1,nc3"], C), held)
    assert found.items() <= listed.compute((h, y)).items()
    assert "need a classifier" in {each.measurement: each.text for each in listed.to_row().notes}["val_loss"]
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
        with pytest.raises(UsageError, match=r"no samples to measure: call run\(loader\) or update"):
            whole.compute()
        whole.update(torch.ones(2, 3, dtype=torch.bfloat16), torch.arange(2))
        with pytest.raises(UsageError, match="same classes, metrics and dimensions"):
            whole.merge(parts[2])
        parts[0].reset()
        parts[0].merge(whole)
        parts[0].compute()
        assert parts[0].to_row("a", 1).dtype == "bfloat16"
    with pytest.raises(UsageError, match="same classes, metrics and dimensions"):
        whole.merge(collapse.Monitor("nc1", C + 1))


@pytest.mark.parametrize("classes", [-3, 0, 2.5, "5"])
def test_a_number_of_classes_that_is_none_is_refused(classes):
    with pytest.raises(UsageError, match=r"classes must be (an integer|at least 1), got "):
        collapse.Monitor(classes=classes)


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
        (held["train_features"], held["train_labels"] - 1, r"labels (below 0|outside 0 to 11), such as -1:"),
    ):
        monitor = collapse.Monitor("nc1.cdnv", classes)
        monitor.update(h, y)
        filled(monitor, held)
        with pytest.raises(CollapseError, match=said):
            monitor.compute()
        monitor.reset()
        assert filled(monitor, held).compute()["nc1.cdnv"] > 0


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 5), nn.Identity())


def samples():
    draw = torch.Generator().manual_seed(1)
    y = torch.arange(200) % 5
    return torch.eye(5, 20)[y] + torch.randn(200, 20, generator=draw), y


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
        (lambda: monitor.update(h, y), "embeddings have 16 dimensions, but earlier embeddings have 20"),
        (lambda: monitor.update(y=y), "no model is attached"),
        (lambda: attached.update(y), r"call update\(h, y\), or update\(y=labels\)"),
        (
            lambda: monitor.compute(classifier=h[:4, :]),
            "there is a label 4, but the classifier has only the rows 0 to 3",
        ),
        (lambda: monitor.compute(classifier=h[:5]), "has 16 columns, but the embeddings have 20 dimensions"),
        (lambda: monitor.to_row(), "call compute"),
        (lambda: monitor.attach(model, "fc"), "Sequential has no module 'fc'; known: 0, 3"),
        (lambda: monitor.attach(model, "1"), "module '1' of Sequential is a ReLU, not linear"),
        (lambda: monitor.attach(model[1]), "ReLU has no nn.Linear"),
        (lambda: attached.update(y=y), "did not run since the last update"),
        (lambda: attached.run([x]), "must be a pair"),
        (lambda: attached.run([(x, y, y)]), "or a mapping, not a tuple of 3"),
        (lambda: monitor.compute((x, y, y)), r"a pair \(h, y\), not a tuple of 3"),
        (lambda: monitor.compute([(x, y, y)]), r"a pair \(h, y\), not a tuple of 3"),
        (lambda: monitor.compute([]), "the validation has no samples"),
        (lambda: monitor.compute((x[:0], y[:0])), "the validation has no samples"),
        (lambda: monitor.compute((x * torch.nan, y)), "NaN"),
        (lambda: attached.run([{"x": x}]), "a batch has no labels, only x"),
        (lambda: attached.compute(validation=(h, y + 1)), "40 labels outside 0 to 4, such as 5: "),
    ):
        with pytest.raises(CollapseError, match=said):
            call()
    assert model.training


@pytest.mark.parametrize("shape", [(60, 3), (180,)])
def test_standard_errors_do_not_depend_on_the_batch_size(shape):
    draw = torch.Generator().manual_seed(3)
    h, y = torch.randn(*shape, D, generator=draw).double(), torch.randint(C, shape, generator=draw)
    classifier = torch.randn(C, D, generator=draw).double()
    nothing = torch.zeros(shape, dtype=torch.bool)
    nothing[::7] = True
    y = y.masked_fill(nothing, -100)
    monitor = filled(collapse.Monitor("val_loss", C), arrays())
    found = []
    for size in (1, 16, len(y)):
        monitor.compute([*zip(h.split(size), y.split(size), strict=True)], classifier=classifier)
        found.append(monitor.to_row().standard_errors["val_loss"])
    monitor.compute((h, y), classifier=classifier)
    found.append(monitor.to_row().standard_errors["val_loss"])
    losses = nn.functional.cross_entropy((h @ classifier.T).reshape(-1, C), y.reshape(-1), reduction="none")
    count = (y != -100).double().reshape(len(y), -1).sum(dim=1)
    kept, loss = count > 0, losses.reshape(len(y), -1).sum(dim=1)
    of_rest = (loss.sum() - loss[kept]) / (count.sum() - count[kept])  # the jackknife: leave out each unit
    rest = kept.sum()
    expected = ((rest - 1) / rest * (of_rest - loss.sum() / count.sum()).square().sum()).sqrt()
    assert found == pytest.approx([float(expected)] * 4, abs=1e-9)
