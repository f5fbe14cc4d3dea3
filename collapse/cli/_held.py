"""Options that were given on the command line, beside a store or a features file that does not follow them."""

from collections.abc import Mapping
from typing import Any

import click

from collapse.cli._options import key_value
from collapse.held import check_features_options, check_store_options

# what collect() does not compare with a store that is there
_NOT_COMPARED: dict[str, tuple[str, ...]] = {
    "split": ("text",),
    "validation_split": ("validation_text",),
    "text_column": ("text", "validation_text"),
    "no_covariance": (),
}


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of a command's options that were given, whatever their defaults."""
    context = click.get_current_context()
    default = click.core.ParameterSource.DEFAULT
    given = {name: value for name, value in options.items() if context.get_parameter_source(name) is not default}
    if "model_args" in given:
        given["model_args"] = dict(key_value(each, "--model-arg") for each in given["model_args"])
    return given


def check_collect_options(model: str, folder: str | None, options: Mapping[str, Any]) -> None:
    """Refuse options that a collection into this folder would pass over, because its store is there already.

    Raises:
        UsageError: An option does not apply; the message says what is there.
    """
    from collapse.features import is_features_file
    from collapse.manifest import is_store
    from collapse.store import Store

    given = given_options(options)
    if is_features_file(model):
        check_features_options(model, given, alone=True)
    elif folder and is_store(folder) and not options["recollect"]:
        left = {n: given[n] for n, texts in _NOT_COMPARED.items() if n in given and not given.keys() & set(texts)}
        check_store_options(Store.load(folder), left)
