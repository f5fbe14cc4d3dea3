"""A monitor that is attached to a model measures it, and leaves its training as it was."""

import pytest
import torch
from test_monitor import assert_equal, network, samples
from torch import nn

import collapse
from collapse.errors import CollapseError


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
    assert found["val_accuracy"] == float((model(x).argmax(dim=1) == y).double().mean())
    assert found["val_nc1.cdnv"] == pytest.approx(found["nc1.cdnv"])
    assert not model[3]._forward_pre_hooks


def test_a_head_that_is_not_linear_is_refused():
    class Normalized(nn.Linear):
        def forward(self, h):
            return super().forward(nn.functional.normalize(h, dim=-1))

    (x, y), model = samples(), nn.Sequential(nn.Linear(20, 16), Normalized(16, 5))
    monitor = collapse.Monitor("nc1.cdnv", 5).attach(model)
    with pytest.raises(CollapseError, match="the head, a Normalized, does not compute W h"):
        monitor.run([(x, y)])


@pytest.mark.parametrize(
    ("last", "is_refused"),
    [(nn.ReLU(), True), (nn.Softmax(-1), True), (nn.LogSoftmax(-1), False), (nn.Flatten(0), False)],
)
def test_an_operation_after_the_head_is_refused_if_it_changes_the_classifier(last, is_refused):
    (x, y), model = samples(), nn.Sequential(nn.Linear(20, 16), nn.Linear(16, 5), last)
    monitor = collapse.Monitor("nc1.cdnv,val_loss", 5).attach(model)
    for call in (monitor.run, monitor.compute):
        if is_refused:
            monitor.update(model[0](x), y)
            with pytest.raises(CollapseError, match=r"does not return W h \+ b of its head, module '1' \(a Linear\)"):
                call([(x, y)])
        else:
            call([(x, y)])
    assert model.training


def test_code_after_the_head_may_need_labels():
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.unused = nn.Linear(20, 5), nn.Linear(20, 5)

        def forward(self, x, labels=None):
            return nn.functional.cross_entropy(self.fc(x), labels)

    (x, y), model = samples(), WithLoss()
    monitor = collapse.Monitor("nc1.cdnv", 5).attach(model, head="fc")
    monitor.run([(x, y)])
    assert monitor.compute()["nc1.cdnv"] > 0
    model.forward = model.fc.forward
    with pytest.raises(CollapseError, match=r"WithLoss does not call its head, module 'unused'.*as head=NAME"):
        collapse.Monitor(classes=5).attach(model, head="unused").run([(x, y)])


def test_a_head_that_is_not_finite_is_told_as_such():
    model = network()
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        head.weight[2, 0] = torch.nan
    monitor = collapse.Monitor("nc3", 5).attach(model)
    monitor.run([samples()])
    with pytest.raises(CollapseError, match="row 2 of the classifier's weight is NaN"):
        monitor.compute()
