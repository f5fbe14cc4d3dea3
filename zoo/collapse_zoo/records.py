"""What a run's record says before training begins: recipe, texts, versions, and the command that trains it again."""

import shlex
from dataclasses import replace
from typing import Any

from collapse.inputs.collection_spec import flag_of, typed
from collapse.inputs.option import key_values
from collapse.stores.provenance import shown_argument, versions
from collapse_zoo.recipes import DECAYS, Recipe, name_of
from collapse_zoo.sources import Source


def describe(recipe: Recipe, source: Source, name: str) -> dict[str, Any]:
    """Return the part of a record that is known before training; ``here`` is what is true of this machine."""
    return {
        "name": name,
        "recipe": recipe.as_dict(),
        "text": source.identity(),
        "corpus": {
            "name": source.corpus.name,
            "validation": source.validation.name if source.validation else None,
            "tokenizer": source.reference.name,
            "tokenizer_revision": source.reference.revision,
        },
        "n_params": recipe.n_params,
        "command": repeat_command(recipe, source),
        "versions": versions(),
        "here": {"texts": source.collecting(recipe.chunk_length), "tokenizer": source.tokenizer_name},
    }


def repeat_command(recipe: Recipe, source: Source) -> str:
    """Return the command line of a recipe on a source; it shows no folders of this machine, and no secrets.

    ``--device``, ``--save-every`` and other options that change no number are left out.
    """
    name = name_of(recipe, source.label)
    if name.decay not in DECAYS:
        name = replace(name, decay="d")
    plain = source.recipe(name, heads=recipe.heads)
    said = {key: value for key, value in recipe.as_dict().items() if value != getattr(plain, key)}
    said |= {"heads": recipe.heads, "precision": recipe.precision}
    words = ["--stories", str(source.generated)] if source.generated else []
    for option in ("config", "trainer"):
        for word in key_values({key: shown_argument(key, value) for key, value in said.pop(option, {}).items()}):
            words += [f"--{option}-arg", word]
    for key, value in said.items():
        words += [flag_of(key), str(value)]
    return " ".join(filter(None, ["collapse zoo train", name.short, typed(source.spec, shown=True), shlex.join(words)]))
