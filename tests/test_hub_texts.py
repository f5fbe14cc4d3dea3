"""Texts on the Hub: a split that the user names must exist, the default validation split may be absent."""

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
    refused = as_user("measure", *words, "--validation-split", "vaildation", "--store", tmp_path / "s", code=2)
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


@pytest.fixture
def configured(hub, tiny) -> None:
    """A data set with two configurations, of the training text and of the validation text."""
    named = "".join(f"- config_name: {name}\n  data_files: {name}.jsonl\n" for name in ("one", "two"))
    files = {"README.md": f"---\nconfigs:\n{named}---\n".encode()}
    files |= {"one.jsonl": tiny.text.read_bytes(), "two.jsonl": tiny.validation.read_bytes()}
    hub.add("owner/named", files, kind="datasets")


def test_a_configuration_is_part_of_the_name_and_of_the_identity(configured, hub, as_user, tiny):
    words = ["measure", tiny.model, "--chunk-length", 32, "--max-chunks", 4, "--json"]
    rows = []
    for name, file in (("owner/named:one", tiny.text), ("owner/named:two@main", tiny.validation)):
        of_hub, of_file = (json.loads(as_user(*words, "--text", text).stdout)[0] for text in (name, file))
        assert of_hub["corpus"] == name.removesuffix("@main")
        assert of_hub["measurements"] == of_file["measurements"]
        rows.append(of_hub)
    assert rows[0]["corpus_id"] != rows[1]["corpus_id"]
    assert len([path for method, path in hub.requests if method == "GET" and path.endswith("one.jsonl")]) == 1


def test_options_that_select_texts_are_refused(hub, as_user, tiny):
    readme = b"---\nconfigs:\n- config_name: default\n  data_files: train.txt\n  sample_by: document\n---\n"
    hub.add("owner/cut", {"README.md": readme, "train.txt": b"one\ntwo\n"}, kind="datasets")
    done = as_user("measure", tiny.model, "--text", "owner/cut", code=None)
    assert done.returncode == 1
    assert "the README.md of owner/cut selects texts with sample_by, which is not supported: give" in done.stderr


def test_a_limit_downloads_only_the_first_files_of_a_data_set(hub, as_user, tiny, tmp_path):
    rows = [*tiny.text.read_bytes().splitlines(keepends=True)] * 10
    shards = {f"train-{k:05d}-of-00010.jsonl": b"".join(rows[k::10]) for k in range(10)}
    hub.add("owner/many", shards, kind="datasets")

    def measured(limit: int, home: str, text: object = "owner/many") -> dict:
        words = ["measure", tiny.model, "--text", text, "--chunk-length", 32, "--max-chunks", limit, "--json"]
        return json.loads(as_user(*words, home=home).stdout)[0]

    def downloaded() -> list[str]:
        return [path.rsplit("/", 1)[-1] for method, path in hub.requests if method == "GET" and "train-0" in path]

    streamed = measured(20, "a")
    assert downloaded() == ["train-00000-of-00010.jsonl"]
    measured(10**6, "b")
    assert sorted(downloaded()[1:]) == sorted(shards)
    whole = measured(20, "b")
    assert [whole[name] for name in ("store", "corpus_id", "measurements")] == [
        streamed[name] for name in ("store", "corpus_id", "measurements")
    ]
    for name, content in shards.items():
        (tmp_path / name).write_bytes(content)
    assert measured(20, "c", tmp_path / "train-*")["measurements"] == streamed["measurements"]


def test_a_data_set_whose_texts_cannot_be_chosen_is_told_in_a_line(configured, hub, as_user, tiny):
    hub.add("owner/csv", {"train.csv": b"text\na text\n"}, kind="datasets")
    for name, code, said in (
        ("named", 2, "has several configurations (known: one, two): choose one as owner/named:CONFIGURATION"),
        ("named:on", 2, "has no configuration 'on' (known: one, two): choose one as owner/named:CONFIGURATION"),
        ("csv", 1, "has files in an unsupported format (train.csv): convert them to .jsonl or .parquet"),
    ):
        refused = as_user("measure", tiny.model, "--text", f"owner/{name}", "--chunk-length", 32, code=code)
        assert f"owner/{name.partition(':')[0]} {said}" in refused.stderr
