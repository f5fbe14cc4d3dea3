"""All direct and indirect dependencies of this package are pinned in constraints.txt."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("adapters", "gguf", "images", "lightning", "quantize", "report", "zoo")
CONSTRAINTS = Path(__file__).parent.parent / "constraints.txt"


def needed(name, extras, seen):
    """Names of the installed distributions that one needs."""
    if (name, extras) in seen:
        return
    try:
        lines = requires(name) or []
    except PackageNotFoundError:  # for another platform or Python
        return
    seen.add((name, extras))
    for line in lines:
        requirement = Requirement(line)
        chosen = [{"extra": extra} for extra in extras or ("",)]
        if requirement.marker is None or any(requirement.marker.evaluate(each) for each in chosen):
            needed(canonicalize_name(requirement.name), tuple(sorted(requirement.extras)), seen)


def test_every_dependency_is_pinned():
    pinned = {
        canonicalize_name(line.partition("==")[0])
        for line in CONSTRAINTS.read_text().splitlines()
        if re.fullmatch(r"[\w.-]+==\S+", line)
    }
    seen: set[tuple[str, tuple[str, ...]]] = set()
    needed("linguistic-collapse", ("docs", "examples", *EXTRAS, "test"), seen)
    installed = {name for name, _ in seen if name != "linguistic-collapse"}
    assert len(installed) > 50
    lacking = {name for name in installed - pinned if not name.startswith(("nvidia-", "cuda-", "triton"))}
    assert not lacking, f"pin these in constraints.txt: {', '.join(sorted(lacking))}"


def test_every_dependency_has_a_lowest_version_that_the_pins_satisfy():
    project = tomllib.loads((CONSTRAINTS.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    pins = dict(line.split("==") for line in CONSTRAINTS.read_text().splitlines() if "==" in line)
    for line in [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]:
        requirement = Requirement(line)
        assert any(each.operator == ">=" for each in requirement.specifier), f"{line}: no lowest version to test"
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, line
