"""What tells rows apart, and the remark on rows that should not be compared."""

import pandas as pd
import pytest
from golden_store import GOLDEN

from collapse.measurement.comparing import about, corpora_of, distinct, mixed
from collapse.measurement.results import Row
from collapse.stores.files import sha256_of
from collapse.stores.store import Store

A, B = "a" * 64, "b" * 64


def golden(**identity: object) -> Store:
    store = Store.load(GOLDEN)
    store.manifest["identity"] |= identity
    return store


def test_a_row_is_of_a_store():
    store = golden()
    identity = store.identity
    assert about(store) == {
        "model": "model",
        "step": None,
        "revision": None,
        "corpus": "text.jsonl",
        "store": store.digest,
        "origin": None,
        "validation": "validation.jsonl",
        "chunk_length": 32,
        "max_chunks": 40,
        "max_validation_chunks": None,
        "dtype": "float32",
        "weights": identity["weights"],
        "tokenizer": identity["tokenizer"],
        "corpus_id": sha256_of(identity["corpus"]),
        "validation_id": sha256_of(identity["validation"]),
    }
    store.called({"model": "m", "corpus": "c", "validation": "v"})
    named = about(store)
    assert (named["model"], named["corpus"], named["validation"]) == ("m", "c", "v")
    store.called({"model": "m", "corpus": None, "validation": None})
    named = about(store)
    assert (named["model"], named["corpus"], named["validation"]) == ("m", "text.jsonl", "validation.jsonl")


@pytest.mark.parametrize("option", [{"shards": 7}, {"eos_between": True}])
def test_a_text_that_is_laid_out_otherwise_is_another(option):
    plain, other = about(golden()), about(golden(**option))
    for name in ("corpus_id", "validation_id"):
        assert plain[name] != other[name]
    assert [each.split(" are mixed")[0] for each in mixed([plain, other])] == [
        "rows of different training texts",
        "rows of different validation texts",
    ]


def test_what_was_not_collected_is_not_told():
    row = about(golden(validation=None, corpus=None, weights=None))
    assert row["validation_id"] is row["corpus_id"] is row["weights"] is None
    assert about(golden(features=A))["weights"] == f"features:{A}"
    assert about(golden(weights=None, model_args={"a": 1}))["weights"] is None


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({}, "model"),
        ({"attn_implementation": "eager"}, "model"),
        ({"subfolder": "s"}, "model/s"),
        ({"gguf_file": "x.gguf"}, "x.gguf"),
        ({"gguf_file": "x.gguf", "subfolder": "s"}, "x.gguf"),
        ({"subfolder": "", "gguf_file": None}, "model"),
    ],
)
def test_arguments_tell_models_of_one_name_apart(arguments, name):
    store = golden(model_args=arguments)
    weights = store.identity["weights"]
    row = about(store)
    assert row["model"] == name
    assert row["weights"] == (f"{weights}+{sha256_of(arguments)[:12]}" if arguments else weights)
    if len(arguments) < 2 or not all(arguments.values()):
        assert about(store.called({"model": name}))["model"] == name  # it is told once


def test_a_features_file_names_no_corpus():
    table = pd.DataFrame(
        {"corpus": ["a.safetensors", "b.safetensors", "c", None], "weights": [f"features:{A}"] * 2 + [A, None]}
    )
    assert corpora_of(table) == ["c"]
    assert corpora_of(table[["corpus"]]) == ["a.safetensors", "b.safetensors", "c"]
    assert corpora_of(pd.DataFrame({"val_loss": [1.0]})) == []


def row(model: str, store: str = A, **more: object) -> Row:
    return Row(model, None, "c", store, 1, 5, 3, 60, {"nc3.self_duality": 0.5}, **more)


def test_names_of_several_stores_are_followed_by_their_digests():
    rows = [row("m", A), row("m", A), row("n", A)]
    assert distinct(rows) == ["m", "m", "n"]
    assert distinct([*rows, row("m", B)]) == [f"m ({'a' * 12})", f"m ({'a' * 12})", "n", f"m ({'b' * 12})"]
    assert distinct([]) == []
    assert mixed(rows) == []


