"""Null distributions of the permutation test: which correlations would chance give?"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from collapse import CollapseError, Drawing, Results, figure
from collapse.errors import counted
from collapse_figures.labels import shown
from collapse_figures.panels import headed, linear_ticks, together
from collapse_figures.tables import field, having, measured, remarks, sizes_in

Floats = NDArray[np.float64]

TABLE1 = (
    "nc1.cdnv",
    "nc2.equinormness",
    "nc2.equiangularity",
    "gnc2.uncentred_uniformity",
    "nc3.self_duality",
    "unc3.uniform_duality",
    "nc4.agreement",
)
PERMUTATIONS = 9_999
_EDGES = np.linspace(-1.0, 1.0, 61)
_ROOM = 1.08  # above the highest bar, for the label of a tick beside it
_P = (
    "p is the share, of these and the order observed, whose |r| is at least as large, without correction for several "
    "measurements; where none is, ≤ 3/n, with 95 % confidence. Rows are taken as exchangeable."
)
_NO_P = "No p is shown: {sizes} and are not exchangeable; size alone can give a large |r|."
_TIE = 1e-12  # r of an equal arrangement, in another order of additions


@figure(
    "permutation-null",
    title="Null distributions of the permutation test",
    needs=["val_loss"],
    source="the test of Wu & Papyan 2024, §3.8",
)
def permutation_null(results: Results) -> Drawing:
    """Pearson's r with the loss of each measurement of the paper's Table 1 under permutation, and the r observed."""
    whole = measured(results, needs=["val_loss"])
    names = having(whole, TABLE1)
    if not names:
        raise CollapseError(f"needs one of {', '.join(TABLE1)}, of which the table has no value")
    frame = whole.dropna(subset=names)
    if len(frame) < 4:
        raise CollapseError(f"needs at least 4 rows with a loss and all measurements, got {len(frame)}")
    varying = [name for name in ["val_loss", *names] if np.ptp(frame[name]) > 0]
    if varying[:1] != ["val_loss"] or len(varying) == 1:
        raise CollapseError("every loss, or every measurement, is the same in all rows: nothing can correlate")
    observed, null = null_of(frame["val_loss"].to_numpy(), frame[varying[1:]].to_numpy())
    sizes = sizes_in(frame)
    panels, rows = [], []
    for index, name in enumerate(varying[1:]):
        r = float(observed[index])
        p = (1 + int((np.abs(null[:, index]) >= abs(r) - _TIE).sum())) / (PERMUTATIONS + 1)
        shares = np.histogram(null[:, index], _EDGES)[0] / PERMUTATIONS
        key = field(name)
        rows += [
            {"of": key, "r": float(low), "r_end": float(high), "share": float(share)}
            for low, high, share in zip(_EDGES[:-1], _EDGES[1:], shares, strict=True)
        ]
        rows.append({"of": key, "observed": r, "p": None if sizes else p})
        panels.append(_panel(_title(name), key, None if sizes else p, float(shares.max())))
    spec = together(panels, rows)
    not_of_log = " (of CDNV itself, not of its logarithm)" if "nc1.cdnv" in varying else ""
    caption = (
        f"Pearson's r of {', '.join(varying[1:])} with the validation loss{not_of_log} under "
        f"{PERMUTATIONS:,} random permutations of {counted(len(frame), 'row')} (seed 0), and the r observed "
        f"(dashed). {_NO_P.format(sizes=sizes) if sizes else _P}"
    )
    constant = [name for name in names if name not in varying]
    notes = (f"constant: {', '.join(constant)}",) if constant else ()
    return Drawing(spec, caption, notes=(*remarks(frame, len(results) - len(frame)), *notes))


def _title(name: str) -> str:
    return "NC1 (mean CDNV)" if name == "nc1.cdnv" else shown(name).title  # other figures draw its logarithm


def null_of(y: Floats, x: Floats, *, n: int = PERMUTATIONS, seed: int = 0) -> tuple[Floats, Floats]:
    """Return Pearson's r of y with each column of x, shape (k,), and with permutations of y, shape (n, k)."""
    unit_n = _unit(y[:, None])[:, 0]
    unit_nk = _unit(x)
    rng = np.random.default_rng(seed)
    null = np.empty((n, x.shape[1]))
    batch = max(1, (1 << 20) // len(y))
    for start in range(0, n, batch):
        shuffled = rng.permuted(np.tile(unit_n, (min(batch, n - start), 1)), axis=1)
        null[start : start + batch] = shuffled @ unit_nk
    return unit_n @ unit_nk, null


def _unit(values: Floats) -> Floats:
    scaled = values / np.abs(values).max(axis=0)
    centred = scaled - scaled.mean(axis=0)
    return np.asarray(centred / np.linalg.norm(centred, axis=0))


def _panel(title: str, key: str, p: float | None, highest: float) -> Any:
    import altair as alt

    of, bound = alt.datum.of == key, 1 / (PERMUTATIONS + 1)
    said = "" if p is None else f"p = {p:.2g}" if p > bound else f"p ≤ {3 * bound:.1g}"
    top = _ROOM * highest
    ticks = alt.Axis(format="~%", values=linear_ticks([0.0, highest])["values"])
    bars = (
        alt.Chart(title=headed(title, said))
        .mark_bar(binSpacing=0)
        .encode(
            x=alt.X(
                "r:Q",
                bin="binned",
                title="r with the loss",
                scale=alt.Scale(domain=[-1, 1]),
                axis=alt.Axis(values=[-1, 0, 1]),
            ),
            x2="r_end:Q",
            y=alt.Y("share:Q", title="share", scale=alt.Scale(domain=[0, top], nice=False), axis=ticks),
            tooltip=[alt.Tooltip("r:Q", format=".2f"), alt.Tooltip("share:Q", format=".2%")],
        )
    )
    rule = (
        alt.Chart()
        .mark_rule(strokeWidth=1.5)
        .encode(x="observed:Q", tooltip=[alt.Tooltip("observed:Q", format=".3f"), alt.Tooltip("p:Q", format=".2g")])
    )
    return alt.layer(bars, rule).transform_filter(of)
