"""A plugin's statistic that fails stops the run, which goes on without it; what another one filled is never read."""

import pytest

import collapse
from collapse.errors import PluginError
from collapse.plugin import plugin_manager
from collapse.plugin.plugin_manager import add_plugins
from collapse.plugin.registry import check_declared

PLUGIN = """
import torch
from collapse import Statistic, metric

class Samples(Statistic):
    name = "{name}"
    version = {version}
    def __init__(self):
        self.total = torch.zeros(1, dtype=torch.int64)
        {init}
    def update(self, batch):
        self.total = batch.counts.sum().reshape(1)
        {update}
    def merge(self, other, mine, theirs):
        self.total = self.total + other.total
        {merge}

@metric("{name}.total")
def total({name}):
    "Samples."
    return {name}["total"].sum()
"""


class Stopped(Exception):
    """Ends a collection as a kill would, between two batches."""


def stop_at(chunk):
    def report(what, done, total, note=""):
        if what == "collecting train" and done >= chunk:
            raise Stopped

    return report


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install one plugin, in the place of the one before."""
    monkeypatch.setattr(plugin_manager, "_extra", [])

    def install(file="mine.py", name="mine", version=1, init="", update="", merge=""):
        text = PLUGIN.format(name=name, version=version, init=init, update=update, merge=merge)
        (tmp_path / file).write_text(text)
        plugin_manager._extra.clear()
        add_plugins([str(tmp_path / file)])

    def uninstall():
        plugin_manager._extra.clear()
        plugin_manager.plugins.cache_clear()

    install.nothing = uninstall
    yield install
    uninstall()


@pytest.fixture
def options(tiny):
    return {**tiny.options(), "max_chunks": 40}


BAD = {
    "init": {"init": "raise ValueError('no')"},
    "update": {"update": "raise ValueError('no')"},
    "merge": {"merge": "raise ValueError('no')"},
    "late": {"merge": "assert int(self.total) < 500"},
    "unstorable": {"merge": "self.odd = torch.zeros(1, dtype=torch.complex64)"},
}


@pytest.mark.parametrize("how", BAD)
def test_a_statistic_that_fails_stops_the_run_which_goes_on_without_it(tiny, options, install, tmp_path, caplog, how):
    caplog.set_level("INFO")
    install(**BAD[how])
    with pytest.raises(PluginError, match=r"statistic mine: .*Correct the plugin, or .*\(--without mine\)") as error:
        collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert str(tmp_path / "mine.py") in str(error.value)
    store = collapse.collect(tiny.model, store=tmp_path / "s", without=["mine"], **options)
    assert store.state == "complete"
    assert set(store.manifest["statistics"]) == {"covariance"}
    assert ("resuming" in caplog.text) == (how == "late")
    row = collapse.measure(store, metrics=["mine", "nc1"])
    assert [name for name, value in row.measurements.items() if value is None] == ["mine.total"]


def test_state_that_is_no_tensor_may_be_kept_by_its_own_functions(tiny, options, install, tmp_path):
    keeping = """
    def tensors(self):
        return {"total": self.total, "sum": torch.tensor([self.sum], dtype=torch.float64)}
    @classmethod
    def from_tensors(cls, tensors):
        made = cls()
        made.total, made.sum = tensors["total"], float(tensors["sum"])
        return made
