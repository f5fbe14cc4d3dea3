"""Measure a loaded transformers model in place, without saving, copying or changing it."""

import base64
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from collapse.core.settings import quiet
from collapse.errors import UsageError
from collapse.hub.fingerprints import Folder, tokenizer_fingerprint
from collapse.hub.references import ModelReference
from collapse.hub.textfiles import KINDS, kind_of, text_names
from collapse.inputs.applying_adapters import refuse_prompts
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.evaluation_mode import evaluation_mode
from collapse.inputs.language_model import LanguageModel, on_device, whole
from collapse.stores.manifest import is_store
from collapse.stores.shards import shards_in
from collapse.stores.store import Store

_OF_LOADING = ("revision", "dtype", "device", "device_map", "quantize", "adapter", "model_args", "task")
_PROBE = "probe:"
_PROBED, _SUMS = 64, 4  # tokens; sums of embeddings, and of logits
_NOT_OF_MODEL = ("transformers_version", "use_cache")  # fields of a configuration that change no output


def is_live(model: Any) -> bool:
    """Whether an object is a loaded model of transformers, also if peft or torch.compile wraps it.

    Raises:
        UsageError: The model is inside another wrapper.
    """
    if hasattr(model, "get_output_embeddings") and hasattr(model, "config"):
        return True
    if hasattr(model, "module") and is_live(model.module):
        raise UsageError(f"the model is wrapped in {type(model).__name__}: give the model itself, model.module")
    return False


@contextmanager
def live_model(
    model: Any, name: str | None, folder: Path | None, options: Mapping[str, Any]
) -> Iterator[tuple[ModelReference, CollectionSpec]]:
    """Prepare a loaded model to be run in place; yield a reference to it and the options of its collection.

    The fingerprint of the model's weights is the *probe*. It has two parts: a hash of the configuration, parameters and
    buffers; and sums of some embeddings and logits. The sums of embeddings also depend on the model's hooks. At the
    end, the model is restored, and temporary files of lists of texts are deleted.

    Args:
        model: The model, for which :func:`is_live` is True.
        name: Its name in tables; None for the last part of ``model.name_or_path`` or, if that is empty, "model".
        folder: Folder of the store. If it holds a collection whose sums equal the model's up to rounding, the
            collection's sums are used.
        options: Options of :func:`collapse.collect`. ``tokenizer`` may be a loaded tokenizer; ``text`` and
            ``validation_text`` may be lists of texts.

    Raises:
        UsageError: An option does not apply, or there is no tokenizer.
        CollapseError: The model cannot be run.
    """
    name = name or Path(str(getattr(model, "name_or_path", ""))).name or "model"
    for each in _OF_LOADING:
        if options.get(each) is not None:
            raise UsageError(
                f"{each}= does not apply to a loaded model: remove it, or give the model's folder or Hub id instead"
            )
    if options.get("null") == "untrained":
        raise UsageError("null='untrained' does not apply to a loaded model: give the model's folder or Hub id instead")
    model = getattr(model, "_orig_mod", model)  # torch.compile wraps it
    refuse_prompts(name, getattr(model, "active_peft_config", None))
    model = model.get_base_model() if hasattr(model, "get_base_model") else model  # peft's; it runs the adapter too
    tokenizer = options.get("tokenizer")
    if tokenizer is None:
        raise UsageError("a loaded model needs its tokenizer: give tokenizer=")
    with TemporaryDirectory(prefix="collapse-") as temporary, left_as_it_was(model):
        place = Path(temporary)
        given = {key: _named(options.get(key), place / f"{key}.jsonl") for key in ("text", "validation_text")}
        is_named = isinstance(tokenizer, str | os.PathLike)
        if not is_named:
            given["tokenizer"] = None
            with quiet("transformers"):
                tokenizer("")  # reset truncation and padding, which would be saved
                tokenizer.save_pretrained(place)  # for its fingerprint
        (place / "config.json").write_text(model.config.to_json_string())
        loaded = LanguageModel.of(model)
        reference = ModelReference(
            name,
            Folder(place),
            weights=_probe(loaded, folder),
            tokenizer=tokenizer_fingerprint(Folder(place), {}),
            loaded=loaded,
            loaded_tokenizer=None if is_named else tokenizer,
        )
        dtype = str(loaded.weight.dtype).removeprefix("torch.")
        yield reference, CollectionSpec(**{**options, **given, "dtype": dtype})


