"""Ranks: processes that run one command together, as ``torchrun`` starts them.

Ranks exchange objects at meetings: every rank calls :func:`meet`, and all ranks call it the same number of times. An
exception of one rank is raised in all ranks at the next meeting. A process that did not call :func:`join` counts as the
only rank, and its meetings do nothing. dealing_slices.dealt divides slices among ranks, and pairs.sweep divides tiles.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import Timer
from typing import Any, TypeVar

from collapse.errors import CollapseError, UsageError, first_line

log = logging.getLogger("collapse")

T = TypeVar("T")

_TO_START, _TO_MEET = timedelta(minutes=10), timedelta(days=30)
_PATIENCE_SECONDS = 10

_LOST = "another rank has ended. Finished slices are kept: run the same command again, with any number of ranks"


class RankLost(CollapseError):
    """The connection to another rank is lost, so the ranks cannot exchange objects any more."""


@dataclass
class _Joined:
    """This process as a rank.

    Attributes:
        rank, size: Its number, and the number of ranks.
        store: torch's key-value store, which all ranks share.
        meetings: Number of its meetings so far.
        failing: Whether the last meeting raised an error.
        looked: Time of the last check by :func:`raise_others_error`, in seconds.
    """

    rank: int
    size: int
    store: Any
    meetings: int = 0
    failing: bool = False
    looked: float = 0.0


@dataclass(frozen=True)
class _Failure:
    usage: bool
    text: str


_joined: _Joined | None = None


def rank() -> int:
    """Return this process's rank; 0 if it is the only one."""
    return _joined.rank if _joined else 0


def count() -> int:
    """Return the number of ranks."""
    return _joined.size if _joined else 1


def local_rank() -> int:
    """Return this process's rank on its machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if _joined else 0


def join(words: Sequence[str], *, silent: bool = True) -> None:
    """Join the other ranks if ``torchrun`` started several.

    Args:
        words: The command line, which must be the same for all ranks.
        silent: Whether only rank 0 prints from then on.

    Raises:
        UsageError: The ranks run different commands.
        CollapseError: Another rank cannot be reached.
    """
    global _joined
    own, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # c10d prints stack traces of lost connections
    import torch.distributed as dist
    import torch.distributed.nn  # noqa: F401 - if imported later, its default arguments keep the group alive

    # torch waits in C++, where Python's handler of Ctrl-C would not run
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)
    waiting = Timer(_PATIENCE_SECONDS, _say_waiting, (own, size))
    waiting.start()
    try:
        held, own, size = next(dist.rendezvous("env://", timeout=_TO_START))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")  # torchrun's store keeps earlier attempts' keys
        store = dist.PrefixStore(f"collapse {attempt}", held)
        store.set(f"{own}", "here")
        store.wait([f"{each}" for each in range(size)], _TO_START)
        dist.init_process_group("gloo", store=store, rank=own, world_size=size, timeout=_TO_MEET)
    except (RuntimeError, ValueError) as error:
        raise CollapseError(
            f"rank {own} of {size} cannot reach the others ({first_line(error)}): start all ranks with torchrun, or "
            "unset RANK and WORLD_SIZE"
        ) from error
    finally:
        waiting.cancel()
        signal.signal(signal.SIGINT, on_interrupt)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # torchrun sends it to the other ranks when one dies
    _joined = _Joined(own, size, store)
    if own and silent:
        _mute()
    for other, theirs in enumerate(meet(list(words))):
        if theirs != list(words):
            raise UsageError(f"rank {other} has other arguments than rank {own}: start all ranks with the same command")


def _say_waiting(own: int, size: int) -> None:
    where = ":".join(os.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
    log.warning("rank %d of %d waits for the others at %s, for at most 10 minutes", own, size, where)


def meet(value: T) -> list[T]:
    """Wait for all ranks, and return the value of each.

    Raises:
        CollapseError: A rank failed. All ranks raise the error of the lowest rank that failed.
        RankLost: A rank has ended.
    """
    if _joined is None:
        return [value]
    import torch.distributed as dist

    found: list[Any] = [None] * _joined.size
    try:
        dist.all_gather_object(found, value)
    except RuntimeError as error:
        raise RankLost(_LOST) from error
    _joined.meetings += 1
    _joined.failing = False
    for other, each in enumerate(found):
        if isinstance(each, _Failure):
            _joined.failing = True
            raise (UsageError if each.usage else CollapseError)(f"rank {other}: {each.text}" if other else each.text)
    found[_joined.rank] = value
    return found


def from_first_rank(value: T) -> T:
    """Return rank 0's ``value`` in all ranks."""
    return meet(value if rank() == 0 else None)[0]  # type: ignore[return-value]


def on_first_rank(function: Callable[[], T]) -> T:
    """Call a function on rank 0, and return its result in all ranks."""
    return from_first_rank(function() if rank() == 0 else None)  # type: ignore[return-value]


@contextmanager
def first_rank_first() -> Iterator[None]:
    """Run a ``with`` block on rank 0, then on one rank of each other machine, then on the remaining ranks.

    The remaining ranks then find the block's downloads in the cache. Use this function inside :func:`together`, which
    reports an exception to the other ranks.
    """
    turn = 0 if rank() == 0 else 1 if local_rank() == 0 else 2
    for now in range(3):
        if now == turn:
            yield
        meet(None)


@contextmanager
def together() -> Iterator[None]:
    """Run a ``with`` block on each rank. If it raises on one rank, all ranks raise the error at their next meeting."""
    try:
        yield
    except RankLost:
        raise
    except Exception as error:
        if _joined is None or _joined.failing:  # the other ranks already raise it
            raise
        try:
            _joined.store.set(f"failed {_joined.meetings}", "")
            meet(_failure(error))
        except (RankLost, RuntimeError):  # this rank's own error says more
            pass
        except CollapseError as first:
            if str(first) != _failure(error).text:  # a lower rank failed with another error, which all ranks raise
                raise first from error
        raise


def raise_others_error() -> None:
    """Raise the error of another rank if one has failed; check at most once a second."""
    if _joined is None or time.monotonic() < _joined.looked + 1:
        return
    _joined.looked = time.monotonic()
    try:
        failed = _joined.store.check([f"failed {_joined.meetings}"])
    except RuntimeError as error:
        raise RankLost(_LOST) from error
    if failed:
        meet(None)


@contextmanager
def left_at_the_end() -> Iterator[None]:
    """Leave the group of ranks at the end of a ``with`` block.

    If an interrupt or a lost rank ends the block, all ranks but one are muted, so that the error is printed once.
    """
    global _joined
    try:
        yield
    except (RankLost, KeyboardInterrupt):
        if _joined is not None:
            try:
                speaks = _joined.store.add("told", 1) == 1
            except RuntimeError:  # the process that holds torch's store, torchrun or rank 0, has ended
                speaks = _joined.rank == (0 if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" else 1)
            if speaks:
                sys.stderr = sys.__stderr__
            else:
                _mute()
        raise
    finally:
        if _joined is not None:
            import torch.distributed as dist

            _joined = None
            dist.destroy_process_group()  # otherwise its threads may abort the process when it exits


def _mute() -> None:
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the process ends


def _failure(error: Exception) -> _Failure:
    known = isinstance(error, CollapseError) or hasattr(error, "exit_code")  # click's exceptions have it
    text = str(error) if known else f"{type(error).__name__}: {first_line(error)}"
    return _Failure(isinstance(error, UsageError) or getattr(error, "exit_code", 1) == 2, text)
