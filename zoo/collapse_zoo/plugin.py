"""The zoo's hooks for all commands of ``collapse``: a fast GPT-Neo, losses, texts of runs, and the published table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collapse import hookimpl
from collapse.errors import UsageError


@hookimpl
def collapse_prepare_model(model: Any) -> str | None:
    """Give a GPT-Neo the fast attention and return the attention's name; return None for other models."""
    if model.config.model_type != "gpt_neo":
        return None
    from collapse_zoo.fast_gpt_neo import prepare

    return prepare(model)


@hookimpl
def collapse_trained_on(folder: Path) -> Mapping[str, Any] | None:
    """Return options of ``collapse.collect`` for the texts of the run or checkpoint in a folder; None if unknown."""
    from collapse_zoo.runs import CHECKPOINTS, RECORD, Run

    folder = folder.absolute()
    if folder.parent.name == CHECKPOINTS:
        folder = folder.parent.parent
    if not (folder / RECORD).is_file():
        return None
    run = Run(folder)
    return run.texts() if "texts" in run.record.get("here", {}) else None


@hookimpl
def collapse_results() -> Mapping[str, Path]:
    """Return the name ``paper`` with the path of the paper's own measurements of its 230 models."""
    from collapse_zoo.catalogue import PUBLISHED

    return {"paper": PUBLISHED}


@hookimpl
def collapse_losses() -> Mapping[str, Any]:
    """Return the losses that ``--regularize`` knows without other plugins."""
    from collapse_zoo.regularizers import cdnv, nc3, uniformity

    return {"nc3": nc3, "uniformity": uniformity, "cdnv": cdnv}


@hookimpl
def collapse_model_parts(model: str) -> Mapping[str, int | float | str] | None:
    """Return the values in a name such as TinyStories-12x1024_10L@9; None for other names."""
    from collapse_zoo.recipes import parse

    try:
        return parse(model).parts()
    except UsageError:
        return None
