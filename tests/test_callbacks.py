"""The callbacks measure a model while a trainer trains it, and change nothing else."""

import logging

import datasets
import numpy as np
import pytest
import torch
import transformers
from random_models import build
from torch import nn

import collapse
from collapse.errors import UsageError

METRICS = "nc1.cdnv_ratio,nc3.self_duality,nc4.agreement,val_loss"


class Logged(transformers.TrainerCallback):
    """A logger, as those of W&B and TensorBoard are."""

    def __init__(self):
        self.steps = {}

    def on_log(self, args, state, control, logs=None, **_):
        self.steps.setdefault(state.global_step, {}).update(logs)


@pytest.fixture
def texts():
    ids = torch.randint(20, (48, 12), generator=torch.Generator().manual_seed(0))
    labels = ids.clone()
    labels[::5, 8:] = -100
    return [{"input_ids": one, "labels": other} for one, other in zip(ids, labels, strict=True)]


def language_model():
    sizes = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1}
    return build("GraniteForCausalLM", **sizes, attention_dropout=0.1, logits_scaling=4.0)


def trainer(model, data, folder, callbacks, **options):
    torch.manual_seed(2)
    given = {"max_steps": 10, "logging_steps": 5, "save_strategy": "no", "learning_rate": 1e-2} | options
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), per_device_train_batch_size=8, report_to=[], use_cpu=True, disable_tqdm=True, **given
    )
    made = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        data_collator=transformers.default_data_collator,
        callbacks=callbacks,
    )
    made.remove_callback(transformers.trainer_callback.PrinterCallback)
    return made


def test_a_language_model_is_measured_as_it_is_trained(texts, tmp_path, out, monkeypatch):
    plain, folder, logged = trainer(language_model(), texts, tmp_path / "a", []), tmp_path / "my-run", Logged()
    plain.train()
    callback = collapse.CollapseCallback(every=4, batches=6, validation=texts, metrics=METRICS)
    watched = trainer(language_model(), texts, folder, [logged, callback])
    watched.train()
    for one, other in zip(plain.model.parameters(), watched.model.parameters(), strict=True):
        assert torch.equal(one, other)

    frame = collapse.Results.read(folder / "results.parquet").frame()
    assert frame["step"].tolist() == [0, 4, 8, 10]
    assert set(frame["model"]) == {"my-run"}
    last = frame.iloc[-1]
    assert logged.steps[10]["nc1.cdnv_ratio"] == last["nc1.cdnv_ratio"]
    assert {"loss", "val_loss", "val_nc1.cdnv_ratio"} <= logged.steps[10].keys()
    assert [line["step"] for line in watched.state.log_history if "nc1.cdnv_ratio" in line] == [0, 4, 8, 10]

    model = watched.model.eval()
    h, y, losses = [], [], []
    keep = model.lm_head.register_forward_pre_hook(lambda _, inputs: h.append(inputs[0][:, :-1]))
    for sample in texts:
        with torch.no_grad():
            logits = model(input_ids=sample["input_ids"][None]).logits[0, :-1]
        y.append(sample["labels"][1:])
        losses.append(nn.functional.cross_entropy(logits.double(), y[-1], reduction="none"))
    keep.remove()
    kept = torch.cat(y) != -100
    h = torch.cat(h).reshape(-1, 16)[kept]
    row = collapse.measure(features=h, labels=torch.cat(y)[kept], classifier=model.lm_head.weight / 4, metrics=METRICS)
    for name in ("nc1.cdnv_ratio", "nc3.self_duality"):
        assert last[name] == pytest.approx(row[name], rel=1e-5)
    assert last["val_loss"] == pytest.approx(float(torch.cat(losses)[kept].mean()), rel=1e-6)
    assert last["samples"] == int(kept.sum())

    out("figures", folder / "results.parquet", "--figure", "training", "--out", tmp_path / "figures")
    assert [*(tmp_path / "figures").glob("training*")]
    out("report", folder / "results.parquet", "--output", tmp_path / "report.html")
    monkeypatch.setenv("COLUMNS", "30")
    headings = [line for line in out("results", folder / "results.parquet").splitlines() if line.startswith("model")]
    assert len(headings) > 1
    assert all(line.startswith("model   step") for line in headings)  # in each part of a wide table


