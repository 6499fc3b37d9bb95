"""A line that autograph rewrote is told as its author wrote it; moving statistics are lost in the forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded import only_run

import tb_nanwatch as nanwatch

tf = pytest.importorskip("tensorflow")


def percentage(y_true: Any, y_pred: Any) -> Any:
    error = tf.abs((y_true - y_pred) / y_true)
    return tf.reduce_mean(error, axis=-1)


def test_a_loss_of_legacy_keras_outside_of_fit(tmp_path: Path) -> None:
    legacy = pytest.importorskip("tf_keras")
    model = legacy.Sequential([legacy.Input((3,)), legacy.layers.Dense(1, name="d")])
    model.compile(legacy.optimizers.Adam(1e-2, clipvalue=0.5), percentage)
    target = np.ones((4, 1), np.float32)
    zero = target.copy()
    zero[2] = 0
    with nanwatch.watch(
        model.train_on_batch, tmp_path, model=model, optimizer=model.optimizer, trial_seconds=0
    ) as step:
        for y in (target, target, zero):
            step(np.ones((4, 3), np.float32), y)
    origin = only_run(tmp_path).incidents[0].origin
    assert origin.op_type == "RealDiv"
    assert origin.source is not None
    assert (Path(origin.source.file).name, origin.source.function) == (Path(__file__).name, "percentage")
    assert origin.source.code == "error = tf.abs((y_true - y_pred) / y_true)"


def test_moving_statistics_of_no_rows(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.BatchNormalization(name="norm"), keras.layers.Dense(1, name="d")]
    )
    optimizer = keras.optimizers.SGD(0.01)

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(model(x, training=True)))
        optimizer.apply_gradients(
            zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
        )
        return loss

    with nanwatch.watch(train, tmp_path, model=model, optimizer=optimizer, trial_seconds=0) as step:
        for rows in (4, 4, 0):
            step(tf.ones((rows, 3)))
    incident = only_run(tmp_path).incidents[0]
    assert incident.first_step == 2
    assert (incident.origin.phase, incident.origin.layer, incident.origin.op_type) == ("forward", "norm", "Mean")
