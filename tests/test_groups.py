"""``collapse measure --group-by``: a row for each group of classes."""

import json

import pandas as pd
import pytest
import torch

import collapse
from collapse.errors import UsageError

NAMES = "nc1.cdnv,nc2.norm,nc3.self_duality"


def test_counts_make_four_groups(whole):
    s, rows = whole.statistics(), collapse.measure_groups(whole, metrics=f"{NAMES},nc4,val_loss").rows
    assert sum(row.classes for row in rows) == s.n_classes
    assert sum(row.samples for row in rows) == int(s.counts.sum())
    borders = [[int(each.replace(",", "")) for each in row.group.removeprefix("N_c = ").split("–")] for row in rows]
    assert [each for border in borders for each in border] == sorted(each for border in borders for each in border)
    assert len(rows) > 2
    assert min(row.classes for row in rows) > s.n_classes / 10
    v = s.validation
    for row, (least, *most) in zip(rows, borders, strict=True):
        inside = (s.counts >= least) & (s.counts <= (most or [least])[0])
        means, rows_of_w, ids = s.means[inside], s.classifier[inside], s.classes[inside]
        centred = means - means.mean(dim=0)  # μ̄ is the mean over the group
        assert row["nc2.norm"] == pytest.approx(float(centred.norm(dim=1).mean()), rel=1e-12)
        cosines = torch.nn.functional.cosine_similarity(rows_of_w, centred)
        assert row["nc3.self_duality"] == pytest.approx(float(cosines.mean()), rel=1e-9)
        labels = torch.isin(v.classes, ids)
        samples = int(v.counts[labels].sum())
        assert row["val_loss"] == pytest.approx(float(v.loss_sum[labels].sum() / samples), rel=1e-12)
        assert row["nc4.agreement"] == pytest.approx(int(v.agreements[labels].sum()) / samples, rel=1e-12)
        assert row["nc4.ncc_accuracy"] == pytest.approx(int(v.ncc_hits[labels].sum()) / samples, rel=1e-12)
        assert row["nc4.kappa"] is row["nc4.chance_agreement"] is None
        assert row.standard_errors == {}
    assert {note.text for row in rows for note in row.notes if note.measurement == "nc4.kappa"} == {
        "predictions are not counted by label, so chance agreement in a group of classes is unknown"
    }


def test_a_group_is_measured_like_a_store_of_its_classes(whole):
    s = whole.statistics()
    ids = s.classes[::3]
    kept = collapse.EmbeddingStatistics(
        classes=ids, counts=s.counts[::3], means=s.means[::3], variances=s.variances[::3], classifier=s.classifier[::3]
    )
    pd.DataFrame({"id": ids, "group": "third"}).to_csv("groups.csv")
    (row,) = collapse.measure_groups(whole, "groups.csv", metrics="nc1,nc2,nc3,gnc2,unc3").rows
    alone = collapse.measure(kept, metrics="nc1,nc2,nc3,gnc2,unc3")
    assert row.group == "third"
    assert "/model, third on text.jsonl: C = " in str(row)
    for name, value in alone.items():
        if name != "nc1.covariance_ratio":  # of all classes
            assert row[name] == (value if value is None else pytest.approx(value, rel=1e-12)), name


@pytest.fixture(autouse=True)
def in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_regular_expressions_of_texts(decoding, tiny, out):
    words = ["measure", *tiny.words("--metrics", NAMES, "--group-by", "^ [abd]", "--group-by", r"\w{3}")]
    words[1] = str(decoding)
    rows = json.loads(out(*words, "--json"))
    assert [row["group"] for row in rows] == ["^ [abd]", r"\w{3}"]
    texts = collapse.tokens(collapse.collect(decoding, **tiny.options())).frame()["text"]
    assert [row["classes"] for row in rows] == [int(texts.str.contains(row["group"]).sum()) for row in rows]
    shown = out(*words)
    assert "mixed" not in shown
    assert "decoding, group ^ [abd] on text.jsonl: C = " in " ".join(shown.split())


def test_each_group_of_each_layer_is_a_row(tiny, out, told):
    store = collapse.collect(tiny.model, store="store", layers="0", **tiny.options())
    words = ("measure", store.path, "--metrics", "nc2.norm", "--group-by", "count")
    rows = json.loads(out(*words, "--layers", "all", "--json"))
    names = [row["group"] for row in rows]
    half = len(rows) // 2
    assert names[:half] == names[half:]
    assert [row["layer"] for row in rows] == ["0"] * half + ["top"] * half
    told(0, "measure", store.path, "--group-by", "count", "--output", "results.csv")
    frame = collapse.Results.read("results.csv").frame()
    assert frame["group"].tolist() == names[half:]
    assert names[-1] in out("results", "results.csv")
    told(0, "report", "results.csv", "--output", "results.html")
    told(0, "figures", "results.csv", "--out", "figures", "--figure", "reachable")
    assert "remove --layers and --group-by" in told(2, *words, "--null")


def test_what_is_refused(whole, tiny, told):
    pd.DataFrame({"id": [1, 2]}).to_csv("no.csv")
    assert "group" not in collapse.measure(whole, metrics="nc2.norm").frame()
    for by, said in {
        "no.csv": "no.csv has no column 'group'",
        "absent.csv": "there is no file absent.csv: write it with collapse tokens",
        "(": "'(' is not a regular expression",
        "no such token": "the group no such token has 0 classes, but a measurement needs two",
    }.items():
        words = ("measure", whole.path, "--group-by", by, "--tokenizer", tiny.model)
        assert said in told(1 if "absent" in by else 2, *words)
    with pytest.raises(UsageError, match=r"texts of tokens, and they are unknown \(statistics have no tokenizer"):
        collapse.measure_groups(whole.statistics(), ["a"])
    for both in (["count", "a"], ["no.csv", "a"]):
        with pytest.raises(UsageError, match=f"--group-by {both[0]} cannot be combined with another --group-by"):
            collapse.measure_groups(whole, both)


def test_a_small_group_is_left_out(whole, told):
    table = collapse.tokens(whole).frame()
    table["group"] = ["one" if at == 0 else "others" for at in range(len(table))]
    table.to_csv("groups.csv")
    said = told(0, "measure", whole.path, "--group-by", "groups.csv", "--metrics", "nc2.norm,gnc2.log_kernel")
    assert "the group one has 1 class, but a measurement needs two: it is skipped" in said
