"""The card of a run whose names are not what one hopes for."""

import json
import re

import yaml
from markdown_it import MarkdownIt

from collapse_zoo.model_card import model_card
from collapse_zoo.recipes import Recipe
from collapse_zoo.runs import Checkpoint, Run

NASTY = "a|b `c` <script>alert(1)</script> \x1b[31m \u202e\n---\n# [x](javascript:y) _z_\n```\n"


def test_hostile_names_stay_text(tmp_path):
    record = {
        "name": NASTY,
        "recipe": Recipe(2, 16, vocabulary=500, heads=4, config={"activation": NASTY}).as_dict(),
        "text": {},
        "corpus": {"name": NASTY},
        "state": "finished",
        "checkpoints": [],
        "n_params": 10,
        "versions": {"torch": NASTY},
        "command": f"collapse zoo train {NASTY}",
    }
    (tmp_path / "training.json").write_text(json.dumps(record))
    made = model_card(Run(tmp_path), "owner/x", Checkpoint(tmp_path, 5, 0, {NASTY: 0.5}))
    assert made.replace("\n", "").isprintable()
    begin, front, body = re.split(r"^---\n", made, maxsplit=2, flags=re.MULTILINE)
    assert begin == ""
    assert "model-index" in yaml.safe_load(front)
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(body)
    assert re.findall(r"<(script|a|img|em|table|h1)\b", page) == ["h1", "em", "table", "a", "table"]  # the link is ours
    assert page.count("<pre>") == 4
