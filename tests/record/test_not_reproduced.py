"""Incidents that an op-by-op replay cannot bring back stay with their layer, and the report says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from recorded import batches, data, mlp, only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.diagnose import examine
from tb_nanwatch.record.replay import redrawn

SIZE, STEPS, BAD = 8, 14, 11


def train(logdir: Path, more: Callable[[Any], Any], jit: bool = False) -> dict[str, Any]:
    """The report's first incident of a training whose loss has `more` of the output added."""
    x, y = data(SIZE * STEPS)
    model = mlp()

    @tf.function(jit_compile=jit)
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            output = model(x, training=True)
            loss = tf.reduce_mean((output - y) ** 2) + more(output)
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    with nanwatch.watch(step, logdir, model=model, trial_seconds=0) as watched:
        for batch in batches(x, y, SIZE):
            watched(*map(tf.constant, batch))
    first: dict[str, Any] = examine(only_run(logdir)).entry["incidents"][0]
    return first


def check(incident: dict[str, Any], why: str) -> None:
    assert incident["first_step"] == BAD
    assert incident["origin"]["precision"] == "layer"
    assert incident["origin"]["op_type"] is None
    assert incident["origin"]["tensor"] == "loss"
    assert incident["replay"]["outcome"] == "not reproduced"
    assert why in incident["replay"]["why"]


def test_kernels_with_a_random_state_of_their_own(tmp_path: Path) -> None:
    counter = tf.Variable(0)

    def more(_: Any) -> Any:
        with tf.control_dependencies([counter.assign_add(1)]):
            drawn = tf.random.normal([], seed=3)  # its kernel counts on, and a fresh one begins anew
            return tf.where(tf.equal(counter, BAD + 1) & tf.equal(drawn, first_draws()[BAD]), np.nan, 0.0)

    check(train(tmp_path, more), "draws random numbers from a state inside TensorFlow's kernels")


def test_a_fault_that_other_draws_show_as_well(tmp_path: Path) -> None:
    counter = tf.Variable(0)

    def more(output: Any) -> Any:
        with tf.control_dependencies([counter.assign_add(1)]):
            drawn = tf.random.normal([], seed=3)
            near = tf.abs(drawn - first_draws()[BAD]) < 0.5
            return tf.math.log(tf.where(tf.equal(counter, BAD + 1) & near, 0.0, 1.0) * tf.ones_like(output)[0, 0])

    incident = train(tmp_path, more)
    assert incident["first_step"] == BAD
    assert (incident["origin"]["op_type"], incident["origin"]["phase"]) == ("Log", "loss")
    assert incident["replay"]["outcome"] == "reproduced"
    assert incident["replay"]["why"] == redrawn.ANEW
    assert incident["cause"]["name"] == "log_of_nonpositive"


def first_draws() -> list[float]:
    """What a fresh kernel with that seed draws, one after the other."""
    with tf.init_scope():
        draw = tf.function(lambda: tf.random.normal([], seed=3))
        return [float(draw()) for _ in range(STEPS)]


def test_a_step_that_depends_on_the_world_outside(tmp_path: Path) -> None:
    calls: list[int] = []

    def outside() -> Any:
        calls.append(1)
        return np.float32(np.nan if len(calls) == BAD + 1 else 0.001 * len(calls))

    def more(_: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(outside, [], tf.float32), [])

    check(train(tmp_path, more), "something random or outside of TensorFlow has a part in it")


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
def test_a_fault_that_only_the_compiled_step_has(jit: bool, tmp_path: Path) -> None:
    """As a kernel of a GPU, or a fused one, that no op alone shows: here, that of a step inside a graph."""
    counter = tf.Variable(0)

    def more(_: Any) -> Any:
        counter.assign_add(1)
        compiled = not tf.executing_eagerly()
        return tf.where(tf.equal(counter, BAD + 1) & compiled, np.float32(np.nan), 0.0)

    check(train(tmp_path, more, jit), "only kernels of the compiled step make the bad value")
