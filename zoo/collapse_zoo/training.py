"""Train a recipe on a source into a run directory that standard tools can load; interrupted training can be resumed."""

import gc
import logging
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
import transformers

import collapse
from collapse.core.progress import Report
from collapse.core.settings import quiet
from collapse.errors import CollapseError, UsageError, counted, first_line
from collapse.inputs.chunk_files import Chunks
from collapse.measurement.last_results import keep_row
from collapse.numerics.devices import is_out_of_memory
from collapse.stores.lock import locked
from collapse.stores.provenance import device_name
from collapse.stores.writing import raise_if_full
from collapse_zoo.model import build
from collapse_zoo.recipes import Name, Recipe
from collapse_zoo.regularizers import losses_of
from collapse_zoo.runs import Run, state_in
from collapse_zoo.sources import Source
from collapse_zoo.trainer import Samples, Watcher, ZooTrainer, arguments_of

log = logging.getLogger("collapse")


def train(
    recipe: Recipe,
    source: Source,
    folder: str | Path,
    *,
    measure: bool | Iterable[int] = False,
    save_every: int | None = None,
    micro_batch: int | None = None,
    checkpoints: Container[int] | None = None,
    device: str = "auto",
    progress: Report | None = None,
) -> Run:
    """Train a model, or resume an interrupted training; skip training if the run directory holds the trained model.

    Under torchrun or ``accelerate launch`` every process calls this; the batch is divided among them.

    Args:
        recipe: How to build and train the model.
        source: The texts and the tokenizer.
        folder: The run directory.
        measure: True to collect and measure all saved checkpoints after training, False for no checkpoint, or
            the epochs to measure, counted from 0. True also measures a sample of the text at step 0, every 500 steps
            and at the end, as :class:`collapse.CollapseCallback` does, into ``checkpoints/results.parquet``.
        save_every: Steps between checkpoints for resuming, in addition to one per epoch.
        micro_batch: Chunks that each process computes at once; the gradients of a step's micro-batches are added up.
            None for the process's whole share of the batch. Regularizers are computed on each micro-batch, and their
            mean over the micro-batches of a step is added to the loss.
        checkpoints: The epochs, counted from 0, after which the model is validated and saved; None for every epoch. The
            last epoch is always included.
        device: "auto" (CUDA if available, otherwise the CPU), "cpu" or "cuda".
        progress: Called as progress(what, done, total[, note]); during training, the note has tokens/s and loss.

    Raises:
        UsageError: The directory holds another recipe's run (the message names the differences), or an option is
            invalid.
        InUseError: Another process trains or measures the run.
        CollapseError: The text is too short for one batch, the disk is full, memory ran out (the last checkpoint is
            kept), or a checkpoint to measure was deleted.
    """
    run = Run(Path(folder))
    check_recipe(recipe, source)  # report errors before anything is written
    arguments = arguments_of(recipe, run, device, save_every, micro_batch)
    first = arguments.process_index == 0
    with locked(run.path) if first else nullcontext():
        # regularizers depend on the size of a micro-batch
        same = ["per_device_train_batch_size"] if recipe.regularize and not run.finished else []
        run.check_same(recipe, source, **{name: getattr(arguments, name) for name in same})
        with _failures(run, first):
            if not run.finished:
                _train(recipe, source, run, arguments, checkpoints, measure is True, progress)
            if measure is not False and first:
                ks = [each.k for each in run.epochs]
                saved = [k for k in ks if checkpoints is None or k in checkpoints or k == ks[-1]]
                _measure(run, source, saved if measure is True else measure, device, progress)
    return run


def _measure(run: Run, source: Source, checkpoints: Iterable[int], device: str, progress: Report | None) -> None:
    """Collect and measure the checkpoints that have no row yet."""
    for k in sorted(set(checkpoints) - run.measured()):
        options = source.collecting(run.recipe.chunk_length)
        path = run.checkpoint(k).path
        store = collapse.collect(path, store=run.store(k), device=device, progress=progress, **options)
        keep_row(store, run.add(collapse.measure(store, progress=progress), k))


