"""Random sequences of commands: a command measures the named model, tokenizer and texts, or refuses.

``python tests/sequences.py`` runs 300 seeded sequences of collections, kills, resumes, parts, merges and pushes, while
texts, weights and tokenizers change under the same path and name. The numbers of each measurement are compared with
plain transformers and tests/reference.py.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from commands import Runner
from hub_server import Hub
from variants import CHANGING, CHECKED, Named, Variants

OLD = 1_600_000_000 * 10**9  # the modification time that files keep when their content changes


class Wrong(AssertionError):
    """A number is of another model, tokenizer or text than the named one, or a store was lost."""


class World:
    """The disk and the Hub during one sequence, and what each store may hold."""

    def __init__(self, variants: Variants, hub: Hub, runner: Runner, folder: Path, seed: int) -> None:
        self.variants, self.hub, self.runner, self.folder = variants, hub, runner, folder
        self.draw = random.Random(seed)
        self.now = {"weights": 0, "tokenizer": 0, "text": 0, "validation": 1}
        self.published = {"weights": 0, "tokenizer": 0}
        self.drawn: dict[str, Any] = {"chunk_length": 16, "max_chunks": 18, "dtype": "float32"}
        self.stores: dict[str, set[Named]] = {}
        self.begun: dict[str, Named] = {}
        self.counts: Counter[str] = Counter()
        self.history: list[str] = []
        hub.empty()
        (folder / "model").mkdir(parents=True)
        for what, variant in self.now.items():
            self.write(what, variant)
        self.publish(**self.published)

    def write(self, what: str, variant: int) -> None:
        """Put a variant's files under the same path; most of the time they keep their modification time."""
        keep = self.draw.random() < 0.8
        for name, data in self.variants.files(what, variant).items():
            (self.folder / name).write_bytes(data)
            if keep:
                os.utime(self.folder / name, ns=(OLD, OLD))
        self.now[what] = variant
        self.history.append(f"# {what} is now variant {variant}")

    def publish(self, **variants: int) -> None:
        """Commit variants of weights and tokenizer to the model's repository."""
        for what, variant in variants.items():
            files = self.variants.files(what, variant)
            self.hub.add("owner/model", {name.removeprefix("model/"): data for name, data in files.items()})
        self.published = variants
        self.history.append(f"# owner/model now has {variants}")

    def chosen(self) -> Named:
        """Return the present variants with options, which sometimes change."""
        if self.draw.random() < 0.4:
            self.drawn = {
                "chunk_length": self.draw.choice((16, 24)),
                "max_chunks": self.draw.choice((18, 30)),
                "dtype": self.draw.choice(["float32"] * 4 + ["float64"]),
            }
        return Named(**self.now, **self.drawn)

    def options(self, named: Named) -> list[Any]:
        """The options that select texts and settings, and a batch size."""
        texts = ["--text", "text.jsonl", "--validation-text", "validation.jsonl"]
        size = ["--chunk-length", named.chunk_length, "--max-chunks", named.max_chunks, "--dtype", named.dtype]
        return [*texts, *size, "--batch-size", self.draw.choice(["auto", 1, 2, 3, 5])]

    def run(self, *words: Any, kill: bool = False, meanwhile: Callable[[], None] | None = None) -> str:
        """Run a command line, perhaps kill it or change something meanwhile; return done, refused or killed."""
        log = self.folder / "log"
        log.write_text("")
        environment = {"COLLAPSE_HOME": str(self.folder / "home"), "HF_HOME": str(self.folder / "hf")}
        pid = self.runner.start(list(words), log, environment=environment, folder=self.folder)
        if kill or meanwhile:
            time.sleep(self.draw.uniform(0, 1))
        if kill:
            self.runner.kill(pid)
        if meanwhile:
            meanwhile()
        code, said = self.runner.wait(pid), log.read_text()
        outcome = "killed" if kill and code == -signal.SIGKILL else "refused" if code else "done"
        self.history.append(f"{' '.join(map(str, words))}   {outcome}{': ' + said.strip()[-300:] if code else ''}")
        explained = any(line.startswith(("collapse:", "Error", "Usage")) for line in said.splitlines())
        if "Traceback" in said or (outcome == "refused" and (code not in (1, 2) or not explained)):
            raise Wrong(f"it ended with {code}: {said}")
        self.counts[f"{words[0]} {outcome}"] += 1
        return outcome

    def measure(self, name: str, may_be: set[Named], *words: Any, **more: Any) -> bool:
        """Measure a model or store, check that the row fits one of ``may_be``, and return whether it measured."""
        table = self.folder / "table.json"
        table.unlink(missing_ok=True)
        if self.run("measure", name, *words, "--output", "table.json", "--min-count", 1, **more) != "done":
            return False
        row = json.loads(table.read_text())[0]
        if not any(self.variants.fits(row, named) for named in may_be):
            values = {name: row["measurements"][name] for name in CHECKED}
            raise Wrong(f"{values} of {row['samples']} samples in {row['dtype']} is none of {may_be}")
        return True


def change(world: World) -> None:
    """Write other weights, another tokenizer or another text under the same path."""
    what = world.draw.choice(list(CHANGING))
    world.write(what, world.draw.randrange(CHANGING[what]))


def change_hub(world: World) -> None:
    """Commit other weights or another tokenizer to the model's repository."""
    world.publish(**{what: world.draw.randrange(CHANGING[what]) for what in world.published})


