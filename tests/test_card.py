"""The card of a store: what was measured, of which classes, and what to know beside the numbers."""

from pathlib import Path

from safetensors.torch import save_file

import collapse
from collapse.hub.card import card
from collapse.hub.sharing import folder_of
from collapse.measurement.last_results import keep_row
from collapse.testing import random_features


def stored(tmp_path: Path) -> collapse.Store:
    save_file(random_features(10, 8, 60), tmp_path / "f.safetensors")
    return collapse.collect(tmp_path / "f.safetensors", store=tmp_path / "store")


def test_the_last_measurement_is_published_with_its_classes_and_notes(tmp_path):
    store = stored(tmp_path)
    keep_row(store, collapse.measure(store))
    text = card(store, "user/repo", "folder")
    assert "Over all classes (`--min-count 1`): C = 10, d = 8, N = 60." in text
    assert "the between-class covariance has rank" in text.partition("Notes:")[2]
    assert "model-index" in text
    assert "split:" not in text  # it is of the training text, and there is no other


def test_the_folder_of_a_features_file_names_no_chunk_length(tmp_path):
    assert folder_of(stored(tmp_path)) == "collapse/f.safetensors"


def test_a_measurement_of_some_classes_says_so_and_is_no_evaluation_result(tmp_path):
    store = stored(tmp_path)
    counts = store.tensors("train")["counts"]
    least = int(counts.sort().values[3])
    row = collapse.measure(store, min_count=least)
    keep_row(store, row)
    text = card(store, "user/repo", "folder")
    kept = int((counts >= least).sum())
    assert kept < 10
    assert f"Over the {kept} classes of at least {least} samples (`--min-count {least}`): C = {kept}" in text
    assert "nc3.self" in text
    assert "model-index" not in text
