"""Compare stores, and wait for what processes do."""

import time
from collections.abc import Callable, Collection

import torch

from collapse.stores.manifest import layer_of, name_of
from collapse.stores.store import Store


def same(one: Store, other: Store, *, atol: float = 1e-12, only: Collection[str] = ()) -> None:
    """Check that two intact stores hold equal numbers, up to rounding relative to the largest of a tensor.

    With ``only``, only files of these names are compared, such as those of a store that is not validated.
    """
    assert not one.verify()
    assert only or (one.identity, {*one.manifest["files"]}) == (other.identity, {*other.manifest["files"]})
    for file in (file for file in other.manifest["files"] if not only or name_of(file) in only):
        mine, theirs = (each.tensors(name_of(file), layer_of(file)) for each in (one, other))
        assert mine.keys() == theirs.keys()
        for key, tensor in mine.items():
            a, b = tensor.double(), theirs[key].double()
            scale = float(b.abs().max()) if len(b) else 1.0
            torch.testing.assert_close(a, b, rtol=0, atol=atol * scale, msg=f"{file}: {key}")


def eventually(holds: Callable[[], object], seconds: float = 90) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