def measure_path(world: World) -> None:
    """Measure the model by its path, from the cache or with --recollect."""
    named = world.chosen()
    world.measure("model", {named}, *world.options(named), *(["--recollect"] if world.draw.random() < 0.2 else []))


def measure_while_it_changes(world: World) -> None:
    """Measure the model while something changes: the row fits the state before or after."""
    named = world.chosen()
    may_be = {named}

    def meanwhile() -> None:
        change(world)
        may_be.add(replace(named, **world.now))

    world.measure("model", may_be, *world.options(named), meanwhile=meanwhile)


def collect(world: World) -> None:
    """Collect into a store; perhaps kill and repeat the command, perhaps change something in between."""
    store, named = f"stores/{world.draw.randrange(2)}", world.chosen()
    words = ["collect", "model", "--store", store, *(["--recollect"] if world.draw.random() < 0.3 else [])]
    held, resumes = world.stores.get(store), False
    if world.draw.random() < 0.6:
        outcome = world.run(*words, *world.options(named), kill=True)
        if outcome == "done":
            held = world.stores[store] = {named}
        elif outcome == "killed":
            resumes = world.begun.setdefault(store, named) == named and held is None
        if held and not world.measure(store, held | {named}):
            raise Wrong("a store that was whole was lost")
        if world.draw.random() < 0.4:
            resumes = False
            change(world)
            named = replace(named, **world.now)
    if world.run(*words, *world.options(named)) == "done":
        world.stores[store] = {named}
        world.begun.pop(store, None)
        if not world.measure(store, {named}):
            raise Wrong("a store that was just collected was refused")
    elif resumes:
        raise Wrong("a killed collection was not resumed")
    elif store in world.stores:
        world.stores[store] = world.stores[store] | {named}  # of a kill before this


def measure_into_store(world: World) -> None:
    """Measure the model with a --store that may hold something else."""
    named, store = world.chosen(), f"stores/{world.draw.randrange(2)}"
    if world.measure("model", {named}, *world.options(named), "--store", store):
        world.stores[store] = {named}
        world.begun.pop(store, None)


def measure_stores(world: World) -> None:
    """Measure each complete store."""
    for store, may_be in world.stores.items():
        if not world.measure(store, may_be):
            raise Wrong(f"{store} was lost")


def merge(world: World) -> None:
    """Collect two parts, perhaps change something in between, merge and validate them."""
    named, parts = world.chosen(), ["parts/1", "parts/2"]
    for folder in (*parts, "merged"):
        shutil.rmtree(world.folder / folder, ignore_errors=True)
    for k, part in enumerate(parts, 1):
        if k == 2 and world.draw.random() < 0.4:
            change(world)
        world.run("collect", "model", "--store", part, "--part", f"{k}/2", *world.options(named))
    if world.run("merge", *parts, "--store", "merged") == "done":
        world.measure("merged", {named})
        now = replace(named, **world.now)
        if world.run("collect", "model", "--store", "merged", *world.options(now)) == "done":
            world.measure("merged", {now})


def push(world: World) -> None:
    """Push every store to one repository, and measure each by its name there."""
    for store, may_be in world.stores.items():
        if world.run("push", store, "owner/stats") == "done":
            said = (world.folder / "log").read_text()
            pattern = r"(?:collapse measure |(?m:^))owner/stats/([^\s;]+)"
            world.measure(f"owner/stats/{re.findall(pattern, said)[-1]}", may_be)
        if world.draw.random() < 0.3:
            world.run("push", store, "owner/model", "--into-model-repo")


def measure_hub(world: World) -> None:
    """Measure the model by its Hub id, on the local texts."""
    named = replace(world.chosen(), **world.published)
    words = ["--store", "owner/stats"] if world.draw.random() < 0.2 else []
    world.measure("owner/model", {named}, *world.options(named), *words)


def third_party(world: World) -> None:
    """Publish a third party's store of other weights that claims to be of the model."""
    for store in [store for store in world.stores if world.draw.random() < 0.7]:
        folder = world.folder / store
        files = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        data = {f"collapse/x/{file.relative_to(folder)}": content for file, content in files.items()}
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
"""The actions of a user, and how often each occurs."""


def sequence(world: World, length: int) -> None:
    """Run one sequence; at the end the model is collected and measured again, which must succeed."""
    for action in world.draw.choices(list(ACTIONS), list(ACTIONS.values()), k=length):
        world.history.append(f"## {action.__name__}")
        action(world)
    named = world.chosen()
    if not world.measure("model", {named}, *world.options(named), "--store", "stores/last"):
        raise Wrong("a new store of what is there was refused")


def main() -> int:
    """Run the command, and return the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sequences", type=int, default=300)
    options.add_argument("--length", type=int, default=8)
    options.add_argument("--first", type=int, default=0, help="seed of the first sequence")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    hub, counts = Hub().start(), Counter[str]()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        variants = Variants(folder)
        runner = Runner(hub.environment(folder / "home") | {"OMP_NUM_THREADS": "1"})
        for seed in range(chosen.first, chosen.first + chosen.sequences):
            world = World(variants, hub, runner, folder / str(seed), seed)
            try:
                sequence(world, chosen.length)
            except Wrong as wrong:
                print(f"sequence {seed}:", *world.history, f"WRONG: {wrong}", sep="\n  ")  # noqa: T201
                return 1
            counts += world.counts + Counter(sequences=1)
            shutil.rmtree(world.folder, ignore_errors=True)
        runner.close()
    print(json.dumps(counts))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
