"""Every measurement of a real model against direct float64 on embeddings dumped by plain transformers.

The same texts, chunks and batches go through ``collapse`` and through transformers alone; tests/reference.py computes
each measurement from its definition. Prints the largest relative difference; exits 1 above 1e-9.

    python -m benchmarks.exactness MODEL_DIR --text train.jsonl --validation-text validation.jsonl --chunk-length 512
"""

import argparse
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import collapse
from benchmarks.machine import described
from benchmarks.record import Goal, Record
from collapse.cli.sheets import print_sheet
from collapse.inputs.option import key_value


def main() -> int:
    """Compare, print, and say by the exit code whether all agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--validation-text", required=True)
    parser.add_argument("--chunk-length", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--model-arg", action="append", default=[])
    parser.add_argument("--output", metavar="DIR")
    options = parser.parse_args()
    model_args = dict(key_value(each, "--model-arg") for each in options.model_arg)
    with tempfile.TemporaryDirectory() as folder:
        store = collapse.collect(
            options.model,
            store=Path(folder) / "store",
            text=options.text,
            validation_text=options.validation_text,
            chunk_length=options.chunk_length,
            max_chunks=options.chunks,
            batch_size=options.batch_size,
            exact_loss=True,
            model_args=model_args,
        )
        row = collapse.measure(store)
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, **model_args).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model, **model_args)
    dumped: dict[str, Any] = {"classifier": model.get_output_embeddings().weight.detach().numpy()}
    for name, path in (("train", options.text), ("validation", options.validation_text)):
        chunks = grouped(path, tokenizer, options.chunk_length)[: options.chunks]
        with torch.no_grad():
            h = torch.cat([model.get_decoder()(each).last_hidden_state for each in chunks.split(options.batch_size)])
        dumped[f"{name}_features"] = h[:, :-1].reshape(-1, h.shape[-1]).numpy()
        dumped[f"{name}_labels"] = chunks[:, 1:].reshape(-1).numpy()
    expected = reference().everything(dumped)
    expected["n_params"] = sum(parameter.numel() for parameter in model.parameters())
    differences = {
        name: abs((value if value is not None else np.nan) - expected[name]) / max(abs(expected[name]), 1e-300)
        for name, value in row.measurements.items()
    }
    worst = max(differences, key=lambda name: differences[name])
    record = Record(
        "exactness",
        "Every measurement of a real model, against direct float64 on embeddings dumped by plain transformers.",
        [],
        [Goal(f"largest relative difference, {row.model}, C = {row.classes:,}", differences[worst], 1e-9, "")],
        notes=[f"{options.chunks} chunks, {len(differences)} measurements; the largest difference is that of {worst}"],
        run=described(quick=False),
    )
    for sheet in record.sheets():
        print_sheet(sheet)
    if options.output:
        record.write(Path(options.output))
    return 0 if differences[worst] <= 1e-9 else 1


def grouped(path: str, tokenizer: Any, length: int) -> torch.Tensor:
    """Two shards, maps of 1,000 texts, the remainder of each dropped: written out once more."""
    texts = [json.loads(line)["text"] for line in Path(path).read_text(encoding="utf-8").splitlines()]
    half = -(-len(texts) // 2)
    chunks: list[list[int]] = []
    for shard in (texts[:half], texts[half:]):
        for start in range(0, len(shard), 1000):
            flat = [token for row in tokenizer(shard[start : start + 1000])["input_ids"] for token in row]
            chunks += [flat[i : i + length] for i in range(0, len(flat) - length + 1, length)]
    return torch.tensor(chunks)


def reference() -> Any:
    """tests/reference.py."""
    path = Path(__file__).resolve().parents[1] / "tests" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
