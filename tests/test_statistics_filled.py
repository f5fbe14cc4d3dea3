"""A failing statistic stops the run, which can resume without it; data of another plugin's statistic is never read."""

import pytest
from stopping import Stopped, stop_at

import collapse
from collapse.errors import PluginError
from collapse.plugin import plugin_manager

PLUGIN = """
import torch
from collapse import State, Statistic, metric

class Samples(Statistic):
    name, version = "mine", {version}
    state = {{"total": State((1,), torch.int64)}}
    seen = 0
    def update(self, batch):
        self.total += batch.counts.sum()
        Samples.seen += len(batch.y)
        {update}

@metric("mine.total")
def total(mine):
    "Samples."
    return mine["total"].sum()
"""


@pytest.fixture
def install(load_plugin, monkeypatch):
    """Install one plugin, or none, in the place of the one before."""

    def install(file="mine", version=1, update="", nothing=False):
        monkeypatch.setattr(plugin_manager, "_extra", [])
        plugin_manager.plugins.cache_clear()
        if not nothing:
            load_plugin(PLUGIN.format(version=version, update=update), file)

    return install


@pytest.fixture
def options(tiny):
    return {**tiny.options(), "max_chunks": 40}


BAD = {"writes": {"update": "batch.h.mul_(2)"}, "late": {"update": "assert self.seen < 500"}}


@pytest.mark.parametrize("how", BAD)
def test_a_statistic_that_fails_stops_the_run_which_goes_on_without_it(tiny, options, install, tmp_path, caplog, how):
    caplog.set_level("INFO")
    install(**BAD[how])
    with pytest.raises(PluginError, match=r"statistic mine: .*Correct the plugin, or add --without mine") as error:
        collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert str(tmp_path / "mine.py") in str(error.value)
    store = collapse.collect(tiny.model, store=tmp_path / "s", without=["mine"], **options)
    assert store.state == "complete"
    assert set(store.manifest["statistics"]) == {"covariance"}
    assert ("resuming" in caplog.text) == (how == "late")
    row = collapse.measure(store, metrics=["mine", "nc1"])
    assert [name for name, value in row.measurements.items() if value is None] == ["mine.total"]


def test_a_statistic_of_another_plugin_or_version_is_not_read(tiny, options, install, tmp_path):
    install("one")
    store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    by = store.manifest["statistics_by"]
    assert by.keys() == {"covariance", "mine"}
    assert by["covariance"] == "linguistic-collapse"
    assert by["mine"] == "one.py"
    assert collapse.measure(store).measurements["mine.total"] == 40 * 31
    for file, changed, said in (("two", {}, "two.py"), ("one", {"version": 2}, "version 1")):
        install(file, **changed)
        for opened in (collapse.load(store.path), collapse.load(store.path).statistics()):
            row = collapse.measure(opened, metrics=["mine"])
            assert row.measurements["mine.total"] is None
            assert said in row.notes[0].text


@pytest.mark.parametrize("change", [{"version": 2}, {"file": "two"}, {"nothing": True}])
def test_an_unfinished_collection_goes_on_without_a_plugin_that_changed(
    tiny, options, install, tmp_path, caplog, change
):
    install()
    with pytest.raises(Stopped):
        collapse.collect(tiny.model, store=tmp_path / "s", progress=stop_at("train", 10), **options)
    install(**change)
    store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
    assert ("statistic mine is not collected" in caplog.text) == (change != {"nothing": True})
    assert set(store.manifest["statistics"]) == {"covariance"}


def test_a_complete_store_without_a_statistic_says_how_to_collect_it(run, tiny, tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN.format(version=1, update=""))
    words = ["collect", *tiny.words("--store", tmp_path / "s", "--max-chunks", 4)]
    assert "lacks" not in run(*words).stdout
    plugin = ["-p", tmp_path / "mine.py"]
    assert "it lacks these statistics of plugins: mine; to collect them, add --recollect" in run(*plugin, *words).stdout
    assert "lacks" not in run(*plugin, *words, "--recollect").stdout
