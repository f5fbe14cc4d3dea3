"""The store: what was collected of one model on one corpus at one chunk length, as safetensors and one manifest.

Format version 1. ``collapse.json`` is written last: where it is missing there is no store. It lists every tensor
file with its size, sha256, shapes and dtypes; ``digest`` is the hash of all of it but provenance, ``checksum`` of all.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.errors import CollapseError, StoreError, UsageError
from collapse.files import (
    canonical,
    check_file,
    described,
    read_tensor,
    read_tensors,
    sha256_of,
    tensor_bytes,
    write_atomic,
)
from collapse.invariants import check_samples, check_tensors, check_together
from collapse.manifest import (
    INCOMING,
    MANIFEST,
    ORIGIN,
    RESULTS,
    VERSION,
    differences,
    is_ours,
    is_store,
    manifest_file,
    read_manifest,
    render,
    sealed,
    spans,
)
from collapse.places import staging
from collapse.reading import read_json

if TYPE_CHECKING:
    from torch import Tensor

    from collapse.results import Row
    from collapse.statistics import EmbeddingStatistics

_ORIGIN = re.compile(r"[\w./-]{1,500}@[0-9a-f]{40}")
LAYER = "top"
log = logging.getLogger("collapse")

Tensors = Mapping[str, "Tensor"]


class Store:
    """A store on disk, or one in memory (``path`` None).

    Attributes:
        path: Its folder.
        manifest: What ``collapse.json`` says.
        origin: Where on the Hub it lies, or None.
        named: What the model, corpus and validation text are called where somebody asked for a store of equal content
            by other names; the manifest has the names that it was collected under.
    """

    def __init__(
        self,
        manifest: dict[str, Any],
        path: Path | None,
        files: Mapping[str, Tensors] | None = None,
        *,
        fetch: Callable[[str], None] | None = None,
        origin: str | None = None,
    ) -> None:
        self.manifest = manifest
        self.path = path
        self.origin = origin
        self._files = files or {}
        self._moving = path is not None and manifest_file(path).parent.name == INCOMING
        self._fetch = fetch
        self.named: dict[str, str] = {}

    @classmethod
    def load(cls, path: str | Path) -> "Store":
        """Open the store in a folder; the manifest is checked now, each tensor file when it is read.

        Raises:
            StoreError: There is none, or its manifest is altered or of a newer version.
        """
        path = Path(path)
        return cls(read_manifest(path), path)

    @classmethod
    def from_pretrained(cls, name: str) -> "Store":
        """Open a store on the Hub: ``user/repo``, ``user/repo/folder``, ``user/repo@revision``.

        Tensor files are downloaded when they are first read, and checked.

        Raises:
            UsageError: There is no such repository, or no store in it, or several.
            StoreError: It is not whole.
            CollapseError: It cannot be had.
        """
        from collapse.finding import open_store

        return open_store(name)

    def push(self, repo: str, **options: Any) -> Any:
        """Push it to the Hub; options and errors as of :func:`collapse.sharing.push`."""
        from collapse.sharing import push

        return push(self, repo, **options)

    def fetch(self, file: str) -> None:
        """See that a tensor file is here, where the store lies on the Hub."""
        if self._fetch is not None:
            self._fetch(file)

    def called(self, names: Mapping[str, str | None]) -> "Store":
        """Note what the model, corpus and validation text were called by who asked for it; the manifest stays."""
        self.named = {kind: name for kind, name in names.items() if name is not None}
        return self

    @property
    def digest(self) -> str:
        """The sha256 that names this content, whatever its provenance."""
        return str(self.manifest["digest"])

    @property
    def identity(self) -> dict[str, Any]:
        """What was collected, on what: equal for stores that hold the same."""
        return dict(self.manifest["identity"])

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.manifest["model"]["name"])

    @property
    def revision(self) -> str | None:
        """The model's commit on the Hub, or None."""
        return self.manifest["model"].get("revision")

    @property
    def corpus(self) -> str:
        """The training corpus's name."""
        return str(self.manifest["corpus"]["name"])

    @property
    def state(self) -> str:
        """``part`` (some training slices), ``trained`` (no whole validation) or ``complete``."""
        coverage = self.manifest["coverage"]
        if not _whole(coverage["train"]):
            return "part"
        return "complete" if _whole(coverage["validation"]) else "trained"

    @property
    def layers(self) -> list[str]:
        """Names of the layers collected."""
        return sorted({name.split("/")[0] for name in self.manifest["files"]})

    @property
    def size(self) -> int:
        """Bytes of its tensor files."""
        return sum(entry["size"] for entry in self.manifest["files"].values())

    def tensors(self, name: str, layer: str = LAYER) -> dict[str, "Tensor"]:
        """The tensors of ``<layer>/<name>.safetensors``, checked.

        Raises:
            StoreError: The store has no such file, or it was altered.
        """
        file = f"{layer}/{name}.safetensors"
        if file not in self.manifest["files"]:
            raise StoreError(f"{self} holds no {file}; it holds {', '.join(sorted(self.manifest['files']))}")
        if self.path is None:
            return {key: tensor.clone() for key, tensor in self._files[file].items()}
        self.fetch(file)
        tensors = read_tensors(self.file(file), self.manifest["files"][file])
        check_tensors(str(self.path / file), tensors, self.manifest)
        return tensors

    def file(self, name: str) -> Path:
        """Where a tensor file lies: in its place, or on its way there, where a command was killed as it moved it."""
        assert self.path is not None  # a store in memory has no files
        incoming = self.path / INCOMING / name
        return incoming if self._moving and incoming.is_file() else self.path / name

    def statistics(self, layer: str = LAYER, *, fresh: bool = False) -> "EmbeddingStatistics":
        """Everything known of one layer, as metrics read it.

        Args:
            layer: The layer's name.
            fresh: Read the files again; otherwise every call returns the same tensors.

        Raises:
            StoreError: The store is a part only, or a file was altered.
        """
        if self.state == "part":
            raise StoreError(f"{self} holds {self.covered()}: merge it with the other parts first: collapse merge")
        return self._read_statistics(layer) if fresh else self._statistics[layer]

    @cached_property
    def _statistics(self) -> dict[str, "EmbeddingStatistics"]:
        return {layer: self._read_statistics(layer) for layer in self.layers}

    def _read_statistics(self, layer: str) -> "EmbeddingStatistics":
        from collapse.statistics import EmbeddingStatistics, ValidationStatistics

        names = [file.split("/")[1].removesuffix(".safetensors") for file in self.manifest["files"]]
        train = self.tensors("train", layer)
        head = self.tensors("classifier", layer) if "classifier" in names else {}
        validation = None
        if self.state == "complete" and "validation" in names:
            validation = ValidationStatistics(**self.tensors("validation", layer))
        kept = [name for name in names if name in self.manifest["statistics"]]
        extra: Mapping[str, Tensors] = _WhenAsked(kept, lambda name: self.tensors(name, layer))
        statistics = EmbeddingStatistics(
            classes=train["classes"],
            counts=train["counts"],
            means=train["means"],
            variances=train["variances"],
            classifier=head["weight"].double() if head else None,
            bias=head["bias"].double() if "bias" in head else None,
            validation=validation,
            extra=extra,
            n_params=self.manifest["model"].get("n_params"),
            dtype=str(self.manifest["identity"].get("dtype", "float32")),
            versions=self.manifest["statistics"],
            made_by=self.manifest.get("statistics_by", {}),
        )
        check_together(self, statistics)
        return statistics

    def covered(self) -> str:
        """Which training slices are here, in words."""
        train = self.manifest["coverage"]["train"]
        return f"training slices {spans(train['done'])} of {train['slices']}"

    def missing(self, need: str) -> str:
        """Why something a metric needs is not here, and what would add it."""
        if need == "validation":
            validation = self.manifest["coverage"]["validation"]
            if validation is None and self.manifest["corpus"].get("validation") is None:
                return "no validation text was given: add one with --validation-text"
            return "not validated yet: collapse collect MODEL --store STORE"  # no path: notes are published
        if need == "n_params":
            return "a features file does not say how many parameters its model has"
        if need in ("classifier", "means", "counts", "variances"):
            return f"no {need} in this store"
        return f"no {need} in this store: collect again with the plugin that fills it (--recollect)"

    def results(self) -> "Row | None":
        """What was last measured of this content, or None: a file that is altered or of other content is ignored."""
        from collapse.results import Row

        if self.path is None:
            return None
        try:
            kept = read_json(self.path / RESULTS)
            if kept["store"] != self.digest or kept["sha256"] != sha256_of(kept["row"]):
                return None
            return Row.from_dict(kept["row"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def keep_results(self, row: "Row") -> None:
        """Write what was measured beside the tensors; a store that cannot be written to stays as it is."""
        if self.path is None or self._fetch is not None:
            return
        if not is_ours(self.path / RESULTS):
            log.warning("%s is no file of collapse, so that the numbers are not kept in the store", self.path / RESULTS)
            return
        measured = row.to_dict()
        kept = {"store": self.digest, "sha256": sha256_of(measured), "row": measured}
        with suppress(CollapseError):
            write_atomic(self.path / RESULTS, canonical(kept))

    @property
    def pulled_from(self) -> str | None:
        """Where on the Hub it was pulled from, or None: a file that is altered or of other content is ignored."""
        if self.path is None:
            return None
        try:
            kept = read_json(self.path / ORIGIN)
            origin = kept["origin"]
            return origin if kept["store"] == self.digest and _ORIGIN.fullmatch(origin) else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def keep_origin(self, origin: str) -> None:
        """Write beside the tensors where on the Hub it was pulled from; a full disk leaves it out."""
        assert self.path is not None  # it was pulled into a folder
        with suppress(CollapseError):
            write_atomic(self.path / ORIGIN, canonical({"store": self.digest, "origin": origin}))

    def verify(self) -> list[str]:
        """Hash every file anew, and check its tensors.

        Returns:
            A line for each that is missing, truncated, altered or breaks an invariant, or that the manifest does not
            name.
        """
        if self.path is None:
            return []
        problems = []
        for name, entry in sorted(self.manifest["files"].items()):
            layer, _, file = name.partition("/")
            try:
                self.fetch(name)
                check_file(self.file(name), entry, remember=False)
                self.tensors(file.removesuffix(".safetensors"), layer)
            except StoreError as error:
                problems.append(str(error))
        found = {file.relative_to(self.path).as_posix() for file in self.path.glob("*/*.safetensors")}
        strange = sorted(name for name in found - set(self.manifest["files"]) if not name.startswith("partial/"))
        return problems + [
            f"{self.path / name} is not in the manifest: delete it, or collect again" for name in strange
        ]

    def check(self) -> "Store":
        """Check every file now, by remembered hashes where nothing changed; raises StoreError at the first problem."""
        if self.path is not None:
            for name, entry in sorted(self.manifest["files"].items()):
                self.fetch(name)
                check_file(self.file(name), entry)
                if "counts" in entry["tensors"]:
                    check_samples(str(self.path / name), read_tensor(self.file(name), "counts"), self.manifest)
        return self

    def save(self, path: str | Path) -> "Store":
        """Write a copy of this store into a folder that holds none."""
        path = Path(path)
        if is_store(path):
            raise StoreError(f"{path} already holds a store: choose another --store")
        with staging(path) as place:
            for name, entry in self.manifest["files"].items():
                if self.path is None:
                    data = tensor_bytes(self._files[name])
                else:
                    self.fetch(name)
                    check_file(self.file(name), entry)
                    data = self.file(name).read_bytes()  # not written anew: another writer's bytes may differ from ours
                write_atomic(place / name, data)
            write_atomic(place / MANIFEST, render(self.manifest))
        return Store.load(path)

    def __str__(self) -> str:
        return self.origin or (str(self.path) if self.path else f"{self.model} (in memory)")

    def __repr__(self) -> str:
        return f"Store({self}, {self.state}, digest {self.digest[:12]})"


def load(path: str | Path) -> Store:
    """Open a store: ``collapse.load("stores/a")``, or one on the Hub, ``collapse.load("user/repo")``.

    Raises as :meth:`Store.load` and :meth:`Store.from_pretrained`.
    """
    if Path(path).exists() or "/" not in str(path) or Path(path).is_absolute():
        return Store.load(path)
    try:
        return Store.from_pretrained(str(path))
    except UsageError as error:
        raise type(error)(f"there is no folder {path}; {error}") from error


def load_same(folder: str | Path, other: Store) -> Store:
    """Open the store in a folder, which must hold what another one does; every file is checked.

    Raises:
        StoreError: It holds another; what differs is named.
    """
    have = Store.load(folder)
    if have.digest != other.digest:
        differ = differences(have.identity, other.identity) or ["its statistics"]
        raise StoreError(f"{folder} holds another store, which differs in {'; '.join(differ)}: choose another --store")
    return have.check()


class _WhenAsked(Mapping[str, Tensors]):
    """Statistics that are read, and downloaded where they lie on the Hub, when a metric asks for them."""

    def __init__(self, names: Sequence[str], read: Callable[[str], Tensors]) -> None:
        self._names, self._read = tuple(names), cache(read)

    def __getitem__(self, name: str) -> Tensors:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def build(
    path: Path | None,
    about: Mapping[str, Any],
    files: Mapping[str, Tensors],
    *,
    provenance: Mapping[str, Any],
    kept: Mapping[str, Any] | None = None,
) -> Store:
    """Make a store of tensors: the files first, ``collapse.json`` last; it takes the place of one that is there.

    Args:
        path: Its folder, which the caller has to itself, or None for one in memory.
        about: identity, model, corpus, coverage, statistics and statistics_by of the manifest.
        files: Tensors by file name, ``top/train.safetensors`` and so on.
        provenance: Device, batch size, times, command.
        kept: Manifest entries of files that are there already and stay as they are.
    """
    entries = dict(kept or {})
    with staging(path) if path is not None else nullcontext() as place:
        for name, tensors in files.items():
            data = tensor_bytes(tensors)
            entries[name] = described(data)
            if place is not None:
                write_atomic(place / name, data)
        manifest = sealed({"format": "collapse", "version": VERSION, **about, "files": entries}, provenance)
        for name, tensors in files.items():
            if "counts" in tensors:
                check_samples(name, tensors["counts"], manifest)
        if place is not None:
            write_atomic(place / MANIFEST, render(manifest))
    return Store(manifest, path, files)


def _whole(coverage: Mapping[str, Any] | None) -> bool:
    return coverage is not None and coverage["done"] == [[0, coverage["slices"]]]
