"""Random sequences of what users do: every number that is printed is of what was named, or the command refuses.

``python tests/sequences.py`` runs 300 seeded sequences of collections, kills, resumes, parts, merges and pushes, while
texts, weights and tokenizers change under the same path and name. The numbers of each command that measures are
compared with plain transformers and tests/reference.py.
"""

import argparse
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import reference
import torch
from commands import Runner
from hub_server import Hub
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    PreTrainedTokenizerFast,
)

OF_TRAINING = ("nc1.cdnv", "nc2.norm", "nc3.self_duality")
CHECKED = (*OF_TRAINING, "nc4.agreement", "val_loss")
TOLERANCE = 2e-3  # fast attention rounds otherwise; another text, tokenizer or model differs by far more
OLD = 1_600_000_000 * 10**9  # the modification time that files keep when their content changes
CHANGING = {"weights": 3, "tokenizer": 2, "text": 3, "validation": 3}  # variants of each
WIDTH = 24


@dataclass(frozen=True)
class Named:
    """What a number is of: variants of weights, tokenizer and texts, and the options that change it."""

    weights: int = 0
    tokenizer: int = 0
    text: int = 0
    validation: int = 1
    chunk_length: int = 16
    max_chunks: int = 18
    dtype: str = "float32"


class Wrong(AssertionError):
    """A number that is not of what was named, or a loss of what was there."""


