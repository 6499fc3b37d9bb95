"""The background scan, and what TensorBoard asks of it."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import runs

from tb_nanwatch.plugin.board import Board
from tb_nanwatch.plugin.loader import NanWatchLoader
from tb_nanwatch.store.catalog import Catalog


class Watched(Catalog):
    """Tells when it was refreshed, and waits to be let."""

    def __init__(self, logdir: Path) -> None:
        super().__init__(logdir)
        self.calls = 0
        self.go, self.enough = threading.Event(), threading.Event()

    def refresh(self) -> bool:
        assert self.go.wait(30)
        self.calls += 1
        if self.calls >= 3:
            self.enough.set()
        return super().refresh()


def test_a_logdir_that_comes_later(tmp_path: Path) -> None:
    board = Board(Catalog(tmp_path / "logs"), 0)
    board.refresh()
    assert board.loaded
    assert not board.runs
    runs.write(tmp_path / "logs" / "a")
    board.refresh()
    assert list(board.runs) == ["a"]


def test_unchanged_runs_are_not_diagnosed_again(tmp_path: Path) -> None:
    runs.write(tmp_path / "a")
    board = Board(Catalog(tmp_path), 0)
    board.refresh()
    first = board.runs["a"]
    runs.write(tmp_path / "b")
    board.refresh()
    assert board.runs["a"] is first
    assert list(board.runs) == ["a", "b"]


def test_it_never_blocks_and_scans_once_at_interval_zero(tmp_path: Path) -> None:
    catalog = Watched(tmp_path)
    board = Board(catalog, 0)
    board.start()
    assert (board.loaded, dict(board.runs)) == (False, {})  # while the scan hangs
    catalog.go.set()
    assert board._thread is not None
    board._thread.join(30)
    assert (board.loaded, catalog.calls) == (True, 1)


def test_it_scans_again_at_every_interval(tmp_path: Path) -> None:
    catalog = Watched(tmp_path)
    catalog.go.set()
    board = Board(catalog, 0.001)
    board.start()
    assert catalog.enough.wait(30)
    board.stop()
    assert catalog.calls >= 3


def test_a_scan_that_fails_is_said_once_and_survived(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    runs.write(tmp_path)
    catalog = Catalog(tmp_path)
    board = Board(catalog, 0)
    board.refresh()

    def fail() -> bool:
        raise OSError("gone")

    catalog.refresh = fail  # type: ignore[method-assign]
    board.refresh()
    board.refresh()
    assert list(board.runs) == ["."]  # the last picture stays
    assert board.damage == ("the logs could not be read: OSError: gone",)
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1


def test_one_run_that_cannot_be_diagnosed_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tb_nanwatch.diagnose import examine

    runs.write(tmp_path / "a")
    runs.write(tmp_path / "b")
    monkeypatch.setattr("tb_nanwatch.plugin.board.examine", lambda run: 1 / 0 if run.name == "a" else examine(run))
    board = Board(Catalog(tmp_path), 0)
    board.refresh()
    assert list(board.runs) == ["b"]
    assert board.damage == ("run 'a' could not be diagnosed: ZeroDivisionError: division by zero",)


def test_a_missing_dependency_is_one_log_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tb_nanwatch.plugin.plugin", None)
    assert NanWatchLoader().load(SimpleNamespace(logdir="", flags=None)) is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "The NaN Watch tab is not available" in record.getMessage()
    assert "\n" not in record.getMessage()
    assert record.exc_info is None
