from __future__ import annotations

import os
from pathlib import Path

import pytest

from tb_nanwatch.read.discovery import find_runs


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def names(roots: dict[str, Path]) -> list[str]:
    return sorted(run.name for run in find_runs(roots))


def test_names_as_in_tensorboard(tmp_path: Path) -> None:
    touch(
        tmp_path / "events.out.tfevents.1",
        tmp_path / "a" / "b" / "x.tfevents.y",
        tmp_path / "a" / "notes.txt",
        tmp_path / "c c" / "tfevents",
    )
    (tmp_path / "a.tfevents").mkdir()  # a folder is no event file
    assert names({"": tmp_path}) == [".", "a/b", "c c"]
    assert names({"left": tmp_path, "right": tmp_path / "a"}) == ["left/.", "left/a/b", "left/c c", "right/b"]


def test_they_are_tensorboards(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

    touch(tmp_path / "tfevents", tmp_path / "r" / "s.tfevents", tmp_path / "r" / "t" / "u" / "a.tfevents.v2")
    (tmp_path / "link").symlink_to(tmp_path / "r")
    theirs = EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Runs()
    assert names({"": tmp_path}) == sorted(theirs)
    theirs = EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "r"), name="n").Runs()
    assert names({"n": tmp_path / "r"}) == sorted(theirs)
    theirs = EventMultiplexer().AddRunsFromDirectory(str(tmp_path), name="n").Runs()
    assert names({"n": tmp_path}) == sorted(theirs)


def test_loops_of_links_end(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "tfevents", tmp_path / "b" / "tfevents")
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "b").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "a").symlink_to(tmp_path / "a")
    assert names({"": tmp_path}) == ["a", "a/b", "b", "b/a"]


def test_many_links_to_one_folder_do_not_multiply(tmp_path: Path) -> None:
    for n in range(9):
        touch(tmp_path / f"d{n}" / "tfevents")
    for n in range(9):
        for m in range(9):
            (tmp_path / f"d{n}" / f"l{m}").symlink_to(tmp_path / f"d{m}")
    assert len(names({"": tmp_path})) <= 9 * 16


def test_what_cannot_be_listed_is_passed_over(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "tfevents")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "events.tfevents.gone").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.tfevents")
    assert names({"": tmp_path}) == ["a"]
    assert names({"": tmp_path / "nowhere"}) == []
