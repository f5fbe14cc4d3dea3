"""Train a recipe on a source into a run directory that standard tools can load; a killed training can be resumed."""

import gc
import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from collapse.errors import CollapseError, counted, first_line
from collapse.extras import missing_package
from collapse.inputs.packing import Chunks, tokens_hash
from collapse.numerics.devices import is_out_of_memory
from collapse.progress import Report
from collapse.scoped import quiet
from collapse.stores.lock import locked
from collapse.stores.provenance import device_name, versions
from collapse_zoo.arguments import arguments_of
from collapse_zoo.checks import check_model, check_same, check_tokens, check_vocabulary
from collapse_zoo.failures import reporting_failures
from collapse_zoo.measuring import measure_locked
from collapse_zoo.model import build
from collapse_zoo.names import name_of
from collapse_zoo.recipes import Recipe
from collapse_zoo.records import FORMAT
from collapse_zoo.repeating import repeat_command
from collapse_zoo.runs import Run
from collapse_zoo.sources import Source
from collapse_zoo.trainer import AfterCheckpoint, EveryEpoch, Samples, Watcher, ZooTrainer

log = logging.getLogger("collapse")


def train(
    recipe: Recipe,
    source: Source,
    folder: str | Path,
    *,
    name: str | None = None,
    measure: bool = False,
    save_every: int | None = None,
    device: str = "auto",
    compile_model: bool = False,
    fast_attention: bool = True,
    report_to: Sequence[str] = (),
    progress: Report | None = None,
) -> Run:
    """Train a model, or resume a killed training; does nothing if the run directory already holds the trained model.

    Under torchrun or ``accelerate launch`` every process calls this; the batch is divided among them.

    Args:
        recipe: How to build and train the model.
        source: The texts and the tokenizer.
        folder: The run directory.
        name: The run's name; None for the recipe's.
        measure: Collect and measure each epoch's checkpoint after it is written.
        save_every: Steps between checkpoints for resuming, in addition to one per epoch.
        device: "auto" (CUDA if available, else the CPU), "cpu" or "cuda".
        compile_model: Use ``torch.compile``.
        fast_attention: Use the fast attention.
        report_to: Trainer's integrations: "tensorboard", "wandb", "trackio".
        progress: Called as progress(what, steps done, steps, tokens/s and loss).

    Raises:
        UsageError: The directory holds another recipe's run (the message names the differences), or an option is
            invalid.
        CollapseError: The text is too short for one batch, memory ran out (the last checkpoint is kept), the text
            was replaced while it was read, or a file of a finished run is missing or altered.
    """
    run = Run(Path(folder))
    name = name or str(name_of(recipe, source.label))
    check_model(recipe)  # report errors before anything is written
    check_vocabulary(recipe, source)
    check_same(run, recipe, source)
    arguments = arguments_of(recipe, run, device, compile_model, save_every, report_to)
    with _alone(run, arguments):
        check_same(run, recipe, source)  # another process may have just started another run
        if not run.finished:
            _train(recipe, source, run, name, arguments, measure, fast_attention, progress)
        elif arguments.process_index == 0:
            run.check_model()
            if measure:
                measure_locked(run, source, device=device, progress=progress)
    return run


def leave_group() -> None:
    """Leave the processes that torchrun started with this one, at the end of a program where all of them came so far.

    A process that exits without it may be aborted by threads of torch's, which ends the others before they are done.
    A script of your own that calls :func:`train` under torchrun calls it last.
    """
    gc.collect()  # a Trainer lies in cycles, and the threads end with the last that holds the group
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _train(
    recipe: Recipe,
    source: Source,
    run: Run,
    name: str,
    arguments: transformers.TrainingArguments,
    measure: bool,
    fast_attention: bool,
    progress: Report | None,
) -> None:
    first = arguments.process_index == 0
    report = progress if first else None
    with arguments.main_process_first(local=False):
        chunks = source.chunks(recipe.chunk_length, report)
        validation = source.validation_chunks(recipe.chunk_length, report)
    if len(chunks) < recipe.batch_size:
        raise CollapseError(
            f"too little text for one batch: {counted(len(chunks), 'chunk')} of {recipe.chunk_length:,} tokens, and a "
            f"batch takes {recipe.batch_size}. Give more text, or lower --batch-size or --chunk-length"
        )
    if validation is None:
        arguments.eval_strategy = transformers.IntervalStrategy.NO
    if first:
        tokens = {"train": tokens_hash(chunks), "validation": None if validation is None else tokens_hash(validation)}
        check_tokens(run, tokens)
        run.check_resumable()
        _begin(run, recipe, source, name, arguments, fast_attention, tokens)
        run.drop_unfinished()
    arguments.distributed_state.wait_for_everyone()
    with quiet("transformers", "accelerate"), reporting_failures(run, recipe, first):
        trainer = _trainer(recipe, source, run, arguments, chunks, validation, fast_attention)
        if measure and first:
            missing = partial(measure_locked, run, source, device=str(arguments.device), progress=report)
            missing()
            trainer.add_callback(AfterCheckpoint(missing))
        last = run.checkpoints()[-1] if run.checkpoints() else None
        if last is not None and first:
            log.info("resuming after step %s", f"{last.step:,}")
        steps = recipe.max_steps or trainer.steps_an_epoch * recipe.epochs
        if last is None or last.step < steps:  # resumed from the last step, the Trainer would take one more step
            with _watched(trainer, recipe, run, name, first, report):
                trainer.train(resume_from_checkpoint=str(last.path) if last else None)
        if first:
            run.finish()


