"""PEFT adapters: weights that change a base model."""

import logging
import warnings
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from collapse.core.extras import missing_package
from collapse.errors import CollapseError, UsageError, first_line, some
from collapse.hub.fingerprints import ADAPTER, adapter_weights
from collapse.inputs.references import MODEL, ModelReference, find_model, locate, with_fingerprints

log = logging.getLogger("collapse")


def find_adapted(
    name: str, adapter: str | None, *, revision: str | None = None, model_args: Mapping[str, Any] = {}
) -> ModelReference:
    """Find a model, optionally with an adapter; the name of an adapter means its base model with the adapter."""
    found = locate(name, revision, MODEL, model_args)
    if not found.files.has(ADAPTER) or found.files.has("config.json"):
        found = with_fingerprints(found)
        if adapter is None:
            return found
        own = _adapter(locate(adapter, None, "adapter"))
        base = own.json(ADAPTER).get("base_model_name_or_path")
        if base and Path(base).name not in Path(name).absolute().parts:
            log.warning("the adapter %s was trained on %s, but is applied to %s", adapter, base, name)
        return replace(found, adapter=own)
    if adapter is not None:
        raise UsageError(f"{name} is itself a PEFT adapter: remove --adapter, or merge {name} into its base model")
    own, config = _adapter(found), found.json(ADAPTER)
    base = str(config.get("base_model_name_or_path"))
    try:
        return replace(find_model(base, revision=config.get("revision"), model_args=model_args), adapter=own)
    except CollapseError as error:
        raise type(error)(
            f"{name} is a PEFT adapter, and its base model is not found: {error}. Give its base model, with "
            f"--adapter {name}"
        ) from error


def _adapter(found: ModelReference) -> ModelReference:
    if find_spec("peft") is None:
        missing = missing_package(ImportError(name="peft"))
        raise CollapseError(f"{found.name} is a PEFT adapter, and {missing}; or merge the adapter into its base model")
    return replace(found, weights=adapter_weights(found.files)[1])


def apply_adapter(model: Any, reference: ModelReference, *, merge: bool) -> Any:
    """Apply a model's adapter after loading; return the model.

    With ``merge``, the adapter's weights are added to the model's weights. Otherwise, additional modules apply them.
    """
    import peft

    adapter = reference.adapter
    assert adapter is not None  # the caller has found one
    if any(each.is_meta for each in model.parameters()):  # peft would leave them as they are
        raise CollapseError(
            f"the adapter {adapter.name} cannot be applied to offloaded weights: use a device map that places all "
            "weights on GPUs, or all on the CPU; or merge the adapter into its base model first"
        )
    weights = adapter.files.fetch(adapter_weights(adapter.files)[0])
    folder = str(adapter.files.fetch(ADAPTER).parent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about names and dtypes
            config = peft.PeftConfig.from_pretrained(folder, inference_mode=True)
            refuse_prompts(adapter.name, config)
            adapted = peft.get_peft_model(model, config)
            wanted = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
            held = _read(adapter.name, weights.parent)
            lacking = [key for key in wanted if key not in held]
            differ = lacking or [key for key in wanted if held[key].shape != wanted[key].shape]
            if not (differ := differ or peft.set_peft_model_state_dict(adapted, held).unexpected_keys):
                _untie(adapted.get_base_model())
                return adapted.merge_and_unload() if merge else adapted.get_base_model()
            said = f"{'the adapter lacks' if lacking else 'their weights differ:'} {some(differ)}"
    except (ValueError, RuntimeError, KeyError, TypeError) as error:  # of peft
        said = first_line(error)
    raise CollapseError(
        f"the adapter {adapter.name} does not fit {reference.name} ({type(model).__name__}): {said}. Use the complete "
        f"adapter, and its base model ({adapter.json(ADAPTER).get('base_model_name_or_path')})"
    )


def _read(name: str, folder: Path) -> dict[str, torch.Tensor]:
    import peft

    try:
        return peft.utils.load_peft_weights(str(folder), device="cpu")
    except Exception as error:  # of several libraries
        raise CollapseError(
            f"the weights of the adapter {name} cannot be read ({first_line(error)}): use a complete copy"
        ) from error


def _untie(model: Any) -> None:
    """Give a tied head its own weight if an adapter changes the head or the input embedding."""
    inputs, head = model.get_input_embeddings(), model.get_output_embeddings()
    changed = [each for each in (inputs, head) if hasattr(each, "base_layer")]
    if changed and head is not None and inputs.weight is head.weight:
        own = getattr(head, "base_layer", head)
        own.weight = torch.nn.Parameter(own.weight.detach().clone(), requires_grad=False)
        model.config.tie_word_embeddings = False


def refuse_prompts(name: str, config: Any) -> None:
    """Raise CollapseError for a configuration of peft that adds virtual tokens to each text."""
    if config is not None and config.is_prompt_learning:
        raise CollapseError(
            f"{name} adds tokens to each text ({config.peft_type}), so it cannot be measured: use LoRA, for example"
        )
