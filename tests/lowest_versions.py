"""Check the lower bounds in pyproject.toml: install exactly the lowest versions, and use them.

    python tests/lowest_versions.py                                      # into a temporary environment
    python tests/lowest_versions.py --torch 2.13.0+cpu --find-links DIR  # another torch than the lowest one
    python tests/lowest_versions.py --here                               # only the second half, in this environment

A torch of the lowest version comes with gigabytes of CUDA libraries; --torch names another, such as a CPU build.
It needs uv (``pip install uv``). Each bound is installed exactly, because a resolver that searches for the lowest
compatible versions (uv's lowest-direct) skips some of them.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHOWN = ("torch", "transformers", "huggingface-hub", "datasets", "pandas", "numpy", "pyarrow", "accelerate")


def main() -> None:
    """Install and run, or run here."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", metavar="VERSION", help="take this version of torch instead of the lowest")
    parser.add_argument("--find-links", metavar="DIR", help="folder or page with further packages, for uv")
    parser.add_argument("--here", action="store_true", help="install nothing: use this environment")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if given.here:
            use(Path(work))
        else:
            python = install(Path(work), given.torch, given.find_links)
            clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            subprocess.run([python, __file__, "--here"], check=True, env=clean, cwd=work)


def install(work: Path, torch: str | None, links: str | None) -> Path:
    """Make a virtual environment with the package and exactly the versions of its lower bounds."""
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("uv is not installed: pip install uv")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lowest = [line.replace(">=", "==") for line in (*project["dependencies"], *extras["zoo"], *extras["gguf"])]
    if torch:
        lowest = [f"torch=={torch}" if line.startswith("torch==") else line for line in lowest]
    python = work / "lowest" / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, work / "lowest"], check=True)
    pip = [uv, "pip", "install", "--quiet", "--python", python]
    subprocess.run([*pip, *(["--find-links", links] if links else []), *lowest], check=True)
    subprocess.run([*pip, "--no-deps", ROOT], check=True)
    return python


def use(work: Path) -> None:
    """Use each library once: a model, a features file, tables, the zoo, the command line."""
    from importlib.metadata import version

    print(", ".join(f"{name} {version(name)}" for name in SHOWN))  # noqa: T201  # a script's output
    os.environ |= {"COLLAPSE_HOME": str(work / "home"), "HF_HUB_OFFLINE": "1", "HF_HOME": str(work / "hf")}
    import torch
    from safetensors.torch import save_file

    import collapse
    from collapse.plugin.plugin_manager import plugins
    from collapse.testing import random_features

    assert not plugins().problems, plugins().problems
    assert "zoo" in {each.name for each in plugins().found}
    rows = []
    for seed in range(4):
        save_file(random_features(10, 8, 120, seed=seed), work / f"{seed}.safetensors")
        rows.append(collapse.measure(collapse.collect(work / f"{seed}.safetensors")))

    texts = ["some words about one thing and another " * 20, "other words, said twice over and again " * 30] * 20
    make_model(work / "model", texts)
    (work / "text.txt").write_text("\n".join(texts) + "\n")
    store = collapse.collect(
        work / "model",
        text=str(work / "text.txt"),
        validation_text=str(work / "text.txt"),
        store=work / "store",
        chunk_length=16,
    )
    assert store.state == "complete"
    rows.append(collapse.measure(store))
    assert rows[-1].measurements["nc4.agreement"] is not None
    assert not [note for row in rows for note in row.notes if note.kind == "error"]

    table = collapse.Results(rows)
    for suffix in (".csv", ".json", ".parquet"):
        table.write(work / f"table{suffix}")
        read = collapse.Results.read(work / f"table{suffix}").frame()
        assert list(read.columns) == list(table.frame().columns)
        for name in ("model", "store", "chunk_length", "val_loss", "validation"):
            mine, theirs = table.frame()[name], read[name]
            assert mine.isna().tolist() == theirs.isna().tolist(), name
            assert mine.dropna().tolist() == theirs.dropna().tolist(), name
        tested = plugins().analysis("permutation")(collapse.Results.read(work / f"table{suffix}"), n=100)
        assert len(tested.rows) > 20
    command(work, "measure", work / "store", "--output", work / "one.csv")
    command(work, "zoo", "list", "--width", 768, "--decay", 0.1)
    shape = ("--heads", 2, "--chunk-length", 32, "--stories", 50, "--generated")
    command(work, "zoo", "train", "2x16", *shape, "--max-steps", 2, "--batch-size", 2, "--output", work / "run")
    print(f"the lowest versions work, with torch {torch.__version__}")  # noqa: T201  # as above


def make_model(folder: Path, texts: list[str]) -> None:
    """Save a model with random weights, and its tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import GPTNeoConfig, GPTNeoForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=300, special_tokens=["<|end|>"]))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>").save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "intermediate_size": 32}
    config = GPTNeoConfig(
        vocab_size=300, attention_types=[[["global", "local"], 1]], max_position_embeddings=64, window_size=16, **sizes
    )
    GPTNeoForCausalLM(config).save_pretrained(folder)


def command(work: Path, *words: object) -> None:
    """Run the command line."""
    subprocess.run(
        [sys.executable, "-m", "collapse", *map(str, words)], check=True, stdout=subprocess.DEVNULL, cwd=work
    )


if __name__ == "__main__":
    main()
