"""Checks of a checkpoint before it is opened: safetensors are preferred, pickles restricted, code refused.

A pickle is a program. Only torch's ``weights_only`` unpickler reads one, which constructs tensors and rejects anything
else. Code of a repository never runs unless the user trusts it.
"""

import re
from collections.abc import Mapping
from pathlib import PurePath
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse.extras import missing_package
from collapse.hub.fingerprints import read_first
from collapse.hub.requests import how_to_fetch
from collapse.inputs.references import config_of
from collapse.reading import parse_json, read_bounded
from collapse.stores.files import canonical

if TYPE_CHECKING:
    from collapse.inputs.references import ModelReference

_MOST_IDS = 10_000_000
_LONG_NUMBER = re.compile(rb":\s*\d{8}")
_NAMED = 3  # largest number of weights named in a message
_CUT_SHORT = ("deserializing header", "cannot reshape array", "failed finding central directory", "mmap length")
"""What safetensors, NumPy (for GGUF) and torch say of a file that is not whole."""
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
    "output_loading_info": "missing and mismatched weights are always reported, as an error",
    "ignore_mismatched_sizes": "weights of another shape are always refused",
    "config": "the model's own config.json is used",
    "state_dict": "the model's own weights are used",
    "adapter_kwargs": "merge the adapter into the model (peft's merge_and_unload) and save it",
    "adapter_name": "merge the adapter into the model (peft's merge_and_unload) and save it",
    "return_unused_kwargs": "it changes what transformers returns",
}
_RUNS_CODE = ("use_kernels", "kernel_config", "allow_all_kernels")
# implemented in torch and transformers; other names may be fetched from the Hub and run (package "kernels")
_BUILT_IN = ("eager", "sdpa", "flex_attention", "paged|eager", "paged|sdpa", "batched_mm", "grouped_mm")


