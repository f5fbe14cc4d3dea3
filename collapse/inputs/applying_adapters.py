"""Apply PEFT adapters, whose weights change a base model."""

import warnings
from typing import Any

import torch

from collapse.errors import CollapseError, first_line, some
from collapse.hub.fingerprints import ADAPTER, adapter_weights
from collapse.hub.references import ModelReference


def apply_adapter(model: Any, reference: ModelReference, *, merge: bool) -> Any:
    """Apply the adapter of ``reference``, which must have one, to its loaded model; return the changed model.

    With ``merge``, the adapter's weights are added to the model's weights. Otherwise, the model gets additional modules
    that apply the adapter.

    Raises:
        CollapseError: The adapter does not fit the model, adds tokens to each text, or cannot be read; or the model has
            offloaded weights.
    """
    import peft

    adapter = reference.adapter
    assert adapter is not None  # the caller checks this
    if any(each.is_meta for each in model.parameters()):  # peft does not change offloaded weights
        raise CollapseError(
            f"the adapter {adapter.name} cannot be applied to offloaded weights: use a device map that places all "
            "weights on GPUs, or all on the CPU; or merge the adapter into its base model first"
        )
    weights = adapter.files.fetch(adapter_weights(adapter.files)[0])
    folder = str(adapter.files.fetch(ADAPTER).parent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peft warns about names and dtypes
            config = peft.PeftConfig.from_pretrained(folder, inference_mode=True)
            refuse_prompts(adapter.name, config)
            adapted = peft.get_peft_model(model, config)
            wanted = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
            held = peft.utils.load_peft_weights(str(weights.parent), device="cpu")
            lacking = [key for key in wanted if key not in held]
            differ = lacking or [key for key in wanted if held[key].shape != wanted[key].shape]
            if not (differ := differ or peft.set_peft_model_state_dict(adapted, held).unexpected_keys):
                _untie(adapted.get_base_model())
                return adapted.merge_and_unload() if merge else adapted.get_base_model()
            said = f"{'the adapter lacks' if lacking else 'their weights differ:'} {some(differ)}"
    except CollapseError:
        raise
    except Exception as error:  # several libraries read the files, each with its own exceptions
        said = first_line(error)
    raise CollapseError(
        f"the adapter {adapter.name} cannot be applied to {reference.name} ({type(model).__name__}): {said}. Use the "
        f"complete adapter, and its base model ({adapter.json(ADAPTER).get('base_model_name_or_path')})"
    )


def _untie(model: Any) -> None:
    """Give a tied head its own weight if an adapter changes the head or the input embedding."""
    inputs, head = model.get_input_embeddings(), model.get_output_embeddings()
    changed = [each for each in (inputs, head) if hasattr(each, "base_layer")]
    if changed and head is not None and inputs.weight is head.weight:
        own = getattr(head, "base_layer", head)
        own.weight = torch.nn.Parameter(own.weight.detach().clone(), requires_grad=False)
        model.config.tie_word_embeddings = False


def refuse_prompts(name: str, config: Any) -> None:
    """Raise CollapseError for an adapter that adds virtual tokens to each text, such as prompt tuning.

    ``name`` begins the message. ``config`` is peft's configuration of the adapter; None for a model without adapter.
    """
    if config is not None and config.is_prompt_learning:
        raise CollapseError(
            f"{name} adds tokens to each text ({config.peft_type}), so it cannot be measured: use an adapter of "
            "another type, such as LoRA"
        )
