"""Inner layers: their numbers are direct float64's, however and whenever they are collected."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from equal_stores import same
from golden_store import GOLDEN
from random_models import chunks_of, saved
from reference import class_statistics, decisions, geometry, present
from test_kill import killed_run

import collapse
from collapse.errors import StoreError, UsageError
from collapse.stores.store import Store

NORMS = {
    "GPTNeoForCausalLM": "transformer.ln_f",
    "LlamaForCausalLM": "model.norm",
    "PhiForCausalLM": "model.final_layernorm",
    "GPTNeoXForCausalLM": "gpt_neox.final_layer_norm",
}


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory) -> Store:
    store = tmp_path_factory.mktemp("layers") / "whole"
    return collapse.collect(tiny.model, store=store, batch_size=4, layers="all", **tiny.options())


@pytest.mark.parametrize("kind", NORMS)
def test_each_layer_has_the_numbers_of_its_hidden_states(tiny, tmp_path, kind):
    folder = tiny.model if kind == "GPTNeoForCausalLM" else saved(tmp_path / "model", kind, tiny.model)
    options = {"max_chunks": 24, "batch_size": 4, "exact_loss": True, "fast_attention": False, **tiny.options()}
    store = collapse.collect(folder, store=tmp_path / "s", layers="all", **options)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    head, norm = model.get_output_embeddings(), model.get_submodule(NORMS[kind])
    weight, bias = head.weight.detach().numpy(), None if head.bias is None else head.bias.detach().numpy()
    states, labels = {}, {}
    for name, file in (("train", tiny.text), ("validation", tiny.validation)):
        chunks = chunks_of(folder, file)
        labels[name] = chunks[:, 1:].reshape(-1).numpy()
        with torch.no_grad():
            found = [model(input_ids=batch, output_hidden_states=True).hidden_states for batch in chunks.split(4)]
        states[name] = [torch.cat(each)[:, :-1].flatten(0, 1) for each in zip(*found, strict=True)]
    rows = collapse.measure_layers(store).rows
    assert [(row.layer, row.depth) for row in rows] == [("0", 0), ("1", 1), ("top", 2)]
    for row, h, v in zip(rows, *states.values(), strict=True):
        s = class_statistics(h.numpy(), labels["train"])
        mine = store.statistics(row.layer)
        for name in ("counts", "means", "variances"):
            np.testing.assert_allclose(getattr(mine, name).numpy(), s[name], rtol=1e-9, atol=1e-12)
        with torch.no_grad():
            read = v if row.layer == "top" else norm(v)
        expected = decisions(s, weight, bias, v.numpy(), labels["validation"], read.numpy())
        if row.depth or kind == "GPTNeoForCausalLM":  # without positions, classes have equal means at the input
            expected |= geometry(s, weight[s["classes"]])
        for name, value in expected.items():
            if name in present(row.measurements):
                assert row[name] == pytest.approx(value, rel=1e-9, abs=1e-12), (row.layer, name)
        assert {"nc4.agreement", "val_loss", "nc1.cdnv"} <= present(row.measurements).keys()


def test_layers_wanted_later_in_parts_or_after_a_kill_are_those_of_one_pass(tiny, whole, runner, tmp_path):
    options = {"batch_size": 4, **tiny.options()}
    top = collapse.collect(tiny.model, store=tmp_path / "top", **options)
    assert top.layers == ["top"]
    shutil.copytree(tmp_path / "top", tmp_path / "later")
    later = collapse.collect(tiny.model, store=tmp_path / "later", layers=[1], **options)
    assert later.layers == ["1", "top"]
    later = collapse.collect(tiny.model, store=tmp_path / "later", layers="-3", **options)
    assert later.digest == whole.digest
    assert collapse.collect(tiny.model, store=tmp_path / "later", **options).digest == whole.digest
    shutil.copytree(tmp_path / "top", tmp_path / "parts")
    for _ in ("train", "validation"):
        for k in (1, 2):
            parts = collapse.collect(tiny.model, store=tmp_path / "parts", layers="all", part=(k, 2), **options)
    same(parts, whole)
    command = ["collect", *tiny.words("--store", tmp_path / "top", "--batch-size", 4, "--layers", "all")]
    for moment in (0.6, 0.9, 1.2):
        killed_run(runner, command, tmp_path / "top", tmp_path / "log", moment)
        assert not collapse.load(tmp_path / "top").verify()
    code, said = runner.run(command, tmp_path / "log")
    assert code == 0, said
    same(Store.load(tmp_path / "top"), whole, atol=0)


def test_shards_of_other_layers_are_refused_and_kept(tiny, tmp_path):
    options = {"store": tmp_path / "s", "batch_size": 4, **tiny.options()}
    collapse.collect(tiny.model, **options, layers="1", part=(1, 2))
    with pytest.raises(StoreError, match=r"layers: 1, top \(stored\), top \(requested\)"):
        collapse.collect(tiny.model, **options)
    collapse.collect(tiny.model, **options, layers="1")
    collapse.collect(tiny.model, **options, layers="0", part=(1, 2))
    assert collapse.collect(tiny.model, **options).layers == ["1", "top"]  # has what is asked, and keeps the shards
    assert list((tmp_path / "s" / "shards").iterdir())
    with pytest.raises(StoreError, match=r"--recollect would overwrite another store: .*layers: 1 \(stored\)"):
        collapse.collect(tiny.model, **options, recollect=True)
    again = collapse.collect(tiny.model, **options, layers="all", recollect=True)
    assert again.layers == ["0", "1", "top"]
    assert not again.verify()


def test_what_is_wrong_costs_one_line(tiny, told, tmp_path):
    place = ["--store", tmp_path / "s"]
    for layers, said in (
        ("3", "--layers 3: there is no such layer; give 0 to 2 or, from the end, -1 to -3 (2 and -1 mean top)"),
        ("-4", "--layers -4: there is no such layer"),
        ("every:0", "--layers must be all, every:K, or numbers such as 0,4,8 or -2, got 'every:0'"),
        ("some", "--layers must be all"),
    ):
        assert said in told(2, "collect", *tiny.words(*place, "--layers", layers))
    features = Path(__file__).parent / "frozen" / "few.safetensors"
    assert "--layers does not apply" in told(2, "measure", features, "--layers", "all")
    assert "--null measures only the top layer" in told(2, "measure", *tiny.words("--layers", "all", "--null"))
    for words in ((), ("--group-by", "count")):
        said = told(1, "measure", GOLDEN, "--layers", "all", *words)
        assert "holds only the layer top: to collect the other layers, give the model and its text" in said
    assert "holds top, but not layer 1" in told(1, "measure", GOLDEN, "--layers", 1)
    with pytest.raises(UsageError, match=r"use collapse\.measure_layers"):
        collapse.measure(GOLDEN, layers="all")


def test_a_layer_of_another_dimension_is_refused(tiny, tmp_path):
    folder = saved(tmp_path / "model", "OPTForCausalLM", tiny.model, ffn_dim=64, word_embed_proj_dim=16)
    with pytest.raises(collapse.CollapseError, match="layer 1 of OPTForCausalLM has 32 dimensions, but its output"):
        collapse.collect(folder, store=tmp_path / "s", layers="1", max_chunks=20, **tiny.options())


def test_without_a_logit_lens_inner_layers_have_no_decisions_and_a_note_says_why(tiny, tmp_path):
    folder = saved(tmp_path / "model", "ModernBertDecoderForCausalLM", tiny.model)
    options = {"store": tmp_path / "s", "max_chunks": 20, **tiny.options()}
    collapse.collect(folder, **options)
    store = collapse.collect(folder, **options, layers="1")
    inner, top = collapse.measure_layers(store).rows
    assert inner["nc1.cdnv"] is not None
    assert inner["nc4.agreement"] is inner["val_loss"] is None
    assert top["nc4.agreement"] is not None
    said = [note.text for note in inner.notes if note.measurement == "nc4.agreement"]
    assert said == [
        "layer 1 has no decisions: the logit lens is not available, because no single module of "
        "ModernBertDecoderForCausalLM maps the output of its last block to the input of its output embedding"
    ]


def test_the_table_has_a_row_per_layer_and_files_have_two_more_columns(whole, out, tmp_path):
    shown = out("measure", whole.path, "--layers", "all", "--metrics", "nc1.cdnv", "--output", tmp_path / "all.csv")
    assert [line.split()[0] for line in shown.splitlines()[3:6]] == ["0", "1", "top"]
    frame = collapse.Results.read(tmp_path / "all.csv").frame()
    assert frame["layer"].astype(str).tolist() == ["0", "1", "top"]
    assert frame["depth"].tolist() == [0, 1, 2]
    assert "layer" not in collapse.measure(whole, metrics="nc1.cdnv").frame()
    assert "1/train.safetensors" in out("info", whole.path)
