"""Texts on the Hub: splits that are named must be there, one that is not named may be absent."""

import json

import pytest


@pytest.fixture
def data(hub, tiny) -> None:
    """A data set with a training and a validation split, and one without the latter."""
    both = {"train.jsonl": tiny.text.read_bytes(), "validation.jsonl": tiny.validation.read_bytes()}
    hub.add("owner/data", both, kind="datasets")
    hub.add("owner/train", {"train.jsonl": tiny.text.read_bytes()}, kind="datasets")


def test_a_split_that_is_named_must_be_there(data, as_user, tiny, tmp_path):
    words = [tiny.model, "--text", "owner/data", "--chunk-length", 32, "--max-chunks", 4]
    refused = as_user("measure", *words, "--validation-split", "vaildation", "--store", tmp_path / "s", ok=False)
    assert refused.returncode == 2
    assert "owner/data has no split 'vaildation'; did you mean validation?" in refused.stderr


def test_a_split_that_is_not_named_may_be_absent_and_another_text_added_later(data, as_user, tiny, tmp_path):
    words = [tiny.model, "--chunk-length", 32, "--max-chunks", 4, "--store", tmp_path / "s"]
    for said in ("owner/train has no split 'validation'; known: train", ""):  # the second time the store is there
        done = as_user("collect", *words, "--text", "owner/train")
        assert "is trained" in done.stdout
        assert said in done.stderr
    row = json.loads(as_user("measure", tmp_path / "s", "--json", "--metrics", "val_loss").stdout)[0]
    assert (row["validation"], row["validation_id"], row["measurements"]["val_loss"]) == (None, None, None)
    as_user("collect", *words, "--validation-text", tiny.validation)
    row = json.loads(as_user("measure", tmp_path / "s", "--json", "--metrics", "val_loss").stdout)[0]
    assert row["validation"] == tiny.validation.name
    assert row["measurements"]["val_loss"] > 0


def test_a_data_set_whose_texts_cannot_be_chosen_is_told_in_a_line(hub, as_user, tiny):
    rows = tiny.text.read_bytes()
    named = "".join(f"- config_name: {name}\n  data_files: {name}.jsonl\n" for name in "ab")
    files = {"README.md": f"---\nconfigs:\n{named}---\n".encode(), "a.jsonl": rows, "b.jsonl": rows}
    hub.add("owner/named", files, kind="datasets")
    hub.add("owner/csv", {"train.csv": b"text\na text\n"}, kind="datasets")
    for name, said in (
        ("named", "cannot be loaded: it has several configurations, which is not supported: give the files of one"),
        ("csv", "has files in an unsupported format (train.csv): convert them to .jsonl or .parquet"),
    ):
        refused = as_user("measure", tiny.model, "--text", f"owner/{name}", "--chunk-length", 32, ok=False)
        assert refused.returncode == 1
        assert f"owner/{name} {said}" in refused.stderr
