"""Load a causal language model with its classifier, and a tokenizer."""

import logging
import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch

from collapse.core.progress import Report
from collapse.core.settings import environment, gguf_reported, quiet
from collapse.errors import CollapseError
from collapse.hub.fingerprints import inside, tokenizer_files, weight_files
from collapse.hub.requests import hub_cache
from collapse.inputs.checkpoints import (
    check_code,
    check_kernels,
    check_kind,
    check_loaded,
    loading_error,
)
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.gguf_keys import check_gguf
from collapse.inputs.language_model import LanguageModel, fitting
from collapse.inputs.model_hooks import prepare
from collapse.inputs.references import config_of
from collapse.inputs.untrained import untrained
from collapse.inputs.unused_tensors import unused_recorded
from collapse.numerics.devices import pick_device
from collapse.stores.writing import ANOTHER_CACHE, raise_if_full

if TYPE_CHECKING:
    from collapse.inputs.references import ModelReference

log = logging.getLogger("collapse")
_loading = Lock()  # transformers cannot load models in parallel: it would report weights as missing


def load_model(
    reference: "ModelReference", spec: CollectionSpec | None = None, report: Report | None = None
) -> LanguageModel:
    """Load a causal language model for measuring.

    Args:
        reference: Which one (see :func:`collapse.inputs.references.find_model`).
        spec: How: its dtype, device, model_args, trust_remote_code and fast_attention.
        report: Called as report(what, done, total) while a GGUF file is read, which takes long.

    Raises:
        CollapseError: It cannot be loaded, lacks weights, or has no output embedding.
    """
    spec = spec or CollectionSpec()
    target = pick_device(spec.device)
    arguments = dict(spec.model_args or {})
    if "attn_implementation" in arguments:  # else that of config.json, in its internal name, would win
        arguments["_attn_implementation"] = arguments["attn_implementation"]
    config = config_of(reference)
    check_kind(reference, config, arguments)
    if not spec.trust_remote_code:
        check_code(reference, config, "architectures", "AutoModelForCausalLM", "AutoConfig")
        check_kernels(reference, config, arguments)
    # otherwise transformers asks a service of the Hub to convert a pickled checkpoint, in the background
    with _loading, environment(DISABLE_SAFETENSORS_CONVERSION="1"), unused_recorded() as unused:
        model, info = (
            (untrained(reference, spec, arguments), None)
            if spec.null == "untrained"
            else _from_pretrained(reference, spec, arguments, report)
        )
    places = {*getattr(model, "hf_device_map", {}).values()}
    if len(places) > 1 or any(each.is_meta for each in model.parameters()):
        raise CollapseError(
            f"{reference.name} is spread over several devices (device_map), and such models cannot be measured yet: "
            "leave out --model-arg device_map, or give one device with --device"
        )
    if info is not None:
        files = [reference.files.fetch(name) for name in weight_files(reference.files, arguments)]
        if arguments.get("gguf_file"):
            check_gguf(reference.name, files.pop(), model)
        check_loaded(reference, model, info, unused, files)
    # a checkpoint may have layers in other dtypes than requested, such as dequantized GGUF norms
    with fitting(reference.name, target):
        model = model.to(device=target, dtype=getattr(torch, spec.dtype)).eval()
        if target.type == "cpu":
            _leave_files(model)
    model.config.return_dict = True  # outputs are read by name
    head = model.get_output_embeddings()
    if head is None or getattr(head, "weight", None) is None or head.weight.dim() != 2:
        raise CollapseError(
            f"{type(model).__name__} has no output embedding with a weight matrix: it cannot be measured"
        )
    inputs = model.get_input_embeddings()
    rows = inputs.weight.shape[0] if inputs is not None else head.weight.shape[0]
    bias = getattr(head, "bias", None)
    own = model.config._attn_implementation or "own"
    loaded = LanguageModel(model, head.weight.detach(), None if bias is None else bias.detach(), rows, own)
    loaded.attention = (prepare(loaded) if spec.fast_attention else None) or own
    return loaded


def _from_pretrained(
    reference: "ModelReference", spec: CollectionSpec, arguments: dict[str, Any], report: Report | None
) -> tuple[Any, Any]:
    """Return the transformers model, and its report of found and missing keys."""
    import transformers

    names = weight_files(reference.files, arguments)
    pickled = [] if arguments.get("gguf_file") else [name for name in names if not name.endswith(".safetensors")]
    if pickled:
        log.warning(
            "%s has a pickled checkpoint (%s); loaded through torch's weights_only unpickler",
            reference.name,
            ", ".join(pickled),
        )
    if not arguments.get("gguf_file"):
        for name in names:
            reference.file(name)  # downloads it, and says in one line why it cannot be
        # otherwise it tries the other format after a lost connection; the caller's arguments stay as they are
        arguments = {**arguments, "use_safetensors": not pickled}
    gguf = gguf_reported(f"loading {reference.name}", report) if arguments.get("gguf_file") else nullcontext()
    with quiet("transformers"), gguf, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the unpickler warns about what it then rejects
        try:
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                **reference.source,
                dtype=getattr(torch, spec.dtype),
                trust_remote_code=spec.trust_remote_code,
                weights_only=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # check_loaded() refuses them, with their names
                **arguments,
            )
        except Exception as error:  # many libraries read untrusted files here, each with its own exceptions
            raise_if_full(error, hub_cache(), ANOTHER_CACHE)
            raise loading_error(reference, "a causal language model", error, pickled) from error
    return model, info


def _leave_files(model: torch.nn.Module) -> None:
    """Copy the weights to memory: on the CPU they are mapped files, and a later write to a file would change them."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


def load_tokenizer(
    reference: "ModelReference",
    *,
    model_args: Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """Load the tokenizer of a model, or a tokenizer that is given separately.

    Raises:
        CollapseError: It cannot be loaded.
    """
    import transformers

    if not trust_remote_code:
        check_code(reference, config_of(reference, "tokenizer_config.json"), "tokenizer_class", "AutoTokenizer")
    with _loading, quiet("transformers"):
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                **reference.source,
                trust_remote_code=trust_remote_code,
                **(model_args or {}),
            )
        except Exception as error:  # as above
            raise_if_full(error, hub_cache(), ANOTHER_CACHE)
            if _lacks_tokenizer(reference, model_args):
                raise _no_tokenizer(reference, model_args) from error
            made = loading_error(reference, "a tokenizer", error)
            raise CollapseError(f"{made}. Or name another with --tokenizer") from error
    # of some kinds transformers makes a tokenizer without any file, which gives no token
    if _lacks_tokenizer(reference, model_args) and {*tokenizer.get_vocab()} <= {*tokenizer.all_special_tokens}:
        raise _no_tokenizer(reference, model_args)
    return tokenizer


def _lacks_tokenizer(reference: "ModelReference", model_args: Mapping[str, Any] | None) -> bool:
    return not tokenizer_files(reference.files, model_args)


def _no_tokenizer(reference: "ModelReference", model_args: Mapping[str, Any] | None) -> CollapseError:
    place = f"{reference.location}/{inside(model_args)}".rstrip("/")
    return CollapseError(
        f"{place} has no tokenizer (tokenizer.json, vocab.json or another): "
        "give the folder or the Hub id of one with --tokenizer"
    )
