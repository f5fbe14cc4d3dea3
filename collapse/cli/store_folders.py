"""The folders of several models' stores below --store."""

import os

from collapse.errors import UsageError


def check_folders(models: list[str], store: str) -> None:
    """Refuse models whose stores would have the same folder."""
    from collapse.core.paths import expanded

    named: dict[str, str] = {}
    for model in models:
        folder = folder_in(store, model)
        other = named.setdefault(folder, model)
        if os.path.abspath(expanded(other)) != os.path.abspath(expanded(model)):
            raise UsageError(
                f"the stores of {other} and {model} would both be {folder}: leave out --store, or measure them in two "
                "commands with two --store"
            )


def folder_in(store: str, model: str) -> str:
    """Return the folder of a model's store if there are several models: the last part of the model's name."""
    from pathlib import Path

    from collapse.core.paths import expanded
    from collapse.inputs.features import is_features_file

    path = Path(os.path.abspath(expanded(model)))  # "." and ".." are not names
    return str(Path(store) / (path.stem if is_features_file(model) else path.name))
