"""The token table: a row of measurements per token, texts of tokens, and the choice of tokens."""

import json
import math
import shutil
from dataclasses import replace

import pytest
from gguf_files import write_gguf
from golden_store import GOLDEN
from transformers import AutoTokenizer

import collapse
from collapse.errors import CollapseError, UsageError
from collapse.hub.references import find_model, remember_tokenizer
from collapse.testing import random_features
from collapse.vocabulary.token_table import COLUMNS
from collapse.vocabulary.token_texts import TokenTexts


@pytest.fixture(scope="module")
def arrays() -> collapse.Store:
    """A store of arrays without a validation and a tokenizer."""
    features = random_features(7, 3, 30)
    return collapse.collect_arrays(features["train_features"], features["train_labels"], features["classifier"])


@pytest.mark.parametrize("min_count", [1, 3])
def test_tokens_have_the_values_of_their_classes(min_count):
    """Those that plugins/test_numbers.py compares with the direct ones; the average is what is measured."""
    table = collapse.tokens(GOLDEN, min_count=min_count)
    frame = table.frame().set_index("id")
    for name in COLUMNS:
        ids, values = collapse.vectors(GOLDEN, name, min_count=min_count)
        expected = dict(zip(ids.tolist(), values.tolist(), strict=True))
        assert frame[name].tolist() == [
            pytest.approx(expected.get(each, math.nan), nan_ok=True) for each in frame.index
        ], name
    row = collapse.measure(GOLDEN, metrics=COLUMNS, min_count=min_count)
    average = dict(zip(table.columns, table.average, strict=True))
    assert {name: average[name] for name in COLUMNS} == row.measurements
    assert frame["count"].sum() == row.samples
    assert average["count"] == row.samples / row.classes


def test_what_a_store_lacks_is_empty_and_it_is_said(arrays):
    table = collapse.tokens(arrays)
    assert table.frame()[["text", "nc4.agreement", "val_loss"]].isna().all(axis=None)
    assert any("nc4.agreement" in note and "no validation samples were given" in note for note in table.notes)
    assert "the store records no tokenizer: only ids are shown" in table.notes
    with pytest.raises(UsageError, match="cannot rank by val_loss: no validation samples"):
        collapse.tokens(arrays, top=2, by="val_loss")
    (note,) = [each for each in collapse.tokens(GOLDEN, top=1).notes if "tokenizer" in each]
    assert note.startswith("the store's tokenizer is not available, so only ids are shown")
    assert "give its folder with --tokenizer" in note
    table = collapse.tokens(replace(arrays.statistics(), classifier=None))
    assert table.frame()["nc3.self_duality"].isna().all()
    assert "nc3.self_duality: no classifier in these statistics" in table.notes


def test_ranks_are_of_any_column_and_nan_has_none():
    everything = collapse.tokens(GOLDEN).frame()
    frame = collapse.tokens(GOLDEN, top=4, least=3, by="val_loss").frame()
    having = everything.dropna(subset="val_loss")
    largest = having.sort_values("val_loss", ascending=False, kind="stable")["id"].tolist()[:4]
    smallest = having.sort_values("val_loss", kind="stable")["id"].tolist()[:3]
    assert frame["id"].tolist() == largest + smallest
    by_count = collapse.tokens(GOLDEN, top=1, by="count").frame()
    assert by_count["count"].item() == everything["count"].max()
    other = collapse.tokens(GOLDEN, top=2, by="gnc2.log_kernel")
    ids, values = collapse.vectors(GOLDEN, "gnc2.log_kernel")
    assert other.frame()["gnc2.log_kernel"].tolist() == pytest.approx(values.topk(2).values.tolist())
    assert other.frame()["id"].tolist() == ids[values.topk(2).indices].tolist()
    assert collapse.tokens(GOLDEN, least=10**6).frame()["id"].nunique() == len(everything)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 3, "ids": [20]}, "or give no tokens"),
        ({"by": "nc1.cdnv"}, "--top or --least: also give one"),
        ({"top": 3, "by": "nc1.cdvn"}, "did you mean nc1.cdnv"),
        ({"ids": []}, "no token is given"),
        ({"ids": [20, 511]}, "^not a class of this store: 511"),
        ({"top": 1, "by": "nc1.trace_ratio"}, "'nc1.trace_ratio' is not a measurement with a value per class"),
        ({"ids": [20], "min_count": 1000}, "needs two|not a class of"),
        ({"tokens": "the"}, "tokens cannot be found by text .* --ids"),
        ({"tokens": "a", "tokenizer": "/no/such/folder"}, "no tokenizer is called"),
    ],
)
def test_what_is_wrong_is_said(options, message):
    with pytest.raises(CollapseError, match=message):
        collapse.tokens(GOLDEN, **options)