def _trainer(
    recipe: Recipe,
    source: Source,
    run: Run,
    arguments: transformers.TrainingArguments,
    chunks: Chunks,
    validation: Chunks | None,
    fast_attention: bool,
) -> ZooTrainer:
    """Make the Trainer of a new model."""
    model = build(recipe, fast_attention=fast_attention)
    _name_end_of_text(model, source.tokenizer)
    steps_an_epoch = -(-len(chunks) // recipe.batch_size)
    try:
        trainer = ZooTrainer(
            run,
            recipe.data_seed,
            steps_an_epoch,
            model=model,
            args=arguments,
            train_dataset=Samples(chunks),
            eval_dataset=None if validation is None else Samples(validation),
            processing_class=source.tokenizer,
            data_collator=transformers.default_data_collator,  # chunks have equal length, so no padding is needed
        )
    except (RuntimeError, ImportError, ValueError) as error:  # a package of --report-to that is not installed
        if is_out_of_memory(error):
            raise
        raise CollapseError(missing_package(error) or f"training cannot begin: {first_line(error)}") from error
    trainer.add_callback(EveryEpoch(steps_an_epoch))
    return trainer


@contextmanager
def _watched(
    trainer: ZooTrainer, recipe: Recipe, run: Run, name: str, first: bool, progress: Report | None
) -> Iterator[None]:
    """Write the curve and report progress, in the first process."""
    if not first:
        yield
        return
    tokens = recipe.batch_size * recipe.chunk_length
    with closing(Watcher(run, name, tokens, trainer.steps_an_epoch, progress)) as watcher:
        trainer.add_callback(watcher)
        yield
        run.update(tokens_per_second=round(watcher.tokens_per_second, 1), ended=_now())


def _begin(
    run: Run,
    recipe: Recipe,
    source: Source,
    name: str,
    arguments: transformers.TrainingArguments,
    fast: bool,
    tokens: dict[str, str | None],
) -> None:
    there = run.record or {"format": FORMAT, "started": _now(), "epochs": []}
    run.update(
        **there
        | {
            "name": name,
            "recipe": recipe.as_dict(),
            "text": source.identity(),
            "tokens": tokens,
            "corpus": {
                "name": source.corpus.name,
                "validation": source.validation.name if source.validation else None,
                "tokenizer": source.reference.name,
                "tokenizer_revision": source.reference.revision,
            },
            "n_params": recipe.n_params,
            "state": "running",
            "problem": None,
            "device": device_name(arguments.device),
            "processes": arguments.world_size,
            "fast_attention": fast,
            "command": repeat_command(recipe, source),
            "versions": versions(),
            "arguments": {key: value for key, value in arguments.to_sanitized_dict().items() if "token" not in key},
        }
    )
    run.write_texts(_texts_here(source, recipe))


def _texts_here(source: Source, recipe: Recipe) -> dict[str, Any]:
    """Return the options that collect on the same texts from any folder of this machine."""
    made = source.collecting() | {"chunk_length": recipe.chunk_length}
    for name in ("text", "validation_text"):
        if isinstance(made.get(name), list):  # files
            made[name] = [str(Path(each).absolute()) for each in made[name]]
    return made


def _name_end_of_text(model: Any, tokenizer: Any) -> None:
    for config in (model.config, model.generation_config):
        config.bos_token_id = tokenizer.bos_token_id
        config.eos_token_id = tokenizer.eos_token_id


def _alone(run: Run, arguments: transformers.TrainingArguments) -> Any:
    return locked(run.path, option="--output") if arguments.process_index == 0 else nullcontext()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
