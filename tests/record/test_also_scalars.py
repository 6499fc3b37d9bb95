"""also_scalars=True: norms and losses in TensorBoard's own Scalars tab, and nothing of it in our reader's way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import data, mlp, only_run, values
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tb_nanwatch as nanwatch
from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.record.blocks import Rows
from tb_nanwatch.record.scalars import TROUBLED_STEPS, ScalarFile

KERNEL, LOSS = TensorInfo(1, "weight", "dense/kernel"), TensorInfo(2, "loss", "loss")


def read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()


def curve(found: EventAccumulator, tag: str) -> dict[int, float]:
    return {event.step: event.value for event in found.Scalars(tag)}


def fit(logdir: Path, bad: int | None = None, **options: Any) -> None:
    x, y = data(8 * 40, bad=bad)
    watcher = nanwatch.NanWatch(logdir, replay=False, **options)
    mlp().fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[watcher])
    watcher.close()


def test_tensorboard_shows_what_was_recorded(tmp_path: Path) -> None:
    fit(tmp_path, also_scalars=True, every=7)
    found, run = read(tmp_path), only_run(tmp_path)
    for tag, ours, stat in (
        ("nanwatch/weight_norm/first/kernel", "weight/first/kernel", "norm"),
        ("nanwatch/gradient_norm/last/bias", "gradient/last/bias", "norm"),
        ("nanwatch/activation_norm/second/output", "activation/second/output", "norm"),
        ("nanwatch/loss", "loss/loss", "value"),
        ("nanwatch/learning_rate", "scalar/learning_rate", "value"),
    ):
        shown = curve(found, tag)
        assert list(shown) == list(range(0, 40, 7))
        recorded = values(run, ours, stat)
        assert shown == pytest.approx({step: recorded[step] for step in shown}, rel=1e-6)
    assert run.steps == 40
    assert run.attempts[0].ended


def test_troubled_steps_are_shown_one_by_one(tmp_path: Path) -> None:
    fit(tmp_path, also_scalars=True, every=10, bad=8 * 3)
    shown = curve(read(tmp_path), "nanwatch/weight_norm/first/kernel")
    assert list(shown) == [0, *range(3, 3 + TROUBLED_STEPS), 20, 30]
    assert np.isfinite(shown[0])
    assert np.isnan([value for step, value in shown.items() if step >= 3]).all()


def test_nothing_more_is_written_unless_asked_for(tmp_path: Path) -> None:
    fit(tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".nanwatch"]
    assert read(tmp_path).Tags()["scalars"] == []


# ------------------------------------------------------------ the file alone


def rows(steps: Sequence[int], norms: Any, losses: Any) -> Rows:
    steps = np.array(steps, np.int64)
    return Rows(
        steps,
        steps.astype(np.float64),
        steps,
        np.array([KERNEL.id], np.int64),
        np.asarray(norms, np.uint16)[:, None],
        np.array([LOSS.id], np.int64),
        np.asarray(losses, np.float32)[:, None],
    )


def test_tensors_that_are_measured_in_turn_come_once_in_every(tmp_path: Path) -> None:
    file = ScalarFile(tmp_path / "events.out.tfevents.1.host.2.ab.00000.nanwatch", 5, 1 << 20)
    file.declare([KERNEL, LOSS])
    norms = np.zeros(23, np.uint16)
    norms[3::5] = magnitude.encode(2.0)
    file.add(rows(range(23), norms, np.arange(23)))
    file.close()
    assert list(curve(read(tmp_path), "nanwatch/weight_norm/dense/kernel")) == [3, 8, 13, 18]
    assert list(curve(read(tmp_path), "nanwatch/loss")) == [0, 5, 10, 15, 20]


def test_the_file_stays_small(tmp_path: Path) -> None:
    file = ScalarFile(tmp_path / "events.out.tfevents.1.host.2.ab.00000.nanwatch", 2, 20_000)
    file.declare([KERNEL, LOSS])
    for first in range(0, 20_000, 100):
        norms = magnitude.encode(np.full(100, 1e60))  # beyond float32
        file.add(rows(range(first, first + 100), norms, np.ones(100)))
    file.close()
    (path,) = tmp_path.iterdir()
    assert path.name == "events.out.tfevents.1.host.2.ab.scalars"
    assert 10_000 < path.stat().st_size < 21_000
    shown = curve(read(tmp_path), "nanwatch/weight_norm/dense/kernel")
    assert max(shown) > 1000
    assert np.isfinite(list(shown.values())).all()
    steps = np.array(list(shown))
    assert np.diff(steps)[0] == 2
    assert np.diff(steps)[-1] > 2
