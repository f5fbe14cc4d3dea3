"""Checks of a checkpoint before it is opened: safetensors are preferred, pickles restricted, code refused.

A pickle is a program. Only torch's ``weights_only`` unpickler reads one, which constructs tensors and rejects anything
else. Code of a repository never runs unless the user trusts it.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from collapse.core.extras import missing_package
from collapse.errors import CollapseError, UsageError, counted, first_line, some
from collapse.hub.requests import how_to_fetch
from collapse.inputs.references import config_of
from collapse.inputs.unused_tensors import needed
from collapse.stores.files import canonical

if TYPE_CHECKING:
    from collapse.inputs.references import ModelReference

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
_QUANTIZED = ("quantization_config", "compression_config", "load_in_8bit", "load_in_4bit")
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
            raise UsageError(f"--model-arg {name}=… is not allowed: {_INSTEAD[name]}")
        if name.startswith("_"):
            raise UsageError(
                f"--model-arg {name}=… is not allowed: names with an underscore are internal to transformers"
            )
        if name == "subfolder" and (PurePath(str(value)).is_absolute() or ".." in PurePath(str(value)).parts):
            raise UsageError(
                f"--model-arg subfolder={value} leads out of the model's folder: name a folder inside it, or give that "
                "folder as MODEL"
            )
        try:
            canonical(value)
        except (ValueError, TypeError) as error:
            raise UsageError(f"--model-arg {name}=… must be a value of JSON: {error}") from error


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
    given = {name for name in model_args if name.endswith("_implementation")}
    for value in _implementations({key: value for key, value in config.items() if key.strip("_") not in given}):
        if value not in _BUILT_IN:
            raise CollapseError(
                f"{reference.name}: its config.json names the implementation {value!r}, which may be code from the "
                "Hub: remove it from config.json, or give --trust-remote-code if you trust that code"
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


def check_kind(reference: "ModelReference", config: Mapping[str, Any], model_args: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that is not a whole causal language model in full precision.

    transformers would build only a part of it, with a new head if it has none.

    Args:
        reference: The model.
        config: Its config.json.
        model_args: Arguments from the user.

    Raises:
        CollapseError: It is an adapter, quantized, an encoder-decoder, or a model with another head.
    """
    import transformers
    from transformers.models.auto import modeling_auto as auto

    if quantized := [key for key, value in {**config, **model_args}.items() if key in _QUANTIZED and value]:
        raise CollapseError(
            f"{reference.name} is quantized ({quantized[0]}), and quantized models cannot be measured yet: dequantize "
            "it (transformers' model.dequantize()), save the result, and measure that"
        )
    named, kind = config.get("architectures"), str(config.get("model_type"))
    base = auto.MODEL_MAPPING_NAMES.get(kind)
    causal = {*auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values(), *([base] if isinstance(base, str) else base or ())}
    found = [str(name) for name in (named if isinstance(named, list) else [named]) if hasattr(transformers, str(name))]
    if config.get("is_encoder_decoder") is True or (found and not causal & {*found}):
        raise CollapseError(
            f"{reference.name} is a {found[0] if found else kind}, not a causal language model: "
            "run it with its own class, and give its embeddings to collapse.measure(features=…, labels=…)"
        )


def check_loaded(
    reference: "ModelReference", model: Any, info: Mapping[str, Any], unused: Iterable[str], files: Iterable[Path]
) -> None:
    """Refuse a model whose checkpoint lacks some weights, or holds others that the model does not use.

    transformers fills missing weights with random numbers, and leaves unused ones out; both are only logged.

    Args:
        reference: The model.
        model: The loaded model.
        info: transformers' loading report, without tied heads.
        unused: Names of the checkpoint's tensors that the model lacks.
        files: The checkpoint's files.

    Raises:
        CollapseError: Weights are missing, have another shape, or are not used; the message names some.
    """
    missing, unexpected = sorted(info["missing_keys"]), sorted(info["unexpected_keys"])
    mismatched = sorted(info["mismatched_keys"])
    kind = type(model).__name__
    if mismatched:
        shapes = [f"{name} {_shape(there)}, not {_shape(wanted)}" for name, there, wanted in mismatched]
        raise CollapseError(
            f"{reference.name}: its checkpoint holds {counted(len(mismatched), 'weight')} of another shape than its "
            f"config.json says for {kind} ({some(shapes)}): use the checkpoint that belongs to this config.json"
        )
    if missing:
        others = f"; it holds {len(unexpected):,} that {kind} does not know ({some(unexpected)})" if unexpected else ""
        raise CollapseError(
            f"{reference.name}: its checkpoint lacks {counted(len(missing), 'weight')} of {kind} ({some(missing)})"
            f"{others}. They would be random: use a complete checkpoint of a causal language model"
        )
    if left := needed(model, config_of(reference), unused, files):
        raise CollapseError(
            f"{reference.name}: its checkpoint holds {counted(len(left), 'tensor')} that {kind} does not use "
            f"({some(left)}), so its numbers would be those of another model: use the config.json that belongs to the "
            "checkpoint; or run the model with its own class, and give its embeddings to collapse.measure(features=…, "
            "labels=…)"
        )
    tied = getattr(model, "all_tied_weights_keys", {})
    if untied := sorted({*model.get_expanded_tied_weights_keys(all_submodels=True)} - {*tied}):
        raise CollapseError(
            f"{reference.name}: its config.json ties {some(untied)} to the input embedding, but its checkpoint has "
            "another tensor: give --model-arg tie_word_embeddings=false to use that tensor, or remove it"
        )


def _shape(shape: Any) -> str:
    return "×".join(map(str, shape))


def _needs_code(reference: "ModelReference") -> CollapseError:
    return CollapseError(
        f"{reference.name} needs Python code of its own repository: read that code, and "
        "give --trust-remote-code if you trust it"
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
            f"{reference.name}: {files or 'its checkpoint'} contains more than tensors ({asked}). torch's weights_only "
            "unpickler refused it, and no code was run: use a checkpoint in safetensors"
        )
    if any(each in text for each in _CUT_SHORT):
        of = f" ({files})" if files else ""
        return CollapseError(
            f"{reference.name} cannot be loaded as {what}: a file of its weights{of} is damaged or cut short: download "
            f"it again ({first_line(error)})"
        )
    first, _, rest = text.strip().partition("\n")
    reason = f"{first} {rest.strip().split(chr(10))[0].strip()}" if first.endswith(":") and rest else first_line(error)
    if isinstance(error, KeyError):
        reason = f"its configuration lacks {reason}, or names it where transformers knows no such value"
    if "CONVERSION" in text:
        reason = "its checkpoint and its config.json do not fit"
    advice = "" if reference.online else f" {how_to_fetch(reference.name, reference.revision)}"
    return CollapseError(
        f"{reference.name} cannot be loaded as {what}: {reason}{f' ({files})' if files else ''}{advice}"
    )
