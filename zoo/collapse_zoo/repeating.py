"""The command line that trains a run again, for its record and its card."""

import shlex
from dataclasses import replace

from collapse.inputs.collection_spec import flag_of, typed
from collapse.inputs.option import key_values
from collapse.stores.provenance import shown_argument
from collapse_zoo.names import DECAYS, name_of
from collapse_zoo.recipes import Recipe
from collapse_zoo.sources import Source


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
