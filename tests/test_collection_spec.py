"""An option of a collection is defined once: the command line, Python, docs and the identity are derived from it."""

import inspect
import shlex

import click
import pytest
from click.testing import CliRunner

import collapse
from collapse.cli.options import collecting_options, given_options
from collapse.errors import UsageError
from collapse.inputs.accepted_options import accepts
from collapse.inputs.collection_spec import CollectionSpec, options_of
from collapse.inputs.identity import recorded_options
from collapse.inputs.option_words import key_value, key_values, typed
from collapse.stores.store_columns import CUT


@click.command()
@collecting_options()
def command(**options):
    return given_options(options)


def given(*words):
    """Return the options on a command line as keyword arguments of collect."""
    return command.main([*words], prog_name="command", standalone_mode=False)


def test_a_field_appears_on_the_command_line_in_python_docs_and_identity():
    @accepts()
    def collect(model: str, **options):
        """Collect.

        Args:
            {options}
        """

    help = " ".join(CliRunner().invoke(command, ["--help"], terminal_width=200).output.split())
    assert "--chunk-length T Tokens per chunk. [default: min(2048, the model's limit)]" in help
    assert "--exact-loss Sum the loss over the vocabulary in float64." in help
    said = given("--max-validation-chunks", "3", "--exact-loss")
    assert said == {"max_validation_chunks": 3, "exact_loss": True}
    parameters = inspect.signature(collect).parameters
    assert parameters["chunk_length"].default is None
    assert parameters["exact_loss"].default is False
    assert next(iter(parameters)) == "model"
    described = inspect.getdoc(collect)
    assert "chunk_length: Tokens per chunk. None: min(2048, the model's limit)." in described
    plain = recorded_options(CollectionSpec())
    assert not plain.keys() & said.keys()  # what earlier stores hold stays as it is
    assert recorded_options(CollectionSpec(**said)) == plain | said


def test_collect_shows_every_option_and_refuses_others_by_name():
    parameters = inspect.signature(collapse.collect).parameters
    assert list(parameters) == ["model", "store", "name", "progress", *options_of()]
    for name, about in options_of().items():
        assert f"{name}: {about.help}" in inspect.getdoc(collapse.collect)
    for function in (collapse.measure, collapse.measure_with_nulls):
        described = inspect.getdoc(function)
        assert " part: " not in described
        assert described.count(" device: ") == 1
        assert "part" not in inspect.signature(function).parameters
    with pytest.raises(TypeError, match=r"collect\(\) takes no argument 'chunk_lenght'; did you mean chunk_length\?"):
        collapse.collect("model", chunk_lenght=3)


def test_texts_are_one_or_several(tmp_path):
    assert CollectionSpec(text="a").text == CollectionSpec(text=["a"]).text == ("a",)
    assert CollectionSpec(text=tmp_path / "a").text == (str(tmp_path / "a"),)
    assert CollectionSpec(text=(each for each in ["a", tmp_path / "b"])).text == ("a", str(tmp_path / "b"))
    assert CollectionSpec(without=map(str, ["covariance"])).without == ("covariance",)
    for nothing in ([], (), iter([])):
        for name in ("text", "validation_text"):
            with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} must be one or several names"):
                CollectionSpec(**{name: nothing})
    assert CollectionSpec(without=[]).without == ()
    assert CollectionSpec(without="covariance").without == ("covariance",)
    assert CollectionSpec(text="a", shards=2).given == {"text": ("a",)}


def test_a_spec_is_typed_as_it_is_given():
    options = {
        "text": ("a b.txt", "c.txt"),
        "model_args": {"gguf_file": "x.gguf", "variant": "8", "n": 1},
        "part": (2, 4),
        "eos_between": True,
        "fast_attention": False,
        "without": ("covariance",),
        "max_chunks": 3,
    }
    assert given(*shlex.split(typed(CollectionSpec(**options)))) == options
    arguments = {"a": "8", "b": 8, "c": "x", "d": "true", "e": True, "f": '"x"', "g": "null", "h": None, "i": "1 2"}
    words = key_values(arguments)
    assert words[:4] == ['a="8"', "b=8", "c=x", 'd="true"']
    assert dict(key_value(word) for word in words) == arguments


def test_what_is_typed_becomes_what_python_takes():
    for words, expected in {
        "": {},
        "--text a --text b --validation-text c": {"text": ("a", "b"), "validation_text": ("c",)},
        "--batch-size auto --shards 2": {"batch_size": "auto", "shards": 2},
        "--batch-size 8 --deterministic --recollect": {"batch_size": 8, "deterministic": True, "recollect": True},
        "--tokenizer a --tokenizer b": {"tokenizer": "b"},  # one that is given once: the last counts
    }.items():
        assert given(*words.split()) == expected, words
    for words in ("--part 2", "--part a/2", "--part 3/2", "--part ²/3", "--batch-size ²", "--model-arg a"):
        with pytest.raises(UsageError, match=f"{words.split()[0]} must be .*, got "):
            given(*words.split())


def test_rows_know_the_defaults_of_cutting():
    assert {name: getattr(CollectionSpec(), name) for name in CUT} == CUT


def test_keys_and_values():
    assert key_value("a=1") == ("a", 1)
    assert key_value("a=b=c") == ("a", "b=c")
    assert key_value("a=") == ("a", "")
    for text in ("a", "=1", "1a=2", "a b=2"):
        with pytest.raises(UsageError, match=f"--other must be key=value, such as x=1, got {text}"):
            key_value(text, "--other", "x=1")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_chunks": 0}, "--max-chunks must be at least 1, got 0"),
        ({"chunk_length": 1}, "--chunk-length must be at least 2, got 1"),
        ({"chunk_length": "64"}, "--chunk-length must be an integer, got '64'"),
        ({"max_chunks": 2.5}, r"--max-chunks must be an integer, got 2\.5"),
        ({"batch_size": "all"}, "--batch-size must be a number of chunks or auto, got 'all'"),
        ({"dtype": "float31"}, "--dtype must be float32 or bfloat16 or float16 or float64, got 'float31'"),
        ({"part": (3, 2)}, r"--part must be k/n with 1 ≤ k ≤ n, such as 2/4 \(in Python \(2, 4\)\), got \(3, 2\)"),
        ({"part": "1/2"}, "--part must be k/n .*, got '1/2'"),
    ],
)
def test_values_that_make_no_sense_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        CollectionSpec(**given)
