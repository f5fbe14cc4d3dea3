"""Null distributions of the permutation test: correlations that chance gives."""

from typing import Any

import numpy as np

from collapse import CollapseError, Drawing, Results, figure
from collapse.errors import counted
from collapse.measurement.model_names import training_of
from collapse.measurement.prepared import TABLE_1, sizes_said
from collapse.measurement.row_permutations import TIE, orders, permuted, unit
from collapse_figures.panels import headed, together
from collapse_figures.tables import field, measured, one_of, remarks, shown

PERMUTATIONS = 9_999
_EDGES = np.linspace(-1.0, 1.0, 61)
_P = (
    "p is the share of orders, the observed order included, whose |r| is at least as large as observed. If no other "
    "order has such an |r|, p is at most 3/n for n permutations, with 95 % confidence. p is not corrected for several "
    "measurements, and assumes exchangeable rows."
)
_NO_P = "No p is shown: {unlike} and are not exchangeable; this alone can give a large |r|."


@figure(
    "permutation-null",
    title="Null distributions of the permutation test",
    needs=["val_loss"],
    source="the test of Wu & Papyan 2024, §3.8",
)
def permutation_null(results: Results) -> Drawing:
    """For each measurement of the paper's Table 1, the Pearson correlation with the loss, and its null distribution.

    The null distribution consists of the correlations with the permuted loss.
    """
    whole = measured(results, needs=["val_loss"])
    names = one_of(whole, TABLE_1)
    frame = whole.dropna(subset=names)
    varying = [name for name in names if len(frame) and np.ptp(frame[name]) > 0]
    if len(frame) < 4 or not varying or np.ptp(frame["val_loss"]) == 0:
        raise CollapseError(
            f"this figure needs at least 4 rows without missing values in val_loss and in {', '.join(names)}; the loss "
            "and one of these measurements must differ between rows: give a table with more models"
        )
    y_n, x_nk = frame["val_loss"].to_numpy(), frame[varying].to_numpy()
    observed = unit(y_n) @ unit(x_nk)
    null = np.concatenate(list(permuted(y_n, x_nk, n=PERMUTATIONS)))
    exact, trained = orders(len(frame)) <= PERMUTATIONS, training_of(frame, lambda _: 0)
    unlike = sizes_said(frame) or (f"the models differ in {trained}" if trained else "")
    panels, rows = [], []
    for name, r, null_P in zip(varying, observed.tolist(), null.T, strict=True):
        reached = int((np.abs(null_P) >= abs(r) - TIE).sum()) + (not exact)  # plus the observed order
        p = None if unlike else reached / (len(null) + (not exact))
        shares = np.histogram(null_P, _EDGES)[0] / len(null)
        bins = zip(_EDGES[:-1].tolist(), _EDGES[1:].tolist(), shares.tolist(), strict=True)
        rows += [{"of": field(name), "r": low, "r_end": high, "share": share} for low, high, share in bins]
        rows.append({"of": field(name), "observed": r, "p": p})
        panels.append(_panel(name, p, float(shares.max())))
    not_of_log = " (of CDNV itself, not of its logarithm)" if "nc1.cdnv" in varying else ""
    caption = (
        f"Pearson's r of {', '.join(varying)} with the validation loss{not_of_log} under "
        f"{f'all {len(null):,} orders' if exact else f'{len(null):,} random permutations (seed 0)'} of "
        f"{counted(len(frame), 'row')}, and the observed r (dashed). {_NO_P.format(unlike=unlike) if unlike else _P}"
    )
    return Drawing(together(panels, rows), caption, notes=remarks(frame, len(results) - len(frame)))


def _panel(name: str, p: float | None, highest: float) -> Any:
    import altair as alt

    title = "NC1 (mean CDNV)" if name == "nc1.cdnv" else shown(name).title  # other figures draw the log of the CDNV
    bound = 1 / (PERMUTATIONS + 1)
    said = "" if p is None else f"p = {p:.2g}" if p > bound else f"p ≤ {3 * bound:.1g}"
    at = alt.X("r:Q", bin="binned", title="r with the loss", scale=alt.Scale(domain=[-1, 1]))
    heights = alt.Axis(format="~%", tickCount=3)
    bars = (
        alt.Chart(title=headed(title, said))
        .mark_bar(binSpacing=0)
        .encode(
            x=at.axis(values=[-1, 0, 1]),
            x2="r_end:Q",
            y=alt.Y("share:Q", scale=alt.Scale(domain=[0, 1.08 * highest], nice=False), axis=heights),
            tooltip=[alt.Tooltip("r:Q", format=".2f"), alt.Tooltip("share:Q", format=".2%")],
        )
    )
    hover = [alt.Tooltip("observed:Q", format=".3f"), alt.Tooltip("p:Q", format=".2g")]
    rule = alt.Chart().mark_rule(strokeWidth=1.5).encode(x="observed:Q", tooltip=hover)
    return alt.layer(bars, rule).transform_filter(alt.datum.of == field(name))
