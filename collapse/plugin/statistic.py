"""Base classes of extra statistics, which a plugin fills in the same pass as the means."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from collapse.errors import PluginError
from collapse.plugin.batch import Batch, Side
from collapse.plugin.state import DTYPES, State, merged

_RESERVED = ("name", "classes")


class Statistic:
    """An extra statistic of the training text, mergeable and stored: subclass it in a plugin.

    Declare its tensors as ``state``, and fill those of one batch in ``update``. The declaration determines how two
    statistics are merged; if it cannot, implement ``merge``.

    Attributes:
        name: Its name in ``needs`` and the name of its file in the store.
        version: Increased when its numbers change.
        state: Its tensors by name.
        per_class: Whether metrics that read it can exclude classes. If it sums over all classes they cannot, and are
            null when ``--min-count`` excludes classes. Default: True if all of ``state`` is per class.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    phase: ClassVar[Literal["train", "validation"]] = "train"
    state: ClassVar[Mapping[str, State]] = {}
    per_class: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not isinstance(cls.state, Mapping) or not all(isinstance(each, State) for each in cls.state.values()):
            raise PluginError(f"state of {cls.__name__} must be a dictionary of collapse.State by name")
        for name in cls.state:
            if not isinstance(name, str) or not name.isidentifier() or name in _RESERVED or hasattr(Statistic, name):
                raise PluginError(f"state of {cls.__name__} holds {name!r:.40}: give the tensor another name")
        if "state" in vars(cls) and "per_class" not in vars(cls):
            cls.per_class = bool(cls.state) and all(each.per_class for each in cls.state.values())

    def __new__(cls, *_: Any, **__: Any) -> "Statistic":
        """Create it with its declared tensors, so that a plugin's ``__init__`` need not call this class's."""
        made = super().__new__(cls)
        for name, each in cls.state.items():
            setattr(made, name, each.nothing())
        if any(each.per_class for each in cls.state.values()):
            made.classes = torch.zeros(0, dtype=torch.int64)
        return made

    def _fill(self, batch: Batch) -> None:
        """Fill this new object from a batch, and check what it holds; raises PluginError."""
        for name, each in self.state.items():
            setattr(self, name, each.zeros(len(batch.classes), batch.h.shape[1], batch.h.device))
        if any(each.per_class for each in self.state.values()):
            self.classes = batch.classes.clone()
        self.update(batch)
        reused = {tensor.untyped_storage().data_ptr() for tensor in (batch.h, batch.deviations)}
        dense = {key: each for key, each in vars(self).items() if isinstance(each, Tensor) and not each.is_sparse}
        for name, value in dense.items():
            if value.untyped_storage().data_ptr() in reused:
                raise PluginError(
                    f"its {name} lies in the batch, which the next one overwrites: keep a copy (x.clone())"
                )
        self._check(batch)

    def _check(self, batch: Batch) -> None:
        """Raise PluginError if, after a batch, its tensors are not the declared ones."""
        if not self.state:
            return
        held = {name: value for name, value in vars(self).items() if isinstance(value, Tensor) and name != "classes"}
        if extra := sorted(held.keys() - self.state.keys()):
            raise PluginError(f"it sets {', '.join(extra)}, which its state does not declare")
        for name, each in self.state.items():
            expected, value = each.zeros(len(batch.classes), batch.h.shape[1], "meta"), held.get(name)
            if value is None or value.shape != expected.shape or value.dtype != expected.dtype:
                found = "nothing" if value is None else f"{tuple(value.shape)}, {value.dtype}"
                raise PluginError(
                    f"its {name} is declared as {tuple(expected.shape)}, {expected.dtype}, and is {found}"
                )

    def update(self, batch: Any) -> None:
        """Fill the declared tensors of a new object from one batch; the object is then merged into the total."""
        raise TypeError(f"statistic {self.name} defines no update(batch)")

    def merge(self, other: "Statistic", mine: Side, theirs: Side) -> None:
        """Merge another statistic of the same kind; in the training phase, both sides have counts and means."""
        if not self.state:
            raise TypeError(f"statistic {self.name} declares no state, and defines no merge(other, mine, theirs)")
        for name, value in merged(self.state, vars(self), vars(other), mine, theirs).items():
            setattr(self, name, value)

    def tensors(self) -> dict[str, Tensor]:
        """Return its complete state, as stored; the default is every tensor attribute."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def _stored(self) -> dict[str, Tensor]:
        """Return copies of its tensors, since two of them may share memory; raises PluginError for any other state."""
        held = self.tensors()
        for name, value in held.items():
            if not isinstance(value, Tensor) or value.layout != torch.strided or value.dtype not in DTYPES:
                raise PluginError(f"{name} cannot be stored: give a dense tensor of real numbers, not {value!r:.60}")
        return {name: value.detach().clone() for name, value in held.items()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Statistic":
        """Create an object with this state; the default sets each tensor as an attribute."""
        made = cls()
        for name, value in tensors.items():
            setattr(made, name, value)
        return made


class ValidationStatistic(Statistic):
    """An extra statistic of the validation text: its ``update`` receives a :class:`ValidationBatch`."""

    phase = "validation"
