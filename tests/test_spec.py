"""An option of a collection is written once: the command line, Python, docs and the identity are made from it."""

import inspect
from dataclasses import dataclass

import click
import pytest
from click.testing import CliRunner

import collapse
from collapse.cli._options import collecting_options, given_options
from collapse.errors import UsageError
from collapse.spec import CollectionSpec, Role, accepts, option, options_of


@dataclass(frozen=True, kw_only=True)
class Wider(CollectionSpec):
    """A spec with two more options."""

    context: int | None = option(
        "Tokens before the first that counts.", Role.CHANGED, unset="none of them", metavar="N"
    )
    half_precision: bool = option("Run in half precision.", Role.RECORDED, default=False)


def test_a_field_that_is_added_appears_on_the_command_line_in_python_docs_and_identity():
    said = {}

    @click.command()
    @collecting_options(spec=Wider)
    def command(**options):
        said.update(given_options(options, Wider))

    @accepts(Wider)
    def collect(model: str, **options):
        """Collect.

        Args:
            {options}
        """

    help = " ".join(CliRunner().invoke(command, ["--help"], terminal_width=200).output.split())
    assert "--context N Tokens before the first that counts. [default: none of them]" in help
    assert "--half-precision Run in half precision." in help
    assert CliRunner().invoke(command, ["--context", "3", "--half-precision"]).exit_code == 0
    assert said == {"context": 3, "half_precision": True}
    parameters = inspect.signature(collect).parameters
    assert parameters["context"].default is None
    assert parameters["half_precision"].default is False
    assert next(iter(parameters)) == "model"
    described = inspect.getdoc(collect)
    assert "context: Tokens before the first that counts. None: none of them." in described
    plain = Wider().identity
    assert plain == CollectionSpec().identity | {"half_precision": False}  # what earlier stores hold stays as it is
    assert Wider(**said).identity == plain | said


def test_collect_shows_every_option_and_refuses_others_by_name():
    parameters = inspect.signature(collapse.collect).parameters
    assert list(parameters) == ["model", "store", "progress", *options_of()]
    for name, about in options_of().items():
        assert f"{name}: {about.help}" in inspect.getdoc(collapse.collect)
    with pytest.raises(TypeError, match=r"collect\(\) takes no argument 'chunk_lenght'; did you mean chunk_length\?"):
        collapse.collect("model", chunk_lenght=3)


def test_texts_are_one_or_several(tmp_path):
    assert CollectionSpec(text="a").text == CollectionSpec(text=["a"]).text == ("a",)
    assert CollectionSpec(text=tmp_path / "a", validation_text=[]).text == (str(tmp_path / "a"),)
    assert CollectionSpec(text=[]).text is None
    assert CollectionSpec(without="covariance").without == ("covariance",)
    assert CollectionSpec(text="a", shards=2).given == {"text": ("a",)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shards": True}, "--shards True makes no sense"),
        ({"max_chunks": 0}, "--max-chunks 0 makes no sense: give at least 1"),
        ({"batch_size": "all"}, "--batch-size all makes no sense"),
        ({"batch_size": 0}, "--batch-size 0 makes no sense"),
        ({"dtype": "float31"}, r"no dtype is called 'float31'; did you mean float32"),
        ({"part": (3, 2)}, "--part 3/2 makes no sense"),
    ],
)
def test_values_that_make_no_sense_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        CollectionSpec(**given)
