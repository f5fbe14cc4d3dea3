"""Train a recipe on a source into a run directory that standard tools can load; a killed training can be resumed."""

import gc
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from collapse.core.extras import missing_package
from collapse.core.progress import Report
from collapse.core.settings import quiet
from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse.inputs.packing import Chunks
from collapse.numerics.devices import is_out_of_memory
from collapse.stores.lock import locked
from collapse.stores.provenance import device_name
from collapse.stores.writing import ANOTHER_OUTPUT, raise_if_full
from collapse_zoo.arguments import arguments_of
from collapse_zoo.measuring import measure_run
from collapse_zoo.model import build
from collapse_zoo.recipes import Recipe, name_of
from collapse_zoo.records import describe, texts_here
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
    measure: bool | Collection[int] = False,
    save_every: int | None = None,
    device: str = "auto",
    compile_model: bool = False,
    fast_attention: bool = True,
    report_to: Sequence[str] = (),
    progress: Report | None = None,
) -> Run:
    """Train a model, or resume a killed training; a run directory that holds the trained model is not trained again.

    Under torchrun or ``accelerate launch`` every process calls this; the batch is divided among them.

    Args:
        recipe: How to build and train the model.
        source: The texts and the tokenizer.
        folder: The run directory.
        name: The run's name; None for the recipe's.
        measure: Collect and measure each epoch's checkpoint after it is written; or the k of those to measure.
        save_every: Steps between checkpoints for resuming, in addition to one per epoch.
        device: "auto" (CUDA if available, else the CPU), "cpu" or "cuda".
        compile_model: Use ``torch.compile``.
        fast_attention: Use the fast attention.
        report_to: Trainer's integrations: "tensorboard", "wandb", "trackio".
        progress: Called as progress(what, steps done, steps, tokens/s and loss).

    Raises:
        UsageError: The directory holds another recipe's run (the message names the differences), or an option is
            invalid.
        InUseError: Another process trains or measures the run.
        CollapseError: The text is too short for one batch, the disk is full, or memory ran out (the last checkpoint is
            kept).
    """
    run = Run(Path(folder))
    check_recipe(recipe, source)  # report errors before anything is written
    run.check_same(recipe, source.identity())
    arguments = arguments_of(recipe, run, device, compile_model, save_every, report_to)
    first = arguments.process_index == 0
    ks = None if isinstance(measure, bool) else measure
    measured = partial(_measure, run, source, ks, device, progress) if measure is not False and first else None
    with locked(run.path, option="--output") if first else nullcontext():
        run.check_same(recipe, source.identity())  # another process may have just started another run
        if run.finished:
            run.check_model()
            if measured:
                measured()
        else:
            name = name or str(name_of(recipe, source.label))
            _train(recipe, source, run, name, arguments, measured, fast_attention, progress if first else None)
    return run


def leave_group() -> None:
    """Destroy the process group at the end of a program, when all of its processes have succeeded.

    A process that exits without it may be aborted by threads of torch's, which ends the others before they are done.
    A script of your own that calls :func:`train` under torchrun calls it last.
    """
    gc.collect()  # a Trainer lies in cycles, and the threads end with the last that holds the group
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def check_recipe(recipe: Recipe, source: Source) -> None:
    """Raise UsageError if a recipe gives no valid model, or if its vocabulary is too small for the tokenizer."""
    tokens = len(source.tokenizer)
    if tokens > recipe.vocabulary:
        raise UsageError(
            f"a vocabulary of {recipe.vocabulary:,} is too small for the tokenizer of {source.reference.name}, "
            f"which has {tokens:,} tokens: give --vocabulary {tokens}, or leave it out"
        )
    config = recipe.configuration()
    try:
        with torch.device("meta"):  # without memory
            transformers.GPTNeoForCausalLM(config)
    except Exception as error:  # invalid values raise many kinds of exceptions
        raise UsageError(
            f"--config-arg: no GPT-Neo can be built with {dict(recipe.config)}: {first_line(error)}"
        ) from error


def _measure(run: Run, source: Source, ks: Collection[int] | None, device: str, progress: Report | None) -> None:
    """Measure the chosen checkpoints that training has reached."""
    reached = [each.k for each in run.epochs if each.k is not None and (ks is None or each.k in ks)]
    measure_run(run, source, checkpoints=reached, device=device, progress=progress)


