"""Run the notebooks: each NAME.py, in jupytext's percent format, becomes NAME.ipynb with outputs and pictures.

python examples/run.py            # after a change; needs the extra examples
python examples/run.py --check    # only run them, and compare their cells with the .ipynb files
python examples/run.py 6_digits   # only these notebooks
"""

import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

try:
    import jupytext
    import nbformat
    from nbclient import NotebookClient
except ImportError as error:
    sys.exit(f"{error.name} is not installed: pip install '.[examples]'")

HERE = Path(__file__).resolve().parent
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
SETTINGS = """
import os

import altair
import vl_convert
from collapse.core.images import svg_of

altair.renderers.register("page", lambda spec: {"image/png": vl_convert.svg_to_png(svg_of(spec, width=6.75), ppi=100)})
altair.renderers.enable("page")
for name in ("CLICOLOR_FORCE", "FORCE_COLOR"):
    os.environ.pop(name, None)
"""
"""Figures become pictures, which GitHub shows, as wide as a page. Commands print no colours."""


def main(arguments: list[str]) -> int:
    """Run every notebook in an empty folder; return the exit code."""
    stale, names = [], {each for each in arguments if each != "--check"}
    for script in sorted(HERE.glob("[0-9]*.py")):
        if names and script.stem not in names:
            continue
        notebook, kept = jupytext.read(script), script.with_suffix(".ipynb")
        needed = notebook.metadata.get("needs")
        if needed and find_spec(needed) is None:
            print(f"examples/{script.name} is skipped: {needed} is not installed", file=sys.stderr)
            continue
        print(f"examples/{script.name}", file=sys.stderr)
        notebook.metadata = dict(KERNEL)
        notebook.cells.insert(0, nbformat.v4.new_code_cell(SETTINGS))
        with TemporaryDirectory() as folder:
            work = Path(folder, "work")
            work.mkdir()
            how = {"record_timing": False, "coalesce_streams": True, "extra_arguments": ["--log-level=ERROR"]}
            NotebookClient(notebook, resources={"metadata": {"path": work}}, **how).execute()
        del notebook.cells[0]
        if "--check" not in arguments:
            _tidy(notebook.cells)
            nbformat.write(notebook, kept)
        elif not kept.exists() or _said(jupytext.read(kept)) != _said(notebook):
            stale.append(kept.name)
    for name in stale:
        print(f"examples/{name} is out of date: run python examples/run.py", file=sys.stderr)
    return 1 if stale else 0


def _tidy(cells):
    """Drop random ids, what libraries say of their progress, and the text in place of a picture."""
    for k, cell in enumerate(cells):
        cell.id = f"cell-{k}"
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
            for data in [each.data for each in cell.outputs if "image/png" in each.get("data", {})]:
                del data["text/plain"]  # the whole specification


def _said(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
