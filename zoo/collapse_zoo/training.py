"""Training a recipe on packed chunks with the Hugging Face Trainer, into a directory that anybody's tools load."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from collapse.errors import CollapseError
from collapse.packing import Chunks
from collapse_zoo.recipes import Recipe

Report = Callable[[str, int, int | None], None]
RECORD = "training.json"


def train(recipe: Recipe, chunks: Chunks, tokenizer: Any, run: Path, *, progress: Report | None = None) -> Path:
    """Train a model, unless the run directory already holds this recipe's.

    Args:
        recipe: What to build, and how to train it.
        chunks: Packed training text, of the recipe's chunk length.
        tokenizer: Saved beside the model.
        run: The run directory; ``training.json`` is written last.
        progress: Called as progress(what, steps done, steps).

    Returns:
        The run directory, which ``AutoModelForCausalLM.from_pretrained`` loads.

    Raises:
        CollapseError: There are fewer chunks than a batch takes.
    """
    if _recorded(run) == recipe.as_dict():
        return run
    if len(chunks) < recipe.batch_size:
        raise CollapseError(
            f"{len(chunks)} chunks are too few for a batch of {recipe.batch_size}: "
            "give more text, or lower the batch size"
        )
    import transformers

    partial = run.with_name(f".{run.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    transformers.set_seed(recipe.seed)
    model = transformers.GPTNeoForCausalLM(recipe.configuration())
    arguments = transformers.TrainingArguments(
        output_dir=str(partial),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.batch_size,
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        lr_scheduler_type="linear",
        seed=recipe.seed,
        data_seed=recipe.data_seed,
        save_strategy="no",
        logging_strategy="steps",
        logging_steps=max(1, recipe.steps // 10),
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=_Samples(chunks),
        processing_class=tokenizer,
        data_collator=transformers.default_data_collator,  # chunks have one length: nothing to pad
    )
    # Trainer prints each log entry on stdout, which belongs to the results
    trainer.remove_callback(transformers.trainer_callback.PrinterCallback)
    if progress:
        trainer.add_callback(_teller(recipe, progress))
    with _quiet():
        trainer.train()
        trainer.save_model(str(partial))
    losses = [{"step": each["step"], "loss": each["loss"]} for each in trainer.state.log_history if "loss" in each]
    (partial / RECORD).write_text(json.dumps({"recipe": recipe.as_dict(), "losses": losses}, indent=1) + "\n")
    shutil.rmtree(run, ignore_errors=True)
    partial.replace(run)
    return run


class _Samples(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Chunks as the Trainer wants them: each token is predicted from those before it."""

    def __init__(self, chunks: Chunks) -> None:
        self.chunks = chunks

    def __len__(self) -> int:
        return len(self.chunks)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        tokens_T = torch.from_numpy(np.asarray(self.chunks.tokens[index], dtype=np.int64))
        return {"input_ids": tokens_T, "labels": tokens_T}


def _teller(recipe: Recipe, progress: Report) -> Any:
    from transformers import TrainerCallback

    class Teller(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            progress(f"training {recipe.name}", state.global_step, recipe.steps)

    return Teller()


@contextmanager
def _quiet() -> Iterator[None]:
    """Saving draws a bar for a single file."""
    from transformers.utils import logging as transformers_logging

    log = logging.getLogger("transformers")
    level = log.level
    log.setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        log.setLevel(level)
        transformers_logging.enable_progress_bar()


def _recorded(run: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((run / RECORD).read_text())["recipe"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
