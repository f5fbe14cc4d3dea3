"""Figures as files: their content, which files are replaced, and the reasons for figures that are not drawn."""

import json
import re

import pytest

import collapse
from collapse import Results
from collapse.core.images import svg_of
from collapse.errors import UsageError
from collapse.plugin.plugin_manager import plugins
from collapse_zoo.catalogue import PUBLISHED as FILE

PAPER = str(FILE)
POINTS = {
    "data": {"values": [{"x": 1, "y": 2}, {"x": 2, "y": 3}]},
    "mark": "point",
    "encoding": {
        "x": {"field": "x", "type": "quantitative", "title": "x (m)"},
        "y": {"field": "y", "type": "quantitative", "title": "y (s)"},
    },
}


def test_a_picture_has_the_width_of_a_column_and_text_of_its_size():
    for inches_, panels in ((3.25, 1), (3.25, 4), (6.75, 4)):
        spec = POINTS if panels == 1 else {"concat": [POINTS] * panels, "columns": 4}
        svg = svg_of(spec, width=inches_)
        width = float(re.search(r' width="([\d.]+)"', svg)[1])
        drawn = float(re.search(r'viewBox="0 0 ([\d.]+)', svg)[1])
        assert width == pytest.approx(inches_ * 72)
        assert drawn == pytest.approx(width, rel=0.01)  # not shrunk
        sizes = {float(each) for each in re.findall(r'font-size="([\d.]+)px"', svg)}
        assert sizes
        assert min(sizes) >= 7


def test_figures_are_saved_with_captions_and_numbers(tmp_path):
    (saved,) = collapse.save_figures(PAPER, tmp_path / "figs", formats="svg,pdf,png,csv", names=["loss"])
    begins = {file.suffix: file.read_bytes()[:5] for file in saved.files}
    assert begins == {".svg": b"<svg ", ".pdf": b"%PDF-", ".png": b"\x89PNG\r", ".csv": b"model"}
    index = json.loads((tmp_path / "figs" / "figures.json").read_text("utf-8"))
    assert index["loss"]["caption"] == saved.caption
    assert index["loss"]["files"] == [file.name for file in saved.files]
    numbers = Results.read(tmp_path / "figs" / "loss.csv").frame()
    assert len(numbers) == 230
    assert {"model", "val_loss", "nc1_cdnv"} <= set(numbers)


def test_a_place_that_cannot_be_written_is_found_before_anything_is_read(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write .*Choose another file or folder$"):
        collapse.save_figures(tmp_path / "absent.csv", tmp_path / "file" / "below")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": "wide"}, "--width must be column, page or a number"),
        ({"width": "-1"}, "--width must be column, page or a number"),
        ({"formats": "pfd"}, "is unknown; did you mean pdf"),
        ({"names": ["los"]}, "no figure is called 'los'; did you mean loss"),
        ({"where": "model=nobody"}, "no row matches"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        collapse.save_figures(PAPER, tmp_path, **options)


def test_the_command_says_what_became_of_each_figure(run, tmp_path):
    words = ["figures", PAPER, "--out", tmp_path, "--format", "csv", "--figure", "class-frequencies"]
    undrawn = "figure class-frequencies: not drawn: it needs stores, and none are given"
    printed = run(*words, "--figure", "loss").stdout  # wrapped between words
    assert printed.split() == [*undrawn.split(), "figure", "loss:", str(tmp_path / "loss.csv")]
    run("figures", PAPER, "--out", tmp_path, "--format", "csv", "--figure", "duality")
    assert sorted(json.loads((tmp_path / "figures.json").read_text())) == ["duality", "loss"]
    done = run(*words, code=1)
    assert done.stdout.strip() == undrawn
    assert "no figure was drawn" in done.stderr
    assert "no folder for the figures is given: add --out DIR" in run("figures", PAPER, code=None).stderr
    listed = run("figures", "--list").stdout
    assert all(name in listed for name in plugins().figures)
