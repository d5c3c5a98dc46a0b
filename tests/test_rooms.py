"""The package has rooms, and imports go one way only."""

import ast
from pathlib import Path

import pytest

import faiss_prh

PACKAGE = Path(faiss_prh.__file__).parent
FLOORS = [
    {"_common"},
    {"_native", "rotation", "theory"},
    {"_portable"},
    {"_backend"},
    {"config", "learning"},
    {"transform"},
    {"index"},
    {"storage"},
    {"cli", "dask", "patch"},
    {"_public"},
    {"__init__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
SOURCES = [path for path in PACKAGE.rglob("*.py") if "native" not in path.parts]


def room_of(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_rooms(path):
    """Return the rooms that a module imports from, also inside functions."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "")]
        assert not any(name and name.split(".")[0] == "faiss_prh" for name in names), f"{path}: an absolute import"
        if isinstance(node, ast.ImportFrom) and node.level:
            base = parts[: len(parts) - node.level]
            for name in node.names:
                yield (*base, *(node.module.split(".") if node.module else ()), name.name)[0]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down_only(path):
    room = room_of(path)
    for imported in imported_rooms(path):
        assert imported == room or FLOOR[imported] < FLOOR[room], f"{room} imports {imported}"


def test_few_modules_stand_outside_the_rooms():
    assert len(list(PACKAGE.glob("*.py"))) <= 10
