"""Report errors in training, in a clear message and in the run's record."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from collapse.errors import CollapseError, first_line
from collapse.numerics.devices import is_out_of_memory
from collapse.stores.writing import ANOTHER_OUTPUT, raise_if_full
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import Run


@contextmanager
def reporting_failures(run: Run, recipe: Recipe, first: bool) -> Iterator[None]:
    """Report an error in a clear message and in the run's record."""
    try:
        yield
    except Exception as error:
        words = error if isinstance(error, CollapseError) else _in_words(error, run, recipe)
        if first:
            with suppress(CollapseError):  # a full disk may have no room for the record either
                run.update(state="failed", problem=str(words or f"{type(error).__name__}: {first_line(error)}"))
        if words is None or words is error:
            raise
        raise words from error


def _in_words(error: Exception, run: Run, recipe: Recipe) -> CollapseError | None:
    """Return an error that says what to do about a full disk or memory; None for anything else."""
    try:
        raise_if_full(error, run.path, ANOTHER_OUTPUT)
    except CollapseError as full:
        return full
    if not is_out_of_memory(error):
        return None
    kept = run.checkpoints()
    where = f"the checkpoint after step {kept[-1].step:,} is kept" if kept else "no checkpoint had been written"
    return CollapseError(
        f"out of memory: {recipe.depth}x{recipe.width} with batches of {recipe.batch_size} x "
        f"{recipe.chunk_length:,} tokens does not fit. Use more GPUs (torchrun divides the batch), or lower "
        f"--batch-size or --chunk-length in a new run; {where}"
    )
