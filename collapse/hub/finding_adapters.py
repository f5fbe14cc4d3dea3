"""Find models with a PEFT adapter, which inputs/applying_adapters.py applies after loading."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from collapse.core.extras import missing_package
from collapse.errors import CollapseError, UsageError
from collapse.hub.fingerprints import ADAPTER, adapter_weights
from collapse.hub.references import MODEL, ModelReference, find_model, locate, with_fingerprints

log = logging.getLogger("collapse")


def find_adapted(
    name: str, adapter: str | None, *, revision: str | None = None, model_args: Mapping[str, Any] = {}
) -> ModelReference:
    """Find a model, optionally with an adapter; if ``name`` is an adapter, find its base model with this adapter."""
    found = locate(name, revision, MODEL, model_args)
    if not found.files.has(ADAPTER) or found.files.has("config.json"):
        found = with_fingerprints(found)
        if adapter is None:
            return found
        own = _adapter(locate(adapter, None, "adapter"))
        base = own.json(ADAPTER).get("base_model_name_or_path")
        if base and Path(base).name not in Path(name).absolute().parts:
            log.warning("the adapter %s was trained with the model %s, but is applied to %s", adapter, base, name)
        return replace(found, adapter=own)
    if adapter is not None:
        raise UsageError(f"{name} is itself a PEFT adapter: remove --adapter, or merge {name} into its base model")
    own, config = _adapter(found), found.json(ADAPTER)
    base = str(config.get("base_model_name_or_path"))
    try:
        return replace(find_model(base, revision=config.get("revision"), model_args=model_args), adapter=own)
    except CollapseError as error:
        raise type(error)(
            f"{name} is a PEFT adapter, and its base model is not found: {error}. Give the base model instead, "
            f"with --adapter {name}"
        ) from error


def _adapter(found: ModelReference) -> ModelReference:
    if find_spec("peft") is None:
        missing = missing_package(ImportError(name="peft"))
        raise CollapseError(f"{found.name} is a PEFT adapter, and {missing}; or merge the adapter into its base model")
    return replace(found, weights=adapter_weights(found.files)[1])
