"""Random sequences of what users do: every number that is printed is of what was named, or the command refuses.

``python tests/sequences.py`` runs 300 seeded sequences: collections with varying batch sizes, kills, resumes,
recollections, parts and merges, pushes into one repository, and texts, weights and tokenizers that change under the
same path or name. After each command that measures, its numbers are compared with a direct computation (plain
transformers and tests/reference.py) of what the command named.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
OF_TRAINING = ("nc1.cdnv", "nc2.norm", "nc3.self_duality")
CHECKED = (*OF_TRAINING, "nc4.agreement", "val_loss")
TOLERANCE = 2e-3  # the fast attention rounds otherwise; other texts, weights or tokenizers differ by far more
OLD = 1_600_000_000 * 10**9  # a modification time that files keep when their content changes
CHANGING = ("weights", "tokenizer", "text", "validation")
WIDTH, LENGTHS, LIMITS, TEXTS, WEIGHTS, TOKENIZERS = 24, (16, 24), (18, 30), 3, 3, 2


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
    """A number that is not of what was named."""


def beside(name: str) -> ModuleType:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Variants:
    """The files of every variant, and the true numbers of any choice of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.reference = folder, beside("reference")
        draw = random.Random(0)
        words = ["".join(draw.choice("abdeilmnorstu") for _ in range(draw.randint(2, 6))) for _ in range(150)]
        self.texts = [self._text(random.Random(seed), words) for seed in range(TEXTS)]
        self.models = [self._model(seed) for seed in range(WEIGHTS)]
        self.tokenizers = [self._tokenizer(seed) for seed in range(TOKENIZERS)]
        self.truth = cache(self._truth)

    @staticmethod
    def _text(draw: random.Random, words: list[str]) -> bytes:
        weights = [1 / (rank + 1) for rank in range(len(words))]
        rows = [" ".join(draw.choices(words, weights, k=24)) for _ in range(60)]
        text = "".join(json.dumps({"text": row}) + "\n" for row in rows)
        # all of one size: only their content tells them apart
        return text.encode()[:7000].rsplit(b"\n", 1)[0].ljust(7000, b"\n")

    def _model(self, seed: int) -> dict[str, bytes]:
        import torch
        from transformers import GPTNeoConfig, GPTNeoForCausalLM

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
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
        from transformers import PreTrainedTokenizerFast

        made = Tokenizer(models.BPE())
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        # a vocabulary of 60 merges learned from other texts: the same text becomes other tokens
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())[:90]
        trainer = trainers.BpeTrainer(
            vocab_size=120 + 20 * seed, special_tokens=["<|end|>"], show_progress=False, initial_alphabet=alphabet
        )
        made.train_from_iterator([self.texts[seed].decode()], trainer)
        return self._saved(PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|end|>"), f"tokenizer{seed}")

    def _saved(self, what: Any, name: str) -> dict[str, bytes]:
        what.save_pretrained(self.folder / name)
        return {file.name: file.read_bytes() for file in sorted((self.folder / name).iterdir())}

    def files(self, weights: int, tokenizer: int) -> dict[str, bytes]:
        """A model's files."""
        return self.models[weights] | self.tokenizers[tokenizer]

    def _truth(self, named: Named) -> dict[str, float]:
        """Numbers of what is named, without collapse."""
        import numpy as np
        import torch
        import transformers

        model = transformers.AutoModelForCausalLM.from_pretrained(self.folder / f"model{named.weights}").eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder / f"tokenizer{named.tokenizer}")
        dumped: dict[str, Any] = {"classifier": model.get_output_embeddings().weight.detach().numpy()}
        for name, variant in (("train", named.text), ("validation", named.validation)):
            rows = [json.loads(line)["text"] for line in self.texts[variant].splitlines() if line]
            half, length, tokens = -(-len(rows) // 2), named.chunk_length, []
            for shard in (rows[:half], rows[half:]):
                flat = [each for row in tokenizer(shard)["input_ids"] for each in row]
                tokens += [flat[i : i + length] for i in range(0, len(flat) - length + 1, length)]
            chunks = torch.tensor(tokens[: named.max_chunks])
            with torch.no_grad():
                h = model.transformer(chunks).last_hidden_state
            dumped[f"{name}_features"] = h[:, :-1].reshape(-1, WIDTH).numpy()
            dumped[f"{name}_labels"] = chunks[:, 1:].reshape(-1).numpy()
        values = self.reference.everything(dumped)
        samples = len(dumped["train_labels"])
        return {name: float(np.float64(values[name])) for name in CHECKED} | {"samples": samples}


@dataclass
class World:
    """What is on the disk and on the Hub in one sequence, and what was said of it."""

    variants: Variants
    hub: Any
    runner: Any
    folder: Path
    draw: random.Random
    seconds: float = 1.0
    now: Named = field(default_factory=Named)
    on_hub: tuple[int, int] = (0, 0)
    pushed: dict[str, Named] = field(default_factory=dict)
    drawn: dict[str, Any] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Write the first variants."""
        self.folder.mkdir(parents=True)
        for what in ("weights", "tokenizer", "text", "validation"):
            self.write(what, getattr(self.now, what))
        self.publish(0, 0)

    def write(self, what: str, variant: int) -> None:
        """Put a variant's files under the same path; most of the time they keep their modification time."""
        files = {
            "weights": lambda: self.variants.models[variant],
            "tokenizer": lambda: self.variants.tokenizers[variant],
            "text": lambda: {"../text.jsonl": self.variants.texts[variant]},
            "validation": lambda: {"../validation.jsonl": self.variants.texts[variant]},
        }[what]()
        (self.folder / "model").mkdir(exist_ok=True)
        keep = self.draw.random() < 0.8
        for name, data in files.items():
            file = self.folder / "model" / name
            file.write_bytes(data)
            if keep:
                os.utime(file, ns=(OLD, OLD))
        self.now = replace(self.now, **{what: variant})

    def publish(self, weights: int, tokenizer: int) -> None:
        """Commit a variant to the model's repository."""
        self.hub.add("owner/model", self.variants.files(weights, tokenizer))
        self.on_hub = (weights, tokenizer)

    @property
    def environment(self) -> dict[str, str]:
        """Caches of this sequence alone."""
        return {"COLLAPSE_HOME": str(self.folder / "home"), "HF_HOME": str(self.folder / "hf")}

    def start(self, *words: Any) -> int:
        """Start a command line; its process id."""
        return self.runner.start(list(words), self.folder / "log", environment=self.environment, folder=self.folder)

    def kill(self, *words: Any, store: str, counting: bool = False) -> bool:
        """Start a command line that collects, and kill it: at any moment, or once it has counted some slices.

        Args:
            words: The command line.
            store: The folder that it collects into.
            counting: Always wait until it has counted.

        Returns:
            Whether it was killed with slices that it had counted.
        """
        after, counted = self.draw.uniform(0.1, 1.1) * self.seconds, self.draw.random() < 0.6 or counting
        pid, began = self.start(*words), time.monotonic()
        while counted and time.monotonic() < began + 2 * self.seconds:
            if self.is_counting(store):
                break
            time.sleep(0.002)
        time.sleep(after / 20 if counted else after)
        killed = self.runner.kill(pid)
        counted = killed and self.is_counting(store)
        if killed:
            self.told.append(f"{' '.join(map(str, words))}   KILLED{' while it counted' if counted else ''}")
            self.counts["killed while it counted" if counted else "killed"] += 1
        return counted

    def is_counting(self, store: str) -> bool:
        """Whether a collection into a store has counted slices."""
        return any((self.folder / store).glob("**/shards/*.safetensors"))

    def run(self, *words: Any) -> tuple[int, str]:
        """Run a command line: its exit code, and what it said."""
        environment = self.environment
        shown = [str(word).removeprefix(f"{self.folder}/") for word in words]
        log = self.folder / "log"
        code, said = self.runner.run(list(words), log, environment=environment, folder=self.folder)
        self.told.append(f"{' '.join(shown)}   exit {code}{': ' + said.strip()[-300:] if code else ''}")
        if "Traceback" in said or code not in (0, 1, 2):
            raise Wrong(f"it ended with {code}: {said}")
        if code and not any(line.startswith(("collapse:", "Error", "Usage")) for line in said.splitlines()):
            raise Wrong(f"it refused without a message: {said!r}")
        return code, said

    def options(self, named: Named) -> list[str]:
        """The options that name what a collection is of, and a batch size."""
        words = ["--text", "text.jsonl", "--validation-text", "validation.jsonl", "--chunk-length", named.chunk_length]
        words += ["--max-chunks", named.max_chunks, "--dtype", named.dtype]
        words += ["--batch-size", self.draw.choice(["auto", "1", "2", "3", "5"])]
        return [str(word) for word in words]

    def chosen(self) -> Named:
        """What is there now, with the options of before, or drawn anew: a mix-up needs two things of one name."""
        if self.draw.random() < 0.4:
            dtype = self.draw.choice(["float32"] * 4 + ["float64"])
            self.drawn = {
                "chunk_length": self.draw.choice(LENGTHS),
                "max_chunks": self.draw.choice(LIMITS),
                "dtype": dtype,
            }
        return replace(self.now, **self.drawn)

    def measure(self, name: str, named: Named | None, *words: str) -> bool:
        """Measure what a name stands for, and compare; of a store it is what its manifest says. Whether it measured."""
        table = self.folder / "table.json"
        table.unlink(missing_ok=True)
        code, _ = self.run("measure", name, *words, "--output", "table.json", "--min-count", 1)
        self.counts["measured" if code == 0 else "refused"] += 1
        if code:
            return False
        named = named or self.of_store(self.folder / name)
        assert named is not None  # a complete store was named
        self.compare(json.loads(table.read_text())[0], named)
        return True

    def measure_training(self, store: Path) -> None:
        """Measure a store that is not validated yet."""
        table = self.folder / "table.json"
        table.unlink(missing_ok=True)
        if self.run("measure", store.relative_to(self.folder), "--output", "table.json")[0] == 0:
            named = self.of_identity(json.loads((store / "collapse.json").read_text())["identity"])
            self.compare(json.loads(table.read_text())[0], named, OF_TRAINING)

    def compare(self, row: dict[str, Any], named: Named, names: tuple[str, ...] = CHECKED) -> None:
        """Raise Wrong where a row is not of what was named."""
        said = self.of_row(row, named)
        if said != named:
            raise Wrong(f"the row says {said}, not {named}")
        truth = self.variants.truth(replace(named, dtype="float32"))
        if row["dtype"] != named.dtype or row["samples"] != truth["samples"]:
            raise Wrong(f"{row['samples']} samples in {row['dtype']}, not {truth['samples']} of {named}")
        for name in names:
            value, expected = row["measurements"][name], truth[name]
            slack = 2 / truth["samples"] if name == "nc4.agreement" else 0
            if value is None or abs(value - expected) > TOLERANCE * abs(expected) + slack:
                raise Wrong(f"{name} is {value}, and {expected} for {named}")

    def of_store(self, folder: Path) -> Named | None:
        """What a store says that it is of; None where there is none, or one without its validation yet."""
        if not (folder / "collapse.json").exists():
            return None
        manifest = json.loads((folder / "collapse.json").read_text())
        return self.of_identity(manifest["identity"]) if manifest["coverage"]["validation"] else None

    def of_identity(self, identity: dict[str, Any]) -> Named:
        """What an identity is of."""
        texts = {_listed([data]): index for index, data in enumerate(self.variants.texts)}
        weights, tokenizer = self.of_model(identity["weights"], 0), self.of_model(identity["tokenizer"], 1)
        return Named(
            weights=weights,
            tokenizer=tokenizer,
            text=texts[identity["corpus"]["sha256"]],
            validation=texts[identity["validation"]["sha256"]] if identity["validation"] else 0,
            chunk_length=identity["chunk_length"],
            max_chunks=identity["max_chunks"],
            dtype=identity["dtype"],
        )

    def of_row(self, row: dict[str, Any], named: Named) -> Named:
        """What a row says that it is of; the validation text as named where it says none."""
        texts = {
            _sha256({"sha256": _listed([data]), "column": "text"}): i for i, data in enumerate(self.variants.texts)
        }
        return Named(
            weights=self.of_model(row["weights"], 0),
            tokenizer=self.of_model(row["tokenizer"], 1),
            text=texts[row["corpus_id"]],
            validation=texts[row["validation_id"]] if row["validation_id"] else named.validation,
            chunk_length=row["chunk_length"],
            max_chunks=row["max_chunks"],
            dtype=row["dtype"],
        )

    def of_model(self, fingerprint: str, which: int) -> int:
        """The variant of weights (0) or tokenizer (1) that a fingerprint names."""
        sets = (self.variants.models, self.variants.tokenizers)[which]
        names = [("model.safetensors", "config.json"), ("tokenizer.json", "tokenizer_config.json")][which]
        for index, files in enumerate(sets):
            hashes = {name: hashlib.sha256(files[name]).hexdigest() for name in names if name in files}
            if fingerprint == f"sha256:{_sha256(hashes)}":
                return index
        raise Wrong(f"a store names {fingerprint}, which nothing here ever was")

    def stores(self) -> list[Path]:
        """Folders that hold a complete store."""
        found = sorted(file.parent for file in self.folder.glob("stores/*/collapse.json"))
        return [folder for folder in found if self.of_store(folder)]


def _sha256(value: Any) -> str:
    data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(data).hexdigest()


def _listed(files: list[bytes]) -> str:
    return _sha256([hashlib.sha256(data).hexdigest() for data in files])


def change(world: World) -> None:
    """Other weights, another tokenizer or other text under the same path."""
    what, many = world.draw.choice(
        [("weights", WEIGHTS), ("tokenizer", TOKENIZERS), ("text", TEXTS), ("validation", TEXTS)]
    )
    variant = world.draw.randrange(many)
    world.write(what, variant)
    world.told.append(f"# {what} is now variant {variant}")


def change_hub(world: World) -> None:
    """Other weights or another tokenizer in the model's repository."""
    weights, tokenizer = world.draw.randrange(WEIGHTS), world.draw.randrange(TOKENIZERS)
    world.publish(weights, tokenizer)
    world.told.append(f"# owner/model now has weights {weights} and tokenizer {tokenizer}")


def measure_path(world: World) -> None:
    """Measure the model by its path, from the cache or anew."""
    named = world.chosen()
    world.measure("model", named, *world.options(named), *(["--recollect"] if world.draw.random() < 0.2 else []))


def collect(world: World) -> None:
    """Collect into a store, perhaps killed, perhaps resumed with other options, perhaps anew."""
    store = f"stores/{world.draw.randrange(2)}"
    folder, named = world.folder / store, world.chosen()
    words = ["collect", "model", "--store", store, *(["--recollect"] if world.draw.random() < 0.4 else [])]
    before = world.of_store(folder)
    if before is not None and world.draw.random() < 0.5:  # of what is there, so that it may be recollected
        named = replace(world.now, chunk_length=before.chunk_length, max_chunks=before.max_chunks, dtype=before.dtype)
    counted = world.is_counting(store)
    goes_on = False
    if world.draw.random() < 0.6:
        goes_on = world.kill(*words, *world.options(named), store=store) and not counted
        if before is not None and not world.measure(store, before):
            raise Wrong("a store that was whole was lost")
        if world.draw.random() < 0.4:
            change(world)
            goes_on = False
            named = replace(world.now, chunk_length=named.chunk_length, max_chunks=named.max_chunks, dtype=named.dtype)
    code, _ = world.run(*words, *world.options(named))
    if goes_on and code:
        raise Wrong("a killed collection was not resumed")
    world.counts["collected" if code == 0 else "not collected"] += 1
    if code == 0 and world.of_store(folder) != named:
        raise Wrong(f"collected {world.of_store(folder)} where {named} was named")
    if before not in (None, world.of_store(folder)):
        raise Wrong(f"a store of {before} was lost")
    if code == 0 and not world.measure(store, named):
        raise Wrong("a store that was just collected was refused")


def go_on_with_another(world: World) -> None:
    """Kill a collection while it counts, put other weights in the place of its model's, and give the command again."""
    named = world.chosen()
    words = ["collect", "model", "--store", "stores/killed", *world.options(named)]
    for _ in range(4):
        shutil.rmtree(world.folder / "stores/killed", ignore_errors=True)
        if world.kill(*words, store="stores/killed", counting=True):
            break
    world.write("weights", (world.now.weights + 1) % WEIGHTS)
    world.told.append(f"# weights is now variant {world.now.weights}")
    if world.run(*words)[0] == 0:
        world.measure("stores/killed", replace(named, weights=world.now.weights))


def measure_while_it_changes(world: World) -> None:
    """Measure the model while something changes: the number is of before or of after, and the cache is right."""
    before = world.chosen()
    table = world.folder / "table.json"
    table.unlink(missing_ok=True)
    words = ["measure", "model", *world.options(before), "--output", "table.json"]
    pid = world.start(*words)
    time.sleep(world.draw.uniform(0.0, 0.8) * world.seconds)
    change(world)
    after = replace(before, **{what: getattr(world.now, what) for what in CHANGING})
    code = world.runner.wait(pid)
    world.told.append(f"{' '.join(words)}   exit {code}, while it changed")
    world.counts["measured while it changed" if code == 0 else "refused while it changed"] += 1
    if code == 0:
        row = json.loads(table.read_text())[0]
        try:
            world.compare(row, before)
        except Wrong:
            world.compare(row, after)


def forge(world: World) -> None:
    """Somebody publishes a store of the model in a repository of their own, with numbers that it does not have."""
    named = replace(world.chosen(), weights=world.on_hub[0], tokenizer=world.on_hub[1])
    folder = world.folder / "forged"
    shutil.rmtree(folder, ignore_errors=True)
    code, _ = world.run("collect", "owner/model", *world.options(named), "--store", folder)
    if code == 0:
        files = {f"collapse/forged/{name}": data for name, data in forged(folder).items()}
        card = "---\ntags: [collapse]\nbase_model: owner/model\n---\n"
        world.hub.add("other/forged", files | {"README.md": card.encode()})
        shutil.rmtree(world.folder / "home", ignore_errors=True)  # the user's own cache would come first
        world.measure("owner/model", named, *world.options(named))


def forged(folder: Path) -> dict[str, bytes]:
    """A store's files with other class means, sealed anew."""
    from safetensors.torch import load, save

    from collapse.stores.manifest import render, sealed
    from collapse.stores.tensor_files import described

    manifest = json.loads((folder / "collapse.json").read_text())
    files = {name: (folder / name).read_bytes() for name in manifest["files"]}
    train = load(files["top/train.safetensors"])
    files["top/train.safetensors"] = save(train | {"means": train["means"] * 1.5})
    manifest["files"]["top/train.safetensors"] = described(files["top/train.safetensors"])
    content = {key: value for key, value in manifest.items() if key not in ("digest", "provenance", "checksum")}
    return files | {"collapse.json": render(sealed(content, manifest["provenance"]))}


def measure_into_store(world: World) -> None:
    """Measure the model with a store of its own, which may hold something else."""
    named = world.chosen()
    world.measure("model", named, *world.options(named), "--store", f"stores/{world.draw.randrange(2)}")


def measure_store(world: World) -> None:
    """Measure a store: it is of what its manifest says."""
    for store in world.stores():
        world.measure(str(store.relative_to(world.folder)), None)


def merge(world: World) -> None:
    """Two parts, something perhaps changed between them, and their merge, validated."""
    named, parts = world.chosen(), [world.folder / f"parts/{k}" for k in (1, 2)]
    target = world.folder / "stores" / "merged"
    for folder in (*parts, target):
        shutil.rmtree(folder, ignore_errors=True)
    for k, part in enumerate(parts, 1):
        if k == 2 and world.draw.random() < 0.4:
            change(world)
        world.run("collect", "model", "--store", part, "--part", f"{k}/2", *world.options(named))
    code, _ = world.run("merge", *parts, "--store", target)
    world.counts["merged" if code == 0 else "not merged"] += 1
    if code == 0:
        world.measure_training(target)
        code, _ = world.run("collect", "model", "--store", target, *world.options(named))
        if code == 0:
            measure_store(world)


def push(world: World) -> None:
    """Push every store into one repository, and measure each by the name that it got."""
    for store in world.stores():
        named = world.of_store(store)
        assert named is not None  # it is complete
        code, said = world.run("push", store.relative_to(world.folder), "owner/stats")
        found = said.rsplit("collapse measure owner/stats/", 1) if code == 0 else []
        if len(found) == 2:
            name = f"owner/stats/{found[1].split()[0]}"
            if world.pushed.setdefault(name, named) != named:
                raise Wrong(f"a store of {named} replaced {name}, of {world.pushed[name]}")
    for name, named in world.pushed.items():
        world.measure(name, named)


def push_to_model(world: World) -> None:
    """Push a store into the model's own repository, of whatever it is."""
    stores = world.stores()
    if stores:
        world.run("push", world.draw.choice(stores).relative_to(world.folder), "owner/model", "--into-model-repo")


def measure_hub(world: World) -> None:
    """Measure the model by its id, on the texts that are here."""
    named = replace(world.chosen(), weights=world.on_hub[0], tokenizer=world.on_hub[1])
    words = ["--store", "owner/stats"] if world.draw.random() < 0.2 else []
    world.measure("owner/model", named, *world.options(named), *words)


ACTIONS: dict[Callable[[World], None], int] = {
    change: 6,
    change_hub: 2,
    measure_path: 4,
    measure_while_it_changes: 2,
    forge: 1,
    collect: 4,
    measure_into_store: 3,
    measure_store: 2,
    merge: 1,
    push: 2,
    push_to_model: 2,
    measure_hub: 4,
}
"""What a user does, and how often."""


def sequence(world: World, length: int) -> None:
    """One sequence; in the end the model is measured anew, which must succeed."""
    world.begin()
    for action in world.draw.choices(list(ACTIONS), list(ACTIONS.values()), k=length):
        world.told.append(f"## {action.__name__}")
        action(world)
    if world.draw.random() < 0.3:  # random actions seldom come to this
        go_on_with_another(world)
    named = world.chosen()
    if not world.measure("model", named, *world.options(named), "--store", "stores/last"):
        raise Wrong("a new store of what is there was refused")


def timed(world: World) -> float:
    """Seconds that a collection takes here: kills and changes shall come while one runs."""
    world.begin()
    words = world.options(world.chosen())
    for store in ("stores/0", "stores/1"):  # the first command waits until the warm process is
        began = time.monotonic()
        world.run("collect", "model", "--store", store, *words)
    return time.monotonic() - began


def main() -> int:
    """Run it; the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sequences", type=int, default=300)
    options.add_argument("--length", type=int, default=8)
    options.add_argument("--first", type=int, default=0, help="seed of the first sequence")
    chosen = options.parse_args()
    served = beside("hub_server").Hub().start()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        variants = Variants(folder / "variants")
        environment = served.environment(folder / "home") | {"OMP_NUM_THREADS": "1"}
        runner = beside("commands").Runner(environment)
        seconds = timed(World(variants, served, runner, folder / "timed", random.Random(0)))
        for seed in range(chosen.first, chosen.first + chosen.sequences):
            served.empty()
            world = World(variants, served, runner, folder / str(seed), random.Random(seed), seconds)
            try:
                sequence(world, chosen.length)
            except Wrong as wrong:
                print(f"sequence {seed}:", *world.told, f"WRONG: {wrong}", sep="\n  ")  # noqa: T201
                print(json.dumps({**counts, "wrong": seed}))  # noqa: T201
                return 1
            finally:
                counts += world.counts
                shutil.rmtree(world.folder, ignore_errors=True)
            counts["sequences"] += 1
        runner.close()
    print(json.dumps(counts))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
