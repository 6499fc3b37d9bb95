"""Several steps in a call of fit (steps_per_execution): the step inside the group is told, training stays the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import data, incidents, mlp, only_run, values

import tb_nanwatch as nanwatch

STEPS, GROUP, SIZE = 22, 5, 8  # the last group is short


def train(x: Any, y: Any, callbacks: list[Any], **compiled: Any) -> list[bytes]:
    model = mlp(**compiled)
    model.fit(x, y, batch_size=SIZE, epochs=1, shuffle=False, verbose=0, callbacks=callbacks)
    return [np.asarray(v).tobytes() for v in [*model.variables, *model.optimizer.variables]]


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
@pytest.mark.parametrize("bad", [None, 0, 7])
def test_the_step_inside_the_group(bad: int | None, jit: bool, tmp_path: Path) -> None:
    x, y = data(SIZE * STEPS, bad=None if bad is None else SIZE * bad + 3)
    watcher = nanwatch.NanWatch(tmp_path, trial_seconds=0, every=4)
    compiled = {"steps_per_execution": GROUP, "jit_compile": jit}
    watched = train(x, y, [watcher], **compiled)
    watcher.close()
    assert watched == train(x, y, [], **compiled)
    run = only_run(tmp_path)
    assert run.steps == STEPS
    assert incidents(run) == ([] if bad is None else [(bad, "input", "x")])
    if bad is not None:
        assert run.incidents[0].last_finite_step == (bad - 1 if bad else None)
        assert np.isnan([values(run, "weight/first/kernel")[step] for step in range(bad, STEPS)]).all()
        assert not run.incidents[0].recovered


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
def test_a_bad_gradient_inside_the_group(jit: bool, tmp_path: Path) -> None:
    x, y = data(SIZE * STEPS)
    y[SIZE * 12 : SIZE * 13] = 3e38  # squares overflow
    watcher = nanwatch.NanWatch(tmp_path, trial_seconds=0, every=4, on_nonfinite="skip")
    train(x, y, [watcher], steps_per_execution=GROUP, jit_compile=jit)
    watcher.close()
    run = only_run(tmp_path)
    assert incidents(run) == [(12, "loss", "Square")]
    assert run.incidents[0].recovered
    assert run.incidents[0].last_step == 12


def test_stop_ends_after_the_group(tmp_path: Path) -> None:
    x, y = data(SIZE * STEPS, bad=SIZE * 7)
    watcher = nanwatch.NanWatch(tmp_path, trial_seconds=0, on_nonfinite="stop")
    train(x, y, [watcher], steps_per_execution=GROUP)
    watcher.close()
    assert only_run(tmp_path).steps == 2 * GROUP
