"""The structure of the code: rooms in order, imports only from lower rooms, and public modules for plugins."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    "",
    "core",
    "plugin",
    "numerics",
    "stores",
    "measurement",
    "hub",
    "showing",
    "inputs",
    "collection",
    "vocabulary",
    "monitoring",
    "testing",
    "cli",
)
"""From low to high: a module imports from its own room and from those before it. "" is collapse/ itself."""

ABOVE_ALL = ("collapse", "collapse.__main__")
"""Modules that no other module may import: the public names, and ``python -m collapse``."""

LONGEST_FILE, LONGEST_FUNCTION = 300, 60
"""Maximum numbers of lines, of a file and of a function without its docstring."""

MOST_FLOORS = 8
"""Rooms on the longest path of imports."""


def files(*folders: str) -> list[Path]:
    return sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


def module_of(file: Path) -> str:
    """The name of a module of ours; plugins/ and zoo/ are source roots."""
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    if parts[0] in ("plugins", "zoo"):
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): file for file in files("collapse", "plugins", "zoo")}


def imports(file: Path) -> Iterator[str]:
    """Modules of ours that a file imports, at its top, inside functions, or for a type checker."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: a relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            while name and name not in MODULES:
                name = name.rpartition(".")[0]
            if name:
                yield name


def room_of(module: str) -> int:
    parts = module.split(".")
    return ROOMS.index(parts[1] if len(parts) > 2 or parts[1] in ROOMS else "")


CORE = [name for name in MODULES if name.split(".")[0] == "collapse"]


def test_imports_point_down():
    for module in set(CORE) - set(ABOVE_ALL):
        upward = [
            other
            for other in imports(MODULES[module])
            if other in ABOVE_ALL or other.split(".")[0] != "collapse" or room_of(other) > room_of(module)
        ]
        assert not upward, module


def test_there_is_no_cycle():
    graph = {name: {each for each in imports(file) if each != name} for name, file in MODULES.items()}
    graph["collapse"] = set()  # loads nothing until a name is asked for
    for room in ROOMS[1:]:
        graph[f"collapse.{room}"] = graph[f"collapse.{room}"] if room in ("testing", "cli") else set()
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in sorted(graph[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_there_are_few_floors():
    floors = {0: 0, ROOMS.index("core"): 1}  # errors are below all
    for room in range(2, len(ROOMS)):
        below = {
            room_of(other)
            for name in CORE
            if name not in ABOVE_ALL and room_of(name) == room
            for other in imports(MODULES[name])
        }
        floors[room] = 1 + max(floors[each] for each in below if each != room)
    assert max(floors.values()) <= MOST_FLOORS


def test_a_file_is_one_idea():
    for file in files("collapse", "plugins", "zoo"):
        text = file.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= LONGEST_FILE, file
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                documented = ast.get_docstring(node, clean=False) or ""
                lines = (node.end_lineno or 0) - node.lineno + 1 - len(documented.splitlines())
                assert lines <= LONGEST_FUNCTION, f"{file}: {node.name}"


def public_modules() -> set[str]:
    """The modules that docs/reference/plugin-reference.md lists for everybody."""
    page = (ROOT / "docs" / "reference" / "plugin-reference.md").read_text(encoding="utf-8")
    section = page.partition("## Public modules")[2].partition("\n## ")[0]
    return set(re.findall(r"`(collapse[\w.]*)`", section))


def test_plugins_and_the_zoo_import_what_everybody_may():
    public = public_modules()
    assert public <= set(MODULES)
    for module, file in MODULES.items():
        own = module.split(".")[0]
        if own != "collapse":
            assert {each for each in imports(file) if each.split(".")[0] != own} <= public, module
