from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace

import pytest
import runs

from tb_nanwatch.plugin import roots
from tb_nanwatch.store.catalog import Catalog


def test_logdir(tmp_path: Path) -> None:
    context = SimpleNamespace(logdir="ignored", flags=argparse.Namespace(logdir=str(tmp_path), logdir_spec=""))
    assert roots.from_context(context) == ([("", tmp_path.resolve())], str(tmp_path))


def test_without_flags(tmp_path: Path) -> None:
    assert roots.from_context(SimpleNamespace(logdir=str(tmp_path), flags=None))[0] == [("", tmp_path.resolve())]


def test_logdir_spec_leads_over_the_empty_logdir(tmp_path: Path) -> None:
    spec = f"a:{tmp_path}/one,b:{tmp_path}/two"
    context = SimpleNamespace(logdir="", flags=argparse.Namespace(logdir="", logdir_spec=spec))
    assert roots.from_context(context) == (roots.parse_spec(spec), spec)
    assert roots.parse_spec(spec) == [("a", (tmp_path / "one").resolve()), ("b", (tmp_path / "two").resolve())]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("/logs:x/y", [("", Path("/logs:x/y"))]),
        ("a:/x:y", [("a", Path("/x:y"))]),
        ("/one", [("", Path("/one"))]),
        ("/one,/two", [("", Path("/one")), ("", Path("/two"))]),
    ],
)
def test_colons_as_tensorboard_reads_them(spec: str, expected: list[tuple[str, Path]]) -> None:
    assert roots.parse_spec(spec) == expected


def test_unnamed_parts_are_all_read(tmp_path: Path) -> None:
    runs.write(tmp_path / "one" / "a")
    runs.write(tmp_path / "two" / "b")
    catalog = Catalog(roots.parse_spec(f"{tmp_path}/one,{tmp_path}/two"))
    catalog.refresh()
    assert list(catalog.runs()) == ["a", "b"]
