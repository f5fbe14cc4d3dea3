"""PEFT adapters: the numbers of the adapted model, under a key with the adapter's content."""

import json
import re
import shutil

import peft
import pytest
import torch
import transformers
from random_models import saved
from safetensors.torch import load_file, save_file
from tiny_model import edit_json

import collapse
from collapse.errors import CollapseError, UsageError
from collapse.hub.references import find_adapted
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.model_loading import load_model

pytestmark = pytest.mark.filterwarnings("ignore")  # of peft


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("base") / "llama", tie_word_embeddings=False, hidden_size=64)


def adapted(base, folder, seed=0, **options):
    """Save an adapter; return the adapted model."""
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    torch.manual_seed(seed)
    how = {"r": 4, "target_modules": ["q_proj", "lm_head"], "init_lora_weights": False, "task_type": "CAUSAL_LM"}
    made = peft.get_peft_model(model, peft.LoraConfig(**{**how, **options}))
    made.save_pretrained(folder)
    return made


def load(model, adapter=None, **options):
    return load_model(find_adapted(str(model), adapter and str(adapter)), CollectionSpec(**options))


def collected(model, tiny, **options):
    return collapse.collect(model, tokenizer=str(tiny.model), **{**tiny.options(), "max_chunks": 8, **options})


def test_an_adapter_has_the_numbers_of_the_adapted_model(base, tiny, tmp_path):
    expected = adapted(base, tmp_path / "a").merge_and_unload()
    tokens = torch.arange(64).reshape(2, 32)
    with torch.no_grad():
        h = expected.model(tokens).last_hidden_state
    for loaded in (load(base, tmp_path / "a"), load(tmp_path / "a")):
        assert torch.allclose(loaded.embeddings(tokens), h, atol=1e-6)
        assert torch.allclose(loaded.weight, expected.lm_head.weight, atol=1e-6)
    store = collected(base, tiny, adapter=str(tmp_path / "a"))
    assert store.model == "llama+a"
    assert store.manifest["provenance"]["command"].startswith("collapse collect llama --text ")
    assert store.manifest["provenance"]["command"].endswith(" --adapter a")
    assert collected(tmp_path / "a", tiny).path == store.path
    moved = shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert collected(base, tiny, adapter=str(moved)).path == store.path  # its content counts
    adapted(base, moved, seed=1)
    keys = {
        each.path: collapse.measure(each).weights for each in (store, collected(moved, tiny), collected(base, tiny))
    }
    assert len(keys) == len({*keys.values()}) == 3


@pytest.mark.parametrize("target", [["q_proj", "lm_head"], ["embed_tokens"], ["embed_tokens", "lm_head"]])
def test_an_adapter_of_tied_embeddings_changes_only_its_own(tmp_path, target):
    tied = saved(tmp_path / "tied", tie_word_embeddings=True)
    expected = adapted(tied, tmp_path / "a", target_modules=target).eval()
    tokens = torch.arange(64).reshape(2, 32)
    loaded = load(tied, tmp_path / "a")
    with torch.no_grad():
        assert torch.allclose(loaded.run(tokens).logits, expected(tokens).logits, atol=1e-5)
    live = LanguageModel.of(expected.get_base_model())
    assert torch.allclose(loaded.weight, live.weight, atol=1e-6)
    assert torch.allclose(loaded.embeddings(tokens), live.embeddings(tokens), atol=1e-5)
    assert loaded.head == live.head == {"tied": False, "bias": False}


def test_the_checkpoints_of_an_adapter_have_a_store_each(base, tiny, tmp_path):
    for step in (10, 20):
        adapted(base, tmp_path / f"run/checkpoint-{step}", seed=step)
    how = {**tiny.options(), "max_chunks": 8, "tokenizer": str(tiny.model), "metrics": "nc1.cdnv"}
    found = collapse.trajectory(tmp_path / "run", revisions="checkpoint-*", store=tmp_path / "stores", **how)
    assert [row.step for row in found.rows] == [10, 20]
    assert len({row.weights for row in found.rows}) == 2
    assert {each.name for each in (tmp_path / "stores").iterdir()} == {"checkpoint-10", "checkpoint-20"}


def test_an_adapter_of_a_quantized_model_stays_beside_it(base, tmp_path):
    pytest.importorskip("bitsandbytes", reason="needs bitsandbytes")
    adapted(base, tmp_path / "a")
    loaded = load(base, tmp_path / "a", quantize="4bit")
    assert any("lora" in name for name, _ in loaded.model.named_modules())
    plain, tokens = load(base, quantize="4bit"), torch.arange(64).reshape(2, 32)
    difference = loaded.embeddings(tokens) - plain.embeddings(tokens)
    exact = load(base, tmp_path / "a").embeddings(tokens) - load(base).embeddings(tokens)
    assert float((difference - exact).norm() / exact.norm()) < 0.5
    assert torch.allclose(loaded.weight, load(base, tmp_path / "a").weight, atol=1e-6)


