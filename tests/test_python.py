"""The Python API as used in a notebook: measure by name, with an own metric; tables, plots and log lines."""

import json
import logging

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import collapse
from collapse.errors import PluginError, UsageError
from collapse.plugin.plugin_manager import plugins
from collapse.testing import random_features
from collapse_zoo.catalogue import catalogue


@pytest.fixture
def features(tmp_path):
    save_file(random_features(10, 8, 120), tmp_path / "f.safetensors")
    return tmp_path / "f.safetensors"


@collapse.derived
def shares(counts):
    return counts / counts.sum()


@collapse.metric("mine.largest_share", towards=0)
def largest_share(shares):
    return shares.max()


@collapse.pair_metric(collapse.Mean("mine.cosine"))
def cosines(cosine):
    return cosine


def test_a_model_is_collected_and_measured_as_by_the_command(tiny, tmp_path, out, caplog):
    caplog.set_level(logging.INFO, "collapse")
    logging.getLogger("collapse").propagate = True  # which the command line ends
    row = collapse.measure(tiny.model, **tiny.options(), max_chunks=20, store=tmp_path / "s", metrics="nc2,nc4")
    assert "train: 20 chunks collected" in caplog.text
    words = tiny.words("--max-chunks", 20, "--store", tmp_path / "s", "--metrics", "nc2,nc4", "--json")
    assert json.loads(out("measure", *words)) == [json.loads(json.dumps(row.to_dict()))]
    assert collapse.measure(tmp_path / "s", metrics="nc2,nc4") == row


def test_an_option_that_does_not_apply_is_refused(features):
    store = collapse.collect(features)
    for wrong in ({"text": "a.txt"}, {"store": "other"}, {"part": (1, 2)}, {"metrics": "nc9"}):
        with pytest.raises(UsageError):
            collapse.measure(store, **wrong)
    with pytest.raises(UsageError, match=r"^features are already embeddings: --text does not apply"):
        collapse.measure(features=np.eye(4), labels=[0, 0, 1, 1], text="a.txt")
    with pytest.raises(UsageError, match=r"^statistics are already collected: --text does not apply"):
        collapse.measure(store.statistics(), text="a.txt")
    with pytest.raises(TypeError, match="did you mean max_chunks"):
        collapse.measure(store, max_chunk=3)


def test_an_object_that_is_no_store_is_refused_in_a_line(features):
    row, module = collapse.measure(features), torch.nn.Linear(2, 2)
    for wrong in (5, row, module):
        for call in (
            lambda wrong=wrong: collapse.measure(wrong, text="a.txt"),
            lambda wrong=wrong: collapse.vectors(wrong, "nc2.norm"),
            lambda wrong=wrong: collapse.compare(wrong, wrong),
        ):
            with pytest.raises(UsageError, match=r"^an object of \w+ is neither .* collapse\.collect$"):
                call()


def test_functions_are_measured_without_a_plugin(features, monkeypatch):
    row = collapse.measure(features, metrics=["nc2.norm", largest_share, cosines])
    assert list(row.measurements) == ["nc2.norm", "mine.largest_share", "mine.cosine"]
    assert row["mine.cosine"] == pytest.approx(collapse.measure(features)["nc2.interference"], abs=1e-12)
    s = collapse.collect(features).statistics()
    assert row["mine.largest_share"] == float(s.counts.max() / s.counts.sum())
    again = collapse.derived(lambda counts: counts)  # as a cell that is run again defines it
    monkeypatch.setitem(globals(), "shares", again)
    assert collapse.measure(features, metrics=largest_share)["mine.largest_share"] == s.counts.max()
    for wrong in (torch.norm, shares, [largest_share, again]):
        with pytest.raises(UsageError, match=r"is not a metric: decorate it with @collapse\.metric"):
            collapse.measure(features, metrics=wrong)


def test_a_function_does_not_replace_another_metric(features):
    again = collapse.metric("mine.largest_share")(lambda counts: counts.min())
    builtin = collapse.metric("nc1.cdnv")(lambda counts: counts.min())
    for wrong in ([largest_share, again], builtin, ["nc2.norm", builtin]):
        with pytest.raises(PluginError, match=r"is already defined in .*: give it another name"):
            collapse.measure(features, metrics=wrong)
    assert len(collapse.measure(features, metrics=[largest_share, largest_share]).measurements) == 1
    registered = plugins().measurements()["nc2.norm"][0].function
    assert "nc2.norm" in collapse.measure(features, metrics=registered).measurements


def test_everything_gives_a_dataframe_and_is_shown_in_notebooks(features):
    store, row = collapse.collect(features), collapse.measure(features)
    assert "| nc2.norm |" in row._repr_markdown_()
    assert "<table" in collapse.Results([row])._repr_html_()
    assert "| name |" in collapse.metrics("nc4")._repr_markdown_()
    ids = store.statistics().classes.tolist()
    assert row.frame().equals(collapse.Results([row]).frame())
    assert collapse.vectors(store, "nc2.norm").frame()["id"].tolist() == ids
    assert collapse.metrics("nc4").frame()["name"].tolist() == [name for name in row.measurements if "nc4." in name]
    assert collapse.tokens(store).frame()["id"].tolist() == ids
    assert len(collapse.neighbours(store, ids=ids[:1]).frame()) > 1
    assert len(collapse.compare(store, store).frame()) == len(row.measurements)
    assert len(catalogue(where=("published",))) == len(collapse.Results.read("paper"))


def test_columns_are_plotted(tmp_path):
    drawing = collapse.plot("paper", "nc4.agreement, log(nc1.cdnv)", against="nc3.self_duality")
    assert drawing.title == "nc4.agreement, log(nc1.cdnv) against nc3.self_duality"
    assert [each["encoding"]["x"]["field"] for each in drawing.spec["concat"]] == ["nc3_self_duality"] * 2
    assert drawing._repr_mimebundle_()
    drawing.save(tmp_path / "a.svg", width="page")
    assert 'width="486"' in (tmp_path / "a.svg").read_text()
    with pytest.raises(UsageError, match=r"choose a name with \.pdf, \.svg or \.png"):
        drawing.save(tmp_path / "a.jpg")
    along = collapse.plot("paper", "nc1.cdnv", against="checkpoint").spec["concat"][0]
    assert along["mark"]["type"] == "line"
    with pytest.raises(UsageError, match="no column is called 'nc9'"):
        collapse.plot("paper", "nc9")
