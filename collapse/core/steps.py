"""Name models by their folders, and read training steps in names: ``checkpoint-100``, ``@step3000-tokens12B``."""

import re
from pathlib import Path

_WORDS = r"(?:checkpoint|ckpt|(?:global_?)?step|iter(?:ation)?)s?"
_STEP = re.compile(
    rf"(?:(?P<run>.*?)[/@_.-])?{_WORDS}[-_@=]?(?P<step>\d{{1,15}})"
    r"(?:[-_]tokens?[-_]?(?P<tokens>\d{1,15})(?P<unit>[KMBT]?))?",
    re.IGNORECASE,
)
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}

# Generic folder names, which name a checkpoint or a model, but not its run.
_ANY_MODEL = re.compile(
    rf"(({_WORDS}|epochs?)[-_@]?)?\d*|[0-9a-f]{{40}}|snapshots|model|final|best|last|latest|output|hf",
    re.IGNORECASE,
)


def run_and_step(model: str) -> tuple[str, int | None]:
    """Return the name of a model's run, and the training step at the end of the model's name, or None.

    The run's name is the model's name without the step; if there is no step, it is the name without the revision.

    >>> run_and_step("run/checkpoint-100"), run_and_step("owner/name@step3000"), run_and_step("run@2")
    (('run', 100), ('owner/name', 3000), ('run', None))
    """
    if match := _STEP.fullmatch(model):
        return match["run"] or "", int(match["step"])
    return model.rpartition("@")[0] or model, None


def tokens_of(model: str) -> int | None:
    """Return the number of training tokens that a model's name gives after the step; None without such a number.

    >>> tokens_of("owner/name@stage1-step1000-tokens3B"), tokens_of("run/checkpoint-100")
    (3000000000, None)
    """
    match = _STEP.fullmatch(model)
    return int(match["tokens"]) * _UNITS[match["unit"].upper()] if match and match["tokens"] else None


def by_step(name: str) -> tuple[bool, int, list[tuple[str, int]]]:
    """Return the sort key of a revision's name.

    Names with a training step come first, in order of the step. In the other names, numbers are compared by value.

    >>> sorted(["main", "step10", "10", "step9", "9"], key=by_step)
    ['step9', 'step10', '9', '10', 'main']
    """
    step = run_and_step(name)[1]
    return step is None, step or 0, [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]


def folder_name(folder: Path) -> str:
    """Return the name of a model's folder: the last part of its path, preceded by the run's name if necessary.

    The run's name is necessary if the last part can occur in any run, as ``checkpoint-25``, ``final`` and ``model``.

    >>> folder_name(Path("/runs/2x64/checkpoints/checkpoint-25")), folder_name(Path("/runs/2x64"))
    ('2x64/checkpoint-25', '2x64')
    """
    own, *above = (folder.resolve(), *folder.resolve().parents)
    if not _ANY_MODEL.fullmatch(own.name):
        return own.name
    run = next((each for each in above if not _ANY_MODEL.fullmatch(each.name)), own)
    # the folder directly in /home or /Users is named after a person, not a run
    return own.name if run.parent.name in ("home", "Users", "") else f"{run.name}/{own.name}"
