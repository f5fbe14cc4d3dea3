"""Check a checkpoint before it is opened: reject models that cannot be measured, and run no code.

A pickle is a program. It is read only by torch's ``weights_only`` unpickler, which constructs tensors and rejects
anything else. Code of a repository never runs unless the user trusts it.
"""

from collections.abc import Iterator, Mapping
from pickle import UnpicklingError
from typing import Any

from collapse.core.extras import missing_package
from collapse.errors import CollapseError, UsageError, first_line
from collapse.hub.client import hub_cache
from collapse.hub.references import ModelReference
from collapse.inputs.tasks import CAUSAL, TASKS, Task
from collapse.stores.writing import raise_if_full

_CUT_SHORT = ("deserializing header", "cannot reshape array", "failed finding central directory", "mmap length")
"""Messages of safetensors, NumPy (for GGUF) and torch about an incomplete file."""
_INSTEAD = {
    "trust_remote_code": "--trust-remote-code",
    "revision": "--revision",
    "dtype": "--dtype",
    "torch_dtype": "--dtype",
    "load_in_8bit": "--quantize 8bit",
    "load_in_4bit": "--quantize 4bit",
}
"""Arguments of ``from_pretrained`` that have their own options."""
# implemented in torch and transformers; for other names, the package "kernels" may download and run code
_BUILT_IN = ("eager", "sdpa", "flex_attention", "paged|eager", "paged|sdpa", "batched_mm", "grouped_mm")


def check_model_args(model_args: Mapping[str, Any]) -> None:
    """Raise UsageError for a ``--model-arg`` that has its own option."""
    for name in model_args:
        if name in _INSTEAD:
            raise UsageError(f"--model-arg {name}=… is not allowed: use {_INSTEAD[name]}")


def check_code(reference: ModelReference, config: Mapping[str, Any], named: str, *autos: str) -> None:
    """Raise CollapseError if a configuration needs a class that exists only in the repository's own code.

    transformers often substitutes one of its own classes without a warning, which gives the numbers of another model.

    Args:
        reference: The model or tokenizer.
        config: The content of a configuration file, such as config.json.
        named: The key of ``config`` for the names of the classes, such as "architectures".
        autos: The keys in the ``auto_map`` of ``config`` that transformers would use, such as "AutoConfig".
    """
    import transformers

    auto_map = config.get("auto_map") or {}
    known = any(hasattr(transformers, name) for name in _listed(config.get(named)))
    if not known and any(auto in auto_map for auto in autos):
        raise _needs_code(reference)


def check_kernels(reference: ModelReference, config: Mapping[str, Any]) -> None:
    """Raise CollapseError if a configuration names an implementation of attention or experts that may be Hub code.

    With the package ``kernels``, transformers downloads and imports an implementation named ``owner/repo``. If a
    model's config.json names one, some versions of transformers do this without asking the user.
    """
    for value in _implementations(config):
        if value not in _BUILT_IN:
            raise CollapseError(
                f"{reference.name}: its configuration names the implementation {value!r}, which may be code from the "
                "Hub: give --trust-remote-code if you trust it, or another implementation, such as "
                "--model-arg attn_implementation=sdpa"
            )


def _implementations(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of keys such as ``_attn_implementation``, also in configurations of submodels."""
    for key, value in config.items():
        if "_implementation" in key:
            yield from (str(each) for each in (value.values() if isinstance(value, Mapping) else [value]) if each)
        elif isinstance(value, Mapping):
            yield from _implementations(value)


def check_kind(reference: ModelReference, config: Mapping[str, Any], task: Task = CAUSAL) -> None:
    """Raise CollapseError if the head of a checkpoint does not fit the task; ``config`` is its config.json.

    Otherwise, transformers would load only the weights that fit, and add an untrained head if the checkpoint has none.
    """
    import transformers
    from transformers.models.auto import modeling_auto as auto

    kind, fitting = str(config.get("model_type")), {*task.classes()}
    if task is CAUSAL:  # the checkpoint of a model with a tied head may name the class without a head
        fitting |= {*_listed(auto.MODEL_MAPPING_NAMES.get(kind))}
    found = [name for name in _listed(config.get("architectures")) if hasattr(transformers, name)]
    has_encoder = task is CAUSAL and config.get("is_encoder_decoder") is True
    if not has_encoder and (not found or fitting & {*found}):
        return
    others = [each.name for each in TASKS.values() if {*found} & {*each.classes()} and each is not task]
    remedy = "run it with its own class, and give its embeddings to collapse.measure(features=…, labels=…)"
    raise CollapseError(
        f"{reference.name} is a {found[0] if found else kind}, not {task.what}: "
        + (f"give --task {others[0]} with its --data, or " if others else "")
        + remedy
    )


def _listed(names: Any) -> list[str]:
    return [str(each) for each in (names if isinstance(names, list | tuple) else [names]) if each]


def _needs_code(reference: ModelReference) -> CollapseError:
    return CollapseError(
        f"{reference.name} needs Python code of its own repository: read that code, and "
        "give --trust-remote-code if you trust it"
    )


def loading_error(reference: ModelReference, what: str, error: Exception) -> CollapseError:
    """Return a CollapseError with a one-line message, for an exception that a library raised during loading.

    ``what`` says what the library tried to load, such as "an image processor".

    Raises:
        CollapseError: The exception was caused by a full disk; this error is raised, not returned.
    """
    raise_if_full(error, hub_cache())
    text = str(error)
    if "trust_remote_code" in text:
        return _needs_code(reference)
    if isinstance(error, UnpicklingError):
        return CollapseError(
            f"{reference.name}: its checkpoint contains more than tensors, or is damaged. torch's weights_only "
            "unpickler rejected it, and no code was run: use a checkpoint in safetensors"
        )
    reason = f"{type(error).__name__}: {first_line(error)}"
    if any(each in text for each in _CUT_SHORT):
        reason = f"a file of its weights is damaged or incomplete: copy or download it again ({reason})"
    if "automatic conversion of the weights" in text:
        reason = (
            "transformers cannot quantize or dequantize its weights with the installed packages on this device; load "
            "the model with transformers' from_pretrained() to see why"
        )
    said = missing_package(error) or reason
    return CollapseError(f"{reference.name} cannot be loaded as {what}: {said}{reference.files.remedy}")
