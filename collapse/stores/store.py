"""The store: statistics of one model on one corpus at one chunk length, as safetensors files and one manifest.

Format version 1. ``collapse.json`` is written last: a folder without it is not a store. It lists every tensor file
with its size, sha256, shapes and dtypes. ``digest`` is the hash of everything but the provenance, ``checksum`` of
everything.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.escaping import visible
from collapse.core.paths import expanded
from collapse.errors import StoreError
from collapse.stores.lazily import Tensors, WhenAsked
from collapse.stores.manifest import LAYER, MANIFEST, SHARDS, differences, is_store, read_manifest, render
from collapse.stores.naming import shown_model
from collapse.stores.store_folder import staging, writing
from collapse.stores.tensor_checks import check_samples, check_tensors
from collapse.stores.tensor_files import check_file, read_tensor, read_tensors, tensor_bytes
from collapse.stores.writing import write_atomic

if TYPE_CHECKING:
    from torch import Tensor

    from collapse.numerics.statistics import EmbeddingStatistics


class Store:
    """A store on disk, or one in memory (``path`` None).

    Attributes:
        path: Its folder.
        manifest: The content of ``collapse.json``.
        origin: Its address on the Hub, or None.
        named: Names of the model, corpus and validation text in the user's request, and the folder of a local
            tokenizer. They can differ from those in the manifest, because a store is found by its content.
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
        self._fetch = fetch
        self.named: dict[str, str] = {}

    @classmethod
    def load(cls, path: str | Path) -> "Store":
        """Open the store in a folder; the manifest is checked now, each tensor file when it is read.

        Raises:
            StoreError: There is no store, or its manifest is altered or of a newer version.
        """
        path = Path(path)
        return cls(read_manifest(path), path)

    def fetch(self, file: str) -> None:
        """Download a tensor file if the store is remote."""
        if self._fetch is not None:
            self._fetch(file)

    @property
    def is_remote(self) -> bool:
        """Whether the store is on the Hub: its files are downloaded when they are read, and never written."""
        return self._fetch is not None

    def called(self, names: Mapping[str, str | None]) -> "Store":
        """Record the names of :attr:`named`; the manifest is unchanged."""
        self.named = {kind: name for kind, name in names.items() if name is not None}
        return self

    @property
    def digest(self) -> str:
        """The sha256 of the content, without the provenance."""
        return str(self.manifest["digest"])

    @property
    def identity(self) -> dict[str, Any]:
        """What was collected and from what: equal for stores with the same content."""
        return dict(self.manifest["identity"])

    @property
    def model(self) -> str:
        """The model's name; of a GGUF file its own, without the folder."""
        return shown_model(str(self.manifest["model"]["name"]), self.identity.get("model_args") or {}, self.revision)

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
        """``trained`` (not validated) or ``complete``."""
        return "trained" if self.manifest["coverage"]["validation"] is None else "complete"

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
        """Return the path of a tensor file."""
        assert self.path is not None  # a store in memory has no files
        return self.path / name

    def statistics(self, layer: str = LAYER, *, fresh: bool = False) -> "EmbeddingStatistics":
        """Return the statistics of one layer, as metrics read them.

        Args:
            layer: The layer's name.
            fresh: Read the files again; otherwise every call returns the same tensors.

        Raises:
            StoreError: A file was altered.
        """
        return self._read_statistics(layer) if fresh else self._statistics[layer]

    @cached_property
    def _statistics(self) -> dict[str, "EmbeddingStatistics"]:
        return {layer: self._read_statistics(layer) for layer in self.layers}

    def _read_statistics(self, layer: str) -> "EmbeddingStatistics":
        from collapse.numerics.statistics import EmbeddingStatistics, ValidationStatistics

        names = [file.split("/")[1].removesuffix(".safetensors") for file in self.manifest["files"]]
        train = self.tensors("train", layer)
        head = self.tensors("classifier", layer) if "classifier" in names else {}
        validation = None
        if "validation" in names:
            validation = ValidationStatistics(**self.tensors("validation", layer))
        kept = [name for name in names if name in self.manifest["statistics"]]
        extra: Mapping[str, Tensors] = WhenAsked(kept, lambda name: self.tensors(name, layer))
        return EmbeddingStatistics(
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

    def verify(self) -> list[str]:
        """Hash every file again, and check its tensors.

        Returns:
            One line per file that is missing, truncated or altered, violates an invariant, or is not in the manifest.
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
        strange = sorted(name for name in found - set(self.manifest["files"]) if not name.startswith(f"{SHARDS}/"))
        return problems + [
            f"{self.path / name} is not in the manifest: delete it, or collect again" for name in strange
        ]

    def check(self) -> "Store":
        """Check every file now, using cached hashes for unchanged files; raises StoreError at the first problem."""
        if self.path is not None:
            for name, entry in sorted(self.manifest["files"].items()):
                self.fetch(name)
                check_file(self.file(name), entry)
                if "counts" in entry["tensors"]:
                    check_samples(str(self.path / name), read_tensor(self.file(name), "counts"), self.manifest)
        return self

    def save(self, path: str | Path) -> "Store":
        """Write a copy of this store into a folder that holds none; raises as :func:`writing`."""
        with writing(path := expanded(path)):
            return self.write_in(path)

    def write_in(self, path: Path) -> "Store":
        """As :meth:`save`; the caller holds the folder's lock."""
        if is_store(path):
            raise StoreError(f"{path} already holds a store: choose another --store")
        with staging(path) as place:
            for name, entry in self.manifest["files"].items():
                if self.path is None:
                    data = tensor_bytes(self._files[name])
                else:
                    self.fetch(name)
                    check_file(self.file(name), entry)
                    data = self.file(name).read_bytes()  # not serialized again: that could give other bytes
                write_atomic(place / name, data)
            write_atomic(place / MANIFEST, render(self.manifest))
        return Store.load(path)

    def __str__(self) -> str:
        return self.origin or (str(self.path) if self.path else f"{self.model} (in memory)")

    def __repr__(self) -> str:
        return f"Store({self}, {self.state}, digest {self.digest[:12]})"

    def _repr_html_(self) -> str:
        about = {
            "store": str(self),
            "model": self.model,
            "corpus": self.corpus or "–",
            "state": self.state,
            "digest": self.digest[:12],
        }
        rows = (f"<tr><th>{name}</th><td>{escape(visible(text))}</td></tr>" for name, text in about.items())
        return f"<table>{''.join(rows)}</table>"


def load_same(folder: str | Path, other: Store) -> Store:
    """Open the store in a folder, which must have the same content as another store; every file is checked.

    Raises:
        StoreError: The contents differ; the message names the differences.
    """
    have = Store.load(folder)
    if have.digest != other.digest:
        differ = differences(have.identity, other.identity) or ["its statistics"]
        raise StoreError(f"{folder} holds another store, which differs in {'; '.join(differ)}: choose another --store")
    return have.check()
