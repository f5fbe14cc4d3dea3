"""Define the tasks: the kinds of heads of models that can be measured.

A task has an Auto class of transformers, which loads the model, and the columns and file formats of its data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collapse.hub.textfiles import KINDS, TABLES

IMAGES = dict.fromkeys((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm"), "image")
"""The suffixes of image files, each with the format "image"."""
_ROWS = {**TABLES, ".csv": "csv"}


@dataclass(frozen=True)
class Task:
    """A kind of head.

    Attributes:
        name: Name of the task, as in transformers' ``MODEL_FOR_<NAME>_MAPPING_NAMES``.
        auto: Name of transformers' Auto class that loads a model with this head.
        what: What messages call a model with this head, such as "an image classifier".
        columns: The default of ``--columns``: the column of the inputs and, if data have labels, of the labels.
        known: The suffixes that data files of the task may have, each with its file format.
    """

    name: str
    auto: str
    what: str
    columns: str = "text"
    known: Mapping[str, str] = field(default_factory=dict)

    def classes(self) -> list[str]:
        """Return the names of transformers' classes with such a head."""
        from transformers.models.auto import modeling_auto

        names: Mapping[str, Any] = getattr(
            modeling_auto, f"MODEL_FOR_{self.name.upper().replace('-', '_')}_MAPPING_NAMES"
        )
        return [name for each in names.values() for name in ((each,) if isinstance(each, str) else each)]


CAUSAL = Task("causal-lm", "AutoModelForCausalLM", "a causal language model")

TASKS = {
    each.name: each
    for each in (
        Task(
            "image-classification",
            "AutoModelForImageClassification",
            "an image classifier",
            "image,label",
            {**IMAGES, ".parquet": "parquet"},
        ),
        Task("sequence-classification", "AutoModelForSequenceClassification", "a text classifier", "text,label", _ROWS),
        Task("token-classification", "AutoModelForTokenClassification", "a token classifier", "tokens,ner_tags", _ROWS),
        Task("masked-lm", "AutoModelForMaskedLM", "a masked language model", "text", {**KINDS, ".csv": "csv"}),
    )
}
"""The tasks of ``--task``, by name."""
