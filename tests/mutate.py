"""Mutation testing: each small change of the code that numbers depend on must fail a test, or stand in mutants.toml.

``pip install cosmic-ray==8.7.0``, then ``python tests/mutate.py`` (hours), or ``python tests/mutate.py decisions nc1``
for some modules. cosmic-ray makes the mutants; each is written into a copy of the tree, and the tests of its module,
``TESTS`` below, run until one fails (mutant_tests.py). Outcomes are appended to ``--record``, so that an interrupted
run continues. Exits 1 where a mutant survives that mutants.toml does not list as equivalent, with its reason.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mutant_tests import import_what_tests_need, in_new_session, in_one_session

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("mutants.toml")
TIMEOUT = 120.0  # seconds; the tests of no module take as long
_TYPING = re.compile(r"\s*(assert [\w.]+ is not None|if TYPE_CHECKING)")  # said to a type checker

METRICS = (
    "tests/plugins/test_edges.py tests/plugins/test_numbers.py tests/test_degenerate.py "
    "tests/test_conformance.py::test_built_in_metrics_keep_every_law "
    "--deselect tests/test_degenerate.py::test_a_model_with_such_a_classifier_is_refused"
)
PAIRS = (
    "tests/test_tiles.py tests/test_pairs.py "
    "--deselect tests/test_pairs.py::test_any_tiling_equals_all_pairs_at_once " + METRICS
)
PERMUTATION = (
    "tests/plugins/test_permutation.py tests/plugins/test_within.py "
    "--deselect tests/plugins/test_permutation.py::test_the_command "
    "--deselect tests/plugins/test_permutation.py::test_bad_input_to_the_command "
    "--deselect tests/plugins/test_permutation.py::test_a_guests_analysis_is_a_command"
)
CORRELATION = "tests/plugins/test_correlation.py tests/plugins/test_findings.py "
TESTS = {
    "plugins/collapse_metrics/nc1.py": METRICS,
    "plugins/collapse_metrics/nc2.py": METRICS,
    "plugins/collapse_metrics/gnc2.py": METRICS,
    "plugins/collapse_metrics/nc3.py": METRICS,
    "plugins/collapse_metrics/nc4.py": METRICS,
    "plugins/collapse_metrics/generalization.py": METRICS,
    "plugins/collapse_metrics/covariance.py": METRICS
    + " tests/test_accumulate.py tests/test_store.py::test_a_wrong_covariance_costs_its_own_measurement",
    "plugins/collapse_analyses/permutation.py": PERMUTATION,
    "plugins/collapse_analyses/choosing.py": PERMUTATION,
    "plugins/collapse_analyses/signs.py": PERMUTATION,
    "collapse/measurement/permuting.py": PERMUTATION,
    "plugins/collapse_analyses/correlation.py": CORRELATION,
    "plugins/collapse_analyses/fits.py": CORRELATION,
    "plugins/collapse_analyses/strata.py": CORRELATION,
    "plugins/collapse_analyses/paired.py": "tests/plugins/test_paired.py",
    "plugins/collapse_analyses/pairing.py": "tests/plugins/test_paired.py",
    "plugins/collapse_analyses/scaling.py": "tests/plugins/test_scaling.py",
    "collapse/numerics/ranking.py": "tests/test_ranking.py tests/test_tally.py tests/test_decisions.py "
    "tests/test_products.py",
    "collapse/numerics/products.py": "tests/test_products.py tests/test_ranking.py",
    "collapse/numerics/decisions.py": "tests/test_tally.py tests/test_ranking.py tests/test_decisions.py "
    "tests/test_hostile_statistics.py tests/plugins/test_numbers.py",
    "collapse/numerics/tiles.py": PAIRS,
    "collapse/numerics/pairs.py": "tests/test_notes.py " + PAIRS,
    "collapse/plugin/reducers.py": "tests/test_reducers.py " + PAIRS,
    "collapse/plugin/state.py": "tests/test_declared_state.py",
    "collapse/numerics/reducing.py": "tests/test_reducers.py " + PAIRS,
    "collapse/numerics/fields.py": "tests/test_fields.py " + PAIRS,
    "collapse/numerics/near_pairs.py": PAIRS,
    "collapse/numerics/statistics.py": "tests/test_statistics.py " + PAIRS,
    "collapse/numerics/accumulate.py": "tests/test_accumulate.py tests/test_hostile_statistics.py " + METRICS,
    "collapse/stores/tensor_files.py": "tests/test_store.py",
    "collapse/measurement/measuring.py": "tests/test_notes.py tests/test_hostile_plugins.py " + PAIRS,
    "collapse/numerics/finite.py": "tests/test_finite.py " + METRICS,
    "collapse/numerics/returned.py": "tests/test_hostile_plugins.py " + METRICS,
    "collapse/testing/probing.py": "tests/test_conformance.py",
    "collapse/numerics/lending.py": "tests/test_hostile_plugins.py " + METRICS,
    "collapse/plugin/guarding.py": "tests/test_guarding.py tests/test_hostile_plugins.py " + METRICS,
    "collapse/precision.py": "tests/test_precision.py "
    "--deselect tests/test_precision.py::test_a_program_that_chose_fast_products_gets_the_same_store",
    "collapse/plugin/measures.py": "tests/test_hostile_plugins.py " + METRICS,
    "collapse/collection/features.py": METRICS,
    "collapse/inputs/packing.py": "tests/test_packing.py "
    "tests/test_corpus.py::test_two_processes_that_pack_the_same_text",
    "collapse/collection/slices.py": "tests/test_slice_runs.py",
    "collapse/stores/shards.py": "tests/test_shards.py",
    "collapse/stores/folding.py": "tests/test_merging.py",
    "collapse/stores/merging.py": "tests/test_merging.py",
    "collapse/collection/text_request.py": "tests/test_requests.py",
    "collapse/inputs/collection_spec.py": "tests/test_collection_spec.py tests/test_requests.py",
    "collapse/inputs/text_pair.py": "tests/test_text_pair.py tests/test_requests.py tests/zoo/test_sources.py",
    "collapse/stores/manifest.py": "tests/test_store.py",
    "collapse/hub/fingerprints.py": "tests/test_references.py",
    "collapse/inputs/references.py": "tests/test_references.py",
    "collapse/inputs/textfiles.py": "tests/test_textfiles.py",
    "collapse/inputs/corpus.py": "tests/test_textfiles.py",
    "collapse/measurement/comparing.py": "tests/test_comparing.py",
    "collapse/hub/opening.py": "tests/test_finding.py",
    "collapse/collection/finding.py": "tests/test_finding.py",
}
"""Modules that numbers depend on, and the tests that watch each, its own first; the module's doctests run before."""

