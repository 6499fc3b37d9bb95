"""Where the values of an op do not say whose they are, the samples are told that fail alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run

import tb_nanwatch as nanwatch

keras = tf.keras
layers = keras.layers
BAD_STEP, BATCH = 2, 8


class TimeFirst(layers.Layer):
    """The logarithm of [time, sample], which holds fewer rows than the batch."""

    def call(self, x: Any) -> Any:
        return tf.reduce_sum(tf.math.log(tf.transpose(x)), axis=0)[:, None]


def data(*bad: int) -> tuple[Any, Any]:
    """x float32[40, 3], y float32[40, 1]; these samples of the bad step cannot be taken the logarithm of."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0.5, 1, (40, 3)).astype(np.float32)
    x[[BAD_STEP * BATCH + n for n in bad], 1] = 0
    return x, np.zeros((40, 1), np.float32)


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
@pytest.mark.parametrize("bad", [(5,), (1, 6), tuple(range(BATCH))], ids=["one", "two", "all"])
def test_a_layer_with_another_axis_first(bad: tuple[int, ...], jit: bool, tmp_path: Path) -> None:
    keras.backend.clear_session()
    model = keras.Sequential([keras.Input((3,)), TimeFirst(name="time"), layers.Dense(1, name="out")])
    model.compile(keras.optimizers.SGD(1e-3), "mse", jit_compile=jit)
    watcher = nanwatch.NanWatch(tmp_path, trial_seconds=30)
    model.fit(*data(*bad), batch_size=BATCH, shuffle=False, verbose=0, callbacks=[watcher])
    (incident,) = only_run(tmp_path).incidents
    assert (incident.first_step, incident.origin.op_type) == (BAD_STEP, "Log")
    assert incident.origin.samples == (bad if len(bad) < BATCH else ())


def test_a_graph_that_sums_over_the_batch_first(tmp_path: Path) -> None:
    tf1 = tf.compat.v1
    x, _ = data(1, 6)
    with tf1.Graph().as_default():
        fed = tf1.placeholder(tf.float32, [None, 3], "x")
        w = tf1.get_variable("w", initializer=np.ones(3, np.float32), use_resource=True)
        loss = tf.reduce_mean(tf.math.log(tf.transpose(fed * w)))
        optimizer = tf1.train.GradientDescentOptimizer(1e-3)
        pairs = optimizer.compute_gradients(loss)
        train = optimizer.apply_gradients(pairs)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            watched = nanwatch.watch_session(session, tmp_path, loss=loss, grads_and_vars=pairs, trial_seconds=30)
            for step in range(4):
                watched.run(train, {fed: x[step * BATCH : (step + 1) * BATCH]})
            watched.close()
    (incident,) = only_run(tmp_path).incidents
    assert (incident.first_step, incident.origin.op_type, incident.origin.samples) == (BAD_STEP, "Log", (1, 6))
