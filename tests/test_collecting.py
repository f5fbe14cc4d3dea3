"""Collection through its public functions: the numbers, the states, parts, merging, and who may go on with what."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from reference import present

import collapse
from collapse.collection.request import part_of
from collapse.errors import StoreError, UsageError
from collapse.inputs.text_source import largest_batch, slice_length
from collapse.stores.manifest import LAYER
from collapse.stores.store import Store

PARTS = 11  # one per slice of the training text


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory) -> Store:
    return collapse.collect(
        tiny.model, store=tmp_path_factory.mktemp("whole") / "store", batch_size=4, **tiny.options()
    )


@pytest.fixture(scope="module")
def parts(tiny, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("parts")
    for k in range(1, PARTS + 1):
        collapse.collect(tiny.model, store=folder / str(k), batch_size=4, part=(k, PARTS), **tiny.options())
    return [folder / str(k) for k in range(1, PARTS + 1)]


def close(mine: Store, theirs: Store, name: str) -> None:
    a, b = mine.tensors(name), theirs.tensors(name)
    assert a.keys() == b.keys()
    for key in a:
        scale = float(a[key].double().abs().max()) or 1.0
        assert torch.allclose(a[key].double(), b[key].double(), rtol=0, atol=1e-12 * scale), f"{name}/{key}"


def test_every_measurement_is_finite(whole):
    row = collapse.measure(whole)
    assert {name for name, value in row.measurements.items() if value is None} <= {"nc2.interference_debiased"}
    assert row.store == whole.digest
    assert row.samples == whole.manifest["coverage"]["train"]["chunks"] * 31


def test_numbers_equal_float64_on_embeddings_of_plain_transformers(tiny, whole, reference, tmp_path):
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(tiny.model, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny.model)
    dumped: dict[str, np.ndarray] = {"classifier": model.get_output_embeddings().weight.detach().numpy()}
    for name, file in (("train", tiny.text), ("validation", tiny.validation)):
        rows = [json.loads(line)["text"] for line in file.read_text().splitlines()]
        half = -(-len(rows) // 2)
        tokens = []
        for shard in (rows[:half], rows[half:]):
            flat = [each for row in tokenizer(shard)["input_ids"] for each in row]
            tokens += [flat[i : i + 32] for i in range(0, len(flat) - 31, 32)]
        chunks = torch.tensor(tokens)
        with torch.no_grad():
            h = torch.cat([model.transformer(batch).last_hidden_state for batch in chunks.split(4)])
        dumped[f"{name}_features"] = h[:, :-1].reshape(-1, h.shape[-1]).numpy()
        dumped[f"{name}_labels"] = chunks[:, 1:].reshape(-1).numpy()
    expected = reference.everything(dumped)
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


def test_a_store_is_found_again_by_what_it_holds(tiny, own_home):
    first = collapse.collect(tiny.model, **tiny.options())
    assert first.path is not None
    assert first.path.is_relative_to(own_home / "stores")
    assert collapse.collect(tiny.model, **tiny.options()).path == first.path
    assert collapse.collect(tiny.model, max_chunks=3, **tiny.options()).path != first.path


@pytest.mark.parametrize("seed", range(3))
def test_parts_of_one_slice_merged_in_any_order_equal_the_single_run(parts, whole, tmp_path, seed):
    shuffled = random.Random(seed).sample(parts, PARTS)
    merged = collapse.merge(shuffled, store=tmp_path / "merged")
    assert merged.state == "trained"
    for name in ("train", "classifier", "covariance"):
        close(merged, whole, name)
    assert merged.identity == whole.identity


def test_merged_again_is_the_same_store_and_another_is_refused(parts, whole, tmp_path):
    merged = collapse.merge(parts, store=tmp_path / "merged")
    manifest = tmp_path / "merged" / "collapse.json"
    before = manifest.read_bytes()
    assert collapse.merge(parts[::-1], store=tmp_path / "merged").digest == merged.digest
    assert manifest.read_bytes() == before
    other = whole.save(tmp_path / "other")
    with pytest.raises(StoreError, match=r"other holds another store, which differs in .*: choose another --store"):
        collapse.merge(parts, store=other.path)


def test_a_merged_store_is_validated_alone(tiny, parts, whole, tmp_path):
    merged = collapse.merge(parts, store=tmp_path / "merged")
    before = collapse.measure(merged)
    assert before.measurements["nc4.agreement"] is None
    assert before.measurements["nc1.cdnv"] is not None
    assert any("collapse collect MODEL --store" in note.text for note in before.notes)
    done = collapse.collect(
        tiny.model, store=tmp_path / "merged", validation_text=str(tiny.validation), chunk_length=32, batch_size=4
    )
    assert done.state == "complete"
    mine, theirs = (present(collapse.measure(each).measurements) for each in (done, whole))
    assert mine == pytest.approx(theirs, rel=1e-10)


def test_validation_in_parts_equals_one_pass(tiny, parts, whole, tmp_path):
    trained = collapse.merge(parts, store=tmp_path / "trained")
    copies = [trained.save(tmp_path / f"v{k}").path for k in (1, 2, 3)]
    for k, copy in enumerate(copies, start=1):
        made = collapse.collect(tiny.model, store=copy, part=(k, 3), batch_size=4, **tiny.options())
        assert made.state == "trained"
    with pytest.raises(StoreError, match=r"validation slices .* are in none of the parts"):
        collapse.merge(copies[:2], store=tmp_path / "gap")
    merged = collapse.merge([copies[2], copies[0], copies[1]], store=tmp_path / "all")
    assert merged.state == "complete"
    one = collapse.collect(tiny.model, store=tmp_path / "trained", batch_size=4, **tiny.options())
    close(merged, one, "validation")
    for k in (2, 3):  # on one machine the parts may go into one store, one after the other
        again = collapse.collect(tiny.model, store=copies[0], part=(k, 3), batch_size=4, **tiny.options())
    assert again.state == "complete"
    close(again, one, "validation")


def test_a_missing_an_overlapping_and_a_differing_part_are_refused_by_name(tiny, parts, tmp_path):
    with pytest.raises(StoreError, match=rf"train slices 3 of {PARTS} are in none"):
        collapse.merge([p for p in parts if p.name != "3"], store=tmp_path / "a")
    with pytest.raises(StoreError, match=r"/5 and .*/5 overlap: both hold train slices"):
        collapse.merge([*parts, parts[4]], store=tmp_path / "b")
    other = collapse.collect(
        tiny.model, store=tmp_path / "other", batch_size=4, part=(7, PARTS), eos_between=True, **tiny.options()
    )
    with pytest.raises(StoreError, match="eos_between: false and true"):
        collapse.merge([*parts[:6], other, *parts[7:]], store=tmp_path / "c")
    assert not any((tmp_path / name).exists() for name in "abc")


def test_another_request_on_a_store_is_refused_with_both_values(tiny, whole):
    options = tiny.options()
    with pytest.raises(StoreError, match="dtype: float32 and bfloat16"):
        collapse.collect(tiny.model, store=whole.path, dtype="bfloat16", **options)
    with pytest.raises(StoreError, match="max_chunks: none and 5"):
        collapse.collect(tiny.model, store=whole.path, max_chunks=5, **options)
    with pytest.raises(StoreError, match="chunk_length: 32 and 16"):
        collapse.collect(tiny.model, store=whole.path, **(options | {"chunk_length": 16}))
    with pytest.raises(StoreError, match=r"corpus\.sha256"):
        collapse.collect(tiny.model, store=whole.path, **(options | {"text": str(tiny.validation)}))


def test_a_request_that_names_its_text_does_not_take_the_stores_share_or_length(tiny, tmp_path):
    """A store of a part of the text, or of other chunks, is not the whole text in chunks of the default length."""
    texts = {name: value for name, value in tiny.options().items() if name != "chunk_length"}
    few, short, part = tmp_path / "few", tmp_path / "short", tmp_path / "part"
    collapse.collect(tiny.model, store=few, max_chunks=20, **texts)
    collapse.collect(tiny.model, store=short, chunk_length=32, max_chunks=20, **texts)
    collapse.collect(tiny.model, store=part, max_chunks=20, part=(1, 2), **texts)
    for recollect in (False, True):
        with pytest.raises(StoreError, match="max_chunks: 20 and none"):
            collapse.collect(tiny.model, store=few, recollect=recollect, **texts)
        with pytest.raises(StoreError, match="chunk_length: 32 and 64"):
            collapse.collect(tiny.model, store=short, recollect=recollect, max_chunks=20, **texts)
        kept = collapse.collect(tiny.model, store=few, recollect=recollect, max_chunks=20, **texts)
        assert kept.identity["max_chunks"] == 20
    with pytest.raises(StoreError, match="max_chunks: 20 and none"):
        collapse.collect(tiny.model, store=part, part=(1, 2), **texts)
    with pytest.raises(UsageError, match="--recollect collects a whole store again"):
        collapse.collect(tiny.model, store=part, part=(1, 2), recollect=True, **texts)


def test_a_request_without_a_text_takes_the_stores_settings(tiny, tmp_path):
    options = {"text": str(tiny.text), "chunk_length": 32, "max_chunks": 20}
    trained = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert collapse.collect(tiny.model, store=tmp_path / "s").digest == trained.digest
    done = collapse.collect(tiny.model, store=tmp_path / "s", validation_text=str(tiny.validation))
    assert done.state == "complete"
    assert done.identity["max_chunks"] == 20
    assert done.manifest["coverage"]["validation"]["chunks"] == 20
    with pytest.raises(StoreError, match="max_chunks: 20 and 5"):
        collapse.collect(tiny.model, store=tmp_path / "s", validation_text=str(tiny.validation), max_chunks=5)


def test_without_validation_text_nothing_is_measured_on_training_text(tiny, tmp_path):
    store = collapse.collect(tiny.model, store=tmp_path / "s", text=str(tiny.text), chunk_length=32, max_chunks=20)
    row = collapse.measure(store)
    nulls = {name for name, value in row.measurements.items() if value is None} - {"nc2.interference_debiased"}
    nc4 = {"nc4.agreement", "nc4.chance_agreement", "nc4.kappa", "nc4.ncc_accuracy"}
    assert nulls == nc4 | {"val_loss", "val_accuracy", "perplexity"}
    assert all("--validation-text" in note.text for note in row.notes if note.measurement in nulls)


def test_without_covariance_only_what_needs_it_is_null(tiny, tmp_path):
    store = collapse.collect(tiny.model, store=tmp_path / "s", max_chunks=20, without=["covariance"], **tiny.options())
    assert f"{LAYER}/covariance.safetensors" not in store.manifest["files"]
    row = collapse.measure(store)
    nulls = {name for name, value in row.measurements.items() if value is None}
    assert nulls - {"nc2.interference_debiased"} == {"nc1.covariance_ratio"}


def test_min_count_keeps_the_frequent_classes(whole):
    all_classes, frequent = collapse.measure(whole), collapse.measure(whole, min_count=20)
    s = whole.statistics()
    assert frequent.classes == int((s.counts >= 20).sum()) < all_classes.classes
    assert frequent.measurements["nc4.agreement"] == all_classes.measurements["nc4.agreement"]
    kept = s.keep(20)
    assert torch.allclose(kept.global_mean, s.means[s.counts >= 20].mean(dim=0))
    assert frequent.measurements["nc2.norm"] == pytest.approx(float(kept.norms.mean()))


def test_vectors_average_to_their_measurements(whole):
    row = collapse.measure(whole).measurements
    for name in ("nc2.norm", "nc2.scaled_norm", "nc2.interference", "nc3.self_duality", "nc1.cdnv"):
        ids, values = collapse.vectors(whole, name)
        assert len(ids) == len(values)
        assert float(values.mean()) == pytest.approx(row[name], rel=1e-9), name
    ids, losses = collapse.vectors(whole, "val_loss")
    v = whole.statistics().validation
    weights = v.counts[torch.isin(v.classes, ids)]
    assert float((losses * weights).sum() / weights.sum()) == pytest.approx(row["val_loss"], rel=1e-9)


def test_slices_and_parts_cover_everything_once():
    for chunks in (1, 5, 16, 100, 730, 5000, 229_367):
        length = slice_length(chunks, 512)
        assert length % largest_batch(chunks, 512) == 0
        slices = -(-chunks // length)
        if chunks >= 16:
            assert slices >= (8 if length * 512 <= 2048 else 16)
        for n in {1, 2, min(16, slices)}:
            runs = [part_of(slices, (k, n)) for k in range(1, n + 1)] if n <= slices else [(0, slices)]
            assert [each for run in runs for each in range(*run)] == list(range(slices))
    with pytest.raises(UsageError, match="only 3 slices"):
        part_of(3, (1, 4))


FLIPPED = (
    "top/train.safetensors",
    "top/classifier.safetensors",
    "top/covariance.safetensors",
    "top/validation.safetensors",
)


@pytest.mark.parametrize("name", [*FLIPPED, "collapse.json"])
def test_a_flipped_byte_is_seen_by_every_command_that_opens_the_store(tiny, whole, tmp_path, capsys, name):
    from collapse.cli import _add_commands, _run

    _add_commands()
    store = whole.save(tmp_path / "store").path
    assert _run(["verify", str(store)]) == 0
    file = store / name
    for place in (0.1, 0.5, 0.9):
        status = file.stat()
        data = bytearray(file.read_bytes())
        at = int(len(data) * place)
        data[at] ^= 0x04
        file.write_bytes(data)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        for command in (
            ["verify", store],
            ["measure", store],
            ["info", store],
            ["collect", *tiny.words("--store", store)],
        ):
            capsys.readouterr()
            assert _run([str(word) for word in command]) == 1, command
            assert file.name in capsys.readouterr().err, command
        data[at] ^= 0x04
        file.write_bytes(data)
    assert _run(["verify", str(store)]) == 0


def test_a_killed_write_leaves_no_store(tmp_path):
    (tmp_path / "s" / ".collapse-new").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"no collapse\.json"):
        collapse.load(tmp_path / "s")


def test_a_tokenizer_of_its_own_and_a_features_store_under_the_same_name(tiny, tmp_path):
    from safetensors.torch import save_file

    from collapse.testing import random_features

    store = collapse.collect(
        tiny.model, store=tmp_path / "s", tokenizer=str(tiny.model), max_chunks=20, **tiny.options()
    )
    assert store.state == "complete"
    save_file(random_features(9, 5, 80), tmp_path / "f.safetensors")
    made = collapse.collect(tmp_path / "f.safetensors", store=tmp_path / "features")
    assert collapse.collect(tmp_path / "f.safetensors", store=tmp_path / "features").digest == made.digest
    assert (
        collapse.measure(made).measurements
        == collapse.measure(collapse.collect(tmp_path / "f.safetensors")).measurements
    )
    with pytest.raises(StoreError, match="holds another store, which differs in"):
        collapse.collect(tiny.model, store=tmp_path / "features", **tiny.options())


def test_nothing_changes_in_inference_mode(tiny, tmp_path):
    options = {**tiny.options(), "max_chunks": 8}
    plain = collapse.collect(tiny.model, store=tmp_path / "plain", **options)
    with torch.inference_mode():
        store = collapse.collect(tiny.model, store=tmp_path / "store", **options)
        row, (_, norms) = collapse.measure(store), collapse.vectors(store, "nc2.norm")
        opened = collapse.measure(collapse.load(tmp_path / "plain").statistics(), metrics=["nc2"])
        parts = [collapse.collect(tiny.model, store=tmp_path / f"{k}", part=(k, 2), **options) for k in (1, 2)]
        merged = collapse.merge(parts, store=tmp_path / "merged")
        assert torch.is_inference_mode_enabled()
    assert store.digest == plain.digest
    assert set(merged.manifest["statistics"]) == {"covariance"}
    expected = collapse.measure(plain)
    assert row.measurements == expected.measurements
    assert torch.equal(norms, collapse.vectors(plain, "nc2.norm")[1])
    assert opened.measurements.items() <= expected.measurements.items()
