"""Fuzzes what is read of a store: manifests, tensor files and results that somebody altered, and sealed again or not.

``python tests/fuzz_stores.py --examples 50000`` prints what came of them and exits 1 at the first crash, file opened
outside the store, altered store that was taken, or absurd number. ``--without bound|path|hash|invariants`` takes one
check out, which must then be found missing. In a process of its own: its memory is bounded and its audit hook stays.
"""

import argparse
import io
import json
import os
import resource
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import safetensors.torch
import torch
from fuzz_mutations import KINDS, MUTATIONS, SECRET, mutate
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import collapse
import collapse.stores.files
import collapse.stores.manifest
import collapse.stores.manifest_checks
import collapse.stores.store
from collapse.cli import _add_commands, cli
from collapse.errors import CollapseError
from collapse.hub.card import card
from collapse.measurement.last_results import keep_row, kept_row
from collapse.measurement.results import Results

MEMORY = 1 << 30
opened: list[str] = []
watching = False
counts: Counter[str] = Counter()


def watch(event, arguments):
    """Note what is opened while a store is read."""
    if watching and event in ("open", "os.listdir", "os.scandir", "os.remove", "os.rename", "shutil.rmtree"):
        opened.append(os.fspath(arguments[0]) if isinstance(arguments[0], (str, bytes, os.PathLike)) else "")


@contextmanager
def watched(store):
    """Nothing but the store, the user's cache and Python itself may be opened inside."""
    global watching
    opened.clear()
    watching = True
    try:
        yield
    finally:
        watching = False
    allowed = (str(store), os.environ["COLLAPSE_HOME"], sys.prefix, sys.base_prefix, str(Path.cwd()))
    for name in opened:
        text = os.path.realpath(os.fsdecode(name))
        assert text.startswith(allowed) and SECRET not in text, f"opened outside the store: {text}"  # noqa: PT018


def make(folder):
    """A small store with every kind of file, and what was measured of it."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 8
    features = {
        "train_features": torch.randn(40, 5, generator=draw),
        "train_labels": labels,
        "classifier": torch.randn(8, 5, generator=draw, dtype=torch.float64),
        "classifier_bias": torch.randn(8, generator=draw, dtype=torch.float64),
        "validation_features": torch.randn(16, 5, generator=draw),
        "validation_labels": labels[:16].clone(),
    }
    save_file(features, folder / "features.safetensors")
    store = collapse.collect(folder / "features.safetensors", store=folder / "whole")
    row = collapse.measure(store)
    keep_row(store, row)
    results = Results([row])
    results.write(folder / "whole" / "table.json")
    return folder / "whole"


SHARES = ("nc4.agreement", "nc4.chance_agreement", "nc4.ncc_accuracy", "val_accuracy")
POSITIVE = ("nc1.cdnv", "nc1.trace_ratio", "nc1.covariance_ratio", "nc2.norm", "val_loss", "perplexity")


def check_numbers(row):
    """What no store can measure, whoever made it."""
    measured = {name: value for name, value in row.measurements.items() if value is not None}
    for name in SHARES:
        assert 0 <= measured.get(name, 0) <= 1, f"an absurd number: {name} = {measured[name]}"
    for name in POSITIVE:
        assert measured.get(name, 0) >= -1e-6, f"an absurd number: {name} = {measured[name]}"


def read(store):
    """Everything that a command reads of a store, and what is measured of it."""
    opened_store = collapse.load(store)
    opened_store.check()
    counts["opened"] += 1
    row = kept_row(opened_store)
    if row is not None:
        Results([row]).frame()
    opened_store.verify()
    check_numbers(collapse.measure(opened_store))
    counts["measured"] += 1
    if counts["measured"] % 10 == 1:  # slower: what is shown of it, and what a push would say of it
        with redirect_stdout(io.StringIO()):
            cli(["info", str(store)], standalone_mode=False)
            cli(["info", str(store), "--json"], standalone_mode=False)
        card(opened_store, "user/repo", "collapse/x")
        counts["shown"] += 1


def count_the_reader():
    """Count the calls of the tensor reader."""
    load_file = safetensors.torch.load_file

    def counted(*arguments, **options):
        counts["tensor files read"] += 1
        return load_file(*arguments, **options)

    safetensors.torch.load_file = counted


def take_out(check):
    """Take one check out."""
    if check == "bound":
        collapse.stores.tensor_files.bounded = lambda length, size: length
    elif check == "path":
        collapse.stores.manifest.check_names = lambda manifest: None
    elif check == "invariants":
        collapse.stores.store.check_tensors = lambda file, tensors, manifest: None
    elif check == "hash":
        collapse.stores.tensor_files.sha256_file = lambda path, **_: "not looked at"
        checked = collapse.stores.tensor_files.check_file
        # an entry whose hash is what sha256_file says passes, whatever the bytes are
        entry = lambda entry: {**entry, "sha256": "not looked at"}  # noqa: E731
        for module in (collapse.stores.tensor_files, collapse.stores.store):
            module.check_file = lambda path, e, **options: checked(path, entry(e), **options)


def main():
    """Run it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--examples", type=int, default=50_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--kind", choices=sorted(KINDS), help="this kind of mutation only")
    options.add_argument("--without", choices=["bound", "path", "hash", "invariants"])
    chosen = options.parse_args()
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)).resolve()
    os.environ["COLLAPSE_HOME"] = str(folder / "home")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    whole = make(folder)
    _add_commands()
    (folder / SECRET).write_bytes((whole / "top" / "train.safetensors").read_bytes())
    read(whole)  # imports all that it needs
    before = {file: file.read_bytes() for file in whole.rglob("*") if file.is_file()}
    count_the_reader()
    take_out(chosen.without)
    counts.clear()
    sys.addaudithook(watch)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))

    @seed(chosen.seed)
    @settings(
        max_examples=chosen.examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(st.just(chosen.kind), KINDS[chosen.kind][1]) if chosen.kind else MUTATIONS)
    def fuzz(mutation):
        store = whole
        counts["inputs"] += 1
        counts[f"inputs: {mutation[0]}"] += 1
        for file, data in before.items():
            file.write_bytes(data)
        wrong = mutate(store, mutation)
        reads = counts["tensor files read"]
        with watched(store):
            try:
                read(store)
            except CollapseError as error:
                counts["refused"] += 1
                assert "\n" not in str(error), error  # noqa: PT017  # not a test of pytest's
            else:
                assert not wrong, f"an altered store was taken: {mutation}"
            try:
                Results.read(store / "table.json")
            except CollapseError:
                counts["tables refused"] += 1
        altered = mutation[0] not in ("results", "table")
        counts["mutations that reached the tensor reader"] += altered and counts["tensor files read"] > reads

    try:
        fuzz()
        found = None
    except BaseException as error:  # whatever it is, it is what was looked for
        found = error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**counts, "peak_mib": peak // 1024, "found": None if found is None else repr(found)[:2000]}))  # noqa: T201
    if found is not None:
        raise found


if __name__ == "__main__":
    main()
