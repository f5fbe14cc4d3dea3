"""A warm process as of zygote.py with one mechanism taken out, named by COLLAPSE_WITHOUT: sequences.py must miss it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zygote

import collapse.collection.collecting
import collapse.collection.finding
import collapse.collection.folding
import collapse.collection.into_folder
import collapse.collection.passes
import collapse.collection.request
import collapse.hub.fingerprints
import collapse.hub.sharing
import collapse.inputs.corpus
import collapse.inputs.packing
import collapse.stores.files


def cache_by_content() -> None:
    """Rows of a text come from datasets' cache, which knows files by their path and modification time."""

    def load_files(datasets: Any, corpus: Any, folder: Path) -> Any:
        cache = str(collapse.stores.files.home() / "datasets")
        return datasets.load_dataset("json", data_files=list(corpus.files), split="train", cache_dir=cache)

    collapse.inputs.corpus._load_files = load_files


def hashing_again() -> None:
    """Texts are hashed before they are read, and not looked at afterwards."""
    collapse.inputs.corpus._check_unchanged = lambda *_: None


def whole_hashes() -> None:
    """A file of the same path, size and modification time is not hashed again."""
    known: dict[Any, str] = {}
    hashed = collapse.stores.files.sha256_file

    def remembered(path: Path, **options: Any) -> str:
        status = path.stat()
        memory = collapse.stores.files.home() / "remembered" / f"{path.name}-{status.st_size}-{status.st_mtime_ns}"
        if not memory.exists():
            memory.parent.mkdir(parents=True, exist_ok=True)
            memory.write_text(hashed(path, **options))
        return known.setdefault(memory, memory.read_text())

    collapse.hub.fingerprints.sha256_file = remembered


def whole_identity() -> None:
    """A published store is used whatever it is of, as long as it is of the same weights and texts."""
    differences = collapse.collection.finding.differences

    def less(mine: Any, theirs: Any, *, apart: Any) -> list[str]:
        return differences(mine, theirs, apart=apart | ({*mine, *theirs} - {"corpus", "validation"}))

    collapse.collection.finding.differences = less


def same_files() -> None:
    """A published store is used whatever its weights and tokenizer are."""
    differences = collapse.collection.finding.differences

    def less(mine: Any, theirs: Any, *, apart: Any) -> list[str]:
        return differences(mine, theirs, apart=apart | {"weights", "tokenizer"})

    collapse.collection.finding.differences = less


def trust_rule() -> None:
    """Stores of anybody are used that say they are of the model."""
    find = collapse.collection.finding.find_store

    def trusting(model: str, options: Any) -> Any:
        from huggingface_hub import HfApi

        found = find(model, options)
        if found is None and "/" in model and not Path(model).exists():
            for each in HfApi().list_models(filter=["collapse", f"base_model:{model}"]):
                found = found or collapse.collection.finding.find_store_at(each.id, model, options)
        return found

    collapse.collection.finding.find_store = collapse.collection.collecting.find_store = trusting


def one_folder_each() -> None:
    """A store is pushed into the folder of its plain name, whatever lies there."""
    collapse.hub.sharing.free_folder = lambda store, remote: collapse.hub.sharing.folder_of(store)


def comparing_parts() -> None:
    """Parts are merged whatever they are of."""
    collapse.collection.folding._comparable = lambda shard: {}


def comparing_progress() -> None:
    """A killed collection is resumed whatever it was of."""
    collapse.collection.passes.refuse_unlike = lambda *_: None
    collapse.collection.into_folder.refuse_other_shards = lambda *_: None


def comparing_stores() -> None:
    """The store in a folder is given back whatever it is of."""
    collapse.collection.request.Request.differences = lambda *_: []


def fixed_slices() -> None:
    """Slices are cut by the batch size, and a killed collection is resumed by their numbers alone."""
    passes = collapse.collection.passes
    original, refuse = passes.Collection._pass, passes.refuse_unlike

    def by_batch(self: Any, phase: Any, *arguments: Any) -> Any:
        fixed = self.batch_size if isinstance(self.batch_size, int) else 1
        phase.slice_units = max(fixed, phase.slice_units // fixed * fixed)
        return original(self, phase, *arguments)

    passes.Collection._pass = by_batch
    passes.refuse_unlike = lambda folder, shard, about: refuse(
        folder, shard, {**about, "coverage": shard.about["coverage"]}
    )


def replacing_when_complete() -> None:
    """``--recollect`` deletes the store before it has another."""
    replaced = collapse.collection.into_folder._refuse_to_replace

    def delete(folder: Path, *arguments: Any, **options: Any) -> None:
        replaced(folder, *arguments, **options)
        (folder / "collapse.json").unlink(missing_ok=True)
        shutil.rmtree(folder / "shards", ignore_errors=True)

    collapse.collection.into_folder._refuse_to_replace = delete


def refusing_to_replace() -> None:
    """``--recollect`` replaces a store of anything else."""
    collapse.collection.into_folder._refuse_to_replace = lambda *_, **__: None


MECHANISMS: list[Callable[[], None]] = [
    cache_by_content,
    hashing_again,
    whole_hashes,
    whole_identity,
    same_files,
    trust_rule,
    one_folder_each,
    comparing_parts,
    comparing_progress,
    comparing_stores,
    fixed_slices,
    replacing_when_complete,
    refusing_to_replace,
]

if __name__ == "__main__":
    next(each for each in MECHANISMS if each.__name__ == os.environ["COLLAPSE_WITHOUT"])()
    zygote.serve()
