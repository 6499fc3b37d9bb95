from __future__ import annotations

from pathlib import Path

import pytest
import runs

from tb_nanwatch.diagnose.finite import loss_stayed_finite, was_finite
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.catalog import Catalog


def known(logdir: Path) -> bool | None:
    catalog = Catalog(logdir)
    catalog.refresh()
    run = catalog.runs()["."]
    return was_finite(run, run.incidents[0])


@pytest.mark.parametrize("phase", ["forward", "loss", "backward", "update"])
def test_it_was_finite(phase: str, tmp_path: Path) -> None:
    runs.blow_up(tmp_path, phase)
    assert known(tmp_path) is True


def test_it_was_not(tmp_path: Path) -> None:
    def masked(info: TensorInfo, step: int) -> float:
        return float("inf") if info.kind == "input" else runs.calm(info, step)

    runs.blow_up(tmp_path, "forward", values=masked)
    assert known(tmp_path) is False


def test_it_was_not_measured(tmp_path: Path) -> None:
    infos = [info for info in runs.network() if info.kind != "activation"]
    runs.write(tmp_path, infos=infos, events=[runs.incident("loss")])
    assert known(tmp_path) is None


@pytest.mark.parametrize("phase", ["input", "weights", "metric"])
def test_nothing_comes_before(phase: str, tmp_path: Path) -> None:
    runs.blow_up(tmp_path, phase)
    assert known(tmp_path) is None


@pytest.mark.parametrize(("phase", "expected"), [("update", True), ("loss", False), ("input", False)])
def test_a_loss_that_shows_nothing(phase: str, expected: bool, tmp_path: Path) -> None:
    runs.blow_up(tmp_path, phase)
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = catalog.runs()["."]
    assert loss_stayed_finite(run, run.incidents[0]) is expected
