"""Let plugins replace modules with faster ones, and check that the model still computes the same embeddings."""

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from collapse.errors import PluginError
from collapse.inputs.suitability import change_of
from collapse.plugin.plugin_manager import plugins

if TYPE_CHECKING:
    from collapse.inputs.language_model import LanguageModel

# Largest change of an embedding, relative to its norm, that rounding can cause. In bfloat16 and float16, it is large:
# transformers computes the scores of GPT-Neo's attention in float32, and a faster attention may not.
_TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.bfloat16: 2e-1, torch.float16: 5e-2}
_PROBED = 512
"""Number of tokens in the probe; more than the window of a local attention."""


def speed_up(loaded: "LanguageModel") -> str | None:
    """Let the first plugin that supports a model replace modules with faster ones.

    Returns:
        The plugin's name for the faster modules, or None if no plugin changed the model.

    Raises:
        PluginError: The embeddings changed by more than rounding.
    """
    manager = plugins()
    if not manager.manager.hook.collapse_prepare_model.get_hookimpls():  # no plugin to check
        return None
    tokens = loaded.probe(_PROBED)
    before = loaded.embeddings(tokens)
    for plugin, answer in manager.answers("collapse_prepare_model", loaded.model):
        if changed := _difference(before, loaded.embeddings(tokens)):
            raise PluginError(
                f"plugin {plugin}: collapse_prepare_model() changed the model's numbers: {changed}; "
                "disable it with --no-fast-attention"
            )
        if answer is not None:
            return str(answer)
    return None


def _difference(before: Float[Tensor, "1 T d"], after: Float[Tensor, "1 T d"]) -> str | None:
    """Describe how embeddings changed; return None if rounding explains the change.

    Also return None if some embeddings in ``before`` are not finite, and the dtype did not change.
    """
    if before.dtype != after.dtype:
        return f"{before.dtype} became {after.dtype}"
    moved, allowed = float(change_of(before, after).max()), _TOLERANCE[before.dtype]
    if moved <= allowed or not before.isfinite().all():  # the passes report embeddings that are not finite
        return None
    return f"embeddings change by up to {moved:.2g} of their norm, more than rounding explains ({allowed:g})"
