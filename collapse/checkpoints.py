"""What a checkpoint is made of, told before any of it is opened: safetensors wherever there are any; pickles; code.

A pickle is a program. The only one that runs it here is torch's ``weights_only`` unpickler, which knows nothing but
tensors and refuses the rest. Code of a repository is not run at all, unless the user trusts it.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError, UsageError, first_line

if TYPE_CHECKING:
    from collapse.references import ModelReference

_ASKED_FOR = re.compile(r"GLOBAL (\S+)|(Unsupported operand \d+)")
_INSTEAD = {
    "trust_remote_code": "use --trust-remote-code",
    "weights_only": "a pickled checkpoint is read by torch's weights_only unpickler and by nothing else",
    "token": "it would be written into the store; log in with: hf auth login",
    "use_auth_token": "it would be written into the store; log in with: hf auth login",
    "revision": "use --revision",
    "dtype": "use --dtype",
    "torch_dtype": "use --dtype",
    "local_files_only": "set HF_HUB_OFFLINE=1",
}


def check_model_args(model_args: Mapping[str, Any]) -> None:
    """Refuse those ``--model-arg`` that have an option of their own, or that nobody should give.

    Raises:
        UsageError: One of these is there; what to do instead is said.
    """
    for name in model_args:
        if name in _INSTEAD:
            raise UsageError(f"--model-arg {name}=… is not taken: {_INSTEAD[name]}")


def pickled_files(reference: "ModelReference", model_args: Mapping[str, Any]) -> list[str]:
    """The pickles that a model's weights are in; none where there are safetensors, a GGUF file, or no weights."""
    if model_args.get("gguf_file"):
        return []
    folder, variant = str(model_args.get("subfolder") or "").strip("/"), model_args.get("variant")
    infix = f".{variant}" if variant else ""
    inside = f"{folder}/" if folder else ""
    names = [name.removeprefix(inside) for name in reference.files() if name.startswith(inside)]
    safe = {f"model{infix}.safetensors", f"model.safetensors.index{infix}.json"}
    if model_args.get("use_safetensors") is not False and safe & set(names):
        return []
    whole = f"pytorch_model{infix}.bin"
    return [whole] if whole in names else sorted(name for name in names if fnmatchcase(name, "pytorch_model*-of-*.bin"))


def check_code(reference: "ModelReference", config: Mapping[str, Any], named: str, *autos: str) -> None:
    """Refuse what names code of its repository for a class that transformers does not have.

    transformers itself would often put a class of its own in its place, without a word; the numbers would be another
    model's.

    Args:
        reference: The model.
        config: Its config.json or tokenizer_config.json; anybody's, so that anything may stand in it.
        named: Where the classes are named in it.
        autos: Which entries of ``auto_map`` would be used.

    Raises:
        CollapseError: It does.
    """
    import transformers

    classes, auto_map = config.get(named), config.get("auto_map")
    classes = classes if isinstance(classes, list) else [classes]
    known = any(isinstance(name, str) and hasattr(transformers, name) for name in classes)
    if not known and isinstance(auto_map, Mapping) and any(auto in auto_map for auto in autos):
        raise _needs_code(reference)


def _needs_code(reference: "ModelReference") -> CollapseError:
    return CollapseError(
        f"{reference.name} needs Python code of its own repository, which is not run unasked: read that code, and if "
        "you trust it, give --trust-remote-code"
    )


def loading_error(
    reference: "ModelReference", what: str, error: Exception, pickled: list[str] | None = None
) -> CollapseError:
    """Why something of a model cannot be loaded, in a line; what transformers, torch and others raise is theirs."""
    text, files = str(error), ", ".join(pickled or [])
    if "trust_remote_code" in text:
        return _needs_code(reference)
    if isinstance(error, UnpicklingError):
        found = _ASKED_FOR.search(text)
        asked = f"it asks for {found[1] or found[2].lower()}" if found else "or is damaged"
        return CollapseError(
            f"{reference.name}: {files or 'its checkpoint'} holds more than tensors ({asked}): torch's weights_only "
            "unpickler refused it, and nothing in it was run; use a checkpoint in safetensors"
        )
    return CollapseError(
        f"{reference.name} cannot be loaded as {what}: {first_line(error)}{f' ({files})' if files else ''}"
    )
