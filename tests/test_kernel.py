"""The compiled passes of validation against those of torch, and machines on which they cannot be compiled."""

import shutil
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapse.building import CannotBuild, built
from collapse.numerics import kernel as module
from collapse.numerics.kernel import FUNCTIONS, Kernel, kernel
from collapse.numerics.pair_products import pair_products
from collapse.numerics.ranking import Ranking
from collapse.numerics.rows import Rows
from collapse.numerics.scored import Scored

SOURCE = Path(module.__file__).with_name("scoring.c")


@pytest.fixture(scope="module")
def compiled() -> Kernel:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("needs a C compiler")
    made = kernel()
    assert made is not None
    return made


def begun(rows: Rows, x_Bd: torch.Tensor, share: float, sums: bool) -> Scored:
    return Scored.begin(rows, x_Bd, torch.float32, share, sums=sums)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    lengths=st.tuples(st.integers(1, 300), st.integers(0, 40)),
    samples=st.integers(1, 300),
    dim=st.integers(1, 70),
    group=st.sampled_from([8, 16]),
    scale=st.sampled_from([0.0, 0.1, 1.0, 30.0]),
    with_bias=st.booleans(),
    centred=st.booleans(),
    share=st.sampled_from([1.0, 0.25]),
    threads=st.sampled_from([1, 2, 3]),
)
def test_they_find_what_torch_finds(
    compiled, seed, lengths, samples, dim, group, scale, with_bias, centred, share, threads
):
    draw = torch.Generator().manual_seed(seed)
    matrix = torch.randn(sum(lengths), dim, generator=draw) * scale
    order = torch.randperm(len(matrix), generator=draw)
    parts = [each.sort().values for each in order.split(list(lengths))]
    bias = torch.randn(len(matrix), generator=draw).double() if with_bias else None
    x_Bd = torch.randn(samples, dim, generator=draw).double() * scale
    with patch("collapse.numerics.rows.BLOCK", 64):
        rows = Rows(matrix, parts, bias, group=group, centred=centred)
    found, of_torch = begun(rows, x_Bd, share, True), begun(rows, x_Bd, share, True)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for block in rows.blocks:
            scores = rows.rounded(block.rows) @ x_Bd.float().T
            kept = scores.clone()
            compiled.take_in(found, scores, block)
            assert torch.equal(scores, kept)
            of_torch.take_in(scores, block)
        near = compiled.near(rows, found, many=len(rows.part_of))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found.highest, of_torch.highest)
    assert torch.equal(found.top, of_torch.top)
    assert bool(
        (of_torch.least <= found.least + 1e-6 * (1 + scale**2)).all()
    )  # it bounds the error by block, not group
    assert bool((of_torch.least >= found.least - 2 * found.error.most() - 1e-6).all())
    torch.testing.assert_close(found.others, of_torch.others, rtol=3e-6, atol=1e-35)
    assert near is not None
    score_Bn = x_Bd @ rows.exact(slice(None)).T
    if rows.bias is not None:
        score_Bn += share * rows.bias
    is_near = torch.zeros_like(score_Bn, dtype=torch.bool)
    is_near[near] = True
    assert int(is_near.sum()) == len(near[0])  # no pair twice
    error = found.error.most().double().unsqueeze(1)
    for part in rows.parts:
        best = score_Bn[:, : part.rows.stop].amax(dim=1, keepdim=True)
        here = score_Bn[:, part.rows]
        assert bool(is_near[:, part.rows][here == best].all())
        assert bool((here >= best - 5 * error)[is_near[:, part.rows]].all())


@pytest.mark.parametrize("below", [0.0, 1e-6, 0.3, 1, 20, 80, 86.9, 87.5, 1000])
def test_exponentials_of_scores(compiled, below):
    """Of two rows whose scores differ by so much: beside the 1 of the highest, the other keeps its digits."""
    matrix = torch.tensor([[0.0], [-below]])
    rows = Rows(matrix, [torch.arange(2)], None, group=8, centred=False)
    found = begun(rows, torch.ones(1, 1).double(), 1.0, True)
    scores = rows.rounded(slice(0, 2)) @ torch.ones(1, 1)
    compiled.take_in(found, scores.contiguous(), rows.blocks[0])
    other = float(scores[1].double().exp())
    assert float(found.others) == pytest.approx(other, rel=2e-7, abs=1e-37)


