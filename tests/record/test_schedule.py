"""A learning rate that the program divides by the step: the guard is of that line, not of the optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.diagnose import examine

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")


class InverseRoot(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc, name-defined]
    def __call__(self, step: Any) -> Any:
        return 0.1 / tf.sqrt(tf.cast(step, tf.float32))


def test_the_division_of_a_schedule(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, name="d")])
    model.compile(keras.optimizers.SGD(InverseRoot()), "mse")
    x = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")
    model.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path, trial_seconds=20)])
    first = examine(only_run(tmp_path)).entry["incidents"][0]
    guard = first["remedies"][0]
    assert (first["origin"]["phase"], guard["name"]) == ("update", "guard_division")
    assert guard["trial"]["outcome"] == "finite"
    assert "divide_no_nan" in guard["snippet"]
