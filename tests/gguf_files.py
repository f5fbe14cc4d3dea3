"""GGUF files of small random models."""

import json
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
import torch


def write_gguf(
    path: Path,
    layers: int,
    blocks: int,
    vocabulary: int = 40,
    tokenizer: Path | None = None,
    keys: Mapping[str, object] | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a Llama with random weights as a GGUF file.

    Args:
        path: The file.
        layers, blocks: The number of its layers, and the number of blocks in its header.
        vocabulary: Number of tokens.
        tokenizer: A byte-level tokenizer.json to include.
        keys: Further keys of the architecture: texts, integers and numbers.
        tensors: Further tensors.
    """
    path.parent.mkdir()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(blocks)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    keys = {"attention.head_count_kv": 2, "attention.layer_norm_rms_epsilon": 1e-5} | dict(keys or {})
    add = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
    for key, value in keys.items():
        add[type(value)](f"llama.{key}", value)
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(vocabulary)
    if tokenizer is not None:
        made = json.loads(tokenizer.read_text())
        tokens = sorted(made["model"]["vocab"], key=made["model"]["vocab"].get)
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(tokens)
        writer.add_token_types([1] * len(tokens))
        writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in made["model"]["merges"]])
        writer.add_eos_token_id(0)
    draw = torch.Generator().manual_seed(0)
    sizes = {"token_embd": (vocabulary, 32), "output": (vocabulary, 32), "output_norm": (32,)}
    for layer in range(layers):
        square = dict.fromkeys((f"blk.{layer}.attn_{each}" for each in ("q", "k", "v", "output")), (32, 32))
        sizes |= square | {f"blk.{layer}.ffn_gate": (64, 32), f"blk.{layer}.ffn_up": (64, 32)}
        sizes |= {f"blk.{layer}.ffn_down": (32, 64)}
        sizes |= {f"blk.{layer}.attn_norm": (32,), f"blk.{layer}.ffn_norm": (32,)}
    for each, size in sizes.items():
        writer.add_tensor(f"{each}.weight", torch.randn(size, generator=draw).numpy())
    for name, tensor in (tensors or {}).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
