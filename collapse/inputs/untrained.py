"""A model before training: the architecture of a checkpoint with initial weights, drawn with a fixed seed."""

from typing import TYPE_CHECKING, Any

import torch

from collapse.core.settings import quiet
from collapse.inputs.checkpoints import loading_error

if TYPE_CHECKING:
    from collapse.inputs.collection_spec import CollectionSpec
    from collapse.inputs.references import ModelReference

SEED = 0


def untrained(reference: "ModelReference", spec: "CollectionSpec", arguments: dict[str, Any]) -> Any:
    """Return a transformers model of a checkpoint's configuration, initialized as for training.

    The weights are drawn on the CPU in float32, whatever the dtype and device in which the model then runs. They depend
    on the version of transformers, which a store's provenance records. No file of weights is read.

    Raises:
        CollapseError: The configuration cannot be read, or is not that of a causal language model.
    """
    import transformers

    trusted = {"trust_remote_code": spec.trust_remote_code}
    with quiet("transformers"), torch.random.fork_rng(devices=[]), torch.device("cpu"):
        try:
            config, _ = transformers.AutoConfig.from_pretrained(
                **reference.source,
                return_unused_kwargs=True,  # such as those that choose files of weights
                **trusted,
                **arguments,
            )
            torch.manual_seed(SEED)
            return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, **trusted)
        except Exception as error:  # the configuration is untrusted, so it can raise anything
            raise loading_error(reference, "a causal language model to initialize", error) from error