class Variants:
    """The files of every variant, and the true numbers of any choice of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        draw = random.Random(0)
        words = ["".join(draw.choice("abdeilmnorstu") for _ in range(draw.randint(2, 6))) for _ in range(150)]
        self.texts = [self._text(random.Random(seed), words) for seed in range(CHANGING["text"])]
        self.models = [self._model(seed) for seed in range(CHANGING["weights"])]
        self.tokenizers = [self._tokenizer(seed) for seed in range(CHANGING["tokenizer"])]
        self.truth = cache(self._truth)

    @staticmethod
    def _text(draw: random.Random, words: list[str]) -> bytes:
        """Lines of JSON; all texts have one size, so that only their content tells them apart."""
        weights = [1 / (rank + 1) for rank in range(len(words))]
        rows = [" ".join(draw.choices(words, weights, k=24)) for _ in range(60)]
        text = "".join(json.dumps({"text": row}) + "\n" for row in rows)
        return text.encode()[:7000].rsplit(b"\n", 1)[0].ljust(7000, b"\n")

    def _model(self, seed: int) -> dict[str, bytes]:
        torch.manual_seed(seed)
        config = GPTNeoConfig(
            vocab_size=160,
            hidden_size=WIDTH,
            num_layers=2,
            num_heads=2,
            intermediate_size=48,
            attention_types=[[["global", "local"], 1]],
            max_position_embeddings=64,
            window_size=8,
            bos_token_id=0,
            eos_token_id=0,
        )
        model = GPTNeoForCausalLM(config)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.data.normal_(std=0.3)  # far from uniform predictions, so that variants differ
        return self._saved(model, f"model{seed}")

    def _tokenizer(self, seed: int) -> dict[str, bytes]:
        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=120 + 20 * seed,
            special_tokens=["<|end|>"],
            show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())[:90],
        )
        made.train_from_iterator([self.texts[seed].decode()], trainer)
        return self._saved(PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>"), f"tokenizer{seed}")

    def _saved(self, what: Any, name: str) -> dict[str, bytes]:
        what.save_pretrained(self.folder / name)
        return {file.name: file.read_bytes() for file in sorted((self.folder / name).iterdir())}

    def _truth(self, named: Named) -> dict[str, float]:
        """The numbers of what is named, without collapse."""
        model = AutoModelForCausalLM.from_pretrained(self.folder / f"model{named.weights}").eval()
        tokenizer = AutoTokenizer.from_pretrained(self.folder / f"tokenizer{named.tokenizer}")
        dumped: dict[str, Any] = {"classifier": model.get_output_embeddings().weight.detach().numpy()}
        for name, variant in (("train", named.text), ("validation", named.validation)):
            rows = [json.loads(line)["text"] for line in self.texts[variant].splitlines() if line]
            half, length, chunks = -(-len(rows) // 2), named.chunk_length, []
            for shard in (rows[:half], rows[half:]):
                flat = [each for row in tokenizer(shard)["input_ids"] for each in row]
                chunks += [flat[i : i + length] for i in range(0, len(flat) - length + 1, length)]
            tokens = torch.tensor(chunks[: named.max_chunks])
            with torch.no_grad():
                h = model.transformer(tokens).last_hidden_state
            dumped[f"{name}_features"] = h[:, :-1].reshape(-1, WIDTH).numpy()
            dumped[f"{name}_labels"] = tokens[:, 1:].reshape(-1).numpy()
        values = reference.everything(dumped)
        return {name: float(np.float64(values[name])) for name in CHECKED} | {"samples": len(dumped["train_labels"])}

    def fits(self, row: dict[str, Any], named: Named) -> bool:
        """Whether a row of numbers is of what is named; a store that is not validated has none of the validation."""
        truth = self.truth(replace(named, dtype="float32"))
        if row["dtype"] != named.dtype or row["samples"] != truth["samples"]:
            return False
        names = CHECKED if row["measurements"]["val_loss"] is not None else OF_TRAINING
        slack = {"nc4.agreement": 2 / truth["samples"]}
        return all(
            abs(row["measurements"][name] - truth[name]) <= TOLERANCE * abs(truth[name]) + slack.get(name, 0)
            for name in names
        )


class World:
    """What is on the disk and on the Hub in one sequence, and what each store may hold."""

    def __init__(self, variants: Variants, hub: Hub, runner: Runner, folder: Path, seed: int) -> None:
        self.variants, self.hub, self.runner, self.folder = variants, hub, runner, folder
        self.draw = random.Random(seed)
        self.now, self.options_drawn = Named(), {}
        self.stores: dict[str, set[Named]] = {}
        self.begun: dict[str, Named] = {}
        self.counts: Counter[str] = Counter()
        self.told: list[str] = []
        hub.empty()
        folder.mkdir(parents=True)
        for what in CHANGING:
            self.write(what, getattr(self.now, what))
        self.publish(0, 0)

    def write(self, what: str, variant: int) -> None:
        """Put a variant's files under the same path; most of the time they keep their modification time."""
        files = {
            "weights": self.variants.models[variant % 3],
            "tokenizer": self.variants.tokenizers[variant % 2],
            "text": {"../text.jsonl": self.variants.texts[variant]},
            "validation": {"../validation.jsonl": self.variants.texts[variant]},
        }[what]
        (self.folder / "model").mkdir(exist_ok=True)
        keep = self.draw.random() < 0.8
        for name, data in files.items():
            file = self.folder / "model" / name
            file.write_bytes(data)
            if keep:
                os.utime(file, ns=(OLD, OLD))
        self.now = replace(self.now, **{what: variant})
        self.told.append(f"# {what} is now variant {variant}")

    def publish(self, weights: int, tokenizer: int) -> None:
        """Commit a variant to the model's repository."""
        self.hub.add("owner/model", self.variants.models[weights] | self.variants.tokenizers[tokenizer])
        self.published = {"weights": weights, "tokenizer": tokenizer}
        self.told.append(f"# owner/model now has {self.published}")

    def chosen(self) -> Named:
        """What is there now, with the options of before or others."""
        if self.draw.random() < 0.4:
            self.options_drawn = {
                "chunk_length": self.draw.choice((16, 24)),
                "max_chunks": self.draw.choice((18, 30)),
                "dtype": self.draw.choice(["float32"] * 4 + ["float64"]),
            }
        return replace(self.now, **self.options_drawn)

    def options(self, named: Named) -> list[Any]:
        """The options that name what a collection is of, and a batch size."""
        texts = ["--text", "text.jsonl", "--validation-text", "validation.jsonl"]
        size = ["--chunk-length", named.chunk_length, "--max-chunks", named.max_chunks, "--dtype", named.dtype]
        return [*texts, *size, "--batch-size", self.draw.choice(["auto", 1, 2, 3, 5])]

    def start(self, *words: Any) -> int:
        """Start a command line with caches of this sequence alone; its process id."""
        environment = {"COLLAPSE_HOME": str(self.folder / "home"), "HF_HOME": str(self.folder / "hf")}
        (self.folder / "log").write_text("")
        return self.runner.start(list(words), self.folder / "log", environment=environment, folder=self.folder)

    def ended(self, pid: int, *words: Any) -> bool:
        """Whether a command line succeeded; one that refuses says why."""
        code, said = self.runner.wait(pid), (self.folder / "log").read_text()
        self.told.append(f"{' '.join(map(str, words))}   exit {code}{': ' + said.strip()[-300:] if code else ''}")
        refused = any(line.startswith(("collapse:", "Error", "Usage")) for line in said.splitlines())
        if "Traceback" in said or code not in (0, 1, 2) or (code and not refused):
            raise Wrong(f"it ended with {code}: {said}")
        self.counts[f"{words[0]} {'refused' if code else 'done'}"] += 1
        return code == 0

    def run(self, *words: Any) -> bool:
        """Run a command line; whether it succeeded."""
        return self.ended(self.start(*words), *words)

    def kill(self, *words: Any) -> str:
        """Kill a command line at any moment: killed, or done or refused where it ended before."""
        pid = self.start(*words)
        time.sleep(self.draw.uniform(0, 1.5))
        if not self.runner.kill(pid):
            return "done" if self.ended(pid, *words) else "refused"
        self.told.append(f"{' '.join(map(str, words))}   KILLED")
        self.counts["killed"] += 1
        return "killed"

    def measure(self, name: str, may_be: set[Named], *words: Any) -> bool:
        """Measure what a name stands for: the row is of one of what it may be. Whether it measured."""
        table = self.folder / "table.json"
        table.unlink(missing_ok=True)
        words = ("measure", name, *words, "--output", "table.json", "--min-count", 1)
        return self.run(*words) and bool(self.fitting(json.loads(table.read_text())[0], may_be))

    def fitting(self, row: dict[str, Any], may_be: set[Named]) -> set[Named]:
        """What a row is of, among what it may be."""
        found = {named for named in may_be if self.variants.fits(row, named)}
        if not found:
            values = {name: row["measurements"][name] for name in CHECKED}
            raise Wrong(f"{values} of {row['samples']} samples in {row['dtype']} is none of {may_be}")
        return found


