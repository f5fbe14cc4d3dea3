"""Find the head of a model and read the head's input, from each forward pass or for given batches."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from collapse.errors import CollapseError, UsageError, near_names
from collapse.inputs.evaluation_mode import evaluation_mode
from collapse.inputs.language_model import LanguageModel, Reached, classifier_of, is_plain
from collapse.inputs.suitability import find_logits
from collapse.monitoring.rank_states import buffers_of_rank_0
from collapse.numerics.dense_moments import IGNORED
from collapse.numerics.finite import check_classifier
from collapse.numerics.logits import LINEAR, Logits
from collapse.numerics.statistics import EmbeddingStatistics

_ROUNDING = 0.02
"""Largest relative difference of logits that rounding and quantization can cause."""


class LinearHead(NamedTuple):
    """A head with V outputs: weight (V, d), bias (V,) or None, and how the model computes logits from W h + b."""

    weight: Tensor
    bias: Tensor | None = None
    logits: Logits = LINEAR

    def added_to(self, s: EmbeddingStatistics) -> EmbeddingStatistics:
        """Return a copy of the statistics with this head's rows and biases for the classes of the statistics.

        Raises:
            CollapseError: A class has no row in the head.
            UsageError: The head and the embeddings differ in the number of dimensions.
        """
        weight, bias, logits = self
        if (last := int(s.classes[-1])) >= len(weight):
            raise CollapseError(
                f"there is a label {last:,}, but the classifier has only the rows 0 to {len(weight) - 1:,}: "
                "give one row for each label"
            )
        if weight.shape[1] != s.dim:
            raise UsageError(
                f"the classifier has {weight.shape[1]:,} columns, but the embeddings have {s.dim:,} dimensions: "
                "give the classifier that reads these embeddings"
            )
        rows = s.classes.to(weight.device)
        of_classes = None if bias is None else logits.scaled(bias[rows]).double().cpu()
        return replace(s, classifier=logits.scaled(weight[rows]).double().cpu(), bias=of_classes)


class ModelHead:
    """A hook on the head of a model, which keeps the input of the head's last call.

    Args:
        model: The model; DistributedDataParallel, DataParallel or torch.compile may wrap it.
        name: Name of the head's module; None for the output embedding or, if there is none, the last linear module.

    Raises:
        UsageError: There is no such module, or it is not linear.
    """

    def __init__(self, model: nn.Module, name: str | None = None) -> None:
        self.model: Any = unwrapped(model)
        self.module = self._found(name)
        self.name = next(each for each, module in self.model.named_modules() if module is self.module)
        self.h: Tensor | None = None
        self._stops, self._is_checked = False, self._predicts_next  # classifier() checks causal models
        self._hook = self.module.register_forward_pre_hook(self._keep, with_kwargs=True)

    def _found(self, name: str | None) -> nn.Module:
        modules, kind = dict(self.model.named_modules()), type(self.model).__name__
        linear = [each for each, module in modules.items() if isinstance(module, nn.Linear)]
        output = getattr(self.model, "get_output_embeddings", lambda: None)()
        if name is None and output is not None:
            return output
        if name is None and not linear:
            raise UsageError(f"{kind} has no nn.Linear: name its head with head=")
        name = linear[-1] if name is None else name
        if name not in modules:
            raise UsageError(f"{kind} has no module {name!r}; {near_names(name, linear)}")
        if not hasattr(modules[name], "in_features"):  # quantized linear modules have it too
            called = type(modules[name]).__name__
            raise UsageError(f"module {name!r} of {kind} is a {called}, not linear; {near_names(name, linear)}")
        return modules[name]

    def _keep(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.h = next(each for each in (*inputs, *named.values()) if isinstance(each, Tensor)).detach()
        if self._stops and self._is_checked:
            raise Reached

    def remove(self) -> None:
        """Remove the hook."""
        self._hook.remove()

    def classifier(self) -> LinearHead:
        """Return the head as it is now.

        Raises:
            CollapseError: The head is not finite, or not linear.
        """
        kept = self.h
        with evaluation_mode(self.model), torch.no_grad():
            dtype = next(self.model.parameters()).dtype
            found = classifier_of(self.module, dtype)
            assert found is not None  # it has a matrix
            weight, bias = found
            check_classifier(weight, bias)  # first, because a head with NaN also fails the next check
            if is_plain(self.module.weight):  # for other heads, such as quantized ones, calls have computed the weight
                h = torch.linspace(-1, 1, weight.shape[1], dtype=dtype, device=weight.device)
                own, expected = self.module(h).double(), nn.functional.linear(h, weight, bias).double()
                if not (own - expected).norm() <= _ROUNDING * expected.norm():
                    raise CollapseError(
                        f"the head, a {type(self.module).__name__}, does not compute W h + b: name another module "
                        "with head="
                    )
            logits = LINEAR
            if self._predicts_next:
                loaded = LanguageModel.of(self.model)
                logits = find_logits(loaded, torch.arange(8)[None] % loaded.input_rows)
        self.h = kept
        return LinearHead(weight, bias, logits)

    def take(self) -> Tensor:
        """Return the input of the last call, and forget it.

        Raises:
            UsageError: There was no call since the last :meth:`take`.
        """
        if self.h is None:
            raise UsageError(
                "the attached model did not run since the last update: call update(y=…) after each forward pass. "
                "Attach a compiled model before its first forward pass"
            )
        h, self.h = self.h, None
        return h

    @contextmanager
    def running(self) -> Iterator[None]:
        """Return a context for :meth:`samples`: evaluation mode, no gradients, and in all ranks the buffers of rank 0.

        As soon as the head has been checked, forward passes stop at the head. If the weights are divided among ranks
        (FSDP), forward passes do not stop.
        """
        with evaluation_mode(self.model), buffers_of_rank_0(self.model), torch.no_grad():
            # ranks that share weights must finish each forward pass together
            self._stops = not any(hasattr(each, "full_tensor") for each in self.model.parameters())
            try:
                yield
            finally:
                self._stops = False

    def samples(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Run the model on a batch; return the input of the head, and the labels.

        The labels of a causal language model are the next tokens, so the last position of a sequence has none.

        Args:
            batch: A pair (inputs, labels), or a mapping with the model's arguments by name and ``labels``.

        Raises:
            UsageError: The batch has no labels, or another form.
            CollapseError: The model does not call its head, or computes other logits than the head.
        """
        device = next(self.model.parameters()).device
        inputs: tuple[Tensor, ...] = ()
        named: dict[str, Any] = {}
        if isinstance(batch, Mapping):
            named = {name: each.to(device) if isinstance(each, Tensor) else each for name, each in batch.items()}
            y = named.pop("labels", None)  # with labels, fused losses do not call the head
            if y is None:
                raise UsageError(f"a batch has no labels, only {', '.join(batch)}: add them with the key 'labels'")
        else:
            first, y = pair(batch, "a pair (inputs, labels) or a mapping")
            inputs = (first.to(device),)
        self.h = output = None
        try:
            output = self.model(*inputs, **named)
        except Exception:  # Reached, or code after the head failed, for example without labels
            if self.h is None:
                raise
        if self.h is None:
            raise self._error("does not call its head")
        h = self.take()
        if self._predicts_next:
            y = nn.functional.pad(y[:, 1:], (0, 1), value=IGNORED)
        elif h.dim() == y.dim() + 2:  # the classifier of a decoder, which decides by the last token
            at_T = torch.arange(h.shape[1], device=h.device)
            last_B = (at_T * named.get("attention_mask", torch.ones_like(at_T))).argmax(dim=-1)
            h = h[torch.arange(len(h), device=h.device), last_B]
        if not self._is_checked:
            self._check(h, y, getattr(output, "logits", output))
            self._is_checked = True
        return h, y

    def _check(self, h: Tensor, y: Tensor, own: Any) -> None:
        """Raise CollapseError if the model's logits ``own`` are not W h + b.

        Differences by rounding and by a constant per sample are allowed. The constant does not change the softmax, so
        ``log_softmax`` outputs pass. Nothing is checked if ``own`` is not a finite tensor with a row of logits per
        label.
        """
        if not isinstance(own, Tensor) or own.shape[:-1] != y.shape or not own.isfinite().all():
            return
        weight, bias, _ = self.classifier()
        ours = nn.functional.linear(h.to(weight), weight, bias).double()
        if own.shape == ours.shape:
            error = own.to(ours) - ours
            error -= error.mean(dim=-1, keepdim=True)
        if own.shape != ours.shape or error.norm() > _ROUNDING * ours.norm():
            raise self._error("does not return W h + b of its head")

    def _error(self, problem: str) -> CollapseError:
        return CollapseError(
            f"{type(self.model).__name__} {problem}, module {self.name!r} (a {type(self.module).__name__}): name the "
            "module that computes its logits, as head=NAME, or give embeddings with update(h, y)"
        )

    @property
    def _predicts_next(self) -> bool:
        """Whether the model is a causal language model of transformers, and the head is its output embedding."""
        causal = getattr(self.model, "loss_type", "") in (None, "ForCausalLM")
        return causal and self.module is self.model.get_output_embeddings() and not self.model.config.is_encoder_decoder


def pair(batch: Any, expected: str) -> tuple[Any, Any]:
    """Return the two elements of a batch.

    Raises:
        UsageError: The batch is not a tuple or list of two; the message says what is ``expected``.
    """
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    found = type(batch).__name__ + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
    raise UsageError(f"a batch must be {expected}, not a {found}")


def unwrapped(model: Any) -> Any:
    """Return the model inside DistributedDataParallel, DataParallel and torch.compile."""
    while isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel) or hasattr(model, "_orig_mod"):
        model = model._orig_mod if hasattr(model, "_orig_mod") else model.module
    return model
