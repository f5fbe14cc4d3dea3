"""Results and figures for tests of reports, with names that contain markup, code or control characters."""

from collapse import Results, Row

HOSTILE = [
    "</script><script>window.stolen = 1</script>",
    "<img src=x onerror='window.stolen = 1'>",
    "red \x1b[31m",
    "\u202egnp.exe",
    "=HYPERLINK(1)",
    "<!-- a",
    "quote \" and ' & amp;",
    "plain",
]

FIGURES = '''
from collapse import CollapseError, Drawing, figure

POINT = {"type": "point", "tooltip": True, "filled": True, "size": 60}


def view(name, params=()):
    """One panel."""
    axis = lambda field: {"field": field, "type": "quantitative", "scale": {"zero": False}}
    shown = {"condition": {"param": "brush", "value": 1}, "value": 0.1}
    encoding = {"x": axis("val_loss"), "y": axis(name), "opacity": shown, "tooltip": [{"field": "model"}]}
    return {"mark": POINT, "encoding": encoding, "params": list(params)}


@figure("panels", title="Two panels", needs=["val_loss", "nc1.cdnv", "nc4.agreement"], source="A & B 2024")
def panels(results):
    """Two panels that a brush links."""
    frame = results.frame().dropna(subset=["val_loss"])
    columns = {"nc1.cdnv": "cdnv", "nc4.agreement": "agreement"}
    rows = frame.rename(columns=columns)[["model", "val_loss", "cdnv", "agreement"]].to_dict("records")
    brush = {"name": "brush", "select": {"type": "interval"}}
    views = [view("cdnv", [brush]), view("agreement")]
    spec = {"data": {"values": rows}, "columns": 2, "concat": views}
    return Drawing(spec, "Points <b>of</b> models.", notes=("a note",))


@figure("pairs", title="Pairs")
def pairs(results):
    """Never drawn."""
    raise CollapseError("it wants <more> rows")


@figure("broken", title="Broken")
def broken(results):
    """Fails."""
    raise RuntimeError("a bug")


@figure("classes", title="Samples of classes", of="stores", needs=["counts"])
def classes(stores):
    """Counts of one store."""
    counts = sorted(stores[0].statistics().counts.tolist(), reverse=True)
    rows = [{"rank": rank + 1, "count": count} for rank, count in enumerate(counts)]
    encoding = {name: {"field": name, "type": "quantitative"} for name in ("rank", "count")}
    return Drawing({"data": {"values": rows}, "mark": "line", "encoding": encoding}, "Counts.")
'''


def rows_of(names: list[str], **changes: object) -> list[Row]:
    """One row per name; the loss falls while agreement and the CDNV rise."""
    made = []
    for index, name in enumerate(names):
        numbers = {"val_loss": 3.0 - index / 4, "nc1.cdnv": 0.01 * (index + 1), "nc4.agreement": index / 10}
        about = {
            "corpus": "stories",
            "store": f"{index:064x}",
            "min_count": 1,
            "classes": 100,
            "dim": 8 * (1 + index % 2),
        }
        made.append(Row(model=name, revision=None, samples=1000, measurements=numbers, **(about | changes)))
    return made


def hostile_results() -> Results:
    """Eight rows with names that must be shown as plain text."""
    return Results(rows_of(HOSTILE))