def test_with_more_open_groups_than_are_looked_at_nothing_is_said(compiled):
    rows = Rows(torch.zeros(100, 3), [torch.arange(100)], None, group=8, centred=False)
    x = torch.ones(5, 3)
    found = begun(rows, x.double(), 1.0, False)
    for block in rows.blocks:
        compiled.take_in(found, rows.rounded(block.rows) @ x.T, block)
    assert compiled.near(rows, found, many=12) is None
    assert len(compiled.near(rows, found, many=13)[0]) == 5 * 104


def test_a_library_that_was_changed_is_not_loaded_but_made_again(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path))
    built(SOURCE, FUNCTIONS)
    (made,) = tmp_path.glob("kernels/*.so")
    whole = made.read_bytes()
    for wrong in (whole[:-100], b""):
        (tmp_path / "other").write_bytes(wrong)
        (tmp_path / "other").replace(made)  # not written over: it is in memory
        assert built(SOURCE, FUNCTIONS).take_in
        (found,) = tmp_path.glob("kernels/*")
        assert found.name == made.name
        assert found.read_bytes() == whole


def test_other_options_make_another_library(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path))
    built(SOURCE, FUNCTIONS)
    built(SOURCE, FUNCTIONS, ["-DANOTHER"])
    assert len(list(tmp_path.glob("kernels/*.so"))) == 2


def test_another_compiler_makes_another_library(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path))
    built(SOURCE, FUNCTIONS)
    command = next(each for each in ("cc", "gcc", "clang") if shutil.which(each))
    monkeypatch.setenv("CC", f"{command} -ffast-math")
    built(SOURCE, FUNCTIONS)
    assert len(list(tmp_path.glob("kernels/*.so"))) == 2
    smallest = torch.tensor(1e-310, dtype=torch.float64)
    assert float(smallest * 1.0) == 1e-310  # it did not change the arithmetic of the process


def test_a_library_without_the_functions_is_not_kept(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path / "home"))
    (tmp_path / "other.c").write_text("int other(void) { return 1; }")
    with pytest.raises(CannotBuild, match="a library without the function take_in"):
        built(tmp_path / "other.c", FUNCTIONS)
    assert list(tmp_path.glob("home/kernels/*")) == []


def test_a_folder_in_the_place_of_a_library_is_no_obstacle(compiled, tmp_path, monkeypatch):
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path))
    built(SOURCE, FUNCTIONS)
    (made,) = tmp_path.glob("kernels/*.so")
    made.with_name(f"{made.stem.rpartition('-')[0]}-x.so").mkdir()
    assert built(SOURCE, FUNCTIONS).take_in


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "cannot compile scoring.c: status 3"),
        ("echo first >&2; echo second >&2; exit 1", "cannot compile scoring.c: first"),
        ("exit 0", "cannot compile scoring.c: it made no library"),
        ("sleep 60", "cannot compile scoring.c: it takes longer than 1 seconds"),
    ],
)
def test_what_a_compiler_did_is_said_in_a_line(tmp_path, monkeypatch, script, said):
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("collapse.building._SECONDS", 1)
    (tmp_path / "cc").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    with pytest.raises(CannotBuild) as refused:
        built(SOURCE, FUNCTIONS)
    assert str(refused.value) == f"{tmp_path / 'cc'} {said}"


def test_why_it_cannot_be_built(tmp_path, monkeypatch):
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CC", "'gcc")
    with pytest.raises(CannotBuild, match="CC='gcc is not a command: no closing quotation"):
        built(SOURCE, FUNCTIONS)
    monkeypatch.setenv("CC", "absent-compiler -O2")
    with pytest.raises(CannotBuild, match="there is no absent-compiler, the C compiler that CC names"):
        built(SOURCE, FUNCTIONS)
    monkeypatch.setenv("CC", "false")
    with pytest.raises(CannotBuild, match=r"false cannot compile scoring\.c"):
        built(SOURCE, FUNCTIONS)
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotBuild, match="there is no C compiler such as gcc"):
        built(SOURCE, FUNCTIONS)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path / "file"))
    with pytest.raises(CannotBuild):
        built(SOURCE, FUNCTIONS)
    assert list(tmp_path.glob("home/kernels/*")) == []


