"""Benchmark collecting a model on one device, divided among devices, and quantized: time, and error of class means.

The reference is the model that transformers loads with the same arguments. It runs on the same batches, and its class
means are summed in float64. On a GPU, the model is large, and half of its blocks are on the CPU when it is divided. On
a CPU, it is tiny, and half of its blocks are on disk.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

import collapse
from benchmarks.collect import STORY
from benchmarks.exactness import grouped
from benchmarks.record import Record
from collapse_zoo.stories import stories, train_tokenizer, write_stories

_BATCH = 4
_DIFFERENCE = "largest difference of a class mean"


def benchmark(quick: bool, device: str) -> Record:
    """Time a collection with each placement, and compare the class means with those of transformers."""
    quick = quick or device == "cpu"
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
    if not quick:
        shape = {"hidden_size": 2_048, "intermediate_size": 8_192, "num_attention_heads": 32, "num_key_value_heads": 8}
    depth, vocabulary, length, chunks = (2, 2_000, 128, 8) if quick else (16, 32_000, 2_048, 64)
    record = Record("placed", "Both passes of a collection, with loading and writing.")
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        configuration = transformers.LlamaConfig(num_hidden_layers=depth, vocab_size=vocabulary, **shape)
        with torch.device(device):
            torch.manual_seed(0)
            model = transformers.AutoModelForCausalLM.from_config(configuration, dtype=torch.bfloat16)
        parameters = model.num_parameters()
        model.save_pretrained(folder / "model")
        del model
        train_tokenizer(stories(400, seed=1), folder / "model", vocabulary=min(vocabulary, 2_048))
        for which in ("train", "validation"):
            write_stories(folder / f"{which}.jsonl", chunks * length // STORY + 1, seed=len(which))
        seconds, differences, peaks = {}, {}, {}
        for name, options in _ways(folder, depth, device).items():
            for _ in range(2):  # the first run also warms up
                if device != "cpu":
                    torch.cuda.reset_peak_memory_stats()
                began = time.perf_counter()
                store = _collect(folder, name, length, chunks, device, options)
                seconds[name] = time.perf_counter() - began
            peaks[name] = None if device == "cpu" else torch.cuda.max_memory_allocated()
            differences[name] = _apart(store, folder, length, chunks, device, options)
    data = f"llama {depth}x{shape['hidden_size']}, {parameters / 1e9:.2g}B, bfloat16, {chunks} chunks of {length:,}"
    record.add(data, seconds, amount=2 * chunks * length, unit="tokens", peaks=peaks)
    for row in record.rows:
        row[_DIFFERENCE] = float(f"{differences[row['work']]:.2g}")
    return record


def _ways(folder: Path, depth: int, device: str) -> dict[str, dict[str, Any]]:
    """Return the options of :func:`collapse.collect` for each placement, by its name."""
    first, other = (0, "cpu") if device != "cpu" else ("cpu", "disk")
    ends = ("model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head")
    halves = {**dict.fromkeys(ends, first)}
    halves |= {f"model.layers.{at}": first if at < depth // 2 else other for at in range(depth)}
    split = {"device_map": halves, "model_args": {"offload_folder": str(folder / "offloaded")}}
    ways = {"one device": {}, f"half of the blocks on {other}": split}
    if device != "cpu":
        ways |= {"device map auto": {"device_map": "auto"}, "8bit": {"quantize": "8bit"}, "4bit": {"quantize": "4bit"}}
    return ways


def _collect(folder: Path, name: str, length: int, chunks: int, device: str, options: dict[str, Any]) -> collapse.Store:
    made = collapse.collect(
        f"{folder}/model",
        store=folder / name,
        text=f"{folder}/train.jsonl",
        validation_text=f"{folder}/validation.jsonl",
        chunk_length=length,
        max_chunks=chunks,
        batch_size=_BATCH,
        dtype="bfloat16",
        fast_attention=False,  # fast attention rounds differently from plain transformers
        device=device,
        recollect=True,
        **options,
    )
    assert isinstance(made, collapse.Store)
    return made


def _apart(
    store: collapse.Store, folder: Path, length: int, chunks: int, device: str, options: dict[str, Any]
) -> float:
    """Return the largest distance of a class mean from transformers' mean, divided by the mean norm of these means."""
    how: dict[str, Any] = {"device_map": options.get("device_map", device), **options.get("model_args", {})}
    if bits := options.get("quantize"):
        nf4 = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.bfloat16} if bits == "4bit" else {}
        how["quantization_config"] = transformers.BitsAndBytesConfig(**{f"load_in_{bits}": True}, **nf4)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.bfloat16, **how).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "model")
    tokens = grouped(f"{folder}/train.jsonl", tokenizer, length)[:chunks]
    sums = torch.zeros(model.config.vocab_size, model.config.hidden_size, dtype=torch.float64, device=device)
    counts = torch.zeros(model.config.vocab_size, dtype=torch.float64, device=device)
    with torch.no_grad():
        for batch in tokens.to(device).split(_BATCH):
            h_nd = model.get_decoder()(batch).last_hidden_state[:, :-1].flatten(0, 1).to(device)
            y_n = batch[:, 1:].flatten()
            sums.index_add_(0, y_n, h_nd.double())
            counts.index_add_(0, y_n, torch.ones_like(y_n, dtype=torch.float64))
    held = store.tensors("train")
    direct = (sums[held["classes"].to(device)] / counts[held["classes"].to(device)].unsqueeze(1)).cpu()
    assert torch.equal(held["counts"], counts[held["classes"].to(device)].long().cpu())
    return float((held["means"] - direct).norm(dim=1).max() / direct.norm(dim=1).mean())