@contextmanager
def left_as_it_was(model: Any) -> Iterator[None]:
    """Put a model into evaluation mode; restore the model at the end.

    Meanwhile, the model runs without accelerate's autocast, and returns outputs with names instead of a tuple.
    """
    returns_dict, forward = model.config.return_dict, model.__dict__.get("forward")
    with evaluation_mode(model):
        try:
            model.config.return_dict = True
            if hasattr(model, "_original_forward"):  # accelerate has replaced forward() by one with autocast
                model.forward = model._original_forward
            yield
        finally:
            model.config.return_dict = returns_dict
            if forward is not None:
                model.forward = forward


def _named(texts: Any, file: Path) -> Any:
    """Return names of files or data sets, or None, unchanged; write a list of texts to ``file`` and return its path.

    Raises:
        UsageError: ``texts`` is a mapping, or a list with an item that is not a str.
    """
    names = text_names(texts)
    if texts is None or isinstance(texts, str | os.PathLike) or all(map(_is_name, names)):
        return names if names else texts
    if isinstance(texts, Mapping) or not all(isinstance(each, str) for each in names):
        strange = texts if isinstance(texts, Mapping) else next(each for each in names if not isinstance(each, str))
        raise UsageError(f"texts must be a list of str, got {type(strange).__name__}: convert them")
    file.write_text("".join(json.dumps({"text": each}) + "\n" for each in names))
    return str(file)


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and "\n" not in text and (kind_of(text) in KINDS or os.path.exists(text))


def _probe(loaded: LanguageModel, folder: Path | None) -> str:
    """Return the fingerprint of a loaded model, ``probe:<hash>:<sums>``.

    The hash is of the model's configuration, parameters and buffers. The sums are float32 numbers in base64. Each is a
    sum over the entries of one vector with fixed random coefficients; the vectors are the embeddings of fixed tokens
    and the logits of random embeddings. If the fingerprint of the collection in ``folder`` has sums that equal the
    model's up to rounding, its sums are used instead.
    """
    h = loaded.embeddings(loaded.probe(_PROBED))[0, -_SUMS:]
    random = torch.Generator().manual_seed(0)
    x = torch.randn(_SUMS, loaded.weight.shape[1], generator=random).to(loaded.weight)
    numbers = [
        (each.float().cpu() * torch.randn(each.shape, generator=random)).sum(dim=1).numpy()
        for each in (h, torch.nn.functional.linear(x, loaded.weight, loaded.bias))
    ]
    held = np.split(_held(folder), 2)
    rounding = min(100 * torch.finfo(loaded.weight.dtype).eps, 1e-2)
    if all(
        old.shape == new.shape and np.linalg.norm(old - new) <= rounding * np.linalg.norm(new)
        for old, new in zip(held, numbers, strict=True)
    ):
        numbers = held
    outputs = base64.b64encode(np.concatenate(numbers).astype("<f4").tobytes()).decode()
    return f"{_PROBE}{_hash_of(loaded.model)}:{outputs}"


def _hash_of(model: Any) -> str:
    """Return a hash of a model's configuration, parameters and persistent buffers, on any device or offloaded."""
    config = {name: each for name, each in model.config.to_dict().items() if name not in _NOT_OF_MODEL}
    made = sha256(json.dumps(config, sort_keys=True, default=str).encode())
    names = {name for name, _ in chain(model.named_parameters(), model.named_buffers())}  # a tied weight has one name
    for path, module in model.named_modules():
        with on_device(module):
            for own in sorted({*module._parameters, *module._buffers} - module._non_persistent_buffers_set):
                if (name := f"{path}.{own}".removeprefix(".")) in names:
                    for each in _plain_parts(getattr(module, own).data):
                        made.update(f"{name} {each.dtype} {list(each.shape)}".encode())
                        copied = each.to("cpu", copy=True)  # FSDP cannot free storage that NumPy has read
                        made.update(copied.contiguous().view(-1).view(torch.uint8).numpy().data)
    return made.hexdigest()[:32]


def _plain_parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a tensor; if it is quantized, yield its component tensors instead. FSDP's tensors are gathered first."""
    tensor = whole(tensor)
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _plain_parts(getattr(tensor, name))
    else:
        yield tensor


def _held(folder: Path | None) -> np.ndarray:
    """Return the sums in the fingerprint that the collection in a folder has; an empty array if it has no such sums."""
    if folder is None:
        return np.empty(0)
    shards = [] if is_store(folder) else shards_in(folder, "train")
    identity = Store.load(folder).identity if is_store(folder) else shards[0].header["identity"] if shards else {}
    weights = str(identity.get("weights"))
    if not weights.startswith(_PROBE):
        return np.empty(0)
    return np.frombuffer(base64.b64decode(weights.rpartition(":")[2]), dtype="<f4")
