"""Every measurement and every decision of real models, against direct float64.

The same texts, chunks and batches go through ``collapse`` and through plain transformers, which dumps the embeddings.
tests/reference.py computes each measurement of these from its definition, and each decision is compared with that of
all logits and all distances in float64. Exits 1 if a measurement differs by more than 1e-9, or a decision at all,
and 2 if something cannot be read.

    python -m benchmarks.exactness MODEL_DIR... --text train.jsonl --validation-text validation.jsonl --chunk-length 512
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
from benchmarks.validate import differences
from collapse.cli.rendering import print_table
from collapse.cli.terminal import say_error
from collapse.errors import CollapseError
from collapse.inputs.option_words import key_value
from collapse.numerics.decisions import Decider


def main() -> int:
    """Compare, print, and say by the exit code whether all agree."""
    description, _, example = (__doc__ or "").rpartition("\n\n")
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m benchmarks.exactness", None, description, example, formatter_class=shown
    )
    parser.add_argument("model", nargs="+", metavar="MODEL", help="folder of a model")
    parser.add_argument("--text", required=True, metavar="FILE", help="training text")
    parser.add_argument("--validation-text", required=True, metavar="FILE", help="validation text")
    parser.add_argument("--chunk-length", type=int, default=512, metavar="T", help="tokens of a chunk [%(default)s]")
    parser.add_argument("--chunks", type=int, default=20, metavar="N", help="chunks of each text [%(default)s]")
    parser.add_argument("--batch-size", type=int, default=4, metavar="B", help="chunks of a batch [%(default)s]")
    parser.add_argument("--model-arg", action="append", default=[], metavar="KEY=VALUE", help="as that of collapse")
    parser.add_argument("--output", metavar="DIR", help="where to write JSON [nowhere]")
    options = parser.parse_args()
    about = "Every measurement and decision of real models, against direct float64 on embeddings by plain transformers."
    record = Record("exactness", about, run=described(quick=False))
    for model in options.model:
        _add(record, model, options)
    for table in record.printed():
        print_table(table)
    if options.output:
        record.write(Path(options.output))
    return 0 if all(goal.met for goal in record.goals) else 1


def _add(record: Record, model: str, options: argparse.Namespace) -> None:
    """Compare one model."""
    model_args = dict(key_value(each, "--model-arg") for each in options.model_arg)
    with tempfile.TemporaryDirectory() as folder:
        store = collapse.collect(
            model,
            store=Path(folder) / "store",
            text=options.text,
            validation_text=options.validation_text,
            chunk_length=options.chunk_length,
            max_chunks=options.chunks,
            batch_size=options.batch_size,
            exact_loss=True,
            fast_attention=False,  # which rounds embeddings otherwise than plain transformers
            model_args=model_args,
        )
        row, s = collapse.measure(store), store.statistics()
    dumped, parameters = _dumped(model, options, model_args)
    expected = reference().everything(dumped) | {"n_params": parameters}
    apart = {
        name: abs((value if value is not None else np.nan) - expected[name]) / max(abs(expected[name]), 1e-300)
        for name, value in row.measurements.items()
    }
    worst = max(apart, key=lambda name: apart[name])
    h, y, weight = (
        torch.from_numpy(dumped[name]) for name in ("validation_features", "validation_labels", "classifier")
    )
    unlike, loss_apart = differences(Decider(s, weight, None), weight, h, y, s)
    called = f"{row.model}, C = {row.classes:,}"
    record.goals.append(Goal(f"largest relative difference, {called}", apart[worst], 1e-9, ""))
    record.goals.append(Goal(f"of {3 * len(y):,} decisions unlike float64's, {called}", sum(unlike.values()), 0, ""))
    record.goals.append(Goal(f"relative difference of the loss, {called}", loss_apart, 1e-6, ""))
    record.notes.append(
        f"{called}: {options.chunks} chunks of {options.chunk_length} tokens, {len(apart)} measurements; the largest "
        f"difference is that of {worst}"
    )


def _dumped(model: str, options: argparse.Namespace, model_args: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return embeddings and labels of both texts and the classifier, by plain transformers, and how many parameters."""
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, **model_args).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model, **model_args)
    dumped: dict[str, Any] = {"classifier": loaded.get_output_embeddings().weight.detach().numpy()}
    for name, path in (("train", options.text), ("validation", options.validation_text)):
        chunks = grouped(path, tokenizer, options.chunk_length)[: options.chunks]
        with torch.no_grad():
            h = torch.cat([loaded.get_decoder()(each).last_hidden_state for each in chunks.split(options.batch_size)])
        dumped[f"{name}_features"] = h[:, :-1].reshape(-1, h.shape[-1]).numpy()
        dumped[f"{name}_labels"] = chunks[:, 1:].reshape(-1).numpy()
    return dumped, sum(parameter.numel() for parameter in loaded.parameters())


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
    try:
        sys.exit(main())
    except CollapseError as error:
        say_error(str(error))
        sys.exit(2)