"""
    install(init="self.sum = 0.0", merge="self.sum += float(other.total)" + keeping)
    store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert float(store.tensors("mine")["sum"]) == 40 * 31 == collapse.measure(store).measurements["mine.total"]


def test_two_names_of_one_tensor_are_both_kept(tiny, options, install, tmp_path):
    install(init="self.again = self.total", merge="self.again = self.total")
    store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert {name: int(value) for name, value in store.tensors("mine").items()} == {"again": 1240, "total": 1240}


@pytest.mark.parametrize("version", [-1, 1 << 63, True, "1"])
def test_a_version_that_no_store_can_hold_is_refused(install, version):
    install()
    kind = plugin_manager.plugins().statistics["mine"]
    kind.version = version
    with pytest.raises(PluginError, match="must have a whole number of 64 bits, 0 or more, as its version"):
        check_declared(kind)


def test_a_statistic_of_another_plugin_or_version_is_not_read(tiny, options, install, tmp_path):
    install("one.py")
    store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    by = store.manifest["statistics_by"]
    assert by.keys() == {"covariance", "mine"}
    assert by["covariance"] == "linguistic-collapse"
    assert by["mine"] == "one.py"
    assert collapse.measure(store).measurements["mine.total"] == 40 * 31
    for file, changed, said in (
        ("two.py", {}, "two.py"),
        ("one.py", {"version": 2}, "version 1"),
    ):
        install(file, **changed)
        for opened in (collapse.load(store.path), collapse.load(store.path).statistics()):
            row = collapse.measure(opened, metrics=["mine"])
            assert row.measurements["mine.total"] is None
            assert said in row.notes[0].text


def test_a_statistic_is_read_after_its_files_metrics_and_comments_changed(tiny, options, install, tmp_path):
    install()
    store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    file = tmp_path / "mine.py"
    file.write_text(file.read_text().replace('["total"].sum()', '["total"].sum() / 2  # half'))
    plugin_manager.plugins.cache_clear()
    assert collapse.measure(collapse.load(store.path)).measurements["mine.total"] == 20 * 31


def test_a_plugin_with_a_very_long_expression_is_used(tiny, options, install, tmp_path):
    install()
    file = tmp_path / "mine.py"
    file.write_text(f"{file.read_text()}\nLONG = {' + '.join(['1'] * 1500)}\n")
    plugin_manager.plugins.cache_clear()
    assert "mine" in plugin_manager.plugins().statistics


def test_collecting_again_says_that_a_statistic_is_of_other_code(tiny, options, install, tmp_path, caplog):
    from safetensors.torch import save_file

    from collapse.testing import random_features

    file = tmp_path / "f.safetensors"
    save_file(random_features(5, 3, 40), file)

    def collect():
        caplog.clear()
        collapse.collect(tiny.model, store=tmp_path / "s", **options)
        collapse.collect(file, store=tmp_path / "f")
        return [each for each in caplog.messages if "mine cannot be used: the collection filled" in each]

    install()
    collect()
    assert not collect()
    install(version=2)
    ours, theirs = collect()
    assert str(tmp_path / "s") in ours
    assert str(tmp_path / "f") in theirs
    assert "collect again (--recollect)" in ours


@pytest.mark.parametrize("change", [{"version": 2}, {"file": "two.py"}, None])
def test_an_unfinished_collection_goes_on_without_a_plugin_that_changed(
    tiny, options, install, tmp_path, caplog, change
):
    install()
    with pytest.raises(Stopped):
        collapse.collect(tiny.model, store=tmp_path / "s", progress=stop_at(10), **options)
    install.nothing() if change is None else install(**change)
    store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert ("statistic mine is not collected" in caplog.text) == (change is not None)
    assert set(store.manifest["statistics"]) == {"covariance"}


def test_merging_says_which_statistics_it_leaves_out(tiny, options, install, tmp_path, caplog):
    install()
    parts = [collapse.collect(tiny.model, store=tmp_path / f"{k}", part=(k, 2), **options) for k in (1, 2)]
    assert "mine" in collapse.merge(parts, store=tmp_path / "all").manifest["statistics"]
    install.nothing()
    merged = collapse.merge(parts, store=tmp_path / "fewer")
    assert "statistic mine is left out: no plugin installed here can merge it" in caplog.text
    assert set(merged.manifest["statistics"]) == {"covariance"}


def test_what_is_pooled_over_all_classes_is_null_where_classes_are_left_out(tiny, options, install, tmp_path):
    install()
    store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert collapse.measure(store, min_count=1).measurements["mine.total"] == 40 * 31
    for measured in (collapse.measure(store, min_count=5), collapse.measure(store.statistics().keep(5))):
        assert measured.min_count == 5
        assert measured.measurements["mine.total"] is None
        assert any("not available with --min-count" in note.text for note in measured.notes)
    kind = plugin_manager.plugins().statistics["mine"]
    kind.per_class = True
    assert collapse.measure(store, min_count=5).measurements["mine.total"] == 40 * 31
