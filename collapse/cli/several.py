"""Run a command on several models, or on several revisions of a model. A model that fails does not stop the others."""

import logging
from collections.abc import Callable, Sequence

import click

from collapse.cli.terminal import say_error
from collapse.core import ranks
from collapse.core.progress import Report
from collapse.errors import UsageError, first_line

log = logging.getLogger("collapse")

revisions_option = click.option(
    "--revisions",
    metavar="PATTERNS",
    help="Branches and tags of a Hub model, or checkpoint folders of a local model: 'step*', or step0,step1000.",
)


def named_models(models: Sequence[str], revisions: str | None) -> list[str]:
    """Return the models or, if patterns of revisions are given, the matching revisions of each model."""
    from collapse.hub.references import find_revisions

    return [each for model in models for each in (find_revisions(model, revisions) if revisions else [model])]


def refuse_one_place(models: Sequence[str], place_of: Callable[[str], str | None]) -> None:
    """Raise UsageError if the stores of two models would be in the same folder, ``place_of(model)``."""
    by_place: dict[str, str] = {}
    for model in models:
        place = place_of(model)
        if place is not None and (other := by_place.setdefault(place, model)) != model:
            raise UsageError(
                f"the stores of {other} and {model} would have the same folder, {place}: measure these models in two "
                "commands, each with its own --store"
            )


def for_each(models: Sequence[str], act: Callable[[str, Report], None], done: str) -> int:
    """Call ``act(model, progress)`` for each model; return how many failed. For a single model, raise its error.

    ``done`` is a word for messages: what ``act`` does to a model, such as "measured".
    """
    from collapse.cli.progress_bar import progress
    from collapse.core.progress import numbered

    failed = 0
    with progress() as report:
        for at, model in enumerate(models, 1):
            if len(models) > 1:
                log.info("%d of %d: %s", at, len(models), model)
            try:
                with ranks.together():
                    act(model, numbered(report, at, len(models)))
                    ranks.meet(None)
            except Exception as error:  # a failing model must not stop the others
                if len(models) == 1 or isinstance(error, ranks.RankLost):
                    raise
                say_error(f"{model} is not {done}: {first_line(error)}")
                log.debug("the full error:", exc_info=error)
                failed += 1
                ranks.meet(None)  # all ranks know of the error, and begin the next model together
    return failed
