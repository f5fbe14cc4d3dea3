"""Run a loaded causal language model without computing logits.

Shapes: B chunks of T tokens, d dimensions, V tokens of the vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, TypeGuard

import torch
from jaxtyping import Float, Int
from torch import Tensor

from collapse.errors import CollapseError, first_line
from collapse.hub.references import limit_of
from collapse.numerics.devices import explaining_out_of_memory, is_out_of_memory
from collapse.numerics.logits import LINEAR, Logits
from collapse.stores.layer_names import TOP


class Reached(Exception):
    """Exception that stops a forward pass just before the last module whose input is wanted."""


def explaining_large_model(name: str, device: torch.device) -> AbstractContextManager[None]:
    """Return a context for steps whose out-of-memory error means that the model, not the batch, is too large.

    Raises:
        CollapseError: Memory ran out; the message names the model and options that need less memory.
    """
    other = "a machine with more memory" if device.type == "cpu" else "--device cpu"
    return explaining_out_of_memory(
        f"{name} does not fit on {device}: use --dtype bfloat16, --device-map auto, --quantize or {other}"
    )


@contextmanager
def explaining_failed_run(model: Any, on: str) -> Iterator[None]:
    """Convert errors of a model's code into CollapseError; do not convert :class:`Reached` or out-of-memory errors.

    ``on`` says in the message what the model was run on, such as "the data".
    """
    try:
        yield
    except Exception as error:  # the model's code can raise anything
        if isinstance(error, Reached) or is_out_of_memory(error):
            raise
        raise CollapseError(
            f"{type(model).__name__} cannot be run on {on}: {type(error).__name__}: {first_line(error)}; check its "
            "configuration (config.json, --model-arg), dtype and device"
        ) from error


@dataclass
class LanguageModel:
    """A loaded causal language model.

    Attributes:
        model: The transformers model, in evaluation mode. It may be spread over devices, offloaded or quantized.
        weight: The output embedding w, shape (V, d), in the model's dtype.
        bias: The bias of the output embedding, shape (V,), or None.
        input_rows: Number of rows of the input embedding; token ids must be smaller than this number.
        attention: Name of the attention implementation, from transformers or a plugin.
        n_layers: Number of blocks, or None if the model's configuration does not state it.
        blocks: The blocks; their inputs are the inner layers. :func:`collapse.inputs.blocks_and_lens.find_layers` sets
            this attribute.
        lens: The final norm, which maps the last block's output to the input of the output embedding; None
            before ``find_layers`` is called, or if it finds no such norm.
        no_lens: Why ``lens`` was not found, or "".
        logits: How the model makes logits from ⟨w, h⟩ + b.
    """

    model: Any
    weight: Float[Tensor, "V d"]
    bias: Float[Tensor, " V"] | None
    input_rows: int
    attention: str
    n_layers: int | None = None
    blocks: torch.nn.ModuleList | None = None
    lens: torch.nn.Module | None = None
    no_lens: str = ""
    logits: Logits = LINEAR

    @classmethod
    def of(cls, model: Any) -> "LanguageModel":
        """Make a LanguageModel from a transformers model; blocks, lens and logits are found later.

        Raises:
            CollapseError: The model has no output embedding with a weight matrix.
        """
        head, inputs = model.get_output_embeddings(), model.get_input_embeddings()
        try:
            found = None if head is None else classifier_of(head, model.dtype)
        except Exception as error:  # the model's code, or a hook that loads offloaded weights, can raise anything
            raise CollapseError(
                f"the output embedding of {type(model).__name__} cannot be read: {type(error).__name__}: "
                f"{first_line(error)}; check its device map and quantization"
            ) from error
        if found is None:
            raise CollapseError(
                f"{type(model).__name__} cannot be measured: it has no output embedding with a weight matrix. Give its "
                "embeddings instead: collapse.measure(features=…, labels=…)"
            )
        weight, bias = found
        rows = len(weight) if inputs is None else getattr(inputs, "num_embeddings", None) or len(inputs.weight)
        own = model.config._attn_implementation or "own"
        n_layers = getattr(model.config.get_text_config(decoder=True), "num_hidden_layers", None)
        return cls(model, weight, bias, rows, own, n_layers)

    @property
    def device(self) -> torch.device:
        """The device of the output embedding, to which embeddings are moved."""
        return self.weight.device

    @property
    def position_limit(self) -> int | None:
        """Maximum sequence length in the model's configuration, or None."""
        return limit_of(self.model.config.to_dict())

    def probe(self, length: int) -> Int[Tensor, "1 T"]:
        """Return at most ``length`` token ids, spread over the vocabulary, to compare two runs of the model."""
        return (torch.arange(min(length, self.position_limit or length)) * 7919 % self.input_rows)[None]

    @property
    def is_quantized(self) -> bool:
        """Whether some of the model's weights are quantized."""
        return bool(getattr(self.model, "is_quantized", False))

    @property
    def n_params(self) -> int:
        """Number of parameters before quantization; tied weights count once."""
        return sum(parameter.numel() for parameter in self._plain.parameters())

    @property
    def tied(self) -> bool:
        """Whether input and output embedding are the same tensor."""
        inputs, head = self._plain.get_input_embeddings(), self._plain.get_output_embeddings()
        if any(hasattr(each, "base_layer") for each in (inputs, head)):  # an adapter changes one or both
            return False
        return inputs is not None and inputs.weight is getattr(head, "weight", None)

    @property
    def head(self) -> dict[str, Any]:
        """What a store's identity records about the head: ``tied``, ``bias``, and the logits' ``scale`` and ``cap``."""
        return {"tied": self.tied, "bias": self.bias is not None, **self.logits.record()}

    @cached_property
    def _plain(self) -> Any:
        """The model or, if the model is quantized or offloaded, a copy of its architecture on the meta device."""
        if not self.is_quantized and not any(each.is_meta for each in self.model.parameters()):
            return self.model
        with torch.device("meta"):
            return type(self.model)(self.model.config)

    @cached_property
    def _is_sharded(self) -> bool:
        """Whether the model's weights are divided among ranks (FSDP). If so, a forward pass must not stop early."""
        return any(hasattr(each, "full_tensor") for each in self.model.parameters())

    def embeddings(self, tokens_BT: Int[Tensor, "B T"]) -> Float[Tensor, "B T d"]:
        """Return h, the input of the output embedding at each position, without computing logits."""
        return self.embeddings_by_layer(tokens_BT, (TOP,))[TOP]

    @torch.no_grad()  # not inference_mode: a model may keep tensors, and be trained afterwards
    def embeddings_by_layer(
        self, tokens_BT: Int[Tensor, "B T"], names: Sequence[str], stop: int | None = None
    ) -> dict[str, Float[Tensor, "B S d"]]:
        """Return h for each layer in ``names``, at S positions of each chunk: ``[:stop]``, or all if ``stop`` is None.

        For an inner layer, h is the input of a block; for top, h is the input of the head. ``names`` must be in order
        of depth. Inner layers need ``blocks``. Without FSDP, the run stops at the last layer in ``names``.

        Raises:
            CollapseError: The model's code failed, or did not call the last layer in ``names``.
        """
        modules = {}
        for layer in names:
            modules[layer] = self.model.get_output_embeddings()
            if layer != TOP:
                assert self.blocks is not None  # find_layers() was called
                modules[layer] = self.blocks[int(layer)]
        found = inputs_of(modules, lambda: self.run(tokens_BT), stops=not self._is_sharded)
        if names[-1] in found:
            return {layer: h_BTd[:, :stop].to(self.device) for layer, h_BTd in found.items()}
        raise CollapseError(
            f"{type(self.model).__name__} cannot be measured: it does not call its output embedding. Give its "
            "embeddings instead: collapse.measure(features=…, labels=…)"
        )

    @property
    def _input_device(self) -> torch.device:
        inputs = self.model.get_input_embeddings()
        device = self.device if inputs is None else inputs.weight.device
        return self.device if device.type == "meta" else device  # hooks move the inputs of offloaded modules

    def run(self, tokens_BT: Int[Tensor, "B T"], **options: Any) -> Any:
        """Return the model's own output, including logits, for some tokens; ``options`` go to its forward().

        Raises:
            CollapseError: The model's code failed. Out-of-memory errors are not converted.
        """
        with explaining_failed_run(self.model, f"{len(tokens_BT)} × {tokens_BT.shape[1]} tokens"):
            return self.model(input_ids=tokens_BT.to(self._input_device), use_cache=False, **options)


