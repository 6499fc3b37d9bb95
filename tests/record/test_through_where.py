"""What a tf.where threw away and the gradient brought back is told so; what something else swallowed is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run

import tb_nanwatch as nanwatch

tf1 = tf.compat.v1


def selected(x: Any) -> Any:
    return tf.where(x > 0, tf.math.log(x) * 2.0, tf.zeros_like(x))


def bounded(x: Any) -> Any:
    return tf.maximum(tf.math.log(x), -5.0)  # its gradient at -inf is 0 times infinity


def gathered(x: Any) -> Any:
    return tf.math.log(x)[:, :2]


FORMS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "where": (selected, True),
    "maximum": (bounded, False),
    "slice": (gathered, False),
}
GOOD, BAD = np.array([[1.0, 2.0, 3.0]], np.float32), np.array([[1.0, 2.0, 0.0]], np.float32)


@pytest.mark.parametrize("form", FORMS)
def test_a_function(form: str, tmp_path: Path) -> None:
    value, through_where = FORMS[form]
    w = tf.Variable([1.0, 1.0, 1.0], name="w")

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(value(x * w))
        w.assign_sub(0.01 * tape.gradient(loss, w))
        return loss

    with nanwatch.watch(step, tmp_path, variables=[w], trial_seconds=0) as watched:
        for batch in (GOOD, GOOD, BAD):
            watched(tf.constant(batch))
    check(tmp_path, through_where)


@pytest.mark.parametrize("form", ["where", "slice"])
def test_a_graph(form: str, tmp_path: Path) -> None:
    value, through_where = FORMS[form]
    with tf1.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, 3], "x")
        w = tf1.get_variable("w", initializer=np.ones(3, np.float32), use_resource=True)
        loss = tf.reduce_sum(value(x * w))
        optimizer = tf1.train.GradientDescentOptimizer(0.01)
        pairs = optimizer.compute_gradients(loss, [w])
        train = optimizer.apply_gradients(pairs)
        with tf1.Session() as raw:
            raw.run(tf1.global_variables_initializer())
            options: dict[str, Any] = {"loss": loss, "grads_and_vars": pairs, "trial_seconds": 0}
            session = nanwatch.watch_session(raw, tmp_path, **options)
            for batch in (GOOD, GOOD, BAD):
                session.run(train, {x: batch})
            session.close()
    check(tmp_path, through_where)


def check(logdir: Path, through_where: bool) -> None:
    (incident,) = only_run(logdir).incidents
    replay = json.loads(incident.replay_json)
    assert incident.first_step == 2
    assert replay.get("through_where", False) == through_where, (incident.origin, replay)
    assert incident.origin.phase == "backward"
    assert incident.origin.op_type == ("Log" if through_where else "Reciprocal")
    assert replay.get("forward_op") == (None if through_where else "Log")