SWAPS = "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_Mul Pow_Mul BitOr_BitAnd BitAnd_BitOr LShift_RShift".split()
COMPARISONS = ("Lt_LtE LtE_Lt Gt_GtE GtE_Gt Lt_Gt Gt_Lt LtE_GtE GtE_LtE Eq_NotEq NotEq_Eq Is_IsNot IsNot_Is").split()
OPERATORS = [
    *"AddNot NumberReplacer ReplaceAndWithOr ReplaceOrWithAnd ReplaceTrueWithFalse ReplaceFalseWithTrue".split(),
    *"ZeroIterationForLoop ReplaceBreakWithContinue ReplaceContinueWithBreak".split(),
    *(f"ReplaceUnaryOperator_Delete_{name}" for name in ("Not", "USub", "Invert")),
    *(f"ReplaceBinaryOperator_{name}" for name in SWAPS),
    *(f"ReplaceComparisonOperator_{name}" for name in COMPARISONS),
]
"""Of cosmic-ray's operators one or two a symbol: all 7,000 mutants would say little more than these 2,000."""


@dataclass(frozen=True)
class Mutant:
    """One change of one line."""

    file: str
    line: int
    operator: str
    occurrence: int
    before: str
    after: str

    def is_listed(self, equivalent: list[dict[str, str]]) -> bool:
        """Whether mutants.toml has it, wherever in the file: by both lines, or by the first where all are the same."""
        before, after = self.before.strip(), self.after.strip()
        return any(
            (each["file"], each["before"]) == (self.file, before) and each.get("after", after) == after
            for each in equivalent
        )


def mutants(file: str, root: Path = ROOT) -> Iterator[tuple[Mutant, str]]:
    """All mutants of a file, each with the whole mutated source; not those of annotations and of what only types."""
    import cosmic_ray.plugins
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code

    source = (root / file).read_text(encoding="utf-8")
    lines, nodes, within = source.split("\n"), list(ast_nodes(get_ast(source))), _annotations(source)
    for name in OPERATORS:
        operator = cosmic_ray.plugins.get_operator(f"core/{name}")()
        positions = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, (line, column) in enumerate(positions):
            if any(start <= (line, column) < end for start, end in within) or _TYPING.match(lines[line - 1]):
                continue
            mutated = mutate_code(source, operator, occurrence)
            if mutated is None or mutated == source:
                continue
            changed = [i for i, (a, b) in enumerate(zip(lines, mutated.split("\n"), strict=False)) if a != b]
            at = changed[0] if changed else line - 1
            after = mutated.split("\n")[at]
            yield Mutant(file, at + 1, name, occurrence, lines[at], after), mutated


