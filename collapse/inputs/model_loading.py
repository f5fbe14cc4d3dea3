"""Load a model with its head, and its tokenizer or image processor."""

import warnings
from contextlib import nullcontext
from typing import Any

import torch

from collapse.core import ranks
from collapse.core.progress import Report
from collapse.core.settings import environment, gguf_reported, quiet
from collapse.errors import CollapseError
from collapse.hub.fingerprints import (
    inside,
    tokenizer_files,
    tokenizer_fingerprint,
    weight_files,
    weights_fingerprint,
)
from collapse.hub.gguf import check_gguf
from collapse.hub.references import ModelReference
from collapse.inputs.applying_adapters import apply_adapter
from collapse.inputs.checkpoints import check_code, check_kernels, check_kind, loading_error
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.language_model import LanguageModel, explaining_large_model
from collapse.inputs.model_hooks import speed_up
from collapse.inputs.placement import check_quantized, placement
from collapse.inputs.tasks import CAUSAL, Task
from collapse.inputs.weight_checks import check_loaded
from collapse.numerics.devices import pick_device

SEED = 0
"""Seed of the initial weights of ``--null untrained``."""


def load_model(reference: ModelReference, spec: CollectionSpec, report: Report | None = None) -> LanguageModel:
    """Load a causal language model for measuring; with ``fast_attention``, plugins may replace its modules.

    Raises the exceptions of :func:`load_pretrained`, CollapseError if there is no output embedding, and PluginError if
    a plugin changes the embeddings.
    """
    loaded = LanguageModel.of(load_pretrained(reference, spec, report))
    loaded.attention = (speed_up(loaded) if spec.fast_attention else None) or loaded.attention
    return loaded


def load_pretrained(
    reference: ModelReference, spec: CollectionSpec, report: Report | None = None, task: Task = CAUSAL
) -> Any:
    """Load a transformers model with the head of ``task``, in evaluation mode, on its devices, with its adapter if any.

    For ``--null untrained``, the weights are initial weights instead of those of the checkpoint.

    Raises:
        UsageError: The device, device map or quantization is not valid for the model.
        CollapseError: The model has another kind of head, needs code that is not trusted, does not fit into memory, or
            cannot be loaded completely.
    """
    target = pick_device(spec.device)
    arguments = dict(reference.model_args)
    config = {**reference.json("config.json"), **arguments}
    if attention := arguments.get("attn_implementation"):  # else the internal name in config.json would win
        config["_attn_implementation"] = arguments["_attn_implementation"] = attention
    made = config.get("model_args")
    if isinstance(made, dict) and "num_classes" in made:  # timm's; transformers passes the number of classes itself
        arguments["model_args"] = {name: each for name, each in made.items() if name != "num_classes"}
    check_kind(reference, config, task)
    if not spec.trust_remote_code:
        check_code(reference, config, "architectures", task.auto, "AutoConfig")
        check_kernels(reference, config)
    placed = {} if spec.null == "untrained" else placement(spec, config, target)
    # otherwise transformers asks a service of the Hub to convert a pickled checkpoint, in the background
    with (
        environment(DISABLE_SAFETENSORS_CONVERSION="1"),
        quiet("transformers", "accelerate", "torch", "torchao", "bitsandbytes"),
        explaining_large_model(reference.name, target),
    ):
        if spec.null == "untrained":
            model = _untrained(reference, spec, arguments, task)
        else:
            model = _trained(reference, spec, arguments | placed, report, task)
            check_quantized(model, spec)
            if reference.adapter:
                merge = not getattr(model, "is_quantized", False)  # merging would round again
                model = apply_adapter(model, reference, merge=merge)
        if not placed:  # otherwise transformers has moved and converted it
            model = model.to(target)
            if target.type == "cpu":  # weights are memory-mapped, so a later write to their file would change them
                for tensor in (*model.parameters(), *model.buffers()):
                    tensor.data = tensor.data.clone()
    model.eval()
    model.config.return_dict = True  # outputs are read by name
    return model


