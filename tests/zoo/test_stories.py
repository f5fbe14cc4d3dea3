"""The generated stories and their tokenizer."""

import json
from collections import Counter

import numpy as np
from transformers import AutoTokenizer

from collapse_zoo.stories import stories, train_tokenizer, write_stories


def test_a_seed_fixes_the_stories(tmp_path):
    write_stories(tmp_path / "a.jsonl", 7, seed=5)
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == list(stories(7, seed=5)) != list(stories(7, seed=6))


def test_tokens_are_many_and_zipf_like(tmp_path):
    texts = list(stories(1600, seed=1))
    train_tokenizer(texts, tmp_path, vocabulary=2048)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    counts = np.array(sorted(Counter(t for row in tokenizer(texts)["input_ids"] for t in row).values(), reverse=True))
    assert len(counts) >= 1000
    ranks = np.arange(1, len(counts) + 1)
    slope = np.polyfit(np.log(ranks[:600]), np.log(counts[:600]), 1)[0]
    assert -2.0 < slope < -0.6
    assert tokenizer.decode(tokenizer(texts[0])["input_ids"]) == texts[0]
    assert tokenizer.eos_token_id is not None