def leave_group() -> None:
    """Destroy the process group at the end of a program, after all of its processes have succeeded.

    Without this call, torch's threads may abort a process while it exits; then the other processes end too early. If
    your own script calls :func:`train` under torchrun, call this function last.
    """
    gc.collect()  # Trainers are in reference cycles, and torch's threads end only when nothing refers to the group
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def check_recipe(recipe: Recipe, source: Source) -> None:
    """Raise UsageError if a recipe cannot be trained with a source.

    This is so if the configuration is invalid, a regularizer is unknown, or the recipe's vocabulary is smaller than the
    tokenizer's.
    """
    tokens = len(source.tokenizer)
    if tokens > recipe.vocabulary:
        raise UsageError(
            f"a vocabulary of {recipe.vocabulary:,} is too small for the tokenizer {source.reference.name}, "
            f"which has {tokens:,} tokens: give --vocabulary {tokens}, or remove the option"
        )
    recipe.configuration()
    losses_of(recipe.regularize)


def _train(
    recipe: Recipe,
    source: Source,
    run: Run,
    arguments: transformers.TrainingArguments,
    checkpoints: Container[int] | None,
    measure: bool,
    progress: Report | None,
) -> None:
    """Train from the beginning or from the last checkpoint, in each process."""
    first = arguments.process_index == 0
    name = run.record.get("name") or str(Name(recipe, source.label))  # a sweep records the name
    progress = progress if first else None
    with arguments.main_process_first(local=False):
        chunks = source.chunks(recipe.chunk_length, progress)
        validation = source.validation_chunks(recipe.chunk_length, progress)
    if len(chunks) < recipe.batch_size:
        raise CollapseError(
            f"too little text for one batch: {counted(len(chunks), 'chunk')} of {recipe.chunk_length:,} tokens, but a "
            f"batch needs {recipe.batch_size}. Give more text, or lower --batch-size or --chunk-length"
        )
    if validation is None:
        arguments.eval_strategy = transformers.IntervalStrategy.NO
    last = run.newest()
    state = state_in(last) if last else {}
    done = bool(last) and state["global_step"] == state["max_steps"]
    if first:
        kept = {key: value for key, value in arguments.to_sanitized_dict().items() if "token" not in key}
        where = {"device": device_name(arguments.device), "processes": arguments.world_size}
        run.describe(recipe, source, name=name, state="running", arguments=kept, **where)
    arguments.distributed_state.wait_for_everyone()
    if not done:  # the Trainer would take one more step after the last one
        with quiet("transformers", "accelerate"):
            trainer = _trainer(recipe, source, arguments, chunks, validation)
            trainer.add_callback(Watcher(run, name, recipe.batch_size * recipe.chunk_length, checkpoints, progress))
            if measure:
                trainer.add_callback(collapse.CollapseCallback(validation=trainer.eval_dataset))
            if last and first:
                log.info("resuming after step %s", f"{state['global_step']:,}")
            trainer.train(resume_from_checkpoint=str(last) if last else None)
    if first:
        run.finish()


def _trainer(
    recipe: Recipe,
    source: Source,
    arguments: transformers.TrainingArguments,
    chunks: Chunks,
    validation: Chunks | None,
) -> ZooTrainer:
    """Make the Trainer of a new model."""
    model: Any = build(recipe)
    for config in (model.config, model.generation_config):
        config.bos_token_id, config.eos_token_id = source.tokenizer.bos_token_id, source.tokenizer.eos_token_id
    try:
        return ZooTrainer(
            recipe.data_seed,
            model=model,
            args=arguments,
            train_dataset=Samples(chunks),
            eval_dataset=None if validation is None else Samples(validation),
            processing_class=source.tokenizer,
            data_collator=transformers.default_data_collator,  # chunks have equal length, so no padding is needed
        )
    except (RuntimeError, ValueError) as error:  # for example, report_to names a service without its package
        if is_out_of_memory(error):
            raise
        raise CollapseError(f"training cannot begin: {first_line(error)}; correct or remove a --trainer-arg") from error


@contextmanager
def _failures(run: Run, first: bool) -> Iterator[None]:
    """Record an exception of the ``with`` block in ``training.json``, and raise it again.

    If the disk is full or memory ran out, the exception becomes a CollapseError. Only the ``first`` process records it.
    """
    try:
        try:
            yield
        except Exception as error:
            raise_if_full(error, run.path)
            if is_out_of_memory(error):
                raise CollapseError(
                    "out of memory: run the same command with more memory, or with a smaller --micro-batch, such as 1 "
                    "(with --regularize, also another --output); training resumes from the last checkpoint"
                ) from error
            raise
    except Exception as error:
        if first and run.record:
            with suppress(CollapseError):  # on a full disk, the record may not be writable either
                run.update(problem=described(error))
        raise


def described(error: Exception) -> str:
    """Return an error's message; for an unexpected error, its class and the first line."""
    return str(error) if isinstance(error, CollapseError) else f"{type(error).__name__}: {first_line(error)}"
