"""Benchmark collecting a model's statistics, compared with the decoder's forward pass over batches of the same sizes.

On a CPU, the benchmark times the training pass of a random GPT-Neo 4x256 on generated stories, with reading and
writing. On a GPU, it times both passes of larger models over random tokens.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

import collapse
from benchmarks.record import Record
from benchmarks.timing import growth_of, in_turn, peak_growth
from collapse.collection.accumulators import Training, Validation
from collapse.inputs.blocks_and_lens import find_layers
from collapse.inputs.chunk_files import Chunks
from collapse.inputs.language_model import LanguageModel
from collapse.inputs.source import Source
from collapse.inputs.text_source import TextPhase
from collapse.numerics.decisions import Decider
from collapse.plugin.plugin_manager import plugins
from collapse.stores.layer_names import TOP
from collapse_zoo.fast_gpt_neo import prepare
from collapse_zoo.model import build
from collapse_zoo.recipes import Recipe
from collapse_zoo.stories import stories, train_tokenizer, write_stories

_BATCH = 4  # the default batch of 2,048-token chunks on a CPU
_GPU_BATCH = 8
STORY = 80  # minimum number of tokens of a story
_BARE = "bare forward of the decoder"


def benchmark(quick: bool, device: str) -> Record:
    """Time the collection and the decoder alone, in turn; on a GPU, see :func:`passes`."""
    if device != "cpu":
        return passes(quick, device)
    length, chunks = (256, 4) if quick else (2_048, 96)
    record = Record("collect", "The training pass of a model with all statistics, with reading and writing.")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        make(folder, quick, length, chunks)
        works = {_BARE: bare(made, length, chunks), "collection": ours(made, length, chunks)}
        works["collection with four inner layers"] = ours(made, length, chunks, layers="all")
        times = in_turn(works, 1 if quick else 5)
        sizes = {"folder": made, "length": length, "chunks": 4 * _BATCH}
        functions = {} if quick else {_BARE: bare, "collection": ours}
        peaks = {work: peak_growth(function, **sizes) for work, function in functions.items()}
        classes = len(collapse.load(folder / f"{TOP}-{chunks}").tensors("train")["classes"])
    title = f"GPT-Neo {'2x64' if quick else '4x256'}, C = {classes:,}, {chunks} chunks of {length:,}"
    record.add(title, times, amount=chunks * length, unit="tokens", limit=_BARE, peaks=peaks)
    return record


def passes(quick: bool, device: str) -> Record:
    """Time both passes of a GPT-Neo in float32 and, unless ``quick``, of a Llama in bfloat16."""
    record = Record("collect", "Both passes with all statistics over random tokens, without loading and writing.")
    neo = Recipe(2, 64, vocabulary=2_000, chunk_length=128) if quick else Recipe(12, 1_024)
    _add(record, neo.configuration(), neo.chunk_length, device)
    if not quick:
        shape = {"hidden_size": 576, "num_hidden_layers": 30, "intermediate_size": 1_536, "vocab_size": 49_152}
        more = {"num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True}
        _add(record, transformers.LlamaConfig(**shape, **more, dtype=torch.bfloat16), neo.chunk_length, device)
    return record


def _add(record: Record, configuration: Any, length: int, device: str) -> None:
    """Time both passes of a model with random weights, and its decoder alone, in turn."""
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(configuration).eval()
    prepare(model)
    loaded = LanguageModel.of(model)
    zipf = 1 / (torch.arange(loaded.input_rows) + 3.0)
    tokens_ST = torch.multinomial(zipf, 16 * _GPU_BATCH * length, replacement=True).view(-1, length)
    every = [*map(str, range(configuration.num_hidden_layers)), TOP]
    four = [*every[:: -(-configuration.num_hidden_layers // 4)][:4], TOP]
    find_layers(loaded, tokens_ST[:1].to(device), every)
    text = TextPhase("train", Chunks(tokens_ST.int().numpy(), np.arange(len(tokens_ST)) * length, ""), loaded)
    source = Source({}, {}, {}, loaded.weight, loaded.bias, text, text)
    kinds = {"train": [], "validation": []}
    for kind in plugins().statistics.values():
        kinds[kind.phase].append(kind)

    def over(run: Training | Validation, layers: Sequence[str] = (TOP,)) -> None:
        for first in range(0, text.units, _GPU_BATCH):
            run.add(*text.samples(first, first + _GPU_BATCH, layers), first, _GPU_BATCH)

    def train(layers: Sequence[str]) -> Training:
        trained = Training(source, layers, kinds["train"], None)
        over(trained, layers)
        return trained

    trained = train([TOP])
    s = trained.moments[TOP].statistics_so_far()
    decider = Decider(s, loaded.weight, loaded.bias)

    def validate(decider: Decider) -> None:
        over(Validation(source, {TOP: decider}, kinds["validation"], None))

    works: dict[str, Callable[[], object]] = {
        _BARE: _forwards(model.get_decoder(), tokens_ST.to(device).split(_GPU_BATCH)),
        "training pass": lambda: train([TOP]),
        "training pass with four inner layers": lambda: train(four),
        "training pass with all layers": lambda: train(every),
        "validation pass": lambda: validate(decider),
    }
    times = in_turn(works, 2)
    works["validation pass"] = lambda: validate(Decider(s, loaded.weight, loaded.bias))  # its memory counts too
    peaks = {work: growth_of(function) for work, function in works.items()}
    name = f"{configuration.model_type} {configuration.num_hidden_layers}x{configuration.hidden_size}"
    data = f"{name}, {str(model.dtype)[6:]}, C = {s.n_classes:,}, batches of {_GPU_BATCH} × {length:,}"
    record.add(data, times, amount=tokens_ST.numel(), unit="tokens", limit=_BARE, peaks=peaks)


def make(folder: Path, quick: bool, length: int, chunks: int) -> None:
    """Write a random model with its tokenizer into model/, and train.jsonl with at least ``chunks`` chunks."""
    sizes = {"depth": 2, "width": 64, "vocabulary": 4_000} if quick else {"depth": 4, "width": 256}
    transformers.utils.logging.disable_progress_bar()
    build(Recipe(**sizes, chunk_length=length, precision="float32")).save_pretrained(folder / "model")
    train_tokenizer(stories(400, seed=1), folder / "model", vocabulary=2_048)
    write_stories(folder / "train.jsonl", chunks * length // STORY + 1, seed=1)


def ours(folder: str, length: int, chunks: int, layers: str = TOP) -> Callable[[], object]:
    """Return a function that collects this number of chunks, each time from the beginning."""
    return lambda: collapse.collect(
        f"{folder}/model",
        store=f"{folder}/{layers}-{chunks}",
        layers=layers,
        text=f"{folder}/train.jsonl",
        chunk_length=length,
        max_chunks=chunks,
        recollect=True,
        device="cpu",
    )


def bare(folder: str, length: int, chunks: int) -> Callable[[], object]:
    """Return a function that runs the decoder's forward passes over this number of chunks."""
    decoder = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/model").get_decoder()
    prepare(decoder)
    return _forwards(decoder, [torch.zeros(_BATCH, length, dtype=torch.int64)] * (chunks // _BATCH))


def _forwards(decoder: torch.nn.Module, batches: Sequence[Tensor]) -> Callable[[], object]:
    @torch.inference_mode()
    def run() -> None:
        for tokens_BT in batches:
            decoder(input_ids=tokens_BT, use_cache=False)

    return run
