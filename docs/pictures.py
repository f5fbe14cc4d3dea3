"""Draw the pictures of docs/concepts/neural-collapse.md: each property before and after collapse, in two dimensions.

Run ``python docs/pictures.py``. Colours are readable on white and on black.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).resolve().parent / "concepts" / "pictures"
COLOURS = ("#d55e00", "#0090c8", "#009e73")
GREY = "#808080"
SIZE, GAP, TOP = 240, 30, 34
Points = NDArray[np.float64]
THREE = 90 + 120 * np.arange(3)
DRAW = np.random.default_rng(0)


def directions(degrees: Iterable[float], lengths: float | Sequence[float] = 1.0) -> Points:
    """Return the points at these angles and distances from the origin."""
    at = np.radians(np.asarray(degrees))
    return np.asarray(lengths)[..., None] * np.stack([np.cos(at), np.sin(at)], axis=-1)


def place(point: Points) -> str:
    x, y = SIZE / 2 + point * (1, -1) * SIZE * 0.4
    return f"{x:.1f},{y:.1f}"


def dot(point: Points, colour: str, radius: float = 3.5, opacity: float = 0.6) -> str:
    x, y = place(point).split(",")
    return f'<circle cx="{x}" cy="{y}" r="{radius}" fill="{colour}" fill-opacity="{opacity}"/>'


def line(start: Points, end: Points, colour: str, width: float = 2, more: str = "") -> str:
    return f'<path d="M{place(start)} L{place(end)}" stroke="{colour}" stroke-width="{width}" fill="none" {more}/>'


def arrow(end: Points, colour: str, more: str = "") -> str:
    """Draw an arrow from the origin."""
    back = -end / np.linalg.norm(end) * 0.11
    side = np.array([-back[1], back[0]]) * 0.5
    head = " ".join(place(each) for each in (end, end + back + side, end + back - side))
    return line(end * 0, end + back, colour, 3, more) + f'<polygon points="{head}" fill="{colour}"/>'


def circle() -> str:
    return (
        f'<circle cx="{SIZE / 2}" cy="{SIZE / 2}" r="{SIZE * 0.4}" fill="none" stroke="{GREY}" stroke-dasharray="3 4"/>'
    )


def nc1(spread: float) -> str:
    means = directions(THREE, 0.62)
    noise = DRAW.normal(size=(3, 25, 2)) * spread
    dots = [dot(mean + each, COLOURS[c]) for c, mean in enumerate(means) for each in noise[c]]
    return "".join(dots + [dot(mean, GREY, 5, 1) for mean in means])


def nc2(means: Points) -> str:
    return circle() + "".join(arrow(mean, COLOURS[c]) for c, mean in enumerate(means))


def gnc2(degrees: Iterable[float]) -> str:
    points = directions(degrees)
    return circle() + "".join(line(each * 0, each, GREY, 1) + dot(each, COLOURS[1], 6, 1) for each in points)


def nc3(turns: Sequence[float]) -> str:
    means, rows = directions(THREE), directions(THREE + np.asarray(turns), 0.8)
    dashed = 'stroke-dasharray="7 4"'
    return "".join(arrow(mean, COLOURS[c]) + arrow(rows[c], COLOURS[c], dashed) for c, mean in enumerate(means))


def borders(weights: Points, bias: Points) -> list[Points]:
    """Return the point where three linear scores are equal, and a far point on the border of each pair."""
    corner = np.linalg.solve(weights[1:] - weights[0], bias[0] - bias[1:])
    ends = []
    for third in range(3):
        first, second = (each for each in range(3) if each != third)
        along = (weights[first] - weights[second]) @ np.array([[0, -1], [1, 0]])
        lower = along @ (weights[first] - weights[third]) > 0
        ends.append(corner + along / np.linalg.norm(along) * (4 if lower else -4))
    return [corner, *ends]


def nc4(means: Points, weights: Points, bias: Points) -> str:
    """Draw the borders of both rules, and shade where they differ."""
    nearest, linear = borders(means, -(means**2).sum(axis=1) / 2), borders(weights, bias)
    parts = []
    for a, b in zip(nearest[1:], linear[1:], strict=True):
        corners = " ".join(place(each) for each in (nearest[0], a, b, linear[0]))
        parts.append(f'<polygon points="{corners}" fill="{GREY}" fill-opacity="0.35"/>')
    parts += [line(nearest[0], end, COLOURS[1], 5) for end in nearest[1:]]
    parts += [line(linear[0], end, COLOURS[0], 2.5, 'stroke-dasharray="8 4"') for end in linear[1:]]
    parts += [dot(mean, GREY, 6, 1) for mean in means]
    return f'<svg width="{SIZE}" height="{SIZE}">{"".join(parts)}</svg>'


def save(name: str, about: str, panels: dict[str, str]) -> None:
    """Write panels side by side, each below its title."""
    width = len(panels) * (SIZE + GAP) - GAP
    parts = []
    for at, (title, panel) in enumerate(panels.items()):
        heading = f'<text x="{SIZE / 2}" y="20" text-anchor="middle">{title}</text>'
        parts.append(f'<g transform="translate({at * (SIZE + GAP)},0)">{heading}')
        parts.append(f'<g transform="translate(0,{TOP})">{panel}</g></g>')
    style = f'font-family="sans-serif" font-size="17" fill="{GREY}"'
    box = f'width="{width}" height="{SIZE + TOP}" viewBox="0 0 {width} {SIZE + TOP}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img"'
    FOLDER.mkdir(exist_ok=True)
    svg = f'{head} aria-label="{about}"><g {style}>{"".join(parts)}</g></svg>\n'
    (FOLDER / f"{name}.svg").write_text(svg, "utf-8")


if __name__ == "__main__":
    save("nc1", "Points of three classes shrink to their means", {"early": nc1(0.2), "collapsed": nc1(0.025)})
    uneven, even = directions((60, 130, 290), (0.55, 1.0, 0.75)), directions(THREE)
    uneven -= uneven.mean(axis=0)  # seen from their mean, as in the text
    save("nc2", "Three unequal arrows become equal, at 120 degrees", {"early": nc2(uneven), "collapsed": nc2(even)})
    clumped, spread = (5, 18, 33, 52, 60, 95, 104, 118, 160, 200, 215, 290), np.arange(12) * 30
    save("gnc2", "Twelve directions spread over a circle", {"early": gnc2(clumped), "spread evenly": gnc2(spread)})
    turned = {"early": nc3((40, -25, 10)), "UNC3: equal angles": nc3((25, 25, 25)), "NC3: angles of 0": nc3((0, 0, 0))}
    save("nc3", "Classifier rows turn towards the class means", turned)
    means, other = directions(THREE, 0.6), directions(THREE + np.array((30, -15, 20)), (0.6, 0.9, 0.5))
    early = nc4(means, other, np.array([0.1, -0.05, 0.0]))
    save(
        "nc4", "The borders of two rules become the same", {"early": early, "collapsed": nc4(means, means, np.zeros(3))}
    )
