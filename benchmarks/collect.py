"""Time of collecting a model's training statistics against its decoder's bare forward over the same batches.

Both run in one process, in turn, slice by slice of the same packed text: reading, statistics with the covariance and
state writes are on our side only.

    python benchmarks/collect.py MODEL_DIR --text train.jsonl --chunk-length 512 [--model-arg gguf_file=…] [--chunks 96]
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from _report import report

import collapse
from collapse.collection.planning import plan_collection
from collapse.inputs.collection_spec import CollectionSpec
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.model_loading import load_model, load_tokenizer
from collapse.inputs.option import key_value
from collapse.inputs.packing import pack
from collapse.stores.files import home


def main() -> None:
    """Print the ratio and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--chunk-length", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--model-arg", action="append", default=[])
    parser.add_argument("--output")
    options = parser.parse_args()
    model_args = dict(key_value(each, "--model-arg") for each in options.model_arg)
    spec = CollectionSpec(
        text=options.text, chunk_length=options.chunk_length, max_chunks=options.chunks, model_args=model_args
    )
    plan = plan_collection(options.model, spec)
    assert plan.texts.training is not None
    tokenizer = load_tokenizer(plan.tokenizer, model_args=model_args)
    hashed = plan.tokenizer.tokenizer
    chunks = pack(plan.texts.training, tokenizer, plan.spec, tokenizer_hash=hashed, cache=home())
    loaded = load_model(plan.model, plan.spec)
    batches = torch.from_numpy(chunks.tokens.astype("int64")).split(options.batch_size)
    clock = _Clock(loaded, batches)
    with tempfile.TemporaryDirectory() as folder:
        # Our run and the bare forward share the machine's mood: the bare forward of a batch runs right after ours.
        from collapse.collection import opening_source as loading

        loading.load_model = lambda *_, **__: clock  # type: ignore[assignment]  # the model is loaded already
        start = time.perf_counter()
        store = collapse.collect(
            options.model,
            store=Path(folder) / "store",
            text=options.text,
            chunk_length=options.chunk_length,
            max_chunks=options.chunks,
            batch_size=options.batch_size,
            model_args=model_args,
        )
        ours = time.perf_counter() - start - clock.bare
        classes = len(store.tensors("train")["classes"])
    figures = {
        "model": plan.model.name,
        "attention": loaded.attention,
        "classes": classes,
        "chunk_length": options.chunk_length,
        "chunks": len(chunks),
        "batch_size": options.batch_size,
        "collect_seconds": ours,
        "bare_forward_seconds": clock.bare,
        "ratio (goal 1.15)": ours / clock.bare,
    }
    report("collect", options.output, figures)


class _Clock(LanguageModel):
    """The loaded model, which runs each batch once more through the bare decoder and takes its time."""

    def __init__(self, loaded: LanguageModel, batches: tuple[torch.Tensor, ...]) -> None:
        super().__init__(loaded.model, loaded.weight, loaded.bias, loaded.input_rows, loaded.attention)
        self.bare = 0.0

    @torch.inference_mode()
    def embeddings(self, tokens_BT: torch.Tensor) -> torch.Tensor:
        h = super().embeddings(tokens_BT)
        start = time.perf_counter()
        self.model.get_decoder()(input_ids=tokens_BT, use_cache=False)
        self.bare += time.perf_counter() - start
        return h


if __name__ == "__main__":
    main()