def test_a_resumed_run_keeps_its_rows(texts, tmp_path):
    def run(steps, **resume):
        callback = collapse.CollapseCallback(every=3, batches=2, metrics="nc1.cdnv_ratio")
        options = {"save_strategy": "steps", "save_steps": 6, "max_steps": steps}
        trainer(language_model(), texts, tmp_path, [callback], **options).train(**resume)
        return collapse.Results.read(tmp_path / "results.parquet").frame()

    first = run(9)
    assert first["step"].tolist() == [0, 3, 6, 9]
    resumed = run(14, resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert resumed["step"].tolist() == [0, 3, 6, 9, 12, 14]
    assert resumed["nc1.cdnv_ratio"].tolist()[:3] == first["nc1.cdnv_ratio"].tolist()[:3]
    assert run(3)["step"].tolist() == [0, 3]  # a new run in the same folder


def test_a_classifier_is_measured_by_its_own_labels(tmp_path):
    model, draw = build("BertForSequenceClassification", num_labels=4), np.random.default_rng(0)
    data = datasets.Dataset.from_list([{"input_ids": draw.integers(30, size=6), "label": at % 4} for at in range(40)])
    more = data.add_column("text", [["a", "list"]] * 40)  # a column that the Trainer removes from the training set
    callback = collapse.CollapseCallback(every=5, dataset=more, batches=10, classes=4, metrics=METRICS)
    watched = trainer(model, data, tmp_path, [callback], max_steps=5)
    watched.train()
    h = []
    model.eval().classifier.register_forward_pre_hook(lambda _, inputs: h.append(inputs[0]))
    with torch.no_grad():
        model(input_ids=torch.tensor(np.stack([each["input_ids"] for each in data])))
    given = {"features": h[0], "labels": [each["label"] for each in data]}
    row = collapse.measure(**given, classifier=model.classifier.weight, bias=model.classifier.bias, metrics=METRICS)
    frame = collapse.Results.read(tmp_path / "results.parquet").frame()
    for name in ("nc1.cdnv_ratio", "nc3.self_duality"):
        assert frame[name].iloc[-1] == pytest.approx(row[name], rel=1e-5)


@pytest.mark.parametrize("side", ["left", "right", None])
def test_a_decoder_classifies_by_its_last_token(side):
    model = build("GPT2ForSequenceClassification", vocab_size=30, num_labels=3, pad_token_id=29).eval()
    ids, y = torch.randint(29, (24, 6)), torch.arange(24) % 3
    batch = {"input_ids": ids, "labels": y}
    if side is not None:
        batch["attention_mask"] = torch.ones_like(ids)
        padding = slice(0, 2) if side == "left" else slice(4, 6)
        batch["attention_mask"][::2, padding], ids[::2, padding] = 0, 29
    with torch.no_grad():
        loss = model(**batch).loss
    monitor = collapse.Monitor("nc1.cdnv_ratio,val_loss", 3).attach(model)
    monitor.run([batch])
    assert monitor.compute([batch])["val_loss"] == pytest.approx(float(loss), rel=1e-5)


def test_a_model_that_diverges_does_not_stop_the_training(texts, tmp_path, caplog):
    model = language_model()
    with torch.no_grad():
        model.model.norm.weight[0] = torch.nan
    logging.getLogger("collapse").propagate = True
    callback = collapse.CollapseCallback(every=5, batches=2, metrics="nc1.cdnv_ratio")
    watched = trainer(model, texts, tmp_path, [callback], max_steps=5, logging_nan_inf_filter=False)
    watched.train()
    assert watched.state.global_step == 5
    assert "step 0 is not measured: the embedding of sample 0 is NaN" in caplog.text
    assert not (tmp_path / "results.parquet").exists()


def test_a_mistake_is_reported_before_the_training(texts, tmp_path):
    with pytest.raises(UsageError, match="no metric is called 'nc9'"):
        collapse.CollapseCallback(metrics="nc9")
    with pytest.raises(UsageError, match="has no module 'fc'; known"):
        trainer(language_model(), texts, tmp_path, [collapse.CollapseCallback(head="fc")]).train()
    nothing = [{"input_ids": each["input_ids"]} for each in texts]
    with pytest.raises(UsageError, match="a batch has no labels, only input_ids"):
        trainer(language_model(), texts, tmp_path, [collapse.CollapseCallback(dataset=nothing)]).train()


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_module_is_measured(tmp_path):
    import lightning.pytorch as lightning

    x = torch.randn(96, 10, generator=torch.Generator().manual_seed(0))
    y = torch.arange(96) % 3
    data = torch.utils.data.TensorDataset(x, y)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Dropout(0.5))
            self.fc = nn.Linear(8, 3)

        def forward(self, x):
            return self.fc(self.body(x))

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    def train(folder, *callbacks):
        lightning.seed_everything(1, verbose=False)
        module, loader = Module(), torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
        trainer = lightning.Trainer(
            default_root_dir=tmp_path / folder,
            max_steps=8,
            accelerator="cpu",
            log_every_n_steps=1,
            logger=lightning.loggers.CSVLogger(tmp_path / folder),
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[*callbacks],
        )
        trainer.fit(module, loader)
        return module, trainer

    callback = collapse.lightning_callback(every=3, batches=6, validation=data, metrics=METRICS, classes=3, head="fc")
    (plain, _), (module, trainer) = train("a"), train("b", callback)
    for one, other in zip(plain.parameters(), module.parameters(), strict=True):
        assert torch.equal(one, other)
    frame = collapse.Results.read(tmp_path / "b" / "results.parquet").frame()
    assert frame["step"].tolist() == [0, 3, 6, 8]
    module.eval()
    row = collapse.measure(features=module.body(x), labels=y, classifier=module.fc.weight, metrics=METRICS)
    assert frame["nc1.cdnv_ratio"].iloc[-1] == pytest.approx(row["nc1.cdnv_ratio"], rel=1e-5)
    logged = (tmp_path / "b/lightning_logs/version_0/metrics.csv").read_text()
    assert f"{frame['val_nc1.cdnv_ratio'].iloc[1]}"[:8] in logged
    assert float(trainer.callback_metrics["nc1.cdnv_ratio"]) == pytest.approx(row["nc1.cdnv_ratio"], rel=1e-5)