def change(world: World) -> None:
    """Other weights, another tokenizer or other text under the same path."""
    what = world.draw.choice(list(CHANGING))
    world.write(what, world.draw.randrange(CHANGING[what]))


def change_hub(world: World) -> None:
    """Other weights or another tokenizer in the model's repository."""
    world.publish(world.draw.randrange(CHANGING["weights"]), world.draw.randrange(CHANGING["tokenizer"]))


def measure_path(world: World) -> None:
    """Measure the model by its path, from the cache or anew."""
    named = world.chosen()
    world.measure("model", {named}, *world.options(named), *(["--recollect"] if world.draw.random() < 0.2 else []))


def measure_while_it_changes(world: World) -> None:
    """Measure the model while something changes: the number is of before or of after."""
    before = world.chosen()
    words = ["measure", "model", *world.options(before), "--output", "table.json", "--min-count", 1]
    (world.folder / "table.json").unlink(missing_ok=True)
    pid = world.start(*words)
    time.sleep(world.draw.uniform(0, 1))
    change(world)
    after = replace(before, **{what: getattr(world.now, what) for what in CHANGING})
    if world.ended(pid, *words):
        world.fitting(json.loads((world.folder / "table.json").read_text())[0], {before, after})


def collect(world: World) -> None:
    """Collect into a store, perhaps killed and given again, perhaps with something changed between."""
    store, named = f"stores/{world.draw.randrange(2)}", world.chosen()
    words = ["collect", "model", "--store", store, *(["--recollect"] if world.draw.random() < 0.3 else [])]
    held, begun = world.stores.get(store), world.begun.get(store)
    goes_on = False
    if world.draw.random() < 0.6:
        outcome = world.kill(*words, *world.options(named))
        if outcome == "done":
            held = world.stores[store] = {named}
        elif outcome == "killed":
            goes_on = held is None and begun in (None, named)
            world.begun.setdefault(store, named)
        if held and not world.measure(store, held | {named}):
            raise Wrong("a store that was whole was lost")
        if world.draw.random() < 0.4:
            goes_on = False
            change(world)
            named = replace(named, **{what: getattr(world.now, what) for what in CHANGING})
    if world.run(*words, *world.options(named)):
        world.stores[store] = {named}
        world.begun.pop(store, None)
        if not world.measure(store, {named}):
            raise Wrong("a store that was just collected was refused")
    elif goes_on:
        raise Wrong("a killed collection was not resumed")
    elif store in world.stores:
        world.stores[store] = world.stores[store] | {named}  # of a kill before this


