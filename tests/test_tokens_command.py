"""collapse tokens: every kind of request in each format, and errors."""

import csv
import io
import json

import pytest
from golden_store import GOLDEN

import collapse

STORE = str(GOLDEN)


@pytest.fixture(scope="module")
def named(decoding, tiny, tmp_path_factory) -> tuple[str, str, str]:
    """A store of a model whose tokenizer is found by name, the tokenizer, and the text of a class."""
    store = collapse.collect(decoding, store=tmp_path_factory.mktemp("named") / "s", max_chunks=20, **tiny.options())
    frame = collapse.tokens(store).frame()
    text = next(each for each in frame["text"] if each.startswith(" ") and each[1:] in set(frame["text"]))
    return str(store.path), str(decoding), text


def test_the_default_is_the_largest_by_cdnv(out):
    made = json.loads(out("tokens", STORE, "--json"))
    assert list(made) == ["title", "rows", "average", "notes"]
    assert [each["id"] for each in made["rows"]] == collapse.tokens(GOLDEN, top=20).frame()["id"].tolist()
    assert made["average"]["text"] == "average"


def test_every_format_has_the_rows_and_the_average(out, tmp_path):
    words = ["tokens", STORE, "--ids", "20,35"]
    for format_ in ("table", "markdown", "latex"):
        assert "average" in out(*words, "--format", format_)
    file = tmp_path / "tokens.csv"
    rows = list(csv.DictReader(io.StringIO(out(*words, "--format", "csv", "--output", file))))
    assert [row["id"] for row in rows] == ["20", "35"]
    assert file.read_text().splitlines()[0].startswith("id,text,count,nc2.norm")
    out(*words, "--output", file)  # replaces its like


@pytest.mark.parametrize("words", [["--top", "3"], ["--pairs", "9"], ["--ids", "20,35", "--neighbours", "2"]])
def test_a_table_is_whole_at_80_columns(out, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    shown = out("tokens", STORE, *words)
    assert max(map(len, shown.splitlines()[1:])) <= 80
    assert "…" not in shown.partition("store's tokenizer")[0]


def test_texts_are_found_verbatim(out, named, tmp_path):
    store, tokenizer, text = named
    words = ["tokens", store, "--tokenizer", tokenizer, "--json"]
    made = json.loads(out(*words, "--token", text))
    assert [each["text"] for each in made["rows"]] == [text, text[1:]]
    file = tmp_path / "names.txt"
    file.write_bytes(f"\ufeff{text}\r\n\n{text[1:]}".encode())
    assert json.loads(out(*words, "--file", file))["rows"] == made["rows"]
    assert f'"{text}"' in out("tokens", store, "--tokenizer", tokenizer, "--token", text)


def test_neighbours_pairs_and_matched_classes(out, named):
    store, tokenizer, text = named
    pairs = json.loads(out("tokens", store, "--pairs", "3", "--by", "nc2.interference", "--json"))
    assert len(pairs["rows"]) == 3
    assert "average" not in pairs
    near = json.loads(out("tokens", store, "--tokenizer", tokenizer, "--token", text, "--neighbours", "2", "--json"))
    assert [each["kind"] for each in near["rows"]] == ["nearest"] * 2 + ["interfering"] * 2
    words = ["tokens", store, "--tokenizer", tokenizer, "--token", text, "--frequency-matched"]
    matched = json.loads(out(*words, "--json"))
    assert [each["mean of"] for each in matched["rows"]][:3] == ["tokens", "matched", "difference"]
    assert "standard error" in out(*words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pairs", "3", "--token", "a"], "--pairs and --token cannot be combined"),
        (["--neighbours", "3"], "no token is given: give texts (--token, --file) or ids (--ids)"),
        (["--ids", "20", "--frequency-matched", "--top", "3"], "--frequency-matched and --top cannot be combined"),
        (["--ids", "20,x"], "--ids must be whole numbers"),
        (["--output", "tokens.html"], "tokens.html does not have a known format"),
    ],
)
def test_what_contradicts_is_refused(told, words, message):
    assert message in told(2, "tokens", STORE, *words)


def test_the_tokenizer_of_a_model_on_the_hub_is_found_by_its_commit(hub, as_user, tiny, tmp_path):
    hub.add("owner/model", {file.name: file.read_bytes() for file in tiny.model.iterdir()})
    texts = ["--text", tiny.text, "--validation-text", tiny.validation, "--chunk-length", 32, "--max-chunks", 9]
    as_user("collect", "owner/model", *texts, "--store", tmp_path / "store")
    words = ["tokens", tmp_path / "store", "--top", 3, "--json"]
    rows = json.loads(as_user(*words).stdout)["rows"]
    assert all(row["text"] for row in rows)
    assert json.loads(as_user(*words, offline=True).stdout)["rows"] == rows  # from the cache
    made = json.loads(as_user(*words, offline=True, home="another").stdout)
    assert [row["text"] for row in made["rows"]] == [None] * 3
    assert any("the store's tokenizer is not available" in note for note in made["notes"])
