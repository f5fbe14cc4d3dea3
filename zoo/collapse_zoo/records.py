"""What a run's record says before training begins: recipe, texts, versions, and the command that trains it again."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from collapse.inputs.collection_spec import flag_of
from collapse.inputs.option_words import key_values, typed
from collapse.stores.provenance import shown_argument, versions
from collapse_zoo.recipes import DECAYS, Recipe, name_of
from collapse_zoo.sources import Source


def describe(recipe: Recipe, source: Source, name: str) -> dict[str, Any]:
    """Return the part of a record that is known before training."""
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
    }


def texts_here(source: Source, recipe: Recipe) -> dict[str, Any]:
    """Return the options that collect on the same texts from any folder of this machine."""
    made = source.collecting() | {"chunk_length": recipe.chunk_length}
    for name in ("text", "validation_text"):
        if isinstance(made.get(name), list):  # files
            made[name] = [str(Path(each).absolute()) for each in made[name]]
    return made


def repeat_command(recipe: Recipe, source: Source) -> str:
    """Return the command line of a recipe on a source; it shows no folders of this machine, and no secrets.

    ``--device``, ``--save-every`` and other options that change no number are left out.
    """
    name = name_of(recipe, source.label)
    if name.decay not in DECAYS:
        name = replace(name, decay="d")
    plain = source.recipe(name, heads=recipe.heads)
    said = {key: value for key, value in recipe.as_dict().items() if value != getattr(plain, key)}
    said |= {"heads": recipe.heads} if recipe.heads != Recipe.heads else {}
    words = ["--precision", recipe.precision]
    said.pop("precision", None)
    for option, arguments in (("config", said.pop("config", {})), ("trainer", said.pop("trainer", {}))):
        for word in key_values({key: shown_argument(key, value) for key, value in arguments.items()}):
            words += [f"--{option}-arg", word]
    for key, value in said.items():
        words += [flag_of(key), str(value)]
    stories = ["--stories", str(source.generated)] if source.generated else []
    texts = [each for each in (shlex.join(stories), typed(source.spec, shown=True)) if each]
    return " ".join(["collapse zoo train", shlex.quote(name.short), *texts, shlex.join(words)])