def check_model_args(model_args: Mapping[str, Any]) -> None:
    """Raise UsageError for each ``--model-arg`` that has its own option or is not allowed.

    Raises:
        UsageError: There is one; the message says what to do instead.
    """
    for name, value in model_args.items():
        if name in _INSTEAD:
            raise UsageError(f"--model-arg {name}=… is not taken: {_INSTEAD[name]}")
        if name.startswith("_"):
            raise UsageError(f"--model-arg {name}=… is not taken: names with an underscore are transformers' own")
        if name == "subfolder" and (PurePath(str(value)).is_absolute() or ".." in PurePath(str(value)).parts):
            raise UsageError(
                f"--model-arg subfolder={value} leads out of the model's folder: name a folder inside it, or give that "
                "folder as MODEL"
            )
        try:
            canonical(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise UsageError(f"--model-arg {name}=… must be a value of JSON: {error}") from error


def checkpoint_files(reference: "ModelReference", model_args: Mapping[str, Any]) -> list[str]:
    """Return the names of the files from which transformers reads a model's weights; safetensors are preferred."""
    within = f"{reference.subfolder}/" if reference.subfolder else ""
    names = {name.removeprefix(within) for name in reference.files() if name.startswith(within)}
    found = read_first(names.__contains__, config_of(reference), model_args)
    if found is None or not found.endswith(".json"):
        return [found] if found else []
    shards = config_of(reference, found).get("weight_map")
    return sorted({str(each) for each in shards.values()}) if isinstance(shards, dict) else []


def check_code(reference: "ModelReference", config: Mapping[str, Any], named: str, *autos: str) -> None:
    """Refuse a configuration that needs code of its repository for a class that transformers does not have.

    transformers often substitutes one of its own classes without a warning, which gives the numbers of another model.

    Args:
        reference: The model.
        config: Its config.json or tokenizer_config.json; untrusted, so values may have any type.
        named: Key of the class names.
        autos: Entries of ``auto_map`` that would be used.

    Raises:
        CollapseError: It needs such code.
    """
    import transformers

    classes, auto_map = config.get(named), config.get("auto_map")
    classes = classes if isinstance(classes, list) else [classes]
    known = any(isinstance(name, str) and hasattr(transformers, name) for name in classes)
    if not known and isinstance(auto_map, Mapping) and any(auto in auto_map for auto in autos):
        raise _needs_code(reference)


def check_kernels(reference: "ModelReference", config: Mapping[str, Any], model_args: Mapping[str, Any]) -> None:
    """Refuse attention and experts implementations that may be code of a repository on the Hub.

    With the package ``kernels``, transformers downloads and imports an implementation named ``owner/repo``. Some
    versions do so without asking if a model's config.json names one.

    Args:
        reference: The model.
        config: Its config.json.
        model_args: Arguments from the user, which may name flash attention but not a repository.

    Raises:
        CollapseError: There is one.
    """
    for name, value in model_args.items():
        repository = any("/" in each for each in _implementations({name: value}))
        if repository or (name in _RUNS_CODE and value):
            raise UsageError(f"--model-arg {name}=… runs code from the Hub: if you trust it, give --trust-remote-code")
    for value in _implementations(config):
        if value not in _BUILT_IN:
            raise CollapseError(
                f"{reference.name}: its config.json asks for the implementation {value!r}, which may be code from the "
                "Hub and is not run unasked: remove it from config.json, or if you trust it, give --trust-remote-code"
            )


def _implementations(value: Any, named: bool = False) -> list[str]:
    """Return all texts under keys such as ``_attn_implementation``, at any depth."""
    if isinstance(value, str):
        return [value] if named else []
    if isinstance(value, Mapping):
        return [
            found
            for key, each in value.items()
            for found in _implementations(each, named or "_implementation" in str(key))
        ]
    return [found for each in value for found in _implementations(each, named)] if isinstance(value, list) else []


def check_adapter(reference: "ModelReference") -> None:
    """Refuse a PEFT adapter: with peft installed, transformers would load or change other weights.

    Raises:
        CollapseError: There is one.
    """
    if reference.file("adapter_config.json") is not None:
        raise CollapseError(
            f"{reference.name} holds a PEFT adapter (adapter_config.json): merge it into its model with peft's "
            "merge_and_unload(), save that, and measure it"
        )


def check_token_ids(reference: "ModelReference") -> None:
    """Refuse a tokenizer with enormous token ids, because the library counts up to the largest id.

    Raises:
        CollapseError: There is one.
    """
    file = reference.file("tokenizer.json")
    if file is None:
        return
    try:
        data = read_bounded(file)
        content = parse_json(data) if _LONG_NUMBER.search(data) else {}
        vocabulary, added = content.get("model", {}).get("vocab"), content.get("added_tokens") or []
        ids = [*(vocabulary.values() if isinstance(vocabulary, dict) else ()), *(each.get("id") for each in added)]
    except (OSError, ValueError, TypeError, AttributeError):
        return  # loading reports the error
    largest = max((each for each in ids if isinstance(each, int)), default=0)
    if largest >= _MOST_IDS:
        raise CollapseError(
            f"{reference.name}: its tokenizer.json has the token id {largest:,}, and ids must be below {_MOST_IDS:,}: "
            "name another with --tokenizer"
        )


def check_loaded(reference: "ModelReference", model: Any, info: Mapping[str, Any]) -> None:
    """Refuse a model whose checkpoint lacks some weights: transformers fills them with random numbers.

    Args:
        reference: The model.
        model: The loaded model.
        info: transformers' loading report, without tied heads and the keys that the model class ignores.

    Raises:
        CollapseError: Weights are missing, have another shape, or belong to unused layers; the message names some.
    """
    missing, unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    mismatched = sorted(info["mismatched_keys"])
    kind = type(model).__name__
    if mismatched:
        shapes = [f"{name} {_shape(there)}, not {_shape(wanted)}" for name, there, wanted in mismatched]
        raise CollapseError(
            f"{reference.name}: its checkpoint holds {counted(len(mismatched), 'weight')} of another shape than its "
            f"config.json says for {kind} ({_some(shapes)}): use the checkpoint that belongs to this config.json"
        )
    if missing:
        others = f"; it holds {len(unexpected):,} that {kind} does not know ({_some(unexpected)})" if unexpected else ""
        raise CollapseError(
            f"{reference.name}: its checkpoint lacks {counted(len(missing), 'weight')} of {kind} ({_some(missing)})"
            f"{others}. They would be random: use a complete checkpoint of a causal language model"
        )
    layers = {_of_any_layer(name, model) for name in model.state_dict()}
    if left := [name for name in unexpected if _of_any_layer(name, model) in layers]:
        raise CollapseError(
            f"{reference.name}: its checkpoint holds {counted(len(left), 'weight')} of layers that its config.json "
            f"leaves out ({_some(left)}): use the config.json that belongs to it, or save the shorter model with "
            "save_pretrained"
        )


def _of_any_layer(name: str, model: Any) -> str:
    """Return a weight's name without the layer number and the base model's name."""
    return re.sub(r"(?<=\.)\d+(?=\.)", "#", "." + name.removeprefix(f"{model.base_model_prefix}."))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _shape(shape: Any) -> str:
    return "×".join(map(str, shape))


def _needs_code(reference: "ModelReference") -> CollapseError:
    return CollapseError(
        f"{reference.name} needs Python code of its own repository, which is not run unasked: read that code, and if "
        "you trust it, give --trust-remote-code"
    )


def loading_error(
    reference: "ModelReference", what: str, error: Exception, pickled: list[str] | None = None
) -> CollapseError:
    """Return a one-line error for a failure of transformers, torch or another library to load part of a model."""
    missing = missing_package(error)
    if missing:
        return CollapseError(f"{reference.name} cannot be loaded as {what}: {missing}")
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
    if any(each in text for each in _CUT_SHORT):
        of = f" ({files})" if files else ""
        return CollapseError(
            f"{reference.name} cannot be loaded as {what}: a file of its weights{of} is damaged or cut short: fetch it "
            f"again ({first_line(error)})"
        )
    first, _, rest = text.strip().partition("\n")
    reason = f"{first} {rest.strip().split(chr(10))[0].strip()}" if first.endswith(":") and rest else first_line(error)
    advice = "" if reference.online else f" {how_to_fetch(reference.name, reference.revision)}"
    return CollapseError(
        f"{reference.name} cannot be loaded as {what}: {reason}{f' ({files})' if files else ''}{advice}"
    )
