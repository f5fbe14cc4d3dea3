"""Measurements of the classes that other stores have: corpora of unequal length on one class set."""

import json

import pytest
import torch

import collapse
from collapse.errors import CollapseError, UsageError
from collapse.measurement.row_tables import remarks_of


@pytest.fixture(scope="module")
def stores(tiny, tmp_path_factory):
    """A model on a text, and on its first chunks, in which fewer classes occur."""
    folder = tmp_path_factory.mktemp("sets")
    return [
        collapse.collect(tiny.model, store=folder / name, **{**tiny.options(), "max_chunks": most})
        for name, most in (("long", 40), ("short", 4))
    ]


def test_only_the_classes_of_the_other_store_are_measured(stores):
    long, short = stores
    row = collapse.measure(long, metrics="nc2.norm,nc1.cdnv,nc4.agreement", classes_of=short)
    s, kept = long.statistics(), short.statistics().classes
    inside = torch.isin(s.classes, kept)
    assert row.classes == int(inside.sum()) < s.n_classes
    means, variances = s.means[inside], s.variances[inside]
    norms = (means - means.mean(dim=0)).norm(dim=1)
    assert row["nc2.norm"] == pytest.approx(float(norms.mean()), rel=1e-12)
    sqdist = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist").square()
    cdnv = (variances[:, None] + variances) / (2 * sqdist.square())
    above = torch.triu(torch.ones_like(cdnv), 1).bool() & (sqdist > 0)
    assert row["nc1.cdnv"] == pytest.approx(float(cdnv[above].mean()), rel=1e-9)
    assert row["nc4.agreement"] == collapse.measure(long, metrics="nc4.agreement")["nc4.agreement"]
    assert row.class_set == short.digest
    rows = [collapse.measure(long, metrics="nc2.norm"), row]
    assert any("class sets (--classes-of) are mixed" in note for note in remarks_of(rows))
    assert collapse.Results(rows).frame()["class_set"].fillna("").tolist() == ["", short.digest]
    both = collapse.measure(long, metrics="nc2.norm", classes_of=[short, long], min_count=3)
    assert both.classes == int((inside & (s.counts >= 3)).sum())
    assert both.class_set == f"{short.digest},{long.digest}"


def test_compare_takes_what_all_have(stores):
    long, short = stores
    table = collapse.compare(long, short, metrics="nc2.norm", classes_of=long, anyway=True)
    common = torch.isin(long.statistics().classes, short.statistics().classes).sum()
    assert table.title.count(f"C = {common:,} classes") == 2


def test_the_command_and_what_is_refused(stores, out, told, tmp_path):
    long, short = stores
    rows = json.loads(out("measure", long.path, "--classes-of", short.path, "--metrics", "nc2.norm", "--json"))
    assert rows[0]["class_set"] == short.digest
    shown = " ".join(out("measure", long.path, "--classes-of", short.path).split())
    assert f"classes of store {short.digest[:12]}" in shown
    assert "there is no store" in told(1, "measure", long.path, "--classes-of", tmp_path)
    one = collapse.collect_arrays(torch.randn(6, 2), torch.tensor([0, 0, 0, 1, 1, 1]), torch.randn(2, 2))
    with pytest.raises(CollapseError, match=r"\d of \d+ classes kept, .* choose other classes with --classes-of"):
        collapse.measure(long, classes_of=one, metrics="nc2.norm")


def test_other_tokenizers_have_other_classes(stores):
    import made_validations as made

    long, _ = stores
    with pytest.raises(UsageError, match="has another tokenizer"):
        collapse.measure(made.store(None, tokenizer="other"), classes_of=long)
