"""Times of pieces of work that take turns, so that a drift of the machine touches all alike, and how they grow."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

import numpy as np


def in_turn(works: Mapping[str, Callable[[], object]], rounds: int, *, warm_up: bool = True) -> dict[str, float]:
    """Return the median time of each piece of work in seconds, over rounds in which all run, one after the other.

    Args:
        works: Pieces of work by name.
        rounds: How often each is timed.
        warm_up: Whether one more round comes first that does not count.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for round_ in range(rounds + warm_up):
        for name, work in works.items():
            seconds = timed(work)
            if round_ >= warm_up:
                times[name].append(seconds)
    return {name: median(each) for name, each in times.items()}


def timed(work: Callable[[], object]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def varied(sizes: Mapping[str, int], factors: Sequence[float] = (0.5, 0.25)) -> Iterator[dict[str, int]]:
    """Yield the sizes, then the sizes with one of them reduced at a time.

    >>> list(varied({"C": 8, "d": 4}, (0.5,)))
    [{'C': 8, 'd': 4}, {'C': 4, 'd': 4}, {'C': 8, 'd': 2}]
    """
    yield dict(sizes)
    for name, size in sizes.items():
        for factor in factors:
            yield {**sizes, name: max(1, round(factor * size))}


def exponents(points: Sequence[tuple[Mapping[str, int], float]]) -> dict[str, float]:
    """Fit value = constant · Π size^exponent to measured points by least squares of the logarithms.

    Args:
        points: Sizes by name, and the time or memory measured for them.

    Returns:
        The exponent of each size that is not the same everywhere.

    >>> {name: round(value, 6) for name, value in exponents([({"C": c, "d": 5}, 3 * c**2) for c in (1, 2, 4)]).items()}
    {'C': 2.0}
    """
    names = [name for name in points[0][0] if len({sizes[name] for sizes, _ in points}) > 1]
    logs = np.log([[sizes[name] for name in names] for sizes, _ in points])
    design = np.column_stack([np.ones(len(points)), logs])
    solved, *_ = np.linalg.lstsq(design, np.log([max(value, 1e-300) for _, value in points]), rcond=None)
    return dict(zip(names, map(float, solved[1:]), strict=True))
