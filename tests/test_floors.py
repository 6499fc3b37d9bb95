"""The shape of the house: imports point only down, only `record` knows TensorFlow, files stay small."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "tb_nanwatch"
GROUND = {"errors", "version"}
FLOORS = {"stats": 0, "format": 0, "record": 1, "read": 1, "store": 2, "diagnose": 3, "plugin": 4, "cli": 4}
TENSORFLOW = {"tensorflow", "keras", "tf_keras"}
FILES = sorted(p for p in PACKAGE.rglob("*.py") if not p.name.endswith("_pb2.py"))


def imports(path: Path) -> Iterator[str]:
    """Dotted names of all modules that a file imports, those inside functions and import_module("...") included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ["tb_nanwatch", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*package[: len(package) + 1 - node.level], *filter(None, [node.module])])
            base = base if node.level else node.module or ""
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str))


def floor_of(path: Path) -> str | None:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else None


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    here = floor_of(path)
    for name in imports(path):
        if not name.startswith("tb_nanwatch."):
            continue
        there = name.split(".")[1]
        if here is None:
            continue  # the package itself and __main__ hand on to the floors; what loads eagerly is tested below
        assert there in GROUND | set(FLOORS) or there == "__version__", f"{path} imports {name}, which is on no floor"
        if there in FLOORS and there != here:
            assert FLOORS[there] < FLOORS[here], f"{path} is on floor {here} and imports {name}, which is not below it"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_record_knows_tensorflow(path: Path) -> None:
    known = {name for name in imports(path) if name.split(".")[0] in TENSORFLOW}
    assert floor_of(path) == "record" or not known


def test_ground_imports_nothing_of_the_package() -> None:
    for name in GROUND:
        assert not [i for i in imports(PACKAGE / f"{name}.py") if i.startswith("tb_nanwatch")]


def test_generated_module_has_one_importer() -> None:
    importers = [p.name for p in FILES if any("nanwatch_pb2" in name for name in imports(p))]
    assert importers == ["codec.py"]


def test_every_folder_is_a_floor() -> None:
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.glob("*.py"))}
    assert folders == set(FLOORS)


def test_files_stay_small() -> None:
    lengths = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in FILES if p.name != "__init__.py"}
    longest = max(lengths, key=lambda p: lengths[p])
    median = statistics.median(lengths.values())
    assert lengths[longest] <= 400, f"{longest} has {lengths[longest]} lines: which two ideas does it hold?"
    assert median <= 150, f"the median file has {median} lines"


def test_no_drawers() -> None:
    """Names that say nothing attract everything."""
    drawers = {"manager", "helper", "helpers", "utils", "util", "common", "misc"}
    assert not [p for p in FILES if drawers & set(p.stem.split("_"))]
