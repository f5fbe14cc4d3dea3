"""Names that distinguish rows, and the remark on rows that should not be compared."""

import pandas as pd
import pytest
from golden_store import GOLDEN

from collapse.measurement.comparable import distinct, mixed
from collapse.measurement.results import Row
from collapse.stores.files import sha256_of
from collapse.stores.store import Store
from collapse.stores.store_columns import row_columns

A, B = "a" * 64, "b" * 64


def golden(**identity: object) -> Store:
    store = Store.load(GOLDEN)
    store.manifest["identity"] |= identity
    return store


def test_a_row_is_of_a_store():
    store = golden()
    row, identity = row_columns(store), store.identity
    assert (row["model"], row["corpus"], row["validation"]) == ("model", "text.jsonl", "validation.jsonl")
    assert (row["store"], row["chunk_length"], row["max_chunks"]) == (store.digest, 32, 40)
    assert row["corpus_id"] == sha256_of(identity["corpus"])
    named = row_columns(store.with_names({"model": "m", "corpus": "c", "validation": None}))
    assert (named["model"], named["corpus"], named["validation"]) == ("m", "c", "validation.jsonl")
    without = row_columns(golden(validation=None, corpus=None, weights=None))
    assert without["validation_id"] is without["corpus_id"] is without["weights"] is None
    assert row_columns(golden(features=A))["weights"] == f"features:{A}"


@pytest.mark.parametrize("option", [{"shards": 7}, {"eos_between": True}])
def test_a_text_that_is_laid_out_otherwise_is_another(option):
    assert [each.split(" are mixed")[0] for each in mixed([row_columns(golden()), row_columns(golden(**option))])] == [
        "rows of different training texts",
        "rows of different validation texts",
    ]


def test_rows_of_different_tokenizers_are_not_compared_silently():
    others = [row_columns(golden()), row_columns(golden(tokenizer="sha256:0123"))]
    assert [each.split(" are mixed")[0] for each in mixed(others)] == ["rows of different tokenizers"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({}, "model"),
        ({"attn_implementation": "eager"}, "model"),
        ({"subfolder": "s"}, "model/s"),
        ({"gguf_file": "x.gguf", "subfolder": "s"}, "x.gguf"),
    ],
)
def test_arguments_tell_models_of_one_name_apart(arguments, name):
    store = golden(model_args=arguments)
    weights = store.identity["weights"]
    row = row_columns(store)
    assert row["model"] == name
    assert row["weights"] == (f"{weights}+{sha256_of(arguments)[:12]}" if arguments else weights)


def row(model: str, store: str = A, **more: object) -> Row:
    return Row(model, None, "c", store, 1, 5, 3, 60, {"nc3.self_duality": 0.5}, **more)


def test_names_of_several_stores_are_followed_by_their_digests():
    rows = [row("m", A), row("m", A), row("n", A)]
    assert distinct(rows) == ["m", "m", "n"]
    assert distinct([*rows, row("m", B)]) == [f"m ({'a' * 12})", f"m ({'a' * 12})", "n", f"m ({'b' * 12})"]


PLAIN = {"chunk_length": 32, "max_chunks": 5, "dtype": "float32", "min_count": 1, "corpus": "c", "validation": "v"}
PLAIN |= {"corpus_id": A, "validation_id": A}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"model": "other", "weights": "x", "classes": 3}, []),
        ({"corpus_id": B, "corpus": "d"}, [f"training texts are mixed: c {A[:12]} (2 rows), d {B[:12]} (1 row)"]),
        ({"corpus": "e", "dtype": "float16"}, ["dtypes are mixed: float32 (2 rows), float16 (1 row)"]),
        ({"chunk_length": 32.0}, []),
        ({"chunk_length": 16.0}, ["chunk lengths are mixed: 32 (2 rows), 16 (1 row)"]),
        ({"max_chunks": float("nan")}, ["limits of --max-chunks are mixed: 5 (2 rows), none (1 row)"]),
        ({"max_chunks": None, "chunk_length": None}, []),  # features: they have no chunks
        ({"max_validation_chunks": 3}, ["limits of --max-validation-chunks are mixed: 5 (2 rows), 3 (1 row)"]),
        ({"max_validation_chunks": 5.0}, []),  # as many as --max-chunks leaves the others
        ({"max_validation_chunks": 3, "validation_id": None}, []),  # nothing was validated
        ({"dtype": None}, []),
        ({"dtype": pd.NA, "validation_id": pd.NA}, []),
        ({"dtype": "bfloat16", "min_count": 2}, [
            "dtypes are mixed: float32 (2 rows), bfloat16 (1 row)",
            "limits of --min-count are mixed: 1 (2 rows), 2 (1 row)",
        ]),
    ],
)  # fmt: skip
def test_what_should_be_equal_and_differs_is_remarked(change, said):
    assert mixed([PLAIN, PLAIN | change, PLAIN]) == [f"rows of different {each}" for each in said]
