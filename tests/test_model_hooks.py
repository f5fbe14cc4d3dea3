"""A plugin that makes a model faster may not change what it computes."""

import re
from pathlib import Path

import pytest
import torch
from random_models import load
from transformers import MistralConfig, MistralForCausalLM

from collapse.errors import PluginError

CHANGES = {
    "half": ("model.half()", "torch.float32 became torch.float16"),
    "window": ("model.model.config.sliding_window = 2000", "embeddings change by up to"),
}


@pytest.fixture(scope="module")
def windowed(tmp_path_factory) -> Path:
    """A model that no installed plugin knows, with a window of 70."""
    folder = tmp_path_factory.mktemp("windowed")
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=90,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=70,
    )
    MistralForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def plugin(load_plugin):
    """Use a plugin that changes a model."""

    def use(change: str, returns: str = "'swift'") -> None:
        load_plugin(
            "import torch\nfrom collapse import hookimpl\n@hookimpl\n"
            f"def collapse_prepare_model(model):\n    {change}\n    return {returns}\n",
            "changing",
        )

    return use


@pytest.mark.parametrize("returns", ["'swift'", "None"])
@pytest.mark.parametrize("kind", CHANGES)
def test_a_plugin_that_changes_a_model_is_refused(windowed, plugin, kind, returns):
    change, said = CHANGES[kind]
    plugin(change, returns)
    with pytest.raises(PluginError, match=r"plugin .*changing\.py.*: collapse_prepare_model\(\) changed") as error:
        load(windowed)
    assert re.search(said, str(error.value))
    assert str(error.value).endswith("disable it with --no-fast-attention")
    assert load(windowed, fast_attention=False).attention == "sdpa"


def test_a_plugin_that_rounds_otherwise_is_used(windowed, plugin):
    plugin("model.model.norm.weight.data.mul_(1 + 1e-6)")
    assert load(windowed).attention == "swift"
