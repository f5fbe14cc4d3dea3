"""Settings of torch and of the process that a collection changes are restored at its end."""

import os

import pytest
import torch

from collapse.core.scoped import deterministic_algorithms, environment


@pytest.fixture(autouse=True)
def settings():
    """Restore what a test sets itself."""
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("warn_only", [True, False])
def test_determinism_is_restored_as_it_was(warn_only, monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    with deterministic_algorithms():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled() == warn_only
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_a_variable_that_is_set_keeps_its_value(monkeypatch):
    monkeypatch.setenv("OF_MINE", "1")
    monkeypatch.delenv("OF_NOBODY", raising=False)
    with environment(OF_MINE="2", OF_NOBODY="3"):
        assert (os.environ["OF_MINE"], os.environ["OF_NOBODY"]) == ("1", "3")
    assert os.environ["OF_MINE"] == "1"
    assert "OF_NOBODY" not in os.environ
    with environment(override=True, OF_MINE="2", OF_NOBODY="3"):
        assert (os.environ["OF_MINE"], os.environ["OF_NOBODY"]) == ("2", "3")
    assert os.environ["OF_MINE"] == "1"
    assert "OF_NOBODY" not in os.environ
