"""Names of models from their folders, and training steps such as ``checkpoint-100`` and ``@step3000``."""

import re
from pathlib import Path

_WORDS = r"(?:checkpoint|ckpt|(?:global_?)?step|iter(?:ation)?)s?"
_STEP = re.compile(rf"(?:(?P<run>.*?)[/@_.-])?{_WORDS}[-_@=]?(?P<step>\d{{1,15}})", re.IGNORECASE)

# Generic folder names, which name a checkpoint or a model, but not its run.
_ANY_MODEL = re.compile(
    rf"(({_WORDS}|epochs?)[-_@]?)?\d*|[0-9a-f]{{40}}|snapshots|model|final|best|last|latest|output|hf",
    re.IGNORECASE,
)


def run_and_step(model: str) -> tuple[str, int | None]:
    """Return the name of a model's run, and the training step that ends the model's name, or None.

    >>> run_and_step("run/checkpoint-100"), run_and_step("owner/name@step3000"), run_and_step("run@2")
    (('run', 100), ('owner/name', 3000), ('run', None))
    """
    if match := _STEP.fullmatch(model):
        return match["run"] or "", int(match["step"])
    return model.rpartition("@")[0] or model, None


def folder_name(folder: Path) -> str:
    """Return a folder's name: its last part, preceded by the run's name if the last part is generic.

    >>> folder_name(Path("/runs/2x64/checkpoints/checkpoint-25")), folder_name(Path("/runs/2x64"))
    ('2x64/checkpoint-25', '2x64')
    """
    own, *above = (folder.resolve(), *folder.resolve().parents)
    if not _ANY_MODEL.fullmatch(own.name):
        return own.name
    run = next((each for each in above if not _ANY_MODEL.fullmatch(each.name)), own)
    # the folder directly in /home or /Users is named after a person, not a run
    return own.name if run.parent.name in ("home", "Users", "") else f"{run.name}/{own.name}"
