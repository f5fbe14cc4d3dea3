"""The demo, with fewer epochs; .ci/run runs the whole one."""

import pytest

import collapse
from collapse.errors import UsageError
from collapse_zoo.demo import demo


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return demo(folder, epochs=(3, 27)), folder


def test_the_model_collapses(small):
    table, folder = small
    first, _, last = collapse.Results.read(folder / "results.json").rows
    assert (last.corpus, last.validation) == ("generated-20-stories.jsonl", "generated-100-other-stories.jsonl")
    assert [each["step"] for each in table.records()] == ["0", "15", "135", "permuted", "full collapse"]
    assert last["nc1.cdnv_ratio_debiased"] < first["nc1.cdnv_ratio_debiased"] / 5
    assert last["nc2.equinormness"] < first["nc2.equinormness"] / 3
    for rising in ("nc3.self_duality", "nc4.agreement"):
        assert max(first[rising], last.nulls["shuffled"][rising]) < 0.1
        assert last[rising] > 0.7


def test_every_figure_of_its_report_is_drawn(small, tmp_path):
    page = collapse.report(small[1] / "results.json", tmp_path / "report.html", figures=("training", "nulls"))
    assert "Loss and neural collapse during training" in page.read_text()
    assert ": not drawn: " not in page.read_text()


def test_a_second_run_uses_finished_work_again(small):
    table, folder = small
    weights = folder / "stories-02x0128_27L" / "model.safetensors"
    before, results = weights.stat().st_mtime_ns, (folder / "results.csv").read_bytes()
    assert demo(folder, epochs=(3, 27)) == table
    assert weights.stat().st_mtime_ns == before
    assert (folder / "results.csv").read_bytes() == results


def test_a_folder_of_the_users_own_is_refused(tmp_path):
    (tmp_path / "results.csv").write_text("mine")
    with pytest.raises(UsageError, match="holds files that the demo did not write: choose another --output"):
        demo(tmp_path)
    assert [each.name for each in tmp_path.rglob("*")] == ["results.csv"]
