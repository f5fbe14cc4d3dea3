"""The model's fields in the identity of a collection.

An identity is everything that affects a stored number and is known without loading the model. text_request.py,
classifier_source.py and features.py build it. After loading the model, text_source.py and classifier_source.py add the
model's attention and head. Two collections are the same if their identities are equal; ``differences`` in
stores/manifest.py names what differs.
"""

from typing import Any

from collapse.hub.references import ModelReference
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.placement import RUNNING_ARGS


def model_identity(spec: CollectionSpec, reference: ModelReference, tokenizer: ModelReference) -> dict[str, Any]:
    """Return the part of an identity that describes a model: its weights, arguments, adapter and code."""
    # a GGUF file is identified by its content, not by its name
    apart = {"gguf_file", *RUNNING_ARGS}
    arguments = {name: each for name, each in spec.identity["model_args"].items() if name not in apart}
    identity = {"weights": reference.weights, "model_args": arguments}
    if reference.adapter:
        identity["adapter"] = reference.adapter.weights
    if spec.trust_remote_code:
        roles = {"model": reference, "tokenizer": tokenizer}
        if code := {repo or role: each for role, found in roles.items() for repo, each in found.code.items()}:
            identity["code"] = code
    return identity