def _trained(
    reference: ModelReference, spec: CollectionSpec, arguments: dict[str, Any], report: Report | None, task: Task
) -> Any:
    """Load a checkpoint with transformers; check that it holds exactly the model's weights, and did not change."""
    import transformers

    gguf_file, names = arguments.get("gguf_file"), weight_files(reference.files, arguments)
    with ranks.first_rank_first():
        files = [reference.files.fetch(name, report) for name in names]  # download errors are reported in one line
    if not gguf_file:  # without use_safetensors, a lost connection makes transformers try the other format
        arguments = {**arguments, "use_safetensors": all(name.endswith(".safetensors") for name in names)}
    reporting = gguf_reported(f"loading {reference.name}", report) if gguf_file else nullcontext()
    with reporting, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the unpickler warns about what it then rejects
        try:
            model, info = getattr(transformers, task.auto).from_pretrained(
                **reference.source,
                dtype=getattr(torch, spec.dtype),
                trust_remote_code=spec.trust_remote_code,
                weights_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # check_loaded() reports them with their names
                **arguments,
            )
        except Exception as error:  # many libraries read the files here, each with its own exceptions
            said = loading_error(reference, task.what, error)
            if spec.device_map:
                raise CollapseError(f"{said}. Check --device-map") from error
            raise said from error
    if gguf_file:
        model = _in_dtype(model, spec)  # some dequantized layers, such as norms, have another dtype
        check_gguf(reference.name, files[0], model)
        files = []  # check_loaded() cannot read GGUF
    check_loaded(reference.name, model, info, files, task)
    if weights_fingerprint(reference.files, reference.model_args) != reference.weights:
        raise _changed(reference)
    return model


def _changed(reference: ModelReference) -> CollapseError:
    return CollapseError(f"{reference.location} changed while it was loaded: run the same command again")


def _untrained(reference: ModelReference, spec: CollectionSpec, arguments: dict[str, Any], task: Task) -> Any:
    """Return a transformers model with a checkpoint's configuration, and initial weights drawn with a fixed seed.

    The weights are always drawn on the CPU in float32. They depend on the version of transformers, which a store's
    provenance records. No weight file is read.
    """
    import transformers

    trusted = {"trust_remote_code": spec.trust_remote_code}
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        try:
            config, _ = transformers.AutoConfig.from_pretrained(
                **reference.source,
                return_unused_kwargs=True,  # for example, arguments that choose weight files
                **trusted,
                **arguments,
            )
            torch.manual_seed(SEED)
            model = getattr(transformers, task.auto).from_config(config, dtype=torch.float32, **trusted)
        except Exception as error:  # as above
            raise loading_error(reference, f"{task.what} to initialize", error) from error
    return _in_dtype(model, spec)


def _in_dtype(model: Any, spec: CollectionSpec) -> Any:
    """Convert a model's parameters to ``spec.dtype`` in place; return the model. Its buffers keep their dtype."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(getattr(torch, spec.dtype))
    return model


def load_tokenizer(reference: ModelReference, *, trust_remote_code: bool = False) -> Any:
    """Load the tokenizer of a model, or a separate tokenizer.

    Raises:
        CollapseError: There is no tokenizer, it needs code that is not trusted, it cannot be loaded, or it changed.
    """
    import transformers

    if not tokenizer_files(reference.files, reference.model_args):  # transformers would make an empty tokenizer
        place = f"{reference.location}/{inside(reference.model_args)}".rstrip("/")
        raise CollapseError(
            f"{place} has no tokenizer (tokenizer.json, vocab.json or another file): give the folder or the Hub id of "
            "a tokenizer with --tokenizer"
        )
    if not trust_remote_code:
        check_code(reference, reference.json("tokenizer_config.json"), "tokenizer_class", "AutoTokenizer")
    with quiet("transformers"):
        try:
            loaded = transformers.AutoTokenizer.from_pretrained(
                **reference.source, trust_remote_code=trust_remote_code, **reference.model_args
            )
        except Exception as error:  # as above
            said = loading_error(reference, "a tokenizer", error)
            raise CollapseError(f"{said}. Correct its files, or give another tokenizer with --tokenizer") from error
    if tokenizer_fingerprint(reference.files, reference.model_args) != reference.tokenizer:
        raise _changed(reference)
    return loaded


def load_processor(reference: ModelReference, *, trust_remote_code: bool = False) -> Any:
    """Load the image processor of a model; if transformers has several for it, load the one that uses Pillow.

    Raises:
        CollapseError: There is no processor, it needs code that is not trusted, or it cannot be loaded.
    """
    import transformers

    with quiet("transformers"):
        if not trust_remote_code:
            config = reference.json("preprocessor_config.json")
            check_code(reference, config, "image_processor_type", "AutoImageProcessor")
        try:
            return transformers.AutoImageProcessor.from_pretrained(
                **reference.source,
                subfolder=inside(reference.model_args).rstrip("/"),
                trust_remote_code=trust_remote_code,
                backend="pil",
            )
        except Exception as error:  # as above
            if not reference.json("preprocessor_config.json"):
                raise CollapseError(
                    f"{reference.name} has no image processor: add the processor of its base model with "
                    "AutoImageProcessor.from_pretrained(BASE).save_pretrained(FOLDER), or give this processor to the "
                    "Trainer as processing_class="
                ) from error
            raise loading_error(reference, "an image processor", error) from error
