"""Products by both of torch's libraries have errors within the bound that decisions need, for any shape."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from collapse.numerics.best_rows import Ranking
from collapse.numerics.products import product


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 200),
    samples=st.integers(1, 70),
    dim=st.integers(1, 130),
    scale=st.sampled_from([1e-30, 1e-10, 1.0, 1e10]),
    bias_scale=st.sampled_from([None, 1e-9, 1.0, 1e9]),
    kind=st.sampled_from([torch.float32, torch.float64]),
)
def test_errors_are_within_the_bound(seed, rows, samples, dim, scale, bias_scale, kind):
    draw = torch.Generator().manual_seed(seed)
    rows_nd = torch.randn(rows, dim, generator=draw, dtype=torch.float64).to(kind) * scale
    rows_nd[0] = -rows_nd[1:].sum(dim=0)  # their mean is 0, so that nothing is subtracted
    bias_n = None if bias_scale is None else -bias_scale * torch.rand(rows, generator=draw, dtype=torch.float64)
    x_Bd = torch.randn(samples, dim, generator=draw, dtype=torch.float64)
    found = product(x_Bd.to(kind), rows_nd, None if bias_n is None else bias_n.to(kind))
    assert found.dtype == kind
    assert found.shape == (samples, rows)
    exact = (rows_nd.double() * x_Bd.unsqueeze(1)).sum(dim=2) + (0 if bias_n is None else bias_n)
    ranking = Ranking(rows_nd, [torch.arange(rows)], bias_n)
    for n in range(rows):
        error_B = ranking.error(x_Bd.norm(dim=1), kind, found[:, n].double())[0]
        assert bool(((found[:, n].double() - exact[:, n]).abs() <= error_B).all())


def test_both_libraries_give_the_product(monkeypatch):
    x, rows, bias = torch.ones(40, 8), torch.ones(30, 8), torch.ones(30)
    for processor in ("AVX512", "AVX2"):  # oneDNN, which multiplies on every processor, and torch's own
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda processor=processor: processor)
        assert torch.equal(product(x, rows), torch.full((40, 30), 8.0))
        assert torch.equal(product(x, rows, bias), torch.full((40, 30), 9.0))
