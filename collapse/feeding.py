"""Show batches to plugin statistics so that none changes what another sees, or what we compute.

The class moments have taken in a batch before a statistic sees it. A statistic that writes to a batch fails, and the
batch is made anew for the next one; sides of a merge are small, and each statistic gets copies.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from collapse.errors import PluginError
from collapse.guarding import Watch, Wrote, contents, differing, reading

if TYPE_CHECKING:
    from collapse.accumulate import Batch, Side, Statistic


class Feed:
    """One batch, shown to one statistic after another.

    Args:
        make: Makes the batch, in memory that nothing else reads before it is made again.
        closely: Compare what the batch holds after each statistic, which finds writes that no version counter shows.
    """

    def __init__(self, make: "Callable[[], Batch]", *, closely: bool) -> None:
        self._make, self._closely = make, closely
        self._renew()

    def _renew(self) -> None:
        self._batch = self._make()
        tensors = _tensors("batch", self._batch)
        self._watch = Watch(tensors)
        self._before = contents(tensors) if self._closely else {}

    @property
    def side(self) -> "Side":
        """The batch as a side of a merge."""
        from collapse.accumulate import Side

        return Side(self._batch.classes, self._batch.counts.double(), self._batch.means)

    def update(self, statistic: "Statistic") -> None:
        """Let an empty statistic take in the batch.

        Raises:
            PluginError: It wrote to the batch, or keeps a tensor of it.
            Exception: Whatever it raised.
        """
        try:
            with reading(self._watch):
                statistic.update(self._batch)
            if self._closely:
                written = differing(self._before, contents(self._watch.tensors))
                if written:
                    raise Wrote(written)
            self._check_kept(statistic)
        except BaseException:
            self._renew()
            raise

    def _check_kept(self, statistic: "Statistic") -> None:
        reused = {tensor.untyped_storage().data_ptr() for tensor in (self._batch.h, self._batch.deviations)}
        for name, value in getattr(statistic, "__dict__", {}).items():
            if isinstance(value, Tensor) and not value.is_sparse and value.untyped_storage().data_ptr() in reused:
                raise PluginError(
                    f"its {name} lies in the batch, which the next one overwrites: keep a copy (x.clone())"
                )


@contextmanager
def merging(mine: "Side", theirs: "Side", *, copy: bool) -> "Iterator[tuple[Side, Side]]":
    """Both sides of a merge, for one statistic's ``merge``: copies where another statistic comes after it.

    Raises:
        Wrote: It wrote to one.
    """
    if copy:
        mine, theirs = _copied(mine), _copied(theirs)
    with reading(Watch(_tensors("mine", mine) | _tensors("theirs", theirs))):
        yield mine, theirs


def _copied(side: "Side") -> "Side":
    return type(side)(side.classes.clone(), side.counts.clone(), side.means.clone())


def _tensors(prefix: str, holder: "Batch | Side") -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in vars(holder).items() if isinstance(value, Tensor)}
