"""The name under which a store's model is shown, and the name under which it is found."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

_PART_OF_A_REPOSITORY = ("subfolder", "gguf_file")  # model arguments that choose one of several models of one name


def shown_model(name: str, model_args: Mapping[str, Any], revision: str | None = None) -> str:
    """Return the name of a model, with the arguments that choose it among several of that name.

    A GGUF file of this machine is shown with its file name alone, which tells it from others of its folder.

    Args:
        name: Name of its folder, or of its repository on the Hub.
        model_args: The model's arguments.
        revision: Its commit on the Hub, or None.

    >>> shown_model("models", {"gguf_file": "m.Q4_1.gguf"}), shown_model("owner/m", {"gguf_file": "m.gguf"}, "0123")
    ('m.Q4_1.gguf', 'owner/m/m.gguf')
    """
    if model_args.get("gguf_file") and revision is None:
        return PurePosixPath(str(model_args["gguf_file"])).name
    parts = [str(model_args[each]) for each in _PART_OF_A_REPOSITORY if model_args.get(each)]
    return "/".join([name, *(part for part in parts if not name.endswith(f"/{part}"))])


def recorded_model(manifest: Mapping[str, Any]) -> str:
    """Return the name of the model's folder or repository, by which it is found again."""
    return str(manifest["model"]["name"])