@pytest.mark.parametrize("wrong", ["take_in", "find_near", "products_of"])
def test_a_library_that_gives_other_numbers_is_not_used(compiled, monkeypatch, tmp_path, caplog, wrong):
    text = SOURCE.read_text()
    was, now = {
        "take_in": ("1.0f;\n    union", "1.001f;\n    union"),
        "find_near": (">= reached", "> reached + 1e9f"),
        "products_of": ("sum += sums[i]", "sum += 2 * sums[i]"),
    }[wrong]
    assert was in text
    (tmp_path / "scoring.c").write_text(text.replace(was, now))
    monkeypatch.setenv("COLLAPSE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "__file__", str(tmp_path / "kernel.py"))
    assert kernel.__wrapped__() is None
    assert "they give other numbers than torch" in caplog.text


def test_decisions_are_those_without_a_compiler(compiled, monkeypatch):
    draw = torch.Generator().manual_seed(1)
    weight = torch.randn(900, 48, generator=draw)
    weight[500:] = weight[:400] * (1 + 1e-7 * torch.randn(400, 1, generator=draw))
    parts = [torch.arange(0, 900, 3), torch.arange(1, 900, 3), torch.arange(2, 900, 3)]
    x = torch.randn(300, 48, generator=draw).double()

    def decided() -> list[tuple[int, int]]:
        ranking = Ranking(weight, parts, weight[:, 0], centred=True)
        found = ranking.scores(x, sums=True)
        pairs = [(s, ranking.ids(r), ranking.scores_of(x, s, r)) for s, r in ranking.candidates(x, found)]
        best = {}
        for sample, row, score in zip(*(torch.cat(each).tolist() for each in zip(*pairs, strict=True)), strict=True):
            best[sample] = max(best.get(sample, (-torch.inf, 0)), (score, -row))
        return sorted(best.items())

    with_compiler = decided()
    monkeypatch.setattr("collapse.numerics.ranking.kernel_for", lambda x_Bd: None)
    monkeypatch.setattr("collapse.numerics.pair_products.kernel", lambda: None)
    without = decided()
    assert [(sample, row) for sample, (_, row) in without] == [(sample, row) for sample, (_, row) in with_compiler]
    scores = ([score for _, (score, _) in each] for each in (without, with_compiler))
    torch.testing.assert_close(*(torch.tensor(each, dtype=torch.float64) for each in scores), rtol=1e-12, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    dim=st.integers(1, 70), many=st.integers(0, 300), dtype=st.sampled_from(["float32", "float64"]), seed=st.integers()
)
def test_products_of_pairs(compiled, dim, many, dtype, seed):
    draw = torch.Generator().manual_seed(seed % 2**32)
    matrix = torch.randn(40, dim, generator=draw).to(getattr(torch, dtype))
    x_Bd = torch.randn(50, dim, generator=draw).double()
    row_K, sample_K = (torch.randint(0, most, (many,), generator=draw) for most in (40, 50))
    product_K = compiled.products_of(matrix, row_K, x_Bd, sample_K)
    torch.testing.assert_close(product_K, (matrix[row_K].double() * x_Bd[sample_K]).sum(dim=1), rtol=1e-13, atol=1e-13)
    equal = torch.cat([matrix, matrix])
    assert torch.equal(compiled.products_of(equal, row_K + 40, x_Bd, sample_K), product_K)


@pytest.mark.parametrize("matrix", [torch.randn(9, 5).bfloat16(), torch.randn(5, 9).T])
def test_products_of_a_matrix_that_the_compiled_passes_do_not_take(compiled, matrix):
    assert not compiled.can_multiply(matrix)
    some = torch.arange(9)
    x_Bd = torch.randn(9, 5).double()
    torch.testing.assert_close(pair_products(matrix, some, x_Bd, some), (matrix.double() * x_Bd).sum(dim=1))


def test_nothing_is_compiled_where_that_is_not_wanted(monkeypatch, caplog):
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    assert kernel.__wrapped__() is None
    assert not caplog.text
