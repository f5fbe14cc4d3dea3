"""Recipes, names, grids, and the paper's table."""

import pandas as pd
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from collapse.errors import UsageError
from collapse_zoo.catalogue import published
from collapse_zoo.grids import DEPTHS, WIDTHS, grid
from collapse_zoo.recipes import DECAYS, HEADS, Name, Recipe, parse

MAY = {
    "n_params": "n_params",
    "classes": "(matches / matches_mean + 0.5) // 1",  # matches_mean is the mean per class
    "val_loss": "val_loss",
    "val_accuracy": "val_acc",
    "perplexity": "perplex",
    "nc1.cdnv": "cdnv_mean",
    "nc1.cdnv_std": "cdnv_std",
    "nc2.log_norm": "norms_log_mean / 2",
    "nc2.log_norm_std": "norms_log_std / 2",
    "nc2.equinormness": "norms_log_std / norms_log_mean",
    "nc2.interference": "interfere_mean",
    "nc2.interference_std": "interfere_std",
    "nc2.equiangularity": "interfere_std / interfere_mean",
    "nc2.effective_dimension": "1 / (interfere_std ** 2 + interfere_mean ** 2)",
    "gnc2.uncentred_uniformity": "log_dist_std / log_dist_mean",
    "nc3.self_duality": "sims_mean",
    "nc3.self_duality_std": "sims_std",
    "unc3.uniform_duality": "sims_std / sims_mean",
    "nc4.agreement": "matches / (matches + misses)",
}
"""Measurements, as columns or formulas of columns in ``lc-2024_05_18.csv``, which has the paper's numbers."""
OCTOBER = {
    "nc2.norm": "norms_mean",
    "nc2.norm_std": "norms_var ** 0.5",
    "nc2.etf_error": "etf_error",
    "gnc2.hyperspherical_uniformity": "log_kern_var ** 0.5 / log_kern_mean",
    "gnc2.log_kernel": "log_kern_mean",
    "gnc2.log_kernel_std": "log_kern_var ** 0.5",
    "nc3.dot": "simdot_mean",
    "nc3.duality_distance": "dists_mean",
    "nc3.duality_error": "dual_error",
}
"""The same for ``lc-2024_10_24.csv``: only measurements that the table of May lacks."""


@pytest.mark.parametrize(
    ("depth", "width", "parameters"), [(12, 1024, 204_680_192), (2, 768, 54_342_912), (1, 64, 3_397_440)]
)
def test_parameters_are_the_papers(depth, width, parameters):
    recipe = parse(f"{depth}x{width}").recipe
    with torch.device("meta"):
        model = transformers.GPTNeoForCausalLM(recipe.configuration())
        model.tie_weights()
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters == recipe.n_params


def test_the_configuration_is_the_papers():
    config = Recipe(3, 64).configuration()
    assert config.attention_layers == ["global", "local", "global"]
    assert (config.num_heads, config.intermediate_size, config.window_size) == (16, 256, 256)
    assert (config.vocab_size, config.max_position_embeddings) == (50_257, 2048)
    assert (config.activation_function, config.layer_norm_epsilon, config.initializer_range) == ("gelu_new", 1e-5, 0.02)
    assert config.resid_dropout == config.embed_dropout == config.attention_dropout == 0
    assert config.tie_word_embeddings


def test_batch_sizes_and_operations_a_token_are_the_papers():
    table = {1: [16] * 6, 2: [16] * 5 + [8], 4: [8] * 6, 8: [8, 8, 8, 4, 4, 4], 12: [4] * 6}
    assert {depth: [Recipe(depth, width).batch_size for width in WIDTHS] for depth in DEPTHS} == table
    with pytest.raises(UsageError, match="--batch-size must be at least 1, got 0"):
        Recipe(1, 16, batch_size=0)
    recipe = Recipe(2, 64)
    local = sum(min(t + 1, 256) for t in range(2048)) / 2048
    matrices = recipe.n_params - 2048 * 64
    assert recipe.flops_per_token() == pytest.approx(6 * matrices + 12 * 64 * (2049 / 2 + local))


