"""A loaded model, measured in place: the numbers of the saved model, and a model that is left as it was."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

import collapse
from collapse.errors import StoreError, UsageError

OPTIONS = {"chunk_length": 32, "max_chunks": 20}


@pytest.fixture
def live(tiny):
    """A model, and its tokenizer and texts as keyword arguments."""
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny.model)
    texts = {
        key: [json.loads(line)["text"] for line in file.read_text().splitlines()]
        for key, file in (("text", tiny.text), ("validation_text", tiny.validation))
    }
    return model, {"tokenizer": transformers.AutoTokenizer.from_pretrained(tiny.model), **texts, **OPTIONS}


@pytest.fixture
def saved(tiny):
    """The measurements of the saved model."""
    store = collapse.collect(tiny.model, fast_attention=False, **{**tiny.options(), **OPTIONS})
    return numbers(collapse.measure(store))


def numbers(row):
    return pd.Series(row.measurements, dtype=float)


def test_the_numbers_are_those_of_the_saved_model(live, saved, tiny):
    model, options = live
    row = collapse.measure(model, **options)
    pd.testing.assert_series_equal(numbers(row), saved, rtol=1e-9)
    assert row.model == "model"
    names = {"text": str(tiny.text), "validation_text": [str(tiny.validation)], "tokenizer": str(tiny.model)}
    row = collapse.measure(model, name="mine-step3", **{**options, **names})
    pd.testing.assert_series_equal(numbers(row), saved, rtol=1e-9)
    assert (row.model, row.step, row.corpus) == ("mine-step3", 3, "text.jsonl")


def test_a_model_in_training_is_left_as_it_was(live, saved):
    model, options = live
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    model.train()
    model.transformer.h[0].eval()  # a frozen layer
    model.config.return_dict = False
    ids = torch.arange(32)[None]

    def step(measuring):
        model.zero_grad()
        torch.manual_seed(1)
        np.random.seed(1)
        rows = []
        for _ in range(2):  # gradients accumulate
            model(input_ids=ids, labels=ids)[0].backward()
            if measuring:
                with torch.autocast("cpu", torch.bfloat16):
                    rows.append(collapse.measure(model, **options))
        gradients = [each.grad.clone() for each in model.parameters()]
        return gradients, torch.rand(3), np.random.rand(), [each.training for each in model.modules()], rows

    *expected, _ = step(False)
    *after, rows = step(True)
    for one, other in zip(expected[0], after[0], strict=True):
        assert torch.equal(one, other)
    assert torch.equal(expected[1], after[1])
    assert expected[2:] == after[2:]
    assert torch.is_grad_enabled()
    assert model.config.return_dict is False
    for row in rows:
        pd.testing.assert_series_equal(numbers(row), saved, rtol=1e-9)


@pytest.mark.parametrize("how", ["offloaded", "compiled", "compiled in place", "in bfloat16", "hooked"])
def test_a_model_is_measured_however_it_is_set_up(live, saved, tiny, tmp_path, how):
    model, options = live
    if how == "offloaded":
        from accelerate import disk_offload

        disk_offload(model, str(tmp_path), execution_device=torch.device("cpu"))
        assert all(each.is_meta for each in model.parameters())
    elif how == "compiled":
        model = torch.compile(model, backend="eager")
        model(torch.arange(8)[None])
    elif how == "compiled in place":
        model.compile(backend="eager")
        model(torch.arange(8)[None])
    elif how == "in bfloat16":
        model.to(torch.bfloat16)
        store = collapse.collect(tiny.model, fast_attention=False, dtype="bfloat16", **{**tiny.options(), **OPTIONS})
        saved = numbers(collapse.measure(store))
    else:
        calls = []
        model.lm_head.register_forward_hook(lambda *_: calls.append(1))
    before = [(each.dtype, each.device, each.data_ptr()) for each in model.parameters()]
    store = collapse.collect(model, **options)
    assert before == [(each.dtype, each.device, each.data_ptr()) for each in model.parameters()]
    pd.testing.assert_series_equal(numbers(collapse.measure(store)), saved, rtol=1e-9)
    assert (
        store.manifest["model"]["n_params"]
        == transformers.AutoModelForCausalLM.from_pretrained(tiny.model).num_parameters()
    )
    assert store.identity["head"] == {"tied": True, "bias": False}
    rows = collapse.measure_layers(model, metrics="nc1.cdnv", **options)
    assert [row.layer for row in rows.rows] == ["0", "1", "top"]


def test_a_model_that_ranks_share_is_measured(live, saved):
    model, options = live
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        for module in (*model.transformer.h, model):
            torch.distributed.fsdp.fully_shard(module)
        model.train()
        pd.testing.assert_series_equal(numbers(collapse.measure(model, **options)), saved, rtol=1e-9)
        assert model.training
    finally:
        torch.distributed.destroy_process_group()


def test_a_store_is_resumed_while_the_probe_is_the_same(live, tmp_path):
    model, options = live
    options |= {"store": tmp_path / "s", "name": "mine"}
    collapse.collect(model, part=(2, 2), **options)
    store = collapse.collect(model, **options)
    assert (store.state, store.model) == ("complete", "mine")
    assert len(store.identity["weights"]) < 100  # a table shows it
    calls = []
    hook = model.lm_head.register_forward_pre_hook(lambda *_: calls.append(1))
    assert collapse.collect(model, **options).digest == store.digest
    rounds = model.transformer.ln_f.register_forward_hook(lambda module, inputs, output: output * (1 + 1e-6))
    assert collapse.collect(model, **options).digest == store.digest  # equal up to rounding
    assert len(calls) == 2  # the probes
    hook.remove()
    rounds.remove()
    model.transformer.h[0].mlp.c_fc.weight.data *= 1.01
    with pytest.raises(StoreError, match=r"weights: probe:\S+ \(stored\), probe:\S+ \(requested\)"):
        collapse.collect(model, **options)
    assert collapse.collect(model, **{**options, "store": None}).digest != store.digest


def test_the_head_is_part_of_the_probe(live, tmp_path):
    model, options = live
    model.lm_head = torch.nn.Linear(model.config.hidden_size, model.config.vocab_size)
    options["store"] = tmp_path / "s"
    collapse.collect(model, **options)
    for change in (model.lm_head.bias, model.lm_head.weight):
        before = change.data.clone()
        change.data[7] += 0.1
        with pytest.raises(StoreError, match="which differs in weights"):
            collapse.collect(model, **options)
        change.data = before
    assert collapse.collect(model, **options).state == "complete"


def test_the_last_call_of_a_tokenizer_does_not_count(live):
    model, options = live
    options["tokenizer"].pad_token = options["tokenizer"].eos_token
    options["tokenizer"]("a", truncation=True, max_length=16, padding="max_length")
    padded = collapse.collect(model, **{**options, "store": None}).identity["tokenizer"]
    assert collapse.collect(model, **{**options, "store": None}).identity["tokenizer"] == padded


@pytest.mark.filterwarnings("ignore")
def test_mixed_precision_of_a_trainer_does_not_count(live, saved):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    model, options = live
    AcceleratorState._reset_state(reset_partial_state=True)
    prepared = Accelerator(cpu=True, mixed_precision="bf16").prepare(model)
    AcceleratorState._reset_state(reset_partial_state=True)
    forward = prepared.forward
    pd.testing.assert_series_equal(numbers(collapse.measure(prepared, **options)), saved, rtol=1e-9)
    assert prepared.forward == forward


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tokenizer": None}, "needs its tokenizer: give tokenizer="),
        ({"dtype": "bfloat16"}, "dtype= does not apply to a loaded model"),
        ({"null": "untrained"}, "null='untrained' does not apply to a loaded model"),
        ({"text": [b"a text"]}, "texts must be a list of str, got bytes: convert them"),
        ({"text": {"text": ["a text"]}}, "texts must be a list of str, got dict: convert them"),
        ({"text": []}, "--text must be one or several names"),
        ({"text": None}, "no corpus"),
        ({"text": "a long text " * 30}, "pass a loaded model with a list of texts"),
    ],
)
def test_options_that_do_not_apply_are_refused(live, options, said):
    model, given = live
    model.train()
    with pytest.raises(UsageError, match=said):
        collapse.collect(model, **{**given, **options})
    assert model.training


def test_an_object_that_is_no_model_is_refused():
    with pytest.raises(UsageError, match="a folder, a Hub id, a loaded model or a source, not a Linear"):
        collapse.collect(torch.nn.Linear(2, 2), text="a.txt")


def test_a_wrapped_model_is_refused(live):
    model, options = live
    for run in (collapse.collect, collapse.measure, collapse.measure_layers):
        with pytest.raises(UsageError, match=r"wrapped in DataParallel: give the model itself, model\.module"):
            run(torch.nn.DataParallel(model), **options)


def scaled_row(model):
    model.transformer.wte.weight.data[-1] *= 1.5  # a token that no text has


def one_step(model):
    model.transformer.h[0].mlp.c_fc.weight.data *= 1 + 1e-6


def longer_window(model):
    model.config.window_size += 1


def scaled_position(model):
    model.transformer.wpe.weight.data[-1] *= 1.5


@pytest.mark.parametrize("change", [scaled_row, one_step, longer_window, scaled_position])
def test_a_model_that_differs_where_no_output_is_compared_is_refused(live, tmp_path, change):
    model, options = live
    options |= {"store": tmp_path / "s", "name": "mine"}
    collapse.collect(model, **options)
    model.config.use_cache = False  # as the Trainer sets it
    collapse.collect(model, **options)
    change(model)
    with pytest.raises(StoreError, match=r"weights: probe:\S+ \(stored\), probe:\S+ \(requested\)"):
        collapse.collect(model, **options)