PLAIN = {"chunk_length": 32, "max_chunks": 5, "dtype": "float32", "min_count": 1, "corpus": "c", "validation": "v"}
PLAIN |= {"corpus_id": A, "validation_id": A}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"model": "other", "weights": "x", "classes": 3}, []),
        ({"corpus_id": B, "corpus": "d"}, [f"training texts are mixed: c {A[:12]} (2 rows), d {B[:12]} (1 row)"]),
        ({"corpus": "e", "dtype": "float16"}, ["dtypes are mixed: float32 (2 rows), float16 (1 row)"]),
        ({"validation_id": B}, [f"validation texts are mixed: v {A[:12]} (2 rows), v {B[:12]} (1 row)"]),
        ({"validation_id": B, "validation": None}, [f"validation texts are mixed: v {A[:12]} (2 rows), {B} (1 row)"]),
        ({"chunk_length": 16}, ["chunk lengths are mixed: 32 (2 rows), 16 (1 row)"]),
        ({"chunk_length": 32.0}, []),
        ({"chunk_length": 16.0}, ["chunk lengths are mixed: 32 (2 rows), 16 (1 row)"]),
        ({"min_count": 2.5}, ["limits of --min-count are mixed: 1 (2 rows), 2.5 (1 row)"]),
        ({"max_chunks": None}, ["limits of --max-chunks are mixed: 5 (2 rows), none (1 row)"]),
        ({"max_chunks": float("nan")}, ["limits of --max-chunks are mixed: 5 (2 rows), none (1 row)"]),
        ({"max_chunks": None, "chunk_length": None}, []),  # features: they have no chunks
        ({"max_validation_chunks": 3}, ["limits of --max-validation-chunks are mixed: 5 (2 rows), 3 (1 row)"]),
        ({"max_validation_chunks": 5.0}, []),  # as many as --max-chunks leaves the others
        ({"max_validation_chunks": 3, "validation_id": None}, []),  # nothing was validated
        ({"max_chunks": 9, "max_validation_chunks": 5}, ["limits of --max-chunks are mixed: 5 (2 rows), 9 (1 row)"]),
        ({"dtype": None}, []),
        ({"dtype": float("nan")}, []),
        ({"dtype": pd.NA, "validation_id": pd.NA}, []),
        ({"dtype": "bfloat16", "min_count": 2}, [
            "dtypes are mixed: float32 (2 rows), bfloat16 (1 row)",
            "limits of --min-count are mixed: 1 (2 rows), 2 (1 row)",
        ]),
    ],
)  # fmt: skip
def test_what_should_be_equal_and_differs_is_remarked(change, said):
    assert mixed([PLAIN, PLAIN | change, PLAIN]) == [f"rows of different {each}" for each in said]


def test_a_text_is_called_as_in_its_first_row():
    rows = [PLAIN, PLAIN | {"corpus": "e"}, PLAIN | {"corpus_id": B, "corpus": "d"}]
    assert mixed(rows) == [f"rows of different training texts are mixed: c {A[:12]} (2 rows), d {B[:12]} (1 row)"]


def test_many_values_are_not_all_listed():
    rows = [{"min_count": count} for count in range(1, 5)]
    assert mixed(rows)[0].endswith("mixed: 1 (1 row), 2 (1 row), 3 (1 row), 4 (1 row)")
    assert mixed([*rows, {"min_count": 5}, {"min_count": 6}])[0].endswith("4 (1 row), and 2 more")


def test_rows_are_compared_as_their_records():
    one, other = row("m", dtype="float32"), row("m", dtype="bfloat16")
    assert mixed([one, other]) == mixed([one.to_dict(), other.to_dict()])
    assert len(mixed([one, other])) == 1
    assert mixed([one, one]) == []


def test_numbers_of_another_programs_table_are_told():
    rows = [{"corpus": "a", "corpus_id": 0}, {"corpus": "b", "corpus_id": 1}]
    assert mixed(rows) == ["rows of different training texts are mixed: a 0 (1 row), b 1 (1 row)"]
