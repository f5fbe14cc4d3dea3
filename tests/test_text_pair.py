"""A validation text may be absent only where its split was not asked for by name."""

import pytest

from collapse.errors import UsageError
from collapse.inputs.corpus import Corpus, NoSplit
from collapse.inputs.text_pair import Texts

TEXT, OTHER = Corpus("a", "hub", split="train"), Corpus("b", "hub", split="validation")


def absent(corpus: Corpus) -> None:
    raise NoSplit(f"{corpus.name} has no split {corpus.split}")


@pytest.mark.parametrize(
    ("texts", "validated", "without"),
    [
        (Texts(TEXT), False, False),
        (Texts(TEXT, OTHER), True, True),
        (Texts(TEXT, OTHER, optional=True), True, False),
    ],
)
def test_what_a_store_still_wants(texts, validated, without):
    assert texts.wanted_beside("b") == validated
    assert texts.wanted_beside(None) == without


def test_a_validation_text_is_packed_and_only_an_optional_one_may_be_absent():
    for texts in (Texts(TEXT, OTHER), Texts(TEXT, OTHER, optional=True)):
        assert texts.pack_validation(lambda corpus: f"packed {corpus.name}") == "packed b"
    assert Texts(TEXT).pack_validation(absent) is None
    assert Texts(TEXT, OTHER, optional=True).pack_validation(absent) is None
    with pytest.raises(UsageError, match="b has no split validation"):
        Texts(TEXT, OTHER).pack_validation(absent)


def test_another_error_of_an_optional_validation_is_not_an_absent_split():
    def without_column(corpus: Corpus) -> None:
        raise UsageError(f"{corpus.name} has no column 'text'")

    with pytest.raises(UsageError, match="b has no column 'text'"):
        Texts(TEXT, OTHER, optional=True).pack_validation(without_column)


def test_names_are_those_of_the_texts():
    assert Texts(TEXT, OTHER).names == {"corpus": "a", "validation": "b"}
    assert Texts(None).names == {"corpus": None, "validation": None}
