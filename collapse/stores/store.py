"""The store: statistics of one model on one corpus at one chunk length, as safetensors files and one manifest.

Each layer has a folder; ``top`` is what enters the output embedding (see layer_names.py).

``collapse.json`` is written last: a folder without it is not a store. It lists every tensor file with its size, sha256,
shapes and dtypes. ``digest`` is the hash of everything except the provenance; ``checksum`` is the hash of everything.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collapse.core.paths import expanded
from collapse.core.reading import read_json
from collapse.errors import StoreError
from collapse.stores.files import canonical
from collapse.stores.identity_differences import differences
from collapse.stores.layer_names import TOP, by_depth, layers_of
from collapse.stores.manifest import (
    MANIFEST,
    NO_LENS,
    ORIGIN,
    file_of,
    is_store,
    layer_of,
    name_of,
    read_manifest,
    render,
    why_absent,
)
from collapse.stores.naming import Named
from collapse.stores.store_folder import locked_store_folder, new_files
from collapse.stores.tensor_files import check_file, check_tensors, tensor_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from collapse.numerics.statistics import EmbeddingStatistics

Tensors = Mapping[str, "Tensor"]


class Store(Named):
    """A store on disk or in memory.

    Attributes:
        path: The folder; None for a store in memory.
        manifest: The content of ``collapse.json``.
        origin: The Hub address of a store that was opened on the Hub; otherwise None (see :attr:`pulled_from`).
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
        self.manifest = self.about = manifest
        self.path = path
        self.origin = origin
        self._files = files or {}
        self._fetch = fetch
        self.named: dict[str, str] = {}

    @classmethod
    def load(cls, path: str | Path) -> "Store":
        """Open the store in a folder; the manifest is checked now, each tensor file when it is read.

        Raises:
            StoreError: There is no store, or its manifest was altered or has another version.
        """
        path = Path(path)
        return cls(read_manifest(path), path)

    @property
    def digest(self) -> str:
        """The sha256 of the content, without the provenance."""
        return str(self.manifest["digest"])

    @property
    def state(self) -> str:
        """``complete``, or ``trained`` if the store has training statistics but no validation yet."""
        return "trained" if self.manifest["coverage"]["validation"] is None else "complete"

    @property
    def size(self) -> int:
        """Size of the tensor files in bytes."""
        return sum(entry["size"] for entry in self.manifest["files"].values())

    @property
    def layers(self) -> list[str]:
        """The layers in order of depth: numbers as texts, and ``top``."""
        return by_depth(map(layer_of, self.manifest["files"]))

    @property
    def n_layers(self) -> int | None:
        """The number of the model's blocks, which is the number of the layer ``top``; None if it is unknown."""
        return self.manifest["model"].get("n_layers")

    def depth(self, layer: str) -> int | None:
        """Return the number of a layer; for ``top``, :attr:`n_layers`."""
        return self.n_layers if layer == TOP else int(layer)

    def layers_with(self, asked: Any) -> list[str]:
        """Return the layers that the store holds or that ``--layers`` names, in order of depth."""
        return by_depth([*self.layers, *layers_of(asked, self.n_layers)])

    def holds(self, phase: str) -> bool:
        """Whether the phase is collected for the layer ``top``."""
        return file_of(phase) in self.manifest["files"]

    def lacking(self, phase: str, layers: Iterable[str]) -> list[str]:
        """Return which of ``layers`` have no file of a phase.

        For the validation, inner layers are omitted if the model's norm and head cannot be applied to them.
        """
        no_lens = phase == "validation" and NO_LENS in self.manifest["model"]
        possible = [layer for layer in layers if layer == TOP or not no_lens]
        return [layer for layer in possible if file_of(phase, layer) not in self.manifest["files"]]

    def tensors(self, name: str, layer: str = TOP) -> dict[str, "Tensor"]:
        """Check ``<layer>/<name>.safetensors`` against the manifest, and return its tensors.

        For a store in memory, return copies without a check.

        Raises:
            StoreError: The store has no such file, or the file was altered.
            CollapseError: The file cannot be downloaded.
        """
        from safetensors.torch import load_file

        file = file_of(name, layer)
        if file not in self.manifest["files"]:
            raise StoreError(
                f"{self} holds no {file}: choose one of its files: {', '.join(sorted(self.manifest['files']))}"
            )
        if self.path is None:
            return {key: tensor.clone() for key, tensor in self._files[file].items()}
        tensors = load_file(self.file(file))
        check_tensors(str(self.path / file), tensors, self.manifest)
        return tensors

    def file(self, name: str, *, remember: bool = True) -> Path:
        """Download a tensor file if the store is on the Hub, check it, and return its path.

        Args:
            name: The file's name in the manifest.
            remember: Use the cached hash of an unchanged file.

        Raises:
            StoreError: The file is missing, truncated or altered.
            CollapseError: The file cannot be downloaded.
        """
        assert self.path is not None  # a store in memory has no files
        if self._fetch is not None:
            self._fetch(name)
        check_file(self.path / name, self.manifest["files"][name], remember=remember)
        return self.path / name

    def statistics(self, layer: str | int = TOP) -> "EmbeddingStatistics":
        """Read the statistics of a layer, as metrics use them; the classifier is the same for all layers.

        Args:
            layer: One of :attr:`layers`.

        Raises:
            StoreError: The store does not hold the layer, or a file was altered.
            CollapseError: A file cannot be downloaded.
        """
        layer = str(layer)
        if layer not in self.layers:
            raise StoreError(
                f"{self} holds {', '.join(self.layers)}, but not layer {layer}: repeat the command that collected "
                f"it, and add --layers {layer}"
            )
        from collapse.numerics.statistics import EmbeddingStatistics, ValidationStatistics

        manifest, train = self.manifest, self.tensors("train", layer)
        names = [name_of(file) for file in manifest["files"] if layer_of(file) == layer]
        head = self.tensors("classifier") if file_of("classifier") in manifest["files"] else {}
        return EmbeddingStatistics(
            classes=train["classes"],
            counts=train["counts"],
            means=train["means"],
            variances=train["variances"],
            classifier=head["weight"].double() if head else None,
            bias=head["bias"].double() if "bias" in head else None,
            validation=ValidationStatistics(**self.tensors("validation", layer)) if "validation" in names else None,
            # read or downloaded on demand
            extra={name: partial(self.tensors, name, layer) for name in names if name in manifest["statistics"]},
            n_params=manifest["model"].get("n_params"),
            dtype=str(manifest["identity"].get("dtype", "float32")),
            versions=manifest["statistics"],
            makers=manifest.get("statistics_by", {}),
            absent=why_absent(manifest, layer),
        )

    def verify(self) -> list[str]:
        """Hash every file again, and check its tensors.

        Returns:
            One line per problem: a file is missing, truncated or altered, or violates an invariant.
        """
        problems = []
        for name in sorted(self.manifest["files"]) if self.path is not None else ():
            try:
                self.file(name, remember=False)
                self.tensors(name_of(name), layer_of(name))
            except StoreError as error:
                problems.append(str(error))
        return problems

    def check(self) -> "Store":
        """Check every file, using cached hashes for unchanged files; raise StoreError at the first problem."""
        if self.path is not None:
            for name in sorted(self.manifest["files"]):
                self.file(name)
        return self

    def save(self, path: str | Path) -> "Store":
        """Copy this store and its address on the Hub into a folder, and return the copy.

        If the folder already holds this store, nothing is written.

        Raises:
            StoreError: The folder holds something else.
            CollapseError: The folder cannot be written, or a file of this store is not available.
        """
        with locked_store_folder(path := expanded(path)):
            if is_store(path):
                there = Store.load(path)
                if there.digest != self.digest:
                    differ = differences(there.identity, self.identity, sides=("there", "new")) or ["its statistics"]
                    raise another_store(path, differ)
                return there.check()
            with new_files(path) as write:
                if self.origin is not None:
                    write(ORIGIN, canonical({"store": self.digest, "origin": self.origin}))
                for name in self.manifest["files"]:
                    # copy the files' bytes, because serializing the tensors again could give other bytes
                    in_memory = self.path is None
                    write(name, tensor_bytes(self._files[name]) if in_memory else self.file(name).read_bytes())
                write(MANIFEST, render(self.manifest))
        return Store.load(path)

    @property
    def pulled_from(self) -> str | None:
        """The Hub address that the store was pulled from, or None; a damaged or outdated record is ignored."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept = read_json(self.path / ORIGIN) if self.path else {}
            if kept["store"] == self.digest:
                return str(kept["origin"])
        return None

    def __str__(self) -> str:
        return self.origin or (str(self.path) if self.path else f"{self.model} (in memory)")

    def __repr__(self) -> str:
        return f"Store({self}, {self.state}, digest {self.digest[:12]})"


def another_store(folder: str | Path, differ: Sequence[str], remedy: str = "choose another --store") -> StoreError:
    """Return the error for a folder that holds another store, given the differences."""
    return StoreError(f"{folder} holds another store, which differs in {'; '.join(differ)}: {remedy}")
