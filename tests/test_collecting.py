"""Collection through its public functions: numbers, states, parts, merging, and what a collection may resume."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from equal_stores import same
from random_models import chunks_of
from reference import everything, present

import collapse
from collapse.errors import StoreError

PARTS = 4


@pytest.fixture(scope="module")
def parts(tiny, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("parts")
    for k in range(1, PARTS + 1):
        collapse.collect(tiny.model, store=folder / str(k), part=(k, PARTS), **tiny.options())
    return [folder / str(k) for k in range(1, PARTS + 1)]


def test_numbers_equal_float64_on_embeddings_of_plain_transformers(tiny, whole, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny.model, dtype=torch.float32).eval()
    dumped: dict[str, np.ndarray] = {"classifier": model.get_output_embeddings().weight.detach().numpy()}
    for name, file in (("train", tiny.text), ("validation", tiny.validation)):
        chunks = chunks_of(tiny.model, file, most=None)
        with torch.no_grad():
            h = torch.cat([model.transformer(batch).last_hidden_state for batch in chunks.split(4)])
        dumped[f"{name}_features"] = h[:, :-1].reshape(-1, h.shape[-1]).numpy()
        dumped[f"{name}_labels"] = chunks[:, 1:].reshape(-1).numpy()
    expected = everything(dumped)
    expected["n_params"] = sum(parameter.numel() for parameter in model.parameters())
    exact = {"fast_attention": False, "exact_loss": True}
    own = collapse.collect(tiny.model, store=tmp_path / "own", batch_size=4, **exact, **tiny.options())
    # the fast attention rounds otherwise: its embeddings differ by some 5e-7
    for store, tolerance in ((own, 1e-9), (whole, 1e-4)):
        row = collapse.measure(store)
        found = present(row.measurements)
        assert found.keys() == present(expected).keys()
        for name, value in found.items():
            assert value == pytest.approx(expected[name], rel=tolerance, abs=1e-12), name


def test_parts_merged_in_any_order_equal_the_single_run(parts, whole, tmp_path):
    merged = collapse.merge(random.Random(0).sample(parts, PARTS), store=tmp_path / "merged")
    assert merged.state == "trained"
    same(merged, whole, only=("train", "classifier", "covariance"))
    assert merged.identity == whole.identity


def test_a_merged_store_is_validated_alone(tiny, parts, whole, tmp_path):
    merged = collapse.merge(parts, store=tmp_path / "merged")
    before = collapse.measure(merged)
    assert before.measurements["nc4.agreement"] is None
    assert before.measurements["nc1.cdnv"] is not None
    assert any("collapse collect MODEL --store" in note.text for note in before.notes)
    done = collapse.collect(
        tiny.model, store=tmp_path / "merged", validation_text=str(tiny.validation), chunk_length=32
    )
    assert done.state == "complete"
    mine, theirs = (present(collapse.measure(each).measurements) for each in (done, whole))
    assert mine == pytest.approx(theirs, rel=1e-10)


def test_validation_in_parts_equals_one_pass(tiny, parts, out, tmp_path):
    trained = collapse.merge(parts, store=tmp_path / "trained")
    copy = trained.save(tmp_path / "copy").path
    for k in (3, 1, 2):
        made = collapse.collect(tiny.model, store=copy, part=(k, 3), **tiny.options())
        assert made.state == ("complete" if k == 2 else "trained")
    same(made, collapse.collect(tiny.model, store=trained.path, **tiny.options()))
    shown = out("info", copy)
    assert "made, validation, part 3, command" in shown
    assert "{" not in shown


def test_a_finished_part_is_found_without_the_model(tiny, parts, out, tmp_path):
    store, did = collapse.merge(parts, store=tmp_path / "s").path, []
    said = "; collect the other parts there too"
    shown = out("collect", *tiny.words("--store", store, "--part", "1/3"))
    assert shown == f"{store} holds a part of the validation pass{said}\n"
    shown = out("collect", *tiny.words("--store", parts[1], "--part", f"2/{PARTS}"))
    assert shown.endswith(f"{said}, or merge all parts: collapse merge PART… --store DIR\n")
    for folder, part in ((parts[1], (2, PARTS)), (store, (1, 3))):
        collapse.collect(tiny.model, store=folder, part=part, progress=lambda *what: did.append(what), **tiny.options())
    assert did == []
    with pytest.raises(StoreError, match=r"holds an unfinished collection that differs in max_validation_chunks: none"):
        collapse.collect(tiny.model, store=store, part=(1, 3), max_validation_chunks=9, **tiny.options())


def test_another_request_on_a_store_is_refused_with_both_values(tiny, whole, tmp_path):
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    for change, said in (
        ({"dtype": "bfloat16"}, r"dtype: float32 \(stored\), bfloat16 \(requested\)"),
        ({"max_chunks": 5}, r"max_chunks: none \(stored\), 5 \(requested\)"),
        # a request that names its text does not take the store's length
        ({"chunk_length": None}, r"chunk_length: 32 \(stored\), 64 \(requested\)"),
        ({"chunk_length": None, "recollect": True}, r"chunk_length: 32 \(stored\), 64 \(requested\)"),
        ({"tokenizer": str(tmp_path / "tokenizer")}, "tokenizer: sha256"),
        ({"model_args": {"attn_implementation": "eager"}}, r"model_args\.attn_implementation: none \(stored\), eager"),
        ({"text": str(tiny.validation)}, r"corpus\.sha256"),
    ):
        with pytest.raises(StoreError, match=said):
            collapse.collect(tiny.model, store=whole.path, **tiny.options() | change)


def test_a_request_without_a_text_takes_the_stores_settings(tiny, tmp_path):
    options = {"text": str(tiny.text), "chunk_length": 32, "max_chunks": 20}
    trained = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert collapse.collect(tiny.model, store=tmp_path / "s").digest == trained.digest
    done = collapse.collect(tiny.model, store=tmp_path / "s", validation_text=str(tiny.validation))
    assert done.state == "complete"
    assert done.identity["max_chunks"] == 20
    assert done.manifest["coverage"]["validation"]["chunks"] == 20
    with pytest.raises(StoreError, match=r"max_chunks: 20 \(stored\), 5 \(requested\)"):
        collapse.collect(tiny.model, store=tmp_path / "s", validation_text=str(tiny.validation), max_chunks=5)


@pytest.mark.parametrize("name", ["top/train.safetensors", "top/covariance.safetensors", "collapse.json"])
def test_a_flipped_byte_is_seen_by_every_command_that_opens_the_store(tiny, whole, tmp_path, told, name):
    store = whole.save(tmp_path / "store").path
    told(0, "verify", store)
    file = store / name
    for place in (0.1, 0.5, 0.9):
        status = file.stat()
        data = bytearray(file.read_bytes())
        at = int(len(data) * place)
        data[at] ^= 0x04
        file.write_bytes(data)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        for command in (["verify"], ["measure"], ["info"], ["collect", *tiny.words("--store")]):
            assert file.name in told(1, *command, store), command
        data[at] ^= 0x04
        file.write_bytes(data)
    told(0, "verify", store)


def test_nothing_changes_in_inference_mode(tiny, tmp_path):
    options = {**tiny.options(), "max_chunks": 8}
    plain = collapse.collect(tiny.model, store=tmp_path / "plain", **options)
    with torch.inference_mode():
        store = collapse.collect(tiny.model, store=tmp_path / "store", **options)
        row, (_, norms) = collapse.measure(store), collapse.vectors(store, "nc2.norm")
        parts = [collapse.collect(tiny.model, store=tmp_path / f"{k}", part=(k, 2), **options) for k in (1, 2)]
        merged = collapse.merge(parts, store=tmp_path / "merged")
        assert torch.is_inference_mode_enabled()
    assert store.digest == plain.digest
    assert set(merged.manifest["statistics"]) == {"covariance"}
    assert row.measurements == collapse.measure(plain).measurements
    assert torch.equal(norms, collapse.vectors(plain, "nc2.norm")[1])