def test_a_live_model_with_an_adapter_is_measured_in_place(base, tiny, tmp_path):
    model = adapted(base, tmp_path / "a", modules_to_save=["lm_head"], target_modules=["q_proj"])
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny.model)
    options = {**tiny.options(), "chunk_length": 64, "max_chunks": 8}
    store = collapse.collect(model, tokenizer=tokenizer, **options)
    expected = collected(tmp_path / "a", tiny, chunk_length=64)
    means = expected.tensors("train")["means"]
    assert torch.allclose(store.tensors("train")["means"], means, atol=1e-6)


def test_an_adapter_on_the_hub_names_its_base_model(base, tiny, tmp_path, hub, as_user):
    adapted(base, tmp_path / "a")
    edit_json(tmp_path / "a" / "adapter_config.json", base_model_name_or_path="owner/base")
    tokenizer = {file.name: file.read_bytes() for file in tiny.model.glob("tok*")}
    hub.add("owner/base", {file.name: file.read_bytes() for file in base.iterdir()} | tokenizer)
    hub.add("owner/adapter", {file.name: file.read_bytes() for file in (tmp_path / "a").iterdir()})
    words = ("--text", tiny.text, "--max-chunks", 8, "--metrics", "nc1.cdnv", "--format", "json")
    row = json.loads(as_user("measure", "owner/adapter", *words).stdout)[0]
    assert row["model"] == "owner/base+owner/adapter"
    means = collected(base, tiny, adapter=str(tmp_path / "a"), chunk_length=64)
    assert row["measurements"]["nc1.cdnv"] == pytest.approx(collapse.measure(means)["nc1.cdnv"], rel=1e-9)
    assert "was trained with" not in as_user("measure", "owner/base@main", "--adapter", "owner/adapter", *words).stderr


def test_another_base_model_costs_a_warning(base, tmp_path, caplog):
    adapted(base, tmp_path / "a")
    load(base, tmp_path / "a")
    assert not caplog.messages
    load(shutil.copytree(base, tmp_path / "other"), tmp_path / "a")
    (said,) = caplog.messages
    assert re.fullmatch(r"the adapter \S+/a was trained with the model \S+/llama, but is applied to \S+/other", said)


def test_what_does_not_fit_costs_a_line(base, tiny, tmp_path):
    other = saved(tmp_path / "other", hidden_size=32, tie_word_embeddings=False)
    fewer = saved(tmp_path / "fewer", hidden_size=64, num_hidden_layers=1, tie_word_embeddings=False)
    neox = saved(tmp_path / "neox", "GPTNeoXForCausalLM", hidden_size=64)
    adapted(base, tmp_path / "a")
    for model in (other, fewer, neox):
        with pytest.raises(
            CollapseError, match=r"^the adapter a cannot be applied to \w+ \(\w+\): [^\n]+ its base model \([^\n]+$"
        ):
            load(model, tmp_path / "a")
    with pytest.raises(UsageError, match="is itself a PEFT adapter"):
        load(tmp_path / "a", tmp_path / "a")
    offloaded = {"device_map": {"": "disk"}, "model_args": {"offload_folder": str(tmp_path / "offloaded")}}
    with pytest.raises(CollapseError, match="cannot be applied to offloaded weights"):
        collapse.collect(base, adapter=str(tmp_path / "a"), tokenizer=str(tiny.model), **tiny.options(), **offloaded)
    weights = load_file(tmp_path / "a" / "adapter_model.safetensors")
    save_file(dict([*weights.items()][:-1]), tmp_path / "a" / "adapter_model.safetensors")
    with pytest.raises(CollapseError, match=r"applied to llama \(\w+\): the adapter lacks base_model\."):
        load(tmp_path / "a")
    with (tmp_path / "a" / "adapter_model.safetensors").open("r+b") as file:
        file.truncate(3000)
    with pytest.raises(CollapseError, match=r"applied to llama \(\w+\): .*Use the complete"):
        load(tmp_path / "a")
    with pytest.raises(CollapseError, match="is not a PEFT adapter"):
        load(base, other)
    edit_json(tmp_path / "a" / "adapter_config.json", base_model_name_or_path=str(tmp_path / "gone"))
    with pytest.raises(CollapseError, match=r"its base model is not found: .*gone.* with --adapter .*/a$"):
        load(tmp_path / "a")


def test_prompts_are_refused(base, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    made = peft.get_peft_model(model, config)
    made.save_pretrained(tmp_path / "prompt")
    with pytest.raises(CollapseError, match="adds tokens to each text"):
        load(base, tmp_path / "prompt")
    with pytest.raises(CollapseError, match="adds tokens to each text"):
        collapse.collect(made, tokenizer=None, text=["a"])
