"""Exchange results between the ranks of a distributed training, and merge their class moments."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch.distributed as dist
from torch import Tensor, nn

from collapse.errors import CollapseError, UsageError
from collapse.numerics.class_moments import ClassMoments
from collapse.plugin.statistic import Statistic

T = TypeVar("T")


def rank_and_size() -> tuple[int, int]:
    """Return this process's rank in torch's default process group, and the number of ranks."""
    joined = dist.is_available() and dist.is_initialized()
    return (dist.get_rank(), dist.get_world_size()) if joined else (0, 1)


def of_all_ranks(make: Callable[[], T]) -> list[T]:
    """Return what a function returns in each rank of torch's default process group; all ranks must call this.

    Raises:
        CollapseError: The function failed in a rank; all ranks raise the error of the first such rank.
    """
    rank, size = rank_and_size()
    if size == 1:
        return [make()]
    found: list[Any] = [None] * size
    try:
        found[rank] = make()
    except CollapseError as error:
        found[rank] = CollapseError(f"rank {rank}: {error}")
    for each in range(size):  # one after the other, which takes less memory of a GPU than gathering all
        held = [found[each]]
        dist.broadcast_object_list(held, src=each)
        if isinstance(held[0], CollapseError):
            raise held[0]
        found[each] = held[0]
    return found


@contextmanager
def buffers_of_rank_0(model: nn.Module) -> Iterator[None]:
    """Use the buffers of rank 0, such as BatchNorm's running statistics, in all ranks; restore each rank's own at exit.

    DistributedDataParallel does the same in its own forward pass. All ranks must use this context.
    """
    own = [(buffer, buffer.data) for buffer in model.buffers()] if rank_and_size()[1] > 1 else []
    try:
        for buffer, _ in own:  # not in place, because a backward pass may still need the values
            buffer.data = buffer.data.clone()
            dist.broadcast(buffer.data, src=0)
        yield
    finally:
        for buffer, values in own:
            buffer.data = values


def merged(states: Iterable[Mapping[str, Tensor] | None], statistic_types: Sequence[type[Statistic]]) -> ClassMoments:
    """Merge results of :meth:`ClassMoments.state`, in order; a rank without samples may give None.

    ``statistic_types`` are the plugin statistics that the states contain.

    Raises:
        UsageError: There are no samples.
    """
    held = [ClassMoments.from_state(each, "cpu", statistic_types) for each in states if each and len(each["classes"])]
    if not held:
        raise UsageError("no samples to measure: call run(loader) or update() first")
    total, *others = held
    for each in others:
        total.merge(each)
    return total