@pytest.fixture(scope="module")
def collected(decoding, tiny) -> collapse.Store:
    return collapse.collect(decoding, store=decoding.parent / "store", **tiny.options())


@pytest.fixture(scope="module")
def texts(decoding, collected) -> dict[int, str]:
    """The text of each class, decoded by the tokenizer itself."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(decoding / "tokenizer.json"))
    return {each: tokenizer.decode([each]) for each in collected.statistics().classes.tolist()}


def found(store: collapse.Store) -> bool:
    """Whether the classes of a store have texts."""
    return collapse.tokens(store, top=1).frame()["text"].notna().all()


def test_a_collected_store_finds_its_tokenizer_again(collected, texts, decoding, tiny, tmp_path, monkeypatch):
    frame = collapse.tokens(collected).frame()
    assert dict(zip(frame["id"], frame["text"], strict=True)) == texts
    assert any(text.startswith(" ") for text in texts.values())
    collapse.collect(decoding, store=tmp_path / "there" / "store", **tiny.options())
    again = collapse.load(tmp_path / "there" / "store")  # knows the model's name only
    assert found(again)  # because it was collected with this cache
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path / "other"))
    assert not found(again)
    monkeypatch.chdir(decoding.parent)
    assert found(again)


def test_files_that_changed_since_are_not_taken(collected, decoding, tmp_path, monkeypatch):
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path / "home"))
    mine = shutil.copytree(decoding, tmp_path / "mine")
    reference = find_model(str(mine))
    remember_tokenizer(reference)
    again = collapse.load(shutil.copytree(collected.path, tmp_path / "there" / "store"))
    assert found(again)
    (mine / "tokenizer.json").write_text("{}")
    assert not found(again)


def test_a_gguf_files_tokenizer_is_given_by_the_file_which_the_note_names(tiny, tmp_path, monkeypatch):
    file = tmp_path / "m" / "x.gguf"
    write_gguf(file, 2, 2, vocabulary=512, tokenizer=tiny.model / "tokenizer.json")
    how = {"text": str(tiny.text), "chunk_length": 32, "max_chunks": 4}
    store = collapse.collect(file, store=tmp_path / "there" / "deep" / "store", **how)
    assert store.model == collapse.measure(store, metrics="nc1").model == "x.gguf"
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path / "other"))
    again = collapse.load(store.path)
    assert not found(again)
    assert any("give the file x.gguf with --tokenizer" in note for note in collapse.tokens(again, top=1).notes)
    table = collapse.tokens(again, top=1, tokenizer=file)
    assert table.frame()["text"].notna().all()
    assert not any("tokenizer" in note for note in table.notes)


def test_texts_are_taken_verbatim_and_the_variant_is_shown(collected, texts):
    by_text = {text: each for each, text in texts.items()}
    both = next(text for text in by_text if f" {text}" in by_text)
    for asked in (both, f" {both}"):
        frame = collapse.tokens(collected, asked).frame()
        assert frame["text"].tolist() == ([both, f" {both}"] if asked == both else [f" {both}", both])
        assert frame["id"].tolist() == [by_text[text] for text in frame["text"]]
    named = collapse.tokens(collected, [f" {both}", both], ids=[by_text[both]]).frame()
    assert named["text"].tolist() == [f" {both}", both]


def test_unknown_texts_are_explained(collected, texts, decoding):
    word = next(text for text in texts.values() if len(text) > 3)
    with pytest.raises(UsageError, match=r"is \d+ tokens, \".*similar classes: "):
        collapse.tokens(collected, word.strip() * 2)
    table = collapse.tokens(collected, [word, "\U0001f600"])
    assert table.frame()["text"].tolist()[0] == word
    assert any(note.startswith('"\U0001f600" is ') for note in table.notes)
    tokenizer = json.loads((decoding / "tokenizer.json").read_text())
    absent = next(each for each in tokenizer["model"]["vocab"].values() if each not in texts)
    with pytest.raises(UsageError, match=rf"^not a class of this store: {absent} \(\".*\"\)"):
        collapse.tokens(collected, ids=[absent])
    many = [f"zq{number}" for number in range(8)]
    with pytest.raises(UsageError, match='3 more texts without a class: "zq5", "zq6", "zq7"'):
        collapse.tokens(collected, many)


def test_another_tokenizer_is_reported(collected, decoding, tmp_path):
    assert collapse.tokens(collected, top=1, tokenizer=str(decoding)).notes == collapse.tokens(collected, top=1).notes
    loaded = AutoTokenizer.from_pretrained(decoding)
    assert collapse.tokens(collected, tokenizer=loaded).frame().equals(collapse.tokens(collected).frame())
    copy = shutil.copytree(decoding, tmp_path / "copy")
    assert not any("differs" in note for note in collapse.tokens(collected, top=1, tokenizer=copy).notes)
    changed = json.loads((copy / "tokenizer.json").read_text())
    changed["added_tokens"][0]["lstrip"] = True
    (copy / "tokenizer.json").write_text(json.dumps(changed))
    notes = collapse.tokens(collected, top=1, tokenizer=copy).notes
    assert any("the tokenizer copy" in note and "differs from the store's" in note for note in notes)


@pytest.fixture
def strange(arrays, tmp_path) -> tuple[collapse.Store, str]:
    """A store of a features file, and a tokenizer whose tokens are not harmless as they are."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = ["</script>", "\x1b[31mred", "line\nbreak", "a|b", "=1+1", "\u202eevil", "\u2581Tim"]
    made = Tokenizer(models.WordLevel({text: at for at, text in enumerate(vocabulary)}, unk_token="a|b"))
    PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(tmp_path / "strange")
    return arrays.save(tmp_path / "store"), str(tmp_path / "strange")


def test_texts_are_data_and_are_shown_visibly(strange):
    store, tokenizer = strange
    table = collapse.tokens(store, tokenizer=tokenizer)
    assert table.frame()["text"].tolist()[:3] == ["</script>", "\x1b[31mred", "line\nbreak"]
    assert "the store records no tokenizer: the texts are those of strange" in table.notes
    shown = [row[1] for row in table.for_people().rows]
    assert shown[1:3] == [r'"\x1b[31mred"', r'"line\nbreak"']
    assert shown[-1] == "average"
    assert "&#60;/script&#62;" in table.markdown()
    assert not set("<\x1b\u202e") & set(table.markdown())


def test_a_token_that_is_no_whole_character_is_shown_as_its_entry():
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE({"\u00e2\u0122": 0, "\u0120Tim": 1}, []))
    made.decoder = decoders.ByteLevel()
    texts = TokenTexts(PreTrainedTokenizerFast(tokenizer_object=made), [0, 1])
    assert texts.text(0) == "\u00e2\u0122"
    assert texts.text(1) == " Tim"
    assert texts.find(" Tim") == [1]
    assert [texts.text(other) for other in (-1, 2, 10**12)] == [None, None, None]
    assert texts.shown(2) == "token 2"


def test_a_space_that_decoding_drops_is_put_back():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({"\u2581Tim": 0, "Tim": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    texts = TokenTexts(PreTrainedTokenizerFast(tokenizer_object=made), [0, 2])
    assert [texts.text(each) for each in (0, 1)] == [" Tim", "Tim"]
    assert texts.explain("Tim") == '"Tim" is encoded as another text, " Tim" (0); similar classes: " Tim"'
