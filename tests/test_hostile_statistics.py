"""Plugin statistics that write to what others read, or keep it: each stops the run."""

import pytest
import torch
from safetensors.torch import save_file

import collapse
from collapse import Statistic
from collapse.collection.passes import Collection
from collapse.errors import PluginError
from collapse.inputs.features import open_features
from collapse.numerics.accumulate import ClassMoments
from collapse.plugin.plugin_manager import plugins
from collapse.testing import random_features

COVARIANCE = plugins().statistics["covariance"]


class Quiet(Statistic):
    """What the hostile ones share: a sum that is as it should be."""

    def __init__(self):
        self.total = torch.zeros(1, dtype=torch.float64)

    def update(self, batch):
        self.total = batch.h.sum().reshape(1)

    def merge(self, other, mine, theirs):
        self.total = self.total + other.total


def hostile(name: str, when: str = "train") -> tuple[type[Statistic], str]:
    """A statistic that does something else too, at its n-th update or merge, and what is said of it."""
    function, n, action, told = HOSTILE[name]
    calls = []

    def also(*arguments):
        calls.append(0)
        if len(calls) == n:
            action(*arguments)

    class Hostile(Quiet):
        name = "hostile"
        phase = when

        def update(self, batch):
            super().update(batch)
            if function == "update":
                also(self, batch)

        def merge(self, other, mine, theirs):
            super().merge(other, mine, theirs)
            if function == "merge":
                also(mine, theirs)

    return Hostile, told


HOSTILE = {
    "means": ("update", 1, lambda self, batch: batch.means.mul_(2), "wrote to batch.means"),
    "embeddings": ("update", 1, lambda self, batch: batch.h.zero_(), "wrote to batch.h"),
    "labels": ("update", 1, lambda self, batch: batch.y.fill_(0), "wrote to batch.y"),
    "later": ("update", 2, lambda self, batch: batch.h.mul_(3), "wrote to batch.h"),
    "keeps": ("update", 1, lambda self, batch: setattr(self, "kept", batch.h[1:]), "its kept lies in the batch"),
    "mine": ("merge", 3, lambda mine, theirs: mine.means.add_(1), "wrote to mine.means"),
    "theirs": ("merge", 1, lambda mine, theirs: theirs.counts.zero_(), "wrote to .*theirs.counts"),
}


@pytest.fixture(scope="module")
def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    features = random_features(9, 5, 120)
    h, y = features["train_features"].double(), features["train_labels"]
    return list(zip(h.split(40), y.split(40), strict=True))


def filled(batches, kinds) -> dict[str, torch.Tensor]:
    moments = ClassMoments(5, statistics=[kind() for kind in kinds])
    for h, y in batches:
        moments.add(h, y)
    return moments.state()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_statistic_stops_the_run(batches, name):
    kind, told = hostile(name)
    given = [(h.clone(), y.clone()) for h, y in batches]
    with pytest.raises(PluginError, match=f"statistic hostile: .*{told}"):
        filled(given, [COVARIANCE, kind])
    for before, after in zip(batches, given, strict=True):
        assert all(map(torch.equal, before, after))


@pytest.mark.parametrize("name", [name for name, (_, n, _, _) in HOSTILE.items() if n == 1])
def test_likewise_in_the_validation_phase(tmp_path, name):
    path = tmp_path / "features.safetensors"
    save_file(random_features(9, 5, 120), path)
    kind, told = hostile(name, "validation")
    with pytest.raises(PluginError, match=f"statistic hostile: .*{told}"):
        Collection(open_features(path), None, [COVARIANCE, kind]).run()


def test_tensors_of_a_store_in_memory_are_copies(tmp_path):
    save_file(random_features(9, 5, 120), tmp_path / "features.safetensors")
    store = collapse.collect(tmp_path / "features.safetensors")
    store.tensors("train")["means"].zero_()
    assert float(store.tensors("train")["means"].abs().sum()) > 0
