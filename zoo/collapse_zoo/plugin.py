"""The zoo's plugin for every command of ``collapse``: a fast attention for GPT-Neo."""

from typing import Any

from collapse import hookimpl


@hookimpl
def collapse_prepare_model(model: Any) -> str | None:
    """Give a GPT-Neo its fast attention."""
    if model.config.model_type != "gpt_neo":
        return None
    from collapse_zoo.fast_gpt_neo import prepare

    return prepare(model)
