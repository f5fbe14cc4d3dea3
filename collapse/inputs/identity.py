"""Make the identity of a collection.

The identity contains everything that affects a stored number and is known without loading the model.

Two collections are the same if their identities are equal; ``differences`` in stores/manifest.py names what differs.
After loading the model, text_source.py and classifier_source.py add the model's attention and head. A features file has
an identity of its own, in features.py.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from collapse.hub.references import ModelReference
from collapse.inputs.collection_spec import OF_PACKING, CollectionSpec
from collapse.inputs.placement import RUNNING_ARGS
from collapse.stores.provenance import shown_arguments


def identity_of(
    spec: CollectionSpec, reference: ModelReference, tokenizer: ModelReference, data: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the identity of a collection with the model ``reference``.

    ``data`` has the identity's fields for the texts and their tokenizer, or for the labelled data. ``tokenizer`` is
    used only to add the fingerprint of the tokenizer's code, with ``--trust-remote-code``.
    """
    options = recorded_options(spec)
    arguments = options.pop("model_args")
    return {**data, **options, **_model_fields(spec, arguments, reference, tokenizer)}


def recorded_options(spec: CollectionSpec) -> dict[str, Any]:
    """Return the options whose values the identity records, those of role "recorded" or "changed", by name.

    With ``--task``, the options of packing are left out, because no text is packed. Secrets
    in ``model_args`` are replaced by hashes.
    """
    recorded = {}
    for each in fields(CollectionSpec):
        role, value = each.metadata["option"].role, getattr(spec, each.name)
        changes = role == "recorded" or (role == "changed" and value != each.default)
        if changes and not (spec.task and each.name in OF_PACKING):
            recorded[each.name] = shown_arguments(value) if each.name == "model_args" else value
    return recorded


def _model_fields(
    spec: CollectionSpec, arguments: Mapping[str, Any], reference: ModelReference, tokenizer: ModelReference
) -> dict[str, Any]:
    """Return the fields of a model: its weights, arguments, adapter and code."""
    # a GGUF file is identified by its content, not by its name
    apart = {"gguf_file", *RUNNING_ARGS}
    kept = {name: each for name, each in arguments.items() if name not in apart}
    identity = {"weights": reference.weights, "model_args": kept}
    if reference.adapter:
        identity["adapter"] = reference.adapter.weights
    if spec.trust_remote_code:
        roles = {"model": reference, "tokenizer": tokenizer}
        if code := {repo or role: each for role, found in roles.items() for repo, each in found.code.items()}:
            identity["code"] = code
    return identity
