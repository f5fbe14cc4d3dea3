"""A user's first command at real size: a GPT-Neo 12x1024 on the Hub, measured by its name."""

import json
import os
import random
import resource
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from collapse_zoo.model import build
from collapse_zoo.recipes import parse

NAME = "rhubarbwu/TinyStories-12x1024_10L"
CARD = b"---\ndatasets:\n- roneneldan/TinyStories\n---\n"


def descendants_bytes():
    """Resident memory of the processes below this one, shared pages counted once for each."""
    parents, resident = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            parents[int(folder.name)], resident[int(folder.name)] = int(fields[1]), int(fields[21])
    below = {os.getpid()}
    for _ in range(5):
        below |= {pid for pid, parent in parents.items() if parent in below}
    return resource.getpagesize() * sum(resident.get(pid, 0) for pid in below - {os.getpid()})


class Sampler(threading.Thread):
    """The largest memory seen of the processes below this one."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peak, self.over = 0, threading.Event()

    def run(self):
        while not self.over.wait(0.1):
            self.peak = max(self.peak, descendants_bytes())


@pytest.mark.slow
def test_the_first_line_at_its_real_size(hub, as_user, tmp_path):
    recipe = parse(NAME).recipe()
    model = build(recipe)
    assert sum(parameter.numel() for parameter in model.parameters()) == 204_680_192
    model.save_pretrained(tmp_path / "model")
    vocabulary = {f"w{n}": n for n in range(recipe.vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="w0").save_pretrained(tmp_path / "model")
    hub.add(NAME, {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()} | {"README.md": CARD})
    draw = random.Random(0)
    words = draw.sample(range(recipe.vocabulary), 24_000) + draw.choices(range(2_000), k=16_000)
    draw.shuffle(words)
    texts = [" ".join(f"w{n}" for n in words[start : start + 500]) for start in range(0, len(words), 500)]
    lines = [json.dumps({"text": text}) for text in texts]
    train, validation = ("\n".join(some).encode() for some in (lines, lines[:20]))
    hub.add("roneneldan/TinyStories", {"train.jsonl": train, "validation.jsonl": validation}, kind="datasets")
    del model
    sampler = Sampler()
    sampler.start()
    done = as_user("measure", NAME, "--json", token=None, timeout=3000)
    sampler.over.set()
    (row,) = json.loads(done.stdout)
    assert row["classes"] >= 20_000
    assert row["samples"] >= 15 * 2047
    assert {name for name, value in row["measurements"].items() if value is None} == set()
    assert row["measurements"]["n_params"] == 204_680_192
    assert 0 < sampler.peak <= 8 * 2**30
    print(f"{row['classes']} classes, peak {sampler.peak / 2**30:.2f} GiB")  # noqa: T201  # what the long run is for
