"""A metric alone goes bad: the origin is the operation that made it so, and the phase says that training is well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import data, mlp, only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.diagnose import examine


class Relative(keras.metrics.Metric):
    """The sum of relative errors, with a division by a target that is 0."""

    def __init__(self) -> None:
        super().__init__(name="relative")
        self.total = self.add_weight(name="total", initializer="zeros")

    def update_state(self, y: Any, output: Any, sample_weight: Any = None) -> None:
        errors = tf.abs(output - y) / tf.abs(y)
        self.total.assign_add(tf.reduce_sum(errors))

    def result(self) -> Any:
        return self.total + 0.0


def relative(y: Any, output: Any) -> Any:
    return tf.abs(output - y) / tf.abs(y)


@pytest.mark.parametrize("metric", [Relative, lambda: relative], ids=["class", "function"])
def test_a_metric_alone(metric: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = data(64)
    y[19] = 0
    mlp(metrics=[metric()]).fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path)])
    run = only_run(tmp_path)
    (incident,) = run.incidents
    origin = incident.origin
    assert (incident.first_step, origin.phase, origin.tensor_kind, origin.precision) == (2, "metric", "metric", "op")
    assert (origin.op_type, origin.samples) == ("RealDiv", (3,))
    assert origin.source is not None
    assert "tf.abs(output - y) / tf.abs(y)" in origin.source.code
    assert "remedies" not in capsys.readouterr().out  # there is no training to mend
    told = examine(run)
    assert told.verdict.headline.startswith("A metric went bad at step 2, training did not: `RealDiv` at test_metric")
    assert all(remedy["trial"]["outcome"] == "not_run" for remedy in told.entry["incidents"][0]["remedies"])
    assert np.isfinite(run.series("loss/loss", "value").values).all()


def test_a_metric_beside_a_bad_loss(tmp_path: Path) -> None:
    """What reaches the loss is told as such, whatever metric it reaches, too."""
    x, y = data(64)

    def loss(y: Any, output: Any) -> Any:
        return tf.square(output - y) + tf.where(tf.reduce_all(y == 9.0), tf.math.log(y - 9.0), 0.0)

    y[16:24] = 9
    model = mlp(metrics=[Relative()])
    model.compile("sgd", loss, metrics=[Relative()], jit_compile=False)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path)])
    origin = only_run(tmp_path).incidents[0].origin
    assert (origin.phase, origin.op_type) == ("loss", "Log")
