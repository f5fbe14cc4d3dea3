"""The names that parameters of a plugin's functions may have, and the value of each.

Shapes: C classes, d dimensions. A tile is a rectangle of class pairs with R rows and S columns, both of consecutive
classes.
"""

OF_OTHERS = {
    "ood": "statistics of the out-of-distribution text or data (--ood-text) as one class: an EmbeddingStatistics",
    "previous": "statistics of the previous row in a table of models, checkpoints or layers: an EmbeddingStatistics",
}
"""Statistics of other stores. A measurement that reads such a statistic is included only if the user names the
measurement or gives the other store."""

HELD = {
    "ids": "token ids of the classes, ascending and with gaps, (C,)",
    "counts": "samples N_c of each class, (C,)",
    "means": "class means μ_c, not centred, (C, d)",
    "variances": "mean squared distance σ_c² of a class's embeddings to its mean, (C,)",
    "classifier": "rows w_c of the output embedding, (C, d)",
    "bias": "bias of the output embedding, (C,)",
    "validation": "counts of the validation text, one number per label: a ValidationStatistics",
    "chunks": "totals of validation blocks (historical name): .samples, .agreements, .hits, .loss; for standard errors",
    "n_params": "number of parameters of the model",
    "dtype": "dtype of the embeddings, such as 'float32'",
    "min_count": "least number of samples of a class",
    "left_out": "number of classes that --min-count or --classes-of excludes",
    "seen": "token ids of all classes in training, also the excluded ones; None if none is excluded",
    **OF_OTHERS,
}
"""Values from the store or from the options of the measurement."""

OF_CLASSES = {
    "C": "number of classes",
    "d": "number of dimensions",
    "global_mean": "unweighted mean μ̄ of the class means, (d,)",
    "mean_rounding": "length below which a centred mean is a rounding error, (C,)",
    "centred_means": "μ_c − μ̄, exactly 0 where it is a rounding error, (C, d)",
    "norms": "‖μ_c − μ̄‖, (C,)",
    "unit_means": "u_c = (μ_c − μ̄)/‖μ_c − μ̄‖, NaN where the norm is 0, (C, d)",
    "centred_rows": "classifier rows minus their mean, exactly 0 where the difference is a rounding error, (C, d)",
}
"""Values of classes, computed from the values in HELD."""

OF_PAIRS = {
    "gram": "⟨μ_c − μ̄, μ_c′ − μ̄⟩",
    "sqdist": "‖μ_c − μ_c′‖², exactly 0 where the means differ only by float64 rounding",
    "distance": "‖μ_c − μ_c′‖",
    "cosine": "⟨u_c, u_c′⟩, NaN where a centred mean is 0; can exceed ±1 by rounding",
    "unit_sqdist": "‖u_c − u_c′‖², NaN where a centred mean is 0, exactly 0 where the directions are equal",
    "uncentred_unit_sqdist": "like unit_sqdist, but of the uncentred directions μ_c/‖μ_c‖",
    "variance_sum": "σ_c² + σ_c′²",
}
"""Fields of a tile of pairs, (R, S)."""

OF_LIMITS = {
    "C": "number of classes",
    "d": "number of dimensions",
    "measured": "the other measurements of the row by name, {} if there are none",
}
"""Parameters of a limit."""

PER_CLASS = (
    *("ids", "counts", "means", "variances", "classifier", "bias"),
    *("mean_rounding", "centred_means", "norms", "unit_means", "centred_rows"),
)
"""Names of values with one row per class. Functions of pairs read only the rows of a tile's classes, for example
``row_norms`` and ``column_norms`` instead of ``norms``."""

COLUMNS = frozenset(
    "model revision corpus store min_count classes dim samples origin validation chunk_length "
    "max_chunks max_validation_chunks dtype weights tokenizer corpus_id validation_id class_set layer depth "
    "step tokens group ood schema made_by versions excluded notes measurements standard_errors nulls".split()
)
"""Columns of a table and keys of a row; no measurement may have such a name."""

_FREE = ("ids", "dtype", "min_count", "left_out", "seen", "C", "d")
_NEEDS = {"chunks": "validation", "centred_rows": "classifier", "variance_sum": "variances"}


def need_of(name: str) -> str | None:
    """Return what a store must hold so that a parameter with this name has a value; None if every store holds it.

    >>> need_of("cosine"), need_of("counts"), need_of("C")
    ('means', 'counts', None)
    """
    if name in _FREE:
        return None
    if name in _NEEDS:
        return _NEEDS[name]
    return name if name in HELD else "means"
