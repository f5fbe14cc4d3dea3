"""Run a model with a linear head on labelled data, as a source."""

import logging
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from collapse.core import ranks
from collapse.core.progress import Report
from collapse.hub.references import ModelReference, find_tokenizer
from collapse.inputs.checkpoints import check_kind
from collapse.inputs.classifier_model import Classifier
from collapse.inputs.collection_spec import OF_SOURCE, CollectionSpec, check_applies
from collapse.inputs.identity import identity_of
from collapse.inputs.labelled_data import find_data, matched_in_order, read_data
from collapse.inputs.language_model import explaining_large_model
from collapse.inputs.model_loading import load_pretrained
from collapse.inputs.option_words import typed
from collapse.inputs.samples import Samples
from collapse.inputs.source import Source
from collapse.inputs.tasks import TASKS
from collapse.inputs.text_pair import Texts
from collapse.inputs.units import MASKED, MASKING_SEED, Units, prepare
from collapse.measurement.comparable import MATCHED_IN_ORDER, SAME_TEXTS, same_texts
from collapse.stores.request import Request
from collapse.stores.store import Store

log = logging.getLogger("collapse")

_OPTIONS = (
    *(*OF_SOURCE, "task", "data", "validation_data", "columns", "split", "validation_split", "revision"),
    *("dtype", "device", "device_map", "quantize", "model_args", "trust_remote_code", "null"),
)
_CPU_BATCH, _GPU_BATCH, _PROBED = 32, 256, 4  # units


def classifier_request(reference: ModelReference, spec: CollectionSpec, folder: Path | None = None) -> Request:
    """Return the request for a model on the labelled data that ``spec`` names; ``spec.task`` must be set.

    ``folder`` becomes the request's ``folder``: the folder of the store, or None for a store in memory.

    Raises:
        UsageError: An option does not apply to the task, or there are no such data.
        CollapseError: The data or the tokenizer are not available.
    """
    task = TASKS[str(spec.task)]
    of_images = task.name == "image-classification"
    check_applies(f"--task {task.name}", spec.given, _OPTIONS if of_images else (*_OPTIONS, "tokenizer"))
    tokenizer = find_tokenizer(spec.tokenizer) if spec.tokenizer else reference
    data = find_data(spec, task)
    identity = identity_of(spec, reference, reference, data.identity())
    if of_images:
        identity["processor"] = reference.processor
    elif task.name == "masked-lm":  # its classes are tokens
        identity |= {"tokenizer": tokenizer.tokenizer, "masking": {"share": MASKED, "seed": MASKING_SEED}}
    else:
        identity["processor"] = tokenizer.tokenizer
    if same_texts(identity):
        log.warning(SAME_TEXTS)
    return Request(
        identity=identity,
        shown_names={"model": reference.shown_name, "revision": reference.revision, **data.shown_names},
        load=partial(_open, identity=identity, spec=spec, reference=reference, tokenizer=tokenizer, data=data),
        validates=data.validation is not None,
        split_may_be_absent=data.may_be_absent,
        folder=folder,
        **spec.beside_identity,
    )


def _open(
    existing: Store | None,
    report: Report | None,
    *,
    identity: Mapping[str, Any],
    spec: CollectionSpec,
    reference: ModelReference,
    tokenizer: ModelReference,
    data: Texts,
) -> Source:
    """Read the data and load the model of a request; ``existing`` is a store that lacks its validation, or None."""
    task = TASKS[str(spec.task)]
    check_kind(reference, {**reference.json("config.json"), **reference.model_args}, task)  # before the data are read
    trains = existing is None
    validates = not trains or spec.part is None  # parts may be validated after merging
    with ranks.first_rank_first():
        train = read_data(data.training, task, report) if trains and data.training else None
        validation = data.pack_validation(partial(read_data, task=task, report=report)) if validates else None
    model = load_pretrained(reference, spec, report, task)
    units = prepare(task, tokenizer, model.config, trust_remote_code=spec.trust_remote_code)
    given = {name: each for name, each in (("train", train), ("validation", validation)) if each is not None}
    read = {name: units(each) for name, each in given.items()}
    in_order = {name: matched_in_order(each, model.config.id2label) for name, each in given.items()}
    for pairs in {*in_order.values()} - {None}:
        log.warning(MATCHED_IN_ORDER, pairs)
    first = next(iter(read.values()))
    with explaining_large_model(reference.name, model.device):
        classifier = Classifier.of(model, first.batch(0, min(_PROBED, len(first.labels))))
    phases = {
        name: Samples(
            name,
            each.labels,
            partial(_embed, classifier, each),
            batch=_CPU_BATCH if classifier.weight.device.type == "cpu" else _GPU_BATCH,
            shuffled=spec.null == "shuffled",
            about={"matched_in_order": in_order[name]} if in_order[name] else {},
        )
        for name, each in read.items()
    }
    names = data.shown_names
    if validates and validation is None:  # there are no validation data, or their split is absent
        identity, names = {**identity, "validation": None}, {**names, "validation": None}
    about: dict[str, Any] = {"name": reference.shown_name, "revision": reference.revision}
    about["n_params"] = model.num_parameters()
    if task.name != "masked-lm":  # in masked-lm, classes are tokens
        about["classes"] = [model.config.id2label.get(each, str(each)) for each in range(len(classifier.weight))]
    return Source(
        identity={**identity, "attention": model.config._attn_implementation, "head": classifier.record()},
        model=about,
        corpus={"name": names["corpus"], "validation": names["validation"]},
        weight=classifier.weight,
        bias=classifier.bias,
        train=phases.get("train"),
        validation=phases.get("validation"),
        command=f"collapse collect {shlex.quote(reference.name)} {typed(spec)}",
    )


def _embed(classifier: Classifier, units: Units, start: int, stop: int) -> Tensor:
    return classifier.embed(units.batch(start, stop))
