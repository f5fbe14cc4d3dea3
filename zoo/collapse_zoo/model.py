"""The model that the zoo trains: GPT-Neo with a fast attention, a loss without full logits, and fixed output layers."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from jaxtyping import Float, Int
from torch import Tensor
from transformers.modeling_outputs import CausalLMOutput

from collapse.plugin.guarding import call
from collapse_zoo.fast_gpt_neo import prepare
from collapse_zoo.loss import IGNORED, cross_entropy, losses_and_hits
from collapse_zoo.recipes import Recipe
from collapse_zoo.regularizers import Loss, losses_of


def build(recipe: Recipe) -> "GPTNeoForCausalLM":
    """Build a recipe's model, with initial weights that depend on ``recipe.seed``."""
    transformers.set_seed(recipe.seed)
    model = GPTNeoForCausalLM(recipe.configuration())
    model.regularizers = losses_of(recipe.regularize)
    if recipe.head in FIXED:
        rows_Vd = FIXED[recipe.head](recipe.vocabulary, recipe.width, recipe.seed)
        model.lm_head.weight = torch.nn.Parameter(rows_Vd, requires_grad=False)
    prepare(model)
    return model


class GPTNeoForCausalLM(transformers.GPTNeoForCausalLM):
    """GPT-Neo that returns losses instead of logits if labels are given.

    The class has the same name as in transformers, because saved configurations contain the name of the class.

    Attributes:
        regularizers: Losses that training adds to the cross-entropy, with their weights.
    """

    regularizers: Sequence[tuple[float, Loss]] = ()

    def forward(
        self,
        input_ids: Int[Tensor, "B T"] | None = None,
        labels: Int[Tensor, "B T"] | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the mean loss over the predicted tokens; in evaluation also sums per chunk, shape (B, 3).

        Every token is predicted except the first of each chunk, and those with label −100.

        In training, the weighted regularizers are added to the cross-entropy. A batch may be a part of the global batch
        of one optimizer step. A regularizer is computed for each part, and multiplied by the part's share of the
        predicted tokens. The losses of all parts then add up to the loss of the step.

        Args:
            input_ids: Tokens, shape (B, T).
            labels: The same tokens, not shifted; −100 for tokens that are not predicted. Without labels, return logits.
            num_items_in_batch: Number of predicted tokens of the global batch, by which the summed loss is divided.
                None stands for the number of this batch.
            kwargs: As in transformers.

        Returns:
            With labels, the loss; in evaluation, ``logits`` holds each chunk's number of tokens, hits and summed loss.
        """
        if labels is None:
            return super().forward(input_ids, **kwargs)
        h_BTd = self.transformer(input_ids, use_cache=False, **kwargs).last_hidden_state
        weight = self.lm_head.weight
        if torch.is_autocast_enabled(h_BTd.device.type):  # use the dtype of the linear head
            dtype = torch.get_autocast_dtype(h_BTd.device.type)
            h_BTd, weight = h_BTd.to(dtype), weight.to(dtype)
        h_Nd, labels_N = h_BTd[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        kept_N = labels_N != IGNORED
        with torch.autocast(h_BTd.device.type, enabled=False):
            items = kept_N.sum() if num_items_in_batch is None else num_items_in_batch
            if self.training:
                loss = cross_entropy(h_Nd, weight, labels_N)
                if self.regularizers and kept_N.any():  # a process's last batch may hold only padding
                    of_batch = h_Nd[kept_N], labels_N[kept_N], weight, self.lm_head.bias
                    loss = loss + kept_N.sum() * sum(share * call(each, *of_batch) for share, each in self.regularizers)
                return CausalLMOutput(loss=loss / items)
            losses, hits = losses_and_hits(h_Nd, weight, labels_N)
        of_tokens_N3 = torch.stack([kept_N, hits, losses.double()], dim=-1)
        sums_B3 = of_tokens_N3.unflatten(0, (len(labels), -1)).sum(1)
        return CausalLMOutput(loss=sums_B3[:, 2].sum() / items, logits=sums_B3)


def simplex_etf(V: int, d: int, seed: int) -> Float[Tensor, "V d"]:
    """Return a randomly rotated simplex ETF: V ≤ d+1 unit rows with a cosine of −1/(V−1) between any two.

    Source: Zhu et al. 2021; Yang et al. 2022
    """
    drawn_Vd = _normal(V, d, seed)
    left, _, right = torch.linalg.svd(drawn_Vd - drawn_Vd.mean(0), full_matrices=False)
    rows_Vd = left[:, : V - 1] @ right[: V - 1]  # the nearest rows with the Gram matrix I − 11ᵀ/V
    return F.normalize(rows_Vd).float()


def random_frame(V: int, d: int, seed: int) -> Float[Tensor, "V d"]:
    """Return V independent unit rows, uniform on the sphere."""
    return F.normalize(_normal(V, d, seed)).float()


def _normal(V: int, d: int, seed: int) -> Float[Tensor, "V d"]:
    return torch.randn(V, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


FIXED = {"fixed-etf": simplex_etf, "fixed-frame": random_frame}
"""The functions that make a fixed output layer, by the value of ``--head``."""
