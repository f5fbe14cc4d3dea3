"""torch's settings during computations, and the caller's settings afterwards."""

import os
from contextlib import suppress

import pytest
import torch

import collapse
from collapse.core.precision import exact_arithmetic

CHOSEN = {
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "older": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "everything": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    "on a CPU": lambda: setattr(torch.backends.mkldnn, "fp32_precision", "bf16"),
}


def settings():
    backends = torch.backends
    operations = [getattr(each, name) for each in (backends.cudnn, backends.mkldnn) for name in ("conv", "rnn")]
    products = [backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision]
    return products + [each.fp32_precision for each in operations]


@pytest.fixture
def restored():
    """Restore what a test chooses."""
    yield
    torch.backends.fp32_precision = torch.backends.mkldnn.fp32_precision = "none"
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("name", CHOSEN)
def test_what_a_program_chose_holds_again_afterwards(name):
    CHOSEN[name]()
    before = settings()
    with suppress(KeyError), exact_arithmetic():
        assert set(settings()) == {"ieee"}
        raise KeyError
    assert settings() == before


@pytest.mark.usefixtures("restored")
def test_determinism_is_restored_as_it_was(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with exact_arithmetic(deterministic=True):
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("fast", [True, False])
def test_a_program_that_chose_fast_products_gets_the_same_store(tiny, tmp_path, fast):
    options = tiny.options() | {"max_chunks": 20, "fast_attention": fast}
    plain = collapse.collect(tiny.model, store=tmp_path / "plain", **options)
    torch.set_float32_matmul_precision("medium")
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu"):
            store = collapse.collect(tiny.model, store=tmp_path / "s", **options)
            assert torch.is_autocast_enabled("cpu")
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert store.digest == plain.digest
