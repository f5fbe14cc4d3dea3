"""The zoo's plugin for every command of ``collapse``: a fast GPT-Neo, texts of runs, published seeds."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from collapse import hookimpl


@hookimpl
def collapse_prepare_model(model: Any) -> str | None:
    """Give a GPT-Neo its fast attention."""
    if model.config.model_type != "gpt_neo":
        return None
    from collapse_zoo.fast_gpt_neo import prepare

    return prepare(model)


@hookimpl
def collapse_trained_on(folder: Path) -> Mapping[str, Any] | None:
    """Return the texts of a run directory."""
    from collapse_zoo.runs import TEXTS, Run

    if not (folder / TEXTS).is_file():
        return None
    return Run(folder).texts()


@hookimpl
def collapse_seeds() -> Mapping[str, Callable[[], Any]]:
    """Return the published models that differ in their seed only."""
    from collapse_zoo.published import seeds

    return {"paper": seeds}
