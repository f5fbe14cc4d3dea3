"""Standard errors over blocks of texts and over parts, compared with simulations with a known truth."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import t as student

import collapse
from collapse.inputs.chunk_files import Chunks
from collapse.inputs.packing import group
from collapse.numerics.standard_errors import influence_of, jackknife_error, standard_error
from collapse.numerics.values import Values
from collapse.plugin.metrics import declaration
from collapse.testing import statistics_of, tiny_statistics
from collapse_metrics.generalization import val_loss


def test_blocks_are_runs_of_whole_texts_of_a_chunks_length():
    lengths = [3, 9, 2, 2, 4, 1, 7]
    starts = np.cumsum([0, *lengths[:-1]])
    chunks = Chunks(group([range(length) for length in lengths], 4), starts, "")
    # texts 0 and 1 begin at 0 and 3: at 3 there are fewer than 4 tokens, so that both are one block
    assert chunks.blocks(0, 7).reshape(-1).tolist() == [0] * 12 + [1] * 4 + [2] * 4 + [3] * 8
    assert chunks.blocks(3, 4).tolist() == [[1, 1, 1, 1]]


def covered(draw, texts, length, chunk, paired):
    """Whether a nominal 95 % interval of a mean over tokens of different texts contains the truth, 0."""
    lengths = np.maximum(5, draw.lognormal(math.log(length), 0.6, texts)).astype(int)
    of_token = np.repeat(np.arange(texts), lengths)
    values = 0.35 * draw.normal(size=texts)[of_token] + 1.5 * draw.normal(size=len(of_token))
    if paired:  # what both models have in common cancels
        values = values - 0.2 * draw.normal(size=texts)[of_token]
    tokens = group([[0] * int(each) for each in lengths], chunk)
    blocks = Chunks(tokens, np.cumsum([0, *lengths[:-1]]), "").blocks(0, len(tokens)).reshape(-1)
    values = values[: len(blocks)]
    totals = torch.zeros(blocks[-1] + 1, 5, dtype=torch.float64)
    totals[:, 0] = torch.from_numpy(np.bincount(blocks))
    totals[:, 3] = torch.from_numpy(np.bincount(blocks, values))
    tiny = tiny_statistics()
    s = replace(tiny, validation=replace(tiny.validation, block_totals=totals))
    error = standard_error(influence_of(Values(s), declaration(val_loss)))
    return abs(values.mean()) <= student.ppf(0.975, len(totals) - 1) * error


SETUPS = {  # texts, median tokens of a text, chunk length
    "texts of four chunks": (200, 250, 64),
    "texts of a chunk": (200, 250, 256),
    "eight texts a chunk": (400, 120, 1024),
    "few texts": (40, 250, 64),
    "five texts": (5, 400, 64),
}


@pytest.mark.parametrize(
    ("draws", "least", "most"), [(400, 0.91, 0.98), pytest.param(4_000, 0.93, 0.965, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("setup", SETUPS)
def test_intervals_have_the_truth(setup, paired, draws, least, most):
    draw = np.random.default_rng(0)
    draws = 20_000 if draws == 4_000 and setup == "five texts" else draws  # at the edge of the band
    assert least < np.mean([covered(draw, *SETUPS[setup], paired) for _ in range(draws)]) < most


MEASURED = ("nc1.cdnv", "nc1.cdnv_ratio", "nc2.interference_std", "nc2.equinormness", "nc3.self_duality")
_CLASSES, _DIM, _PARTS = 12, 8, 8


def statistics(h, y, classifier):
    """Class statistics directly from samples."""
    means = np.stack([h[y == c].mean(axis=0) for c in range(_CLASSES)])
    variances = np.array([((h[y == c] - means[c]) ** 2).sum(axis=1).mean() for c in range(_CLASSES)])
    s = statistics_of(torch.from_numpy(means), classifier)
    return replace(s, counts=torch.from_numpy(np.bincount(y)), variances=torch.from_numpy(variances))


def test_jackknife_errors_are_those_of_repeated_texts():
    draw = np.random.default_rng(1)
    truth = draw.normal(size=(_CLASSES, _DIM))
    classifier = torch.from_numpy(truth + 0.3 * draw.normal(size=truth.shape))
    values, errors = [], []
    for _ in range(40):
        y = np.repeat(np.arange(_CLASSES), 8 * _PARTS)
        h = truth[y] + draw.normal(size=(len(y), _DIM)) * (1 + 0.5 * draw.random(len(y)))[:, None]
        part = draw.permutation(len(y)) % _PARTS
        given = [np.ones(len(y), dtype=bool), *(part != k for k in range(_PARTS))]
        whole, *without = [collapse.measure(statistics(h[use], y[use], classifier), metrics=MEASURED) for use in given]
        values.append([whole[name] for name in MEASURED])
        errors.append([jackknife_error([each[name] for each in without]) for name in MEASURED])
    ratios = np.sqrt(np.mean(np.square(errors), axis=0)) / np.std(values, axis=0, ddof=1)
    assert ((ratios > 0.75) & (ratios < 1.6)).all(), dict(zip(MEASURED, ratios, strict=True))
