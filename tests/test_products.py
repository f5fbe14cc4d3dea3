"""Products by either of torch's libraries: within the bound that decisions rest on, whatever their shape."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapse.numerics.products import product
from collapse.numerics.score_error import ScoreError


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 200),
    samples=st.integers(1, 70),
    dim=st.integers(1, 130),
    scale=st.sampled_from([1e-30, 1e-10, 1.0, 1e10]),
    kind=st.sampled_from([torch.float32, torch.float64]),
)
def test_errors_are_within_the_bound(seed, rows, samples, dim, scale, kind):
    draw = torch.Generator().manual_seed(seed)
    rows_nd = torch.randn(rows, dim, generator=draw, dtype=torch.float64).to(kind) * scale
    x_Bd = torch.randn(samples, dim, generator=draw, dtype=torch.float64)
    found = product(rows_nd, x_Bd.to(kind))
    assert found.dtype == kind
    assert found.shape == (rows, samples)
    norms = rows_nd.double().norm(dim=1)
    error = ScoreError.of_products(norms, torch.zeros_like(norms), x_Bd.norm(dim=1), dim, kind)
    exact = (rows_nd.double().unsqueeze(1) * x_Bd).sum(dim=2)
    assert bool(((found.double() - exact).abs() <= error.of_all(slice(None))).all())
    assert bool((error.of_all(slice(None)) <= error.most() * (1 + 1e-6)).all())


@pytest.mark.parametrize("there", [True, False])
def test_without_onednn_torchs_own_product_is_taken(monkeypatch, there):
    if there and not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("torch without oneDNN")
    # oneDNN multiplies on every processor; it is taken with AVX-512
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    if not there:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    taken = []
    of_torch = torch.mm
    monkeypatch.setattr(torch, "mm", lambda *given: taken.append(1) or of_torch(*given))
    made = product(torch.ones(40, 8), torch.ones(30, 8))
    assert torch.equal(made, torch.full((40, 30), 8.0))
    assert bool(taken) != there