def _train(
    recipe: Recipe,
    source: Source,
    run: Run,
    name: str,
    arguments: transformers.TrainingArguments,
    measured: Callable[[], None] | None,
    fast_attention: bool,
    progress: Report | None,
) -> None:
    """Train from the beginning or from the last checkpoint, in each process."""
    first = arguments.process_index == 0
    with arguments.main_process_first(local=False):
        chunks = source.chunks(recipe.chunk_length, progress)
        validation = source.validation_chunks(recipe.chunk_length, progress)
    if len(chunks) < recipe.batch_size:
        raise CollapseError(
            f"too little text for one batch: {counted(len(chunks), 'chunk')} of {recipe.chunk_length:,} tokens, and a "
            f"batch takes {recipe.batch_size}. Give more text, or lower --batch-size or --chunk-length"
        )
    if validation is None:
        arguments.eval_strategy = transformers.IntervalStrategy.NO
    if first:
        _begin(run, recipe, source, name, arguments, fast_attention)
    arguments.distributed_state.wait_for_everyone()
    with quiet("transformers", "accelerate"), _failures(run, recipe, first):
        last = run.resume() if first else run.newest
        trainer = _trainer(recipe, source, run, arguments, chunks, validation, fast_attention)
        if measured:
            measured()
            trainer.add_callback(AfterCheckpoint(measured))
        if last is not None and first:
            log.info("resuming after step %s", f"{last.step:,}")
        steps = recipe.max_steps or trainer.steps_an_epoch * recipe.epochs
        if last is None or last.step < steps:  # resumed from the last step, the Trainer would take one more step
            with _watched(trainer, recipe, run, name, first, progress):
                trainer.train(resume_from_checkpoint=str(last.path) if last else None)
        if first:
            run.finish()


def _begin(
    run: Run, recipe: Recipe, source: Source, name: str, arguments: transformers.TrainingArguments, fast: bool
) -> None:
    """Write the record of a run that begins or is resumed."""
    there = {"started": _now(), "checkpoints": []} | run.record
    about = describe(recipe, source, name) | {
        "state": "running",
        "problem": None,
        "device": device_name(arguments.device),
        "processes": arguments.world_size,
        "fast_attention": fast,
        "arguments": {key: value for key, value in arguments.to_sanitized_dict().items() if "token" not in key},
        "here": there.get("here", {}) | {"texts": texts_here(source, recipe)},
    }
    run.update(**there | about)


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
    model: Any = build(recipe, fast_attention=fast_attention)
    for config in (model.config, model.generation_config):
        config.bos_token_id, config.eos_token_id = source.tokenizer.bos_token_id, source.tokenizer.eos_token_id
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


@contextmanager
def _failures(run: Run, recipe: Recipe, first: bool) -> Iterator[None]:
    """Write an error into the run's record, and report a full disk and memory that ran out in one line."""
    try:
        try:
            yield
        except Exception as error:
            raise_if_full(error, run.path, ANOTHER_OUTPUT)
            if not is_out_of_memory(error):
                raise
            last = run.checkpoints[-1:]
            where = f"the checkpoint after step {last[0].step:,} is kept" if last else "no checkpoint had been written"
            raise CollapseError(
                f"out of memory: {recipe.depth}x{recipe.width} with batches of {recipe.batch_size} x "
                f"{recipe.chunk_length:,} tokens does not fit. Use more GPUs (torchrun divides the batch), or lower "
                f"--batch-size or --chunk-length in a new run; {where}"
            ) from error
    except Exception as error:
        if first:
            with suppress(CollapseError):  # a full disk may have no room for the record either
                known = isinstance(error, CollapseError)
                run.update(
                    state="failed", problem=str(error) if known else f"{type(error).__name__}: {first_line(error)}"
                )
        raise


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def numbered(progress: Report | None, number: int, total: int) -> Report | None:
    """Return a progress callback that shows which of several models each phase belongs to."""
    if progress is None:
        return None
    return lambda what, *rest: progress(f"{number} of {total}: {what}", *rest)
