"""docs/dimension.md: its numbers are those of the named commands, and of NumPy on the packaged table."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from collapse import Results, analyze
from collapse_metrics.gnc2 import uniform_cov

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "dimension.md").read_text("utf-8").replace("−", "-")
D_EFF, GNC2, UNCENTRED = "nc2.effective_dimension", "gnc2.hyperspherical_uniformity", "gnc2.uncentred_uniformity"
LOG = f"log({D_EFF})"


@pytest.fixture(scope="module")
def grid():
    """The 210 models of the grid, with the parts of their names."""
    frame = Results.read("paper").frame()
    parts = frame["model"].str.extract(r"(?P<depth>\d+)x(?P<width>\d+)_(?P<recipe>\d+[dL](?P<seed>\d*)@\d)")
    frame = frame.join(parts)[parts["seed"] == ""]
    frame["d_eff"] = 1 / (frame["nc2.interference_std"] ** 2 + frame["nc2.interference"] ** 2)
    return frame.assign(width=frame["width"].astype(float), depth=frame["depth"].astype(float))


def rows(first):
    """The rows of the table whose first column has this title."""
    (table,) = re.findall(rf"^\| {first} \|.*\n\| ---.*\n((?:\|.*\n)+)", PAGE, re.M)
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in table.splitlines()]


def r2(y, *columns):
    design = np.column_stack([np.ones(len(y)), *columns])
    rest = y - design @ np.linalg.lstsq(design, y)[0]
    return 1 - rest @ rest / ((y - y.mean()) @ (y - y.mean()))


def test_r2_with_and_without_width(grid):
    loss, width = grid["val_loss"].to_numpy(), np.log(grid["width"].to_numpy())
    table = rows("column")
    columns = [row[0] for row in table]
    assert LOG in columns

    def found(**more):
        return {
            row["column"]: row
            for row in analyze("correlation", "paper", columns=columns, where="seed=", **more).records()
        }

    alone, log_loss, controlled = found(), found(against="log(val_loss)"), found(control="log(width)")
    for name, *said in table:
        plain = name.removeprefix("log(").removesuffix(")")
        x = (np.log if name != plain else np.asarray)(grid[plain if plain != D_EFF else "d_eff"].to_numpy())
        direct = r2(loss, x), r2(np.log(loss), x), r2(loss, width), r2(loss, x, width)
        made = [f"{direct[0]:.3f}", f"{direct[1]:.3f}", f"{controlled[name]['r']:+.3f}", f"{direct[3]:.3f}"]
        assert made == said, name
        assert [alone[name]["R2"], log_loss[name]["R2"]] == pytest.approx(direct[:2])
        assert 1 - (1 - direct[2]) * (1 - controlled[name]["r"] ** 2) == pytest.approx(direct[3])
    assert f"log width alone has R² {r2(loss, width):.3f}" in PAGE


def test_gnc2_of_the_models_beside_that_of_uniform_points(grid):
    d_eff = grid["d_eff"].to_numpy()
    curve = np.array([uniform_cov(29_233, each) for each in d_eff])
    centred, uncentred = (grid[name].to_numpy() / curve for name in (GNC2, UNCENTRED))
    edges = [0, 12, 20, 30, 45, 100]
    for (_, models, *said), low, high in zip(rows("d_eff"), edges, edges[1:], strict=False):
        kept = (d_eff >= low) & (d_eff < high)
        made = [f"{np.median(x[kept]):.2f}, {x[kept].min():.2f} to {x[kept].max():.2f}" for x in (centred, uncentred)]
        assert [models, *said] == [str(kept.sum()), *made]
    unused = np.sqrt(grid["width"] / d_eff)
    q = grid[GNC2] / [uniform_cov(29_233, each) for each in grid["width"]]
    assert f"(R² {r2(q, unused):.3f})" in PAGE
    assert f"r = {np.corrcoef(unused, grid['val_loss'])[0, 1]:.3f} over the grid" in PAGE
    assert f"R² with 1/√d_eff is {r2(grid[GNC2], d_eff**-0.5):.3f}" in PAGE


def test_the_example_prints_the_numbers_of_the_page():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "effective_dimension.py"], capture_output=True, text=True, check=True
    )
    said = [[float(each) for each in row[:4]] for row in rows("D")]
    printed = [
        [*map(float, re.findall(r"(?<!\w)-?\d+\.?\d*", line))] for line in done.stdout.splitlines() if "D = " in line
    ]
    assert np.array(printed) == pytest.approx(np.array(said), rel=0.02)
    for row in rows("D"):
        assert row[4] == f"{uniform_cov(2000, int(row[0])):.3f}"
    assert f"{LOG} -0.937" in done.stdout
