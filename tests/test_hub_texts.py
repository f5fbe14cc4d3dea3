"""Texts on the Hub: splits that are named must be there, one that is not named may be absent."""

import json

import pytest

import collapse


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
    for _ in range(2):  # the second time it is there
        assert "is trained" in as_user("collect", *words, "--text", "owner/train").stdout
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
        ("named", "cannot be loaded: it has several configurations, and none can be selected: give the files of one"),
        ("csv", "has files in an unsupported format (train.csv): convert them to .jsonl or .parquet"),
    ):
        refused = as_user("measure", tiny.model, "--text", f"owner/{name}", "--chunk-length", 32, ok=False)
        assert refused.returncode == 1
        assert f"owner/{name} {said}" in refused.stderr


def test_parts_of_a_text_without_a_validation_split_are_merged_and_validated_on_another(data, as_user, tiny, tmp_path):
    words = [tiny.model, "--chunk-length", 32, "--max-chunks", 40]
    for k in (1, 2):
        as_user("collect", *words, "--text", "owner/train", "--store", tmp_path / f"{k}", "--part", f"{k}/2")
    as_user("merge", tmp_path / "2", tmp_path / "1", "--store", tmp_path / "s")
    done = as_user("collect", tiny.model, "--store", tmp_path / "s")
    assert (
        "owner/train has no split 'validation'; known: train (--split, --validation-split): nothing is validated"
        in done.stderr
    )
    assert "is trained" in done.stdout
    as_user("collect", tiny.model, "--store", tmp_path / "s", "--validation-text", tiny.validation)
    assert collapse.load(tmp_path / "s").state == "complete"


def test_a_published_store_that_holds_what_is_left_out_is_not_used(hub, as_user, tiny, tmp_path):
    hub.add("owner/tiny", {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    words = ["owner/tiny", *tiny.words()[1:], "--max-chunks", 4, "--metrics", "nc1.covariance_ratio", "--json"]
    as_user("measure", *words, "--store", tmp_path / "s")
    as_user("push", tmp_path / "s", "owner/tiny", "--into-model-repo")
    found = as_user("measure", *words, home="reader")
    assert "published store" in found.stderr
    without = as_user("measure", *words, "--without", "covariance", home="reader")
    assert "published store" not in without.stderr
    assert json.loads(without.stdout)[0]["measurements"] == {"nc1.covariance_ratio": None}