def _annotations(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations begin and end, as lines and columns."""
    expressions = [
        each
        for node in ast.walk(ast.parse(source))
        for each in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if isinstance(each, ast.expr)
    ]
    return [((e.lineno, e.col_offset), (e.end_lineno or 0, e.end_col_offset or 0)) for e in expressions]


def work(files: list[str], known: Mapping[str, str], share: tuple[int, int], tree: Path, record: Path) -> None:
    """Test a share (k of n) of the mutants one after the other in a tree of our own, appending each outcome."""
    import_what_tests_need()
    for file in files:
        source = (tree / file).read_text(encoding="utf-8")
        mine = [each for i, each in enumerate(mutants(file, tree)) if i % share[1] == share[0]]
        equivalent = _equivalent()
        todo = [
            each for each in mine if _key(each[0], _digest(source)) not in known and not each[0].is_listed(equivalent)
        ]
        words = ["--doctest-modules", file, *TESTS[file].split()]

        def tell(mutant: Mutant, outcome: str, digest: str = _digest(source)) -> None:
            with record.open("a", encoding="utf-8") as out:
                out.write(json.dumps(asdict(mutant) | {"outcome": outcome, "source": digest}) + "\n")

        words, left = in_one_session(tree, file, words, todo, tell)
        for mutant, mutated in left:
            (tree / file).write_text(mutated, encoding="utf-8")
            tell(mutant, in_new_session(tree, words, TIMEOUT))
            (tree / file).write_text(source, encoding="utf-8")


def main() -> int:
    """Run it; the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("modules", nargs="*", help="parts of file names; all without")
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options.add_argument("--record", type=Path, default=ROOT / ".mutants.jsonl")
    options.add_argument("--again", action="store_true", help="test recorded survivors once more: tests were added")
    chosen = options.parse_args()
    files = [file for file in TESTS if not chosen.modules or any(f"/{name}.py" in file for name in chosen.modules)]
    files = [file for file in files if (ROOT / file).exists()]
    known = {key: was for key, was in _known(chosen.record).items() if not (chosen.again and was == "survived")}
    with tempfile.TemporaryDirectory() as scratch:
        workers = []
        for index in range(chosen.workers):
            tree = Path(scratch) / str(index) / "tree"
            tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
            for name in filter(None, tracked.decode().split("\0")):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, tree / name)
            child = os.fork()
            if child == 0:
                try:
                    work(files, known, (index, chosen.workers), tree, chosen.record)
                finally:
                    os._exit(0)
            workers.append(child)
        for child in workers:
            os.waitpid(child, 0)
    known = _known(chosen.record)
    equivalent = _equivalent()
    everything = [mutant for file in files for mutant, _ in mutants(file)]
    tested = [mutant for mutant in everything if not mutant.is_listed(equivalent)]
    digests = {file: _digest((ROOT / file).read_text(encoding="utf-8")) for file in files}
    results = [(mutant, known.get(_key(mutant, digests[mutant.file]), "not tested")) for mutant in tested]
    for file in files:
        outcomes = Counter(outcome for mutant, outcome in results if mutant.file == file)
        listed = sum(mutant.file == file for mutant in everything) - outcomes.total()
        print(f"{file}: {dict(outcomes)}, {listed} listed as equivalent")  # noqa: T201
    left = [mutant for mutant, outcome in results if outcome == "survived"]
    for mutant in left:
        print(f"{mutant.file}:{mutant.line} {mutant.operator}\n  - {mutant.before}\n  + {mutant.after}")  # noqa: T201
    return 1 if left or any(outcome == "not tested" for _, outcome in results) else 0


def _equivalent() -> list[dict[str, str]]:
    found: list[dict[str, str]] = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("mutant", [])
    return found


def _known(record: Path) -> dict[str, str]:
    if not record.exists():
        return {}
    lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
    return {f"{each['source']} {each['operator']} {each['occurrence']}": each["outcome"] for each in lines}


def _key(mutant: Mutant, digest: str) -> str:
    return f"{digest} {mutant.operator} {mutant.occurrence}"


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