def measure_into_store(world: World) -> None:
    """Measure the model with a store of its own, which may hold something else."""
    named, store = world.chosen(), f"stores/{world.draw.randrange(2)}"
    if world.measure("model", {named}, *world.options(named), "--store", store):
        world.stores[store] = {named}
        world.begun.pop(store, None)


def measure_stores(world: World) -> None:
    """Measure each store that is whole."""
    for store, may_be in world.stores.items():
        if not world.measure(store, may_be):
            raise Wrong(f"{store} was lost")


def merge(world: World) -> None:
    """Two parts, something perhaps changed between them, and their merge, validated."""
    named, parts = world.chosen(), ["parts/1", "parts/2"]
    for folder in (*parts, "merged"):
        shutil.rmtree(world.folder / folder, ignore_errors=True)
    for k, part in enumerate(parts, 1):
        if k == 2 and world.draw.random() < 0.4:
            change(world)
        world.run("collect", "model", "--store", part, "--part", f"{k}/2", *world.options(named))
    if world.run("merge", *parts, "--store", "merged"):
        world.measure("merged", {named})
        now = replace(named, **{what: getattr(world.now, what) for what in CHANGING})
        if world.run("collect", "model", "--store", "merged", *world.options(now)):
            world.measure("merged", {now})


def push(world: World) -> None:
    """Push every store into one repository, and measure each by the name that it got."""
    for store, may_be in list(world.stores.items()):
        if store.startswith("stores/") and world.run("push", store, "owner/stats"):
            said = (world.folder / "log").read_text()
            pattern = r"(?:collapse measure owner/stats/|owner/stats holds this store already, in )([^\s;]+)"
            name = re.findall(pattern, said)[-1]
            world.measure(f"owner/stats/{name}", may_be)
        if world.draw.random() < 0.3:
            world.run("push", store, "owner/model", "--into-model-repo")


def measure_hub(world: World) -> None:
    """Measure the model by its id, on the texts that are here."""
    named = replace(world.chosen(), **world.published)
    words = ["--store", "owner/stats"] if world.draw.random() < 0.2 else []
    world.measure("owner/model", {named}, *world.options(named), *words)


def third_party(world: World) -> None:
    """Somebody publishes a store of other weights that says to be of the model."""
    for store in [store for store in world.stores if world.draw.random() < 0.7]:
        files = [file for file in (world.folder / store).rglob("*") if file.is_file()]
        data = {f"collapse/x/{file.relative_to(world.folder / store)}": file.read_bytes() for file in files}
        card = b"---\ntags: [collapse]\nbase_model: owner/model\n---\n"
        world.hub.add("other/stats", data | {"README.md": card})
    shutil.rmtree(world.folder / "home", ignore_errors=True)  # the user's own cache would come first
    measure_hub(world)


ACTIONS: dict[Callable[[World], None], int] = {
    change: 6,
    change_hub: 2,
    measure_path: 4,
    measure_while_it_changes: 2,
    collect: 5,
    measure_into_store: 3,
    measure_stores: 2,
    merge: 1,
    push: 2,
    measure_hub: 4,
    third_party: 1,
}
"""What a user does, and how often."""


def sequence(world: World, length: int) -> None:
    """One sequence; in the end the model is measured anew, which must succeed."""
    for action in world.draw.choices(list(ACTIONS), list(ACTIONS.values()), k=length):
        world.told.append(f"## {action.__name__}")
        action(world)
    named = world.chosen()
    if not world.measure("model", {named}, *world.options(named), "--store", "stores/last"):
        raise Wrong("a new store of what is there was refused")


def main() -> int:
    """Run it; the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sequences", type=int, default=300)
    options.add_argument("--length", type=int, default=8)
    options.add_argument("--first", type=int, default=0, help="seed of the first sequence")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    hub, counts = Hub().start(), Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        variants = Variants(folder / "variants")
        runner = Runner(hub.environment(folder / "home") | {"OMP_NUM_THREADS": "1"})
        for seed in range(chosen.first, chosen.first + chosen.sequences):
            world = World(variants, hub, runner, folder / str(seed), seed)
            try:
                sequence(world, chosen.length)
            except Wrong as wrong:
                print(f"sequence {seed}:", *world.told, f"WRONG: {wrong}", sep="\n  ")  # noqa: T201
                return 1
            counts += world.counts + Counter(sequences=1)
            shutil.rmtree(world.folder, ignore_errors=True)
        runner.close()
    print(json.dumps(counts))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
