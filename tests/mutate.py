"""Mutation testing: tests must fail after small random changes of the modules that compute numbers.

``python tests/mutate.py`` changes each module three times (about 15 minutes on two cores), ``python tests/mutate.py
decisions nc1 --each 20`` some modules more often. Each mutant is written into a copy of the tree, in which the tests
of its module run until one fails. Survivors are printed: read each, since some changes do not change a number. Exits 1
if no mutant of a module was caught.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
METRICS = "tests/plugins/test_numbers.py tests/plugins/test_edges.py tests/test_degenerate.py"
PAIRS = f"tests/test_pairs.py {METRICS}"
GEOMETRY = "tests/plugins/test_geometry.py"
PERMUTATION = "tests/plugins/test_permutation.py"
CORRELATION = "tests/plugins/test_correlation.py tests/plugins/test_pages.py"
TESTS = {
    "plugins/collapse_metrics/nc1.py": METRICS,
    "plugins/collapse_metrics/nc2.py": METRICS,
    "plugins/collapse_metrics/gnc2.py": METRICS,
    "plugins/collapse_metrics/nc3.py": METRICS,
    "plugins/collapse_metrics/nc4.py": METRICS,
    "plugins/collapse_metrics/generalization.py": METRICS,
    "plugins/collapse_metrics/debiasing.py": f"tests/plugins/test_debiased.py {METRICS}",
    "plugins/collapse_metrics/covariance.py": f"{METRICS} {GEOMETRY} tests/test_class_moments.py",
    "plugins/collapse_metrics/spectrum.py": f"{METRICS} {GEOMETRY}",
    "plugins/collapse_metrics/effective_dimension.py": "tests/plugins/test_effective_dimension.py",
    "plugins/collapse_geometry/anisotropy.py": GEOMETRY,
    "plugins/collapse_geometry/classifier.py": GEOMETRY,
    "plugins/collapse_geometry/intrinsic_dimension.py": GEOMETRY,
    "plugins/collapse_geometry/separation.py": GEOMETRY,
    "plugins/collapse_geometry/slopes.py": GEOMETRY,
    "plugins/collapse_geometry/spectra.py": GEOMETRY,
    "plugins/collapse_analyses/permutation.py": PERMUTATION,
    "plugins/collapse_analyses/correlation.py": CORRELATION,
    "plugins/collapse_analyses/paired.py": "tests/plugins/test_paired.py",
    "plugins/collapse_analyses/fits.py": f"tests/plugins/test_paired.py {CORRELATION}",
    "plugins/collapse_analyses/scaling.py": "tests/plugins/test_scaling.py",
    "collapse/numerics/class_moments.py": f"tests/test_class_moments.py {METRICS}",
    "collapse/numerics/best_rows.py": "tests/test_best_rows.py tests/test_tally.py tests/test_decisions.py",
    "collapse/numerics/ties.py": "tests/test_best_rows.py",
    "collapse/numerics/decisions.py": "tests/test_tally.py tests/test_best_rows.py tests/test_decisions.py",
    "collapse/numerics/pair_fields.py": PAIRS,
    "collapse/numerics/near_pairs.py": PAIRS,
    "collapse/numerics/pair_sweep.py": PAIRS,
    "collapse/numerics/reducing.py": PAIRS,
    "collapse/numerics/standard_errors.py": "tests/test_standard_errors.py tests/test_block_errors.py",
    "collapse/numerics/validation_totals.py": "tests/test_tally.py tests/test_merging.py",
    "collapse/numerics/statistics.py": f"tests/test_statistics.py {PAIRS}",
    "collapse/plugin/measures.py": f"tests/test_measures.py {PAIRS}",
    "collapse/inputs/packing.py": "tests/test_packing.py",
    "collapse/collection/batches.py": "tests/test_slice_runs.py",
    "collapse/stores/dealing_slices.py": "tests/test_shards.py tests/test_requests.py tests/test_merging.py",
    "collapse/stores/shards.py": "tests/test_shards.py tests/test_merging.py",
    "collapse/stores/folding_shards.py": "tests/test_merging.py",
}
"""Modules that compute numbers, and the tests of each; the module's doctests run too."""

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def mutated(node: ast.AST) -> bool:
    """Change an expression in place; return whether it could be changed."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPPED:
        node.op = SWAPPED[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPPED:
        node.ops[0] = SWAPPED[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        node.value += 1
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node.op = ast.UAdd()
    else:
        return False
    return True


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """All expressions in function bodies and constants, except annotations."""
    for name, child in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for each in child if isinstance(child, list) else [child]:
            if isinstance(each, ast.AST):
                yield each
                yield from expressions(each)


def mutants(file: str, count: int, seed: int) -> list[tuple[str, str]]:
    """Yield the unchanged file and some mutants: a description of the change, and the whole source."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    places = [i for i, node in enumerate(expressions(tree)) if mutated(deepcopy(node))]
    found = [("nothing", ast.unparse(tree))]
    for at in sorted(random.Random(f"{file} {seed}").sample(places, min(count, len(places)))):
        changed = deepcopy(tree)
        node = list(expressions(changed))[at]
        before = ast.unparse(node)
        mutated(node)
        found.append((f"line {node.lineno}: {before}  →  {ast.unparse(node)}", ast.unparse(changed)))  # type: ignore[attr-defined]
    return found


def is_caught(file: str, source: str) -> bool:
    """Whether a test of a module fails or takes too long with this source, in a copy of the tree."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        for name in filter(None, tracked.split("\0")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tree / name)
        (tree / file).write_text(source, encoding="utf-8")
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider", file]
        paths = {"PYTHONPATH": f"{tree}:{tree}/plugins:{tree}/zoo", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            run = subprocess.run(
                [*words, *TESTS[file].split()], cwd=tree, env={**os.environ, **paths}, capture_output=True, timeout=600
            )
        except subprocess.TimeoutExpired:
            return True
    if run.returncode > 1:
        raise SystemExit(run.stdout.decode()[-2000:])
    return run.returncode == 1


def main() -> int:
    """Run the command, and return the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("modules", nargs="*", help="names of modules; all without")
    options.add_argument("--each", type=int, default=3, help="mutants of each module")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--workers", type=int, default=2)
    chosen = options.parse_args()
    files = [file for file in TESTS if not chosen.modules or Path(file).stem in chosen.modules]
    made = [(file, *each) for file in files for each in mutants(file, chosen.each, chosen.seed)]
    caught, tried = Counter[str](), Counter(file for file, *_ in made)
    with ThreadPoolExecutor(chosen.workers) as pool:
        outcomes = pool.map(is_caught, *zip(*((file, source) for file, _, source in made), strict=True))
        for (file, what, _), failed in zip(made, outcomes, strict=True):
            if what == "nothing" and failed:
                raise SystemExit(f"{file}: its tests fail without a change")
            caught[file] += failed
            if what != "nothing" and not failed:
                print(f"{file}, {what}: SURVIVED", flush=True)  # noqa: T201
    for file in files:
        print(f"{file}: {caught[file]} of {tried[file] - 1} caught")  # noqa: T201
    return 0 if all(caught[file] for file in files) else 1


if __name__ == "__main__":
    sys.exit(main())
