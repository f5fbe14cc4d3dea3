"""Compare every measurement and every decision of real models with a direct float64 computation.

``collapse`` and plain transformers process the same texts, chunks and batches. From the embeddings of transformers,
tests/reference.py computes each measurement by its definition. Each decision is compared with the decision of all
logits and all distances in float64. The exit status is 1 if a relative difference of a measurement exceeds 1e-9, that
of the loss exceeds 1e-6, or any decision differs.

    python -m benchmarks.exactness MODEL_DIR... --text train.jsonl --validation-text validation.jsonl --chunk-length 512
"""

import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import torch
import transformers

import collapse
from benchmarks.machine import ROOT, described
from benchmarks.record import Record
from benchmarks.validate import differences
from collapse.cli.rendering import print_table
from collapse.cli.terminal import say_error
from collapse.errors import CollapseError
from collapse.numerics.decisions import Decider

BATCH = 4


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--text", required=True, metavar="FILE", help="Training text.")
@click.option("--validation-text", required=True, metavar="FILE", help="Validation text.")
@click.option("--chunk-length", default=512, show_default=True, metavar="T", help="Tokens of a chunk.")
@click.option("--chunks", default=20, show_default=True, metavar="N", help="Chunks of each text.")
@click.option("--output", metavar="DIR", help="Where to write JSON.  [default: nowhere]")
def command(models: tuple[str, ...], output: str | None, **options: Any) -> None:
    """Compare every measurement and decision of models with direct float64."""
    about = (
        "Measurements and decisions of real models, compared with a direct float64 computation on embeddings from the "
        "package transformers."
    )
    record = Record("exactness", about)
    for model in models:
        record.rows.append(compare(model, **options))
    record.run = described(quick=False)
    print_table(record.table(record.about))
    if output:
        record.write(Path(output))
    worst = [max(row[column] for row in record.rows) for column in list(record.rows[0])[-3:]]
    sys.exit(0 if worst[0] <= 1e-9 and worst[1] == 0 and worst[2] <= 1e-6 else 1)


def compare(model: str, *, text: str, validation_text: str, chunk_length: int, chunks: int) -> dict[str, Any]:
    """Return the differences of one model, as a row of the record.

    Raises:
        CollapseError: A measurement is undefined in only one of the two computations.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = collapse.collect(
            model,
            store=Path(folder) / "store",
            text=text,
            validation_text=validation_text,
            chunk_length=chunk_length,
            max_chunks=chunks,
            batch_size=BATCH,
            exact_loss=True,
            fast_attention=False,  # fast attention rounds embeddings differently from plain transformers
        )
        row, s = collapse.measure(store), store.statistics()
    dumped, parameters = _dumped(model, (text, validation_text), chunk_length, chunks)
    sys.path.insert(0, str(ROOT / "tests"))
    expected = import_module("reference").everything(dumped) | {"n_params": parameters}
    undefined = [name for name, value in row.measurements.items() if (value is None) != (name not in expected)]
    if undefined:
        raise CollapseError(f"{model}: defined on one side only: {', '.join(undefined)}")
    measured = {name: value for name, value in row.measurements.items() if value is not None}
    apart = [abs(value - expected[name]) / max(abs(expected[name]), 1e-300) for name, value in measured.items()]
    h, y, weight = (
        torch.from_numpy(dumped[name]) for name in ("validation_features", "validation_labels", "classifier")
    )
    unlike, loss_apart = differences(Decider(s, weight, None), weight, h, y, s)
    return {
        "model": row.model,
        "C": row.classes,
        "measurements": len(apart),
        "decisions": 3 * len(y),
        "largest difference of a measurement": float(f"{max(apart):.3g}"),
        "decisions that differ": unlike,
        "difference of the loss": float(f"{loss_apart:.3g}"),
    }


def _dumped(model: str, texts: tuple[str, str], length: int, chunks: int) -> tuple[dict[str, Any], int]:
    """Compute embeddings with plain transformers.

    Returns:
        The classifier, and the embeddings and labels of both texts, by name; and the model's number of parameters.
    """
    loaded = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    dumped: dict[str, Any] = {"classifier": loaded.get_output_embeddings().weight.detach().numpy()}
    for name, path in zip(("train", "validation"), texts, strict=True):
        tokens = grouped(path, tokenizer, length)[:chunks]
        with torch.no_grad():
            h = torch.cat([loaded.get_decoder()(each).last_hidden_state for each in tokens.split(BATCH)])
        dumped[f"{name}_features"] = h[:, :-1].reshape(-1, h.shape[-1]).numpy()
        dumped[f"{name}_labels"] = tokens[:, 1:].reshape(-1).numpy()
    return dumped, sum(parameter.numel() for parameter in loaded.parameters())


def grouped(path: str, tokenizer: Any, length: int) -> torch.Tensor:
    """Cut a text into chunks as collapse does; return their tokens, shape (chunks, length).

    In each of two shards, the tokens of 1,000 texts at a time are joined, and an incomplete last chunk is dropped.
    """
    texts = [json.loads(line)["text"] for line in Path(path).read_text(encoding="utf-8").splitlines()]
    half = -(-len(texts) // 2)
    chunks: list[list[int]] = []
    for shard in (texts[:half], texts[half:]):
        for start in range(0, len(shard), 1000):
            flat = [token for row in tokenizer(shard[start : start + 1000])["input_ids"] for token in row]
            chunks += [flat[i : i + length] for i in range(0, len(flat) - length + 1, length)]
    return torch.tensor(chunks)


if __name__ == "__main__":
    try:
        command(prog_name="python -m benchmarks.exactness")
    except CollapseError as error:
        say_error(str(error))
        sys.exit(2)
