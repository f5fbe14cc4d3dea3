"""A causal language model: what it is without loading it, then loaded, with its classifier, run without logits."""

import logging
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from collapse.checkpoints import check_code, loading_error, pickled_files
from collapse.errors import CollapseError, UsageError, first_line, near_names
from collapse.files import ANOTHER_CACHE, raise_if_full
from collapse.hub import hub_cache
from collapse.plugin_manager import plugins
from collapse.references import config_of

if TYPE_CHECKING:
    from collapse.references import ModelReference

log = logging.getLogger("collapse")

DTYPES = ("float32", "bfloat16", "float16", "float64")

# How far h·Wᵀ + b may lie from the model's own logits, as a share of the largest: rounding only.
_HEAD_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}
_CHECKED_TOKENS = 256


class _HeadReached(Exception):
    """Ends a forward pass at the output embedding: what it would compute is not needed."""


@dataclass
class LanguageModel:
    """A loaded causal language model.

    Attributes:
        model: The transformers model, in evaluation mode.
        weight: The output embedding w, shape (V, d), in the model's dtype.
        bias: Its bias, shape (V,), or None.
        input_rows: Token ids that the model can embed.
        attention: Name of the attention in use: transformers' own, or the one that a plugin put in.
    """

    model: Any
    weight: Float[Tensor, "V d"]
    bias: Float[Tensor, " V"] | None
    input_rows: int
    attention: str
    _captured: list[Tensor] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.weight.device

    @property
    def dim(self) -> int:
        """d."""
        return self.weight.shape[1]

    @property
    def n_params(self) -> int:
        """Parameters, tied weights counted once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def tied(self) -> bool:
        """Whether input and output embedding are the same tensor."""
        inputs = self.model.get_input_embeddings()
        return inputs is not None and inputs.weight.data_ptr() == self.weight.data_ptr()

    @torch.inference_mode()
    def embeddings(self, tokens_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T d"]:
        """h, what enters the output embedding at each position; no logits are computed."""
        self._captured.clear()
        handle = self.model.get_output_embeddings().register_forward_pre_hook(self._capture)
        try:
            self.model(input_ids=tokens_BT.to(self.device), use_cache=False)
        except _HeadReached:
            return self._captured.pop()
        finally:
            handle.remove()
        raise CollapseError(
            f"{type(self.model).__name__} does not call its output embedding, so its top-layer embeddings are not known"
        )

    def _capture(self, module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._captured.append(inputs[0])
        raise _HeadReached

    @torch.inference_mode()
    def check_head(self, tokens_BT: Int[Tensor, "B T"]) -> None:
        """Compare h·Wᵀ + b with the model's own logits on a piece of the first batch.

        Raises:
            CollapseError: The model does something else between h and its logits, such as scaling or capping them.
        """
        tokens = tokens_BT[:1, :_CHECKED_TOKENS]
        h = self.embeddings(tokens)
        if not torch.isfinite(h).all():
            return  # accumulating will name the chunk and the sample
        logits = self.model(input_ids=tokens.to(self.device), use_cache=False).logits.double()
        ours = F.linear(h, self.weight, self.bias).double()
        largest = float(logits.abs().max())
        if not math.isfinite(largest):
            raise CollapseError(f"{type(self.model).__name__} gives logits that are NaN or infinite: check its weights")
        if ours.shape == logits.shape and float((ours - logits).abs().max()) <= _HEAD_TOLERANCE[h.dtype] * largest:
            return
        guilty = {
            name: value
            for name, value in self.model.config.to_dict().items()
            if value not in (None, 1, 1.0) and name in _LOGIT_SETTINGS
        }
        because = f" (its configuration says {', '.join(f'{k}={v}' for k, v in guilty.items())})" if guilty else ""
        ratio = float((ours * logits).sum() / (ours * ours).sum()) if ours.shape == logits.shape else float("nan")
        raise CollapseError(
            f"{type(self.model).__name__} does not decide by ⟨w, h⟩ + b: its logits are about {ratio:.4g} times "
            f"the product of its embeddings and its output embedding, and not equal to it{because}. Neural collapse is "
            "defined for a plain linear head: this model cannot be measured"
        )


_LOGIT_SETTINGS = (
    "final_logit_softcapping",
    "logit_scale",
    "logits_scaling",
    "lm_head_multiplier",
    "mup_width_scale",
)


def load_model(
    reference: "ModelReference",
    *,
    dtype: str = "float32",
    device: str = "auto",
    model_args: Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
    deterministic: bool = False,
    fast_attention: bool = True,
) -> LanguageModel:
    """Load a causal language model for measuring.

    Args:
        reference: Which one (see :func:`collapse.references.find_model`).
        dtype: "float32" as in the paper, "bfloat16", "float16" or "float64".
        device: "auto" (CUDA where there is any, else the CPU), or a torch device.
        model_args: Passed to ``from_pretrained`` (``gguf_file=…``).
        trust_remote_code: Whether code from the model's repository may run.
        deterministic: Ask torch for deterministic algorithms.
        fast_attention: Let plugins swap in an equal, faster attention (``collapse_prepare_model``).

    Raises:
        CollapseError: It cannot be loaded, or has no output embedding.
    """
    import transformers

    target = pick_device(device)
    if not trust_remote_code:
        check_code(reference, config_of(reference), "architectures", "AutoModelForCausalLM", "AutoConfig")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses determinism
        torch.use_deterministic_algorithms(True)
    # transformers would have a service of the Hub convert a pickled checkpoint, in the background and unasked
    os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"
    arguments = dict(model_args or {})
    pickled = pickled_files(reference, arguments)
    if pickled:
        log.warning(
            "%s has only a pickled checkpoint (%s); loaded through torch's weights_only unpickler",
            reference.name,
            ", ".join(pickled),
        )
    if not arguments.get("gguf_file"):
        arguments["use_safetensors"] = not pickled  # told, so that a lost connection does not make it try the other
    with quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the unpickler, about what it refuses a moment later
        try:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                reference.location,
                revision=reference.revision,
                local_files_only=not reference.online,
                dtype=getattr(torch, dtype),
                trust_remote_code=trust_remote_code,
                weights_only=True,
                **arguments,
            )
        except Exception as error:  # anybody's files, which many libraries read, each with errors of its own
            raise_if_full(error, hub_cache(), ANOTHER_CACHE)
            raise loading_error(reference, "a causal language model", error, pickled) from error
    # a checkpoint may carry layers in other dtypes than asked for (dequantized GGUF norms, for one)
    model = model.to(device=target, dtype=getattr(torch, dtype)).eval()
    head = model.get_output_embeddings()
    if head is None or getattr(head, "weight", None) is None or head.weight.dim() != 2:
        raise CollapseError(
            f"{type(model).__name__} has no output embedding with a weight matrix: it cannot be measured"
        )
    inputs = model.get_input_embeddings()
    rows = inputs.weight.shape[0] if inputs is not None else head.weight.shape[0]
    bias = getattr(head, "bias", None)
    attention = (plugins().prepare(model) if fast_attention else None) or model.config._attn_implementation or "own"
    return LanguageModel(model, head.weight.detach(), None if bias is None else bias.detach(), rows, attention)


def load_tokenizer(
    reference: "ModelReference",
    *,
    model_args: Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """The tokenizer of a model, or the one named instead.

    Raises:
        CollapseError: It cannot be loaded.
    """
    import transformers

    if not trust_remote_code:
        check_code(reference, config_of(reference, "tokenizer_config.json"), "tokenizer_class", "AutoTokenizer")
    with quiet_transformers():
        try:
            return transformers.AutoTokenizer.from_pretrained(
                reference.location,
                revision=reference.revision,
                local_files_only=not reference.online,
                trust_remote_code=trust_remote_code,
                **(model_args or {}),
            )
        except Exception as error:  # as above
            raise_if_full(error, hub_cache(), ANOTHER_CACHE)
            made = loading_error(reference, "a tokenizer", error)
            raise CollapseError(f"{made}. Or name another with --tokenizer") from error


def pick_device(device: str) -> torch.device:
    """The torch device of an option.

    Raises:
        UsageError: It does not exist here.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        target = torch.device(device)
        torch.empty(0, device=target)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"no device {device!r} here: {first_line(error)}; use --device cpu or auto") from error
    return target


def check_dtype(dtype: str) -> None:
    """Refuse an unknown dtype by name."""
    if dtype not in DTYPES:
        raise UsageError(f"no dtype is called {dtype!r}; {near_names(dtype, DTYPES)}")


class quiet_transformers:  # noqa: N801  # used as a function
    """Keeps transformers' own warnings and bars out of ours while something loads."""

    def __enter__(self) -> None:
        from transformers.utils import logging

        self._verbosity = logging.get_verbosity()
        logging.set_verbosity_error()
        logging.disable_progress_bar()

    def __exit__(self, *_: object) -> None:
        from transformers.utils import logging

        logging.set_verbosity(self._verbosity)
        logging.enable_progress_bar()