weights = st.dictionaries(st.from_regex("[a-z][a-z0-9_]*", fullmatch=True), st.sampled_from([0.1, 1, 2e-7, -3.5]))
recipes = st.builds(
    Recipe,
    depth=st.integers(1, 40),
    width=st.integers(1, 3200),
    epochs=st.just(12),
    weight_decay=st.sampled_from(sorted(DECAYS.values())),
    data_seed=st.integers(0, 400),
    seed=st.integers(0, 400),
    regularize=weights,
    head=st.sampled_from(HEADS),
)
names = st.builds(
    Name,
    recipe=recipes,
    checkpoint=st.none() | st.integers(0, 11),
    corpus=st.sampled_from(["TinyStories", "stories", "my.corpus-2", "openwebtext_10k"]),
)


@given(names)
def test_names_are_read_as_they_are_written(name):
    assert parse(str(name)) == parse(f"owner/{name}") == name


def test_names_as_published():
    assert parse("02x0768_01d07@0") == Name(Recipe(2, 768, data_seed=7), checkpoint=0)
    assert parse("12x1024_10L").recipe.weight_decay == 0.1
    assert parse("2x768_01d07").recipe.seed == parse("2x768").recipe.seed
    assert {parse(model).short for model in published().index} == set(published().index)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("12by1024", "write depth x width, such as 12x1024"),
        ("0x64", "depth must be at least 1, got 0"),
        ("2x100", "the width must be divisible by the 16 heads"),
        ("2x64_10z", "no weight decay is called 'z'; there are d (0.0005), L (0.1), n (0.0)"),
        ("2x64_10L@10", "a run of 10 epochs has no checkpoint @10: use @9 or lower"),
    ],
)
def test_what_is_no_name(text, said):
    with pytest.raises(UsageError) as error:
        parse(text).recipe.check_heads()
    assert said in str(error.value)


def test_the_papers_grid():
    members = grid("paper")
    assert len({str(member.name) for member in members}) == 150
    measured = {f"{member.name.short}@{k}" for member in members for k in member.checkpoints}
    repeats = {member.name.short + "@0" for member in grid("seeds")}
    assert len(measured) == 210
    assert measured | repeats == set(published().index)
    sizes = {(member.name.recipe.depth, member.name.recipe.width) for member in members}
    assert sizes == {(depth, width) for depth in DEPTHS for width in WIDTHS}


def test_repeats_vary_what_is_asked():
    for vary, seeds in {"data": (42, 7), "init": (7, 42), "both": (7, 7)}.items():
        recipes = [member.name.recipe for member in grid("seeds", vary=vary)]
        assert len(recipes) == 21
        assert (recipes[0].seed, recipes[0].data_seed) == (42, 42)
        assert (recipes[8].seed, recipes[8].data_seed) == seeds


def test_a_product_of_sizes_and_seeds():
    members = grid("1,2x32,64_01d,03L", seeds=[1, 2])
    assert len(members) == 16
    assert str(members[0].name) == "TinyStories-01x0032_01di01"
    assert {member.checkpoints for member in members} == {(0,), (2,)}
    assert [member.name.short for member in grid("1x16", seeds=[42, 1])] == ["01x0016_01d", "01x0016_01di01"]
    with pytest.raises(UsageError, match="no grid is called 'papers'; did you mean paper"):
        grid("papers")
    with pytest.raises(UsageError, match="--vary init works only with the grid named seeds, not with paper: remove it"):
        grid("paper", vary="init")


def test_the_shipped_table_is_the_published_one(shared):
    for file, columns in (("lc-2024_05_18.csv", MAY), ("lc-2024_10_24.csv", OCTOBER)):
        theirs = pd.read_csv(shared / "data" / "published" / file).set_index("model").sort_index()
        assert theirs.index.equals(published().index)
        for name, formula in columns.items():
            assert published()[name].to_numpy() == pytest.approx(theirs.eval(formula).to_numpy(), rel=1e-8), name
    assert [parse(model).recipe.width for model in published().index] == list(published()["dim"])
