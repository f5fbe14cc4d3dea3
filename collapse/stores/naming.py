"""Determine the names by which a store's model is shown and found."""

from collections.abc import Mapping
from copy import copy
from pathlib import PurePosixPath
from typing import Any, TypeVar

_PART_OF_A_REPOSITORY = ("subfolder", "gguf_file")  # model arguments that choose one of a repository's models

N = TypeVar("N", bound="Named")  # not Self, which beartype refuses where the tests check shapes


class Named:
    """Base class of :class:`collapse.Store` and :class:`collapse.Part`: names and identity.

    Attributes:
        about: The manifest, or the fields of it that are known so far.
        named: Names of the model, corpus and validation text in the user's request; the model's revision, training
            step and number of training tokens; the folder of a local tokenizer. These names can differ from the names
            in ``about``, because a store is found by its content.
    """

    about: Mapping[str, Any]
    named: dict[str, str]

    def with_names(self: N, names: Mapping[str, str | None]) -> N:
        """Return a copy with :attr:`named` set to the names in the user's request, without the None values."""
        made = copy(self)
        made.named = {kind: name for kind, name in names.items() if name is not None}
        return made

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that affects a stored number, such as model, text and dtype."""
        return dict(self.about["identity"])

    @property
    def model(self) -> str:
        """The model's name; for a local GGUF file, the file name without its folder."""
        return shown_model(str(self.about["model"]["name"]), self.identity.get("model_args") or {}, self.revision)

    @property
    def found_at(self) -> tuple[str, dict[str, Any]]:
        """The model's folder or repository, and the model's arguments; together, they locate the model."""
        return _place(str(self.about["model"]["name"]), self.identity.get("model_args") or {}, self.revision)

    @property
    def revision(self) -> str | None:
        """The model's commit on the Hub; None if the model is not from the Hub."""
        return self.about["model"].get("revision")

    @property
    def corpus(self) -> str:
        """The training corpus's name."""
        return str(self.about["corpus"]["name"])


def shown_model(name: str, model_args: Mapping[str, Any], revision: str | None = None) -> str:
    """Return the name of a model, with the arguments that choose it within its repository.

    A local GGUF file (``revision`` is None) is shown by its file name, which distinguishes it from other files in its
    folder. On the Hub, the file name follows the repository's name.

    >>> shown_model("models/m.Q4_1.gguf", {}), shown_model("owner/m", {"gguf_file": "m.gguf"}, "0123")
    ('m.Q4_1.gguf', 'owner/m/m.gguf')
    """
    name, arguments = _place(name, model_args, revision)
    if revision is None and arguments.get("gguf_file"):
        return PurePosixPath(arguments["gguf_file"]).name
    return "/".join([name, *(str(arguments[each]) for each in _PART_OF_A_REPOSITORY if arguments.get(each))])


def _place(name: str, model_args: Mapping[str, Any], revision: str | None) -> tuple[str, dict[str, Any]]:
    """Return a model's name and arguments.

    If the model's name is the path of a GGUF file, the returned name is that of its folder or repository, and the
    argument ``gguf_file`` names the file. The arguments in an identity lack ``gguf_file``, because an identity records
    the file's content instead.
    """
    *folder, file = name.split("/")
    if not folder or not file.endswith(".gguf"):
        return name, dict(model_args)
    if revision is not None:  # on the Hub the file may be in a folder of the repository
        folder, file = folder[:2], "/".join([*folder[2:], file])
    return "/".join(folder), {**model_args, "gguf_file": file}
