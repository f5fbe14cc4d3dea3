"""A causal language model: what it is without loading it, then loaded, with its classifier, run without logits."""

import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.checkpoints import (
    check_adapter,
    check_code,
    check_kernels,
    check_loaded,
    check_token_ids,
    checkpoint_files,
    loading_error,
    quiet_transformers,
)
from collapse.errors import CollapseError, UsageError, first_line
from collapse.files import ANOTHER_CACHE, raise_if_full
from collapse.hub import hub_cache
from collapse.precision import set_exact
from collapse.preparing import prepare
from collapse.references import config_of, watch_tokenizer, watch_weights
from collapse.sizes import check_blocks, check_size
from collapse.spec import CollectionSpec

if TYPE_CHECKING:
    from collapse.references import ModelReference

log = logging.getLogger("collapse")
_loading = Lock()  # transformers loads one model at a time: another thread's would seem to lack weights


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: a smaller batch may do."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error)


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
            self.run(tokens_BT)
        except _HeadReached:
            return self._captured.pop()
        finally:
            handle.remove()
        raise CollapseError(
            f"{type(self.model).__name__} does not call its output embedding, so its top-layer embeddings are not known"
        )

    def run(self, tokens_BT: Int[Tensor, "B T"]) -> Any:
        """What the model itself gives for some tokens.

        Raises:
            CollapseError: Its code failed. (What says that memory ran out is passed on as it is.)
        """
        try:
            return self.model(input_ids=tokens_BT.to(self.device), use_cache=False)
        except _HeadReached:
            raise
        except Exception as error:  # anybody's configuration
            if out_of_memory(error):
                raise
            raise CollapseError(
                f"{type(self.model).__name__} cannot be run on {len(tokens_BT)} × {tokens_BT.shape[1]} tokens: "
                f"{type(error).__name__}: {first_line(error)}; check its config.json and --model-arg"
            ) from error

    def _capture(self, module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._captured.append(inputs[0])
        raise _HeadReached


def load_model(reference: "ModelReference", spec: CollectionSpec | None = None) -> LanguageModel:
    """Load a causal language model for measuring.

    Args:
        reference: Which one (see :func:`collapse.references.find_model`).
        spec: How: its dtype, device, model_args, trust_remote_code, deterministic and fast_attention.

    Raises:
        CollapseError: It cannot be loaded, lacks weights, changes meanwhile, or has no output embedding.
    """
    import transformers

    spec = spec or CollectionSpec()
    target = pick_device(spec.device)
    arguments = dict(spec.model_args or {})
    watch = watch_weights(reference, arguments)
    config = config_of(reference)
    if not spec.trust_remote_code:
        check_code(reference, config, "architectures", "AutoModelForCausalLM", "AutoConfig")
        check_kernels(reference, config, arguments)
    check_adapter(reference)
    if spec.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses determinism
        torch.use_deterministic_algorithms(True)
    # transformers would have a service of the Hub convert a pickled checkpoint, in the background and unasked
    os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"
    names = checkpoint_files(reference, arguments)
    pickled = [] if arguments.get("gguf_file") else [name for name in names if not name.endswith(".safetensors")]
    if pickled:
        log.warning(
            "%s has only a pickled checkpoint (%s); loaded through torch's weights_only unpickler",
            reference.name,
            ", ".join(pickled),
        )
    if arguments.get("gguf_file"):
        check_blocks(reference, str(arguments["gguf_file"]))
    else:
        if not spec.trust_remote_code:
            with quiet_transformers():
                check_size(reference, names, arguments)
        arguments["use_safetensors"] = not pickled  # told, so that a lost connection does not make it try the other
    with _loading, quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the unpickler, about what it refuses a moment later
        try:
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                reference.location,
                revision=reference.revision,
                local_files_only=not reference.online,
                dtype=getattr(torch, spec.dtype),
                trust_remote_code=spec.trust_remote_code,
                weights_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, by name
                **arguments,
            )
        except Exception as error:  # anybody's files, which many libraries read, each with errors of its own
            raise_if_full(error, hub_cache(), ANOTHER_CACHE)
            raise loading_error(reference, "a causal language model", error, pickled) from error
    set_exact()  # code of the model may have chosen otherwise as it was imported
    check_loaded(reference, model, info)
    # a checkpoint may carry layers in other dtypes than asked for (dequantized GGUF norms, for one)
    model = model.to(device=target, dtype=getattr(torch, spec.dtype)).eval()
    model.config.return_dict = True  # outputs are read by name
    if target.type == "cpu":
        _leave_files(model)
    watch.check()
    head = model.get_output_embeddings()
    if head is None or getattr(head, "weight", None) is None or head.weight.dim() != 2:
        raise CollapseError(
            f"{type(model).__name__} has no output embedding with a weight matrix: it cannot be measured"
        )
    inputs = model.get_input_embeddings()
    rows = inputs.weight.shape[0] if inputs is not None else head.weight.shape[0]
    bias = getattr(head, "bias", None)
    own = model.config._attn_implementation or "own"
    loaded = LanguageModel(model, head.weight.detach(), None if bias is None else bias.detach(), rows, own)
    loaded.attention = (prepare(loaded) if spec.fast_attention else None) or own
    return loaded


def _leave_files(model: torch.nn.Module) -> None:
    """Copy the weights out of their files, which stay mapped on the CPU: a file written later would change them."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


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
    check_token_ids(reference)
    watch = watch_tokenizer(reference, model_args)
    with _loading, quiet_transformers():
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
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
    watch.check()
    return tokenizer


def pick_device(device: str) -> torch.device:
    """The torch device of an option.

    Raises:
        UsageError: It does not exist here.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        target = torch.device(device)
        torch.zeros(1, device=target).item()  # what cannot be read back, such as "meta", cannot be computed on
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"no device {device!r} here: {first_line(error)}; use --device cpu or auto") from error
    return target
