"""The name under which a store's model is shown, and the name under which it is found."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

_PART_OF_A_REPOSITORY = ("subfolder", "gguf_file")  # model arguments that choose one of several models of one name


N = TypeVar("N", bound="Named")


class Named:
    """Names and identity shared by stores and by parts of a collection.

    Attributes:
        about: Its manifest, or the part of one that is known so far.
        named: Names of the model, corpus and validation text in the user's request, and the folder of a local
            tokenizer. They can differ from those in ``about``, because a store is found by its content.
    """

    about: Mapping[str, Any]
    named: dict[str, str]

    def called(self: N, names: Mapping[str, str | None]) -> N:
        """Set :attr:`named` to the names in the user's request, without the None values."""
        self.named = {kind: name for kind, name in names.items() if name is not None}
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """What was collected and from what: equal for equal content."""
        return dict(self.about["identity"])

    @property
    def model(self) -> str:
        """The model's name; of a GGUF file its own, without the folder."""
        return shown_model(str(self.about["model"]["name"]), self.identity.get("model_args") or {}, self.revision)

    @property
    def revision(self) -> str | None:
        """The model's commit on the Hub, or None."""
        return self.about["model"].get("revision")

    @property
    def corpus(self) -> str:
        """The training corpus's name."""
        return str(self.about["corpus"]["name"])


def shown_model(name: str, model_args: Mapping[str, Any], revision: str | None = None) -> str:
    """Return the name of a model, with the arguments that choose it among several of that name.

    A GGUF file of this machine is shown with its file name alone, which tells it from others of its folder.

    Args:
        name: Name of its folder (of a GGUF file with the file's name), or of its repository on the Hub.
        model_args: The model's arguments.
        revision: Its commit on the Hub, or None.

    >>> shown_model("models/m.Q4_1.gguf", {}), shown_model("owner/m", {"gguf_file": "m.gguf"}, "0123")
    ('m.Q4_1.gguf', 'owner/m/m.gguf')
    """
    gguf_file = _in_folder(name, model_args, revision)[1]
    if gguf_file and revision is None:
        return PurePosixPath(gguf_file).name
    parts = [str(model_args[each]) for each in _PART_OF_A_REPOSITORY if model_args.get(each)]
    return "/".join([name, *(part for part in parts if not name.endswith(f"/{part}"))])


def recorded_model(manifest: Mapping[str, Any]) -> str:
    """Return the name of the model's folder or repository, by which it is found again."""
    return _recorded(manifest)[0]


def recorded_arguments(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model's arguments; the name of a GGUF file is not in the identity."""
    gguf_file = _recorded(manifest)[1]
    return {**(manifest["identity"].get("model_args") or {}), **({"gguf_file": gguf_file} if gguf_file else {})}


def _recorded(manifest: Mapping[str, Any]) -> tuple[str, str | None]:
    model, arguments = manifest["model"], manifest["identity"].get("model_args") or {}
    return _in_folder(str(model["name"]), arguments, model.get("revision"))


def _in_folder(name: str, model_args: Mapping[str, Any], revision: str | None) -> tuple[str, str | None]:
    """Return the name of a model's folder or repository, and that of its GGUF file."""
    *folder, file = name.split("/")
    if not folder or not file.endswith(".gguf"):
        return name, model_args.get("gguf_file")
    if revision is not None:  # on the Hub the file may lie in a folder of the repository
        folder, file = folder[:2], "/".join([*folder[2:], file])
    return "/".join(folder), file
