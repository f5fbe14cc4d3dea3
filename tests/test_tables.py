"""Every table that a command prints fits terminals of 80, 100 and 120 columns, with every name whole."""

import pytest
from safetensors.torch import save_file

import collapse
from collapse.measurement.row_tables import table_of
from collapse.plugin.plugin_manager import plugins
from collapse.testing import random_features
from collapse_zoo.catalogue import catalogue

NAMES = [f"a_long_name_of_a_model_of_width_768_with_seed_{seed}" for seed in range(4)]
PUBLISHED = "TinyStories-12x1024_10L"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four models with long and similar names, their stores, and a table of them."""
    folder = tmp_path_factory.mktemp("tables")
    rows = []
    for seed, name in enumerate(NAMES):
        save_file(random_features(10, 8, 120, seed=seed), folder / f"{name}.safetensors")
        store = collapse.collect(folder / f"{name}.safetensors", store=folder / "stores" / name)
        rows.append(collapse.measure(store))
    collapse.Results(rows).write(folder / "results.csv")
    return folder


def commands(folder):
    """Each command, the names that it prints, and the measurements."""
    models = [str(folder / f"{name}.safetensors") for name in NAMES]
    known = list(plugins().measurements())
    published = [entry for entry in catalogue("no runs") if entry.name.startswith(f"{PUBLISHED}@")]
    wide = [entry.name for entry in catalogue("no runs") if entry.recipe.width == 768]
    return {
        "measure": (["measure", *models], NAMES, plugins().headlines()),
        "measure --all": (["measure", models[0], "--all"], NAMES[:1], known),
        "compare": (
            ["compare", *(str(folder / "stores" / name) for name in NAMES[:2])],
            NAMES[:2],
            plugins().headlines(),
        ),
        "metrics": (["metrics"], [], known),
        "metrics --classes": (["metrics", "gnc2", "--classes", "5000", "--dim", "768"], [], []),
        "analyze": (["analyze", "permutation", str(folder / "results.csv")], [], ["nc1.cdnv", "nc4.agreement"]),
        "plugins": (["plugins"], ["covariance", "permutation"], []),
        "info": (["info", str(folder / "stores" / NAMES[0])], [], []),
        "zoo list": (["zoo", "list", "--published", "--width", "768"], wide, []),
        "zoo info": (["zoo", "info", PUBLISHED], [PUBLISHED], list(published[0].measurements)),
    }


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize(
    "name",
    [
        "measure",
        "measure --all",
        "compare",
        "metrics",
        "metrics --classes",
        "analyze",
        "plugins",
        "info",
        "zoo list",
        "zoo info",
    ],
)
def test_names_are_whole_and_lines_fit(folder, run, monkeypatch, tmp_path, name, width):
    monkeypatch.setenv("COLUMNS", str(width))
    words, names, measurements = commands(folder)[name]
    shown = run(*words, cwd=tmp_path).stdout
    assert "…" not in shown
    table = [line for line in shown.splitlines() if not line.startswith("  ") and not line.startswith(str(folder))]
    assert [line for line in table if len(line.rstrip()) > width and not line.startswith(tuple(NAMES))] == []
    assert [each for each in names if each not in shown] == []
    joined = "".join(shown.split())
    missing = [each for each in measurements if not all(piece in joined for piece in each.split("_"))]
    assert missing == []


def test_models_of_other_shapes_have_ranges_of_limits():
    rows = []
    for classes, dim in ((6, 8), (11, 8)):
        arrays = random_features(classes, dim, 20 * classes)
        named = {name.removeprefix("train_"): arrays[name] for name in ("train_features", "train_labels", "classifier")}
        rows.append(collapse.measure(**named, metrics=["nc1.cdnv", "nc2.interference", "nc2.interference_std"]))
    limits = {cells[1]: cells[-2:] for cells in table_of(rows).rows}
    assert limits["nc1.cdnv"] == [0, ""]
    assert limits["nc2.interference"] == ["-0.2000 to -0.1000", ""]
    assert limits["nc2.interference_std"][0] == 0
    assert limits["nc2.interference_std"][1].startswith("0 to ")  # 6 classes in 8 dimensions can be a simplex


def test_a_further_table_has_the_rows_with_values(folder, run, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    for at, name in enumerate("ab"):
        (tmp_path / f"model-of-seed-{name}.safetensors").symlink_to(folder / f"{NAMES[at]}.safetensors")
    metrics = "nc2,gnc2.hyperspherical_uniformity"
    shown = run("measure", *sorted(tmp_path.glob("*")), "--metrics", metrics, cwd=tmp_path).stdout
    first, _, last = shown.partition("reachable\n")
    assert "nc2.norm " in first
    found = [line.split()[:2] for line in last.splitlines() if "nc2." in line]
    ranges = (
        *(["NC2", "nc2.interference_std"], ["nc2.effective_dimension"], ["nc2.etf_error"]),
        *(["nc2.participation_ratio"], ["GNC2", "gnc2.hyperspherical_uniformity"]),
    )
    assert [row[: len(names)] for row, names in zip(found[: len(ranges)], ranges, strict=True)] == list(ranges)


def test_no_word_of_a_text_is_broken(capsys, monkeypatch):
    from collapse.cli.rendering import print_table
    from collapse.measurement.table import Table

    monkeypatch.setenv("COLUMNS", "70")
    words = ["w" * 36 + " and more", "x" * 27 + " and a longer text than that"]
    print_table(Table("", ["name", "one", "other"], [["a", *words]]))
    shown = capsys.readouterr().out
    assert all(word in shown for text in words for word in text.split())
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= 70
