"""Training steps in the names of models, such as ``checkpoint-100`` and ``@step3000``."""

import re

_STEP = re.compile(
    r"(?:(?P<run>.*?)[/@_.-])?(?:checkpoint|ckpt|(?:global_?)?step|iter(?:ation)?)s?[-_@=]?(?P<step>\d{1,15})",
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
