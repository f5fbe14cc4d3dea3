"""Both passes over the texts of a model like those of ``collapse demo``: how fast each is by what ``-v`` says."""

import logging
import tempfile
from pathlib import Path
from statistics import median

import collapse
from benchmarks.models import made_in
from benchmarks.record import Goal, Row, Table
from collapse_zoo.stories import write_stories

_SIZES = {"depth": 2, "width": 64, "heads": 4, "vocabulary": 2_048, "chunk_length": 128}
_CHUNKS = {"train": 1_565, "validation": 190}


class _Speeds(logging.Handler):
    """The tokens a second of each phase, as they are logged when it ends."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.of: dict[str, list[float]] = {phase: [] for phase in _CHUNKS}

    def emit(self, record: logging.LogRecord) -> None:
        if "collected" in record.msg and isinstance(record.args, tuple):
            phase, *_, speed = map(str, record.args)
            self.of[phase].append(float(speed.removesuffix(" tokens/s").replace(",", "")))


def measured(*, quick: bool) -> tuple[Table, Goal]:
    """Collect the same texts some times, with random weights, and return the median speeds of both passes."""
    log, speeds = logging.getLogger("collapse"), _Speeds()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(speeds)
    chunks = {phase: many // 10 if quick else many for phase, many in _CHUNKS.items()}
    try:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            made_in(folder, **_SIZES, chunks=chunks["train"])
            write_stories(folder / "validation.jsonl", 2 * chunks["validation"], seed=2)
            for round_ in range(2 if quick else 8):
                collapse.collect(
                    str(folder / "model"),
                    store=folder / f"{round_}",
                    text=str(folder / "train.jsonl"),
                    validation_text=str(folder / "validation.jsonl"),
                    max_chunks=chunks["train"],
                    max_validation_chunks=chunks["validation"],
                )
    finally:
        log.removeHandler(speeds)
        log.setLevel(level)
    train, validation = (median(each[1:]) for each in speeds.of.values())  # the first packs the texts
    rows = [
        Row(what, chunks[phase] * _SIZES["chunk_length"] / speed, speed, speed / train)
        for what, phase, speed in (("training pass", "train", train), ("validation pass", "validation", validation))
    ]
    title = f"A model like the demo's, GPT-Neo 2x64 with {_SIZES['vocabulary']:,} tokens"
    share = Goal(
        "validation's tokens a second of the training pass's", 100 * validation / train, 50, "%", at_least=True
    )
    return Table(title, rows, unit="tokens", limit="the training pass"), share
