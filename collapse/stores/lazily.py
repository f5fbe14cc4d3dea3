"""Tensors that are read, and downloaded if necessary, on first use."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Tensors = Mapping[str, "Tensor"]


class WhenAsked(Mapping[str, Tensors]):
    """Statistics that are read, and downloaded from the Hub if necessary, when a metric asks for them."""

    def __init__(self, names: Sequence[str], read: Callable[[str], Tensors]) -> None:
        self._names, self._read = tuple(names), cache(read)

    def __getitem__(self, name: str) -> Tensors:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