def inputs_of(
    modules: Mapping[str, torch.nn.Module], run: Callable[[], object], *, stops: bool = True
) -> dict[str, Tensor]:
    """Run a model, and return the first input tensor of each module, by the keys of ``modules``.

    ``modules`` must be in the order in which the model calls them. Modules that are not called are left out. With
    ``stops``, the run ends before the last module.
    """
    found: dict[str, Tensor] = {}
    last = [*modules][-1]

    def keep(key: str, _: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        for h in (each for each in (*inputs, *named.values()) if isinstance(each, Tensor)):
            found[key] = h if key == last else h.clone()  # a block may change its input
            break
        if key == last and stops:
            raise Reached

    with ExitStack() as hooks, suppress(Reached):
        for key, module in modules.items():
            hooks.enter_context(module.register_forward_pre_hook(partial(keep, key), with_kwargs=True))
        run()
    return found


@torch.no_grad()
def classifier_of(head: torch.nn.Module, dtype: torch.dtype) -> tuple[Tensor, Tensor | None] | None:
    """Return the weight matrix and the bias (or None) of a linear module, even if offloaded, quantized or adapted.

    Return None if the module has no weight matrix. A weight that cannot be read is computed from outputs of the module;
    ``dtype`` is the data type of its inputs.
    """
    with on_device(head):
        weight, bias = whole(getattr(head, "weight", None)), whole(getattr(head, "bias", None))
        if is_plain(weight) and not hasattr(head, "base_layer"):  # a layer with an adapter has base_layer
            return (weight.detach(), None if bias is None else bias.detach()) if weight.dim() == 2 else None
        columns = getattr(head, "in_features", None)
        if columns is None:
            return None
        device = next(chain(head.parameters(), head.buffers())).device
        offset = head(torch.zeros(1, columns, dtype=dtype, device=device))
        rows = head(torch.eye(columns, dtype=dtype, device=device))  # row i: column i of W, plus the offset
    return (rows - offset).T.contiguous(), None if bias is None else offset[0]


def on_device(module: torch.nn.Module) -> AbstractContextManager[None]:
    """Return a context in which a module's own parameters have data, even if accelerate offloads them."""
    if not hasattr(module, "_hf_hook"):
        return nullcontext()
    from accelerate.utils import align_module_device

    aligned: AbstractContextManager[None] = align_module_device(module)
    return aligned


def whole(weight: Any) -> Any:
    """Return a weight; if FSDP divides it, gather it from all ranks."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


def is_plain(weight: Any) -> TypeGuard[Tensor]:
    """Whether a weight is a plain tensor of floats.

    A quantized weight is not plain: it has a tensor type of the quantizer, or holds integers or floats of one byte.
    """
    return type(weight) in (torch.nn.Parameter, Tensor) and weight.is_floating_point() and weight.element_size() > 1
