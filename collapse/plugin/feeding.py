"""Pass batches to plugin statistics so that none can change what another one sees, or what we compute.

The class moments are updated before a statistic sees the batch. A statistic that writes to a batch fails, and the batch
is recomputed for the next statistic. The sides of a merge are small, so each statistic gets copies.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from collapse.errors import PluginError
from collapse.plugin.guarding import Watch, reading

if TYPE_CHECKING:
    from collapse.plugin.batch import Batch, Side
    from collapse.plugin.statistic import Statistic


class Feed:
    """One batch, passed to one statistic after another.

    Args:
        make: Makes the batch, in memory that nothing else reads until the next call.
    """

    def __init__(self, make: "Callable[[], Batch]") -> None:
        self._make = make
        self._renew()

    def _renew(self) -> None:
        self._batch = self._make()
        self._watch = Watch(_tensors("batch", self._batch))

    @property
    def side(self) -> "Side":
        """The batch as a side of a merge."""
        from collapse.plugin.batch import Side

        return Side(classes=self._batch.classes, counts=self._batch.counts.double(), means=self._batch.means)

    def update(self, statistic: "Statistic") -> None:
        """Update an empty statistic with the batch.

        Raises:
            PluginError: The statistic wrote to the batch, or keeps a tensor of it.
            Exception: Any exception of the statistic.
        """
        try:
            statistic._begin(self._batch)
            with reading(self._watch):
                statistic.update(self._batch)
            self._check_kept(statistic)
            statistic._check(self._batch)
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
    """Yield both sides of a merge for one statistic's ``merge``, as copies if another statistic follows.

    Raises:
        Wrote: The statistic wrote to a side.
    """
    if copy:
        mine, theirs = _copied(mine), _copied(theirs)
    with reading(Watch(_tensors("mine", mine) | _tensors("theirs", theirs))):
        yield mine, theirs


def _copied(side: "Side") -> "Side":
    return type(side)(classes=side.classes.clone(), counts=side.counts.clone(), means=side.means.clone())


def _tensors(prefix: str, holder: "Batch | Side") -> dict[str, Tensor]:
    return {f"{prefix}.{name}": value for name, value in vars(holder).items() if isinstance(value, Tensor)}
