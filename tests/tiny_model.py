"""A small random model, made quickly, with its tokenizer and texts."""

import json
import random
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tiny:
    """A small GPT-Neo with random weights, its tokenizer, and texts to measure it on."""

    model: Path
    text: Path
    validation: Path

    def words(self, *more: object) -> list[str]:
        """Arguments of collect and measure, after the command's name."""
        texts = ["--text", self.text, "--validation-text", self.validation, "--chunk-length", 32]
        return [str(word) for word in (self.model, *texts, *more)]

    def options(self) -> dict[str, object]:
        """Keyword arguments of collapse.collect."""
        return {"text": str(self.text), "validation_text": str(self.validation), "chunk_length": 32}


def edit_json(file: Path, **values: object) -> None:
    """Change values in a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def make_tiny(folder: Path) -> Tiny:
    """Make the model and its texts in a folder."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPTNeoConfig, GPTNeoForCausalLM, PreTrainedTokenizerFast

    draw = random.Random(0)
    words = ["".join(draw.choice("abdeilmnorstu") for _ in range(draw.randint(2, 7))) for _ in range(400)]
    weights = [1 / (rank + 1) for rank in range(len(words))]

    def story() -> str:
        return " ".join(draw.choices(words, weights, k=draw.randint(20, 60))) + "."

    for name, n in (("text", 420), ("validation", 90)):
        lines = (json.dumps({"text": story()}) for _ in range(n))
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<|end|>"], show_progress=False)
    tokenizer.train_from_iterator((story() for _ in range(500)), trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(folder / "model")
    torch.manual_seed(0)
    config = GPTNeoConfig(
        vocab_size=512,
        hidden_size=48,
        num_layers=2,
        num_heads=2,
        intermediate_size=96,
        attention_types=[[["global", "local"], 1]],
        max_position_embeddings=64,
        window_size=16,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPTNeoForCausalLM(config).save_pretrained(folder / "model")
    return Tiny(folder / "model", folder / "text.jsonl", folder / "validation.jsonl")
