"""Make the inputs of the frozen numbers: two small causal models with texts, and features files of seven kinds.

This was run once, and says how the inputs were made; ``python tests/frozen/freeze.py`` writes their numbers.
"""

import json
import random
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoConfig, PreTrainedTokenizerFast

HERE = Path(__file__).parent
VOCABULARY = 160


def texts() -> None:
    """Write stories of invented words by Zipf's law, and a tokenizer trained on them."""
    draw = random.Random(0)
    words = ["".join(draw.choice("abdeilmnorstu") for _ in range(draw.randint(2, 6))) for _ in range(120)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    for name, n in (("train", 120), ("validation", 60)):
        stories = [" ".join(draw.choices(words, weights, k=draw.randint(15, 50))) + "." for _ in range(n)]
        lines = [json.dumps({"text": each}) for each in stories]
        (HERE / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<|end|>"], show_progress=False)
    tokenizer.train_from_iterator((json.loads(line)["text"] for line in lines), trainer)
    for model in ("tied", "untied"):
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(HERE / model)


def causal() -> dict[str, AutoModelForCausalLM]:
    """Write GPT-Neo, whose head is tied, and GPT-2 with a head of its own; weights are large.

    Neither has rotary positions, whose float32 sines depend on the processor.
    """
    sizes = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 0}
    neo = GPTNeoConfig(
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        intermediate_size=32,
        attention_types=[[["global", "local"], 1]],
        max_position_embeddings=64,
        window_size=16,
        **sizes,
    )
    gpt2 = GPT2Config(n_embd=16, n_layer=2, n_head=2, n_inner=32, n_positions=64, tie_word_embeddings=False, **sizes)
    made = {}
    for seed, (name, config) in enumerate({"tied": neo, "untied": gpt2}.items()):
        torch.manual_seed(seed)
        made[name] = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for parameter in made[name].parameters():
                parameter.mul_(6) if parameter.dim() > 1 else parameter.add_(0.3 * torch.randn(parameter.shape))
        made[name].save_pretrained(HERE / name)
    return made


def zipf(generator: torch.Generator, classes: int, samples: int) -> Tensor:
    """Return labels by Zipf's law, in ids with gaps."""
    weights = 1 / torch.arange(1, classes + 1, dtype=torch.float64)
    return 2 * torch.multinomial(weights, samples, replacement=True, generator=generator)


def features(
    seed: int,
    classes: int,
    dim: int,
    samples: int,
    noise: float,
    dtype: torch.dtype = torch.float64,
    bias: bool = False,
) -> dict[str, Tensor]:
    """Return embeddings around random class means, a classifier near these, and a validation part."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    means = normal(2 * classes, dim) + 0.5
    labels = zipf(generator, classes, samples)
    validation = zipf(generator, classes, samples // 4)
    made = {
        "train_features": (means[labels] + noise * normal(samples, dim)).to(dtype),
        "train_labels": labels,
        "classifier": (means + 0.5 * normal(2 * classes, dim)).to(dtype),
        "validation_features": (means[validation] + noise * normal(len(validation), dim)).to(dtype),
        "validation_labels": validation,
    }
    return made | ({"classifier_bias": 0.3 * normal(2 * classes)} if bias else {})


def degenerate() -> dict[str, Tensor]:
    """Return classes of one sample, of equal means, without variance, at the centre, and rows 0 of W."""
    made = features(5, 12, 6, 400, 0.4)
    h, y, w = made["train_features"], made["train_labels"], made["classifier"]
    h[y == 4] = h[y == 4][:1]  # no variance
    h[y == 6] = h[y == 4][0]  # the mean of another class, and no variance
    h[y == 8] *= 1e-12
    w[10] = 0
    w[12] = w[14]
    once = torch.tensor([24, 25, 26])
    made["train_features"] = torch.cat([h, torch.eye(6, dtype=torch.float64)[:3]])
    made["train_labels"] = torch.cat([y, once])
    made["classifier"] = torch.cat([w, torch.ones(4, 6, dtype=torch.float64)])
    made["validation_labels"][:3] = 27  # never seen in training
    return made


def collapsed() -> dict[str, Tensor]:
    """Return nine classes that are nearly a simplex in eight dimensions, and a classifier that is nearly its dual."""
    generator = torch.Generator().manual_seed(6)
    simplex = torch.linalg.svd(torch.eye(9, dtype=torch.float64) - 1 / 9)[0][:, :8]
    labels = torch.arange(9).repeat(20)
    noise = torch.randn(180, 8, dtype=torch.float64, generator=generator)
    return {"train_features": 2 * simplex[labels] + 1e-4 * noise, "train_labels": labels, "classifier": 3 * simplex}


def main() -> None:
    texts()
    causal()
    made = {
        "float32": features(1, 60, 24, 1_500, 1.0, torch.float32, bias=True),
        "bfloat16": features(2, 60, 24, 1_500, 0.7, torch.bfloat16),
        "few": features(3, 3, 8, 300, 0.5, bias=True),
        "many": features(4, 600, 10, 4_000, 0.6, torch.float32),
        "degenerate": degenerate(),
        "collapsed": collapsed(),
    }
    for name, tensors in made.items():
        save_file({key: value.contiguous() for key, value in tensors.items()}, HERE / f"{name}.safetensors")


if __name__ == "__main__":
    main()
