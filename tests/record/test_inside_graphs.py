"""Ops of TF1 graphs inside loops, branches and functions are named, and their guards tried."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run

import tb_nanwatch as nanwatch

tf1 = tf.compat.v1
START = np.array([1.0, 2.0, 3.0, 4.0], np.float32)


@pytest.fixture(params=["switches", "functions"])
def control_flow(request: pytest.FixtureRequest) -> Iterator[str]:
    """Loops and branches of ops among the others, or of calls of functions."""
    before = tf1.control_flow_v2_enabled()
    (tf1.disable_control_flow_v2 if request.param == "switches" else tf1.enable_control_flow_v2)()
    yield request.param
    (tf1.enable_control_flow_v2 if before else tf1.disable_control_flow_v2)()


def branch(x: Any, w: Any) -> Any:
    return tf1.cond(tf.reduce_sum(x) > 0, lambda: tf.math.log(x * w - 1), lambda: x * w)


def loop(x: Any, w: Any) -> Any:
    """Bad in the third round."""

    def body(n: Any, h: Any) -> Any:
        return n + 1, h / (2.0 - tf.cast(n, tf.float32) * tf.reduce_max(tf.cast(tf.equal(x, 0), tf.float32)))

    return tf1.while_loop(lambda n, _: n < 4, body, (0, x * w))[1]


def lists(x: Any, w: Any) -> Any:
    """What is bad leaves the loop in a list."""

    def body(n: Any, list_: Any) -> Any:
        size = 100.0 * tf.reduce_max(tf.cast(tf.equal(x, 0), tf.float32)) * tf.cast(n, tf.float32)
        return n + 1, list_.write(n, tf.exp(x * w * size))

    return tf1.while_loop(lambda n, _: n < 3, body, (0, tf.TensorArray(tf.float32, 3)))[1].stack()


def gradient(x: Any, w: Any) -> Any:
    """The loss stays finite."""

    def body(n: Any, h: Any) -> Any:
        return n + 1, tf.sqrt(h) * w

    return tf1.while_loop(lambda n, _: n < 2, body, (0, x * w))[1]


def each(x: Any, w: Any) -> Any:
    return tf.map_fn(lambda row: tf.reduce_sum(row * w) / tf.reduce_min(row), x)


def function(x: Any, w: Any) -> Any:
    @tf.function(jit_compile=True)
    def called(z: Any) -> Any:
        return tf.math.log(z)

    return called(x * w)


#: program -> (op, its forward op, piece of its line, extent of the input that matters, samples, remedy that holds)
PROGRAMS: dict[
    str, tuple[Callable[[Any, Any], Any], str, str | None, str, tuple[float, float], tuple[int, ...], str]
] = {
    "branch": (branch, "Log", None, "lambda: tf.math.log", (-1.0, 11.0), (1,), "clip_predictions_or_from_logits"),
    "loop": (loop, "RealDiv", None, "return n + 1, h / (2.0", (0.0, 0.0), (0, 1), "guard_division"),
    "lists": (lists, "Exp", None, "list_.write(n, tf.exp", (0.0, 1200.0), (0, 1), "clip_predictions_or_from_logits"),
    "gradient": (
        gradient,
        "SqrtGrad",
        "Sqrt",
        "tf.sqrt(h) * w",
        (0.0, np.sqrt(np.sqrt(12) * 4)),
        (1,),
        "guard_division",
    ),
    "each": (each, "RealDiv", None, "tf.map_fn(lambda row", (0.0, 0.0), (), "guard_division"),
    "function": (function, "Log", None, "return tf.math.log(z)", (0.0, 12.0), (1,), "clip_predictions_or_from_logits"),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_op_its_line_and_what_would_have_held(program: str, control_flow: str, tmp_path: Path) -> None:
    build, op_type, forward, text, extent, samples, remedy = PROGRAMS[program]
    train(build, tmp_path, trial_seconds=30)
    (incident,) = only_run(tmp_path).incidents
    origin, replay = incident.origin, json.loads(incident.replay_json)
    assert (incident.first_step, origin.op_type, replay.get("forward_op")) == (2, op_type, forward)
    assert (origin.precision, replay["replay"]) == ("op", "reproduced")
    assert origin.phase == ("backward" if forward else "loss")
    lines, first = inspect.getsourcelines(build)
    assert origin.source is not None
    assert Path(origin.source.file) == Path(__file__)
    assert text in lines[origin.source.line - first]
    assert origin.samples == samples
    assert any((i.min, i.max) == pytest.approx(extent) for i in origin.inputs)
    assert [n["op_type"] for n in replay["graph"] if n["role"] == "origin"] == [op_type]
    assert {n["role"] for n in replay["graph"]} == {"producer", "origin", "consumer"}
    guard = replay["trials"][0]
    assert (guard["remedy"], guard["outcome"], guard["control"]) == (remedy, "finite", "nonfinite")


def test_what_a_loop_drops_is_no_origin(control_flow: str, tmp_path: Path) -> None:
    """The logarithm in the loop is bad at every step, and nothing comes of it; that behind the loop is the origin."""

    def build(x: Any, w: Any) -> Any:
        def body(n: Any, h: Any) -> Any:
            return n + 1, tf.where(tf.math.log(-tf.stop_gradient(x)) < 0, h * 2, h * w)

        return tf.math.log(tf1.while_loop(lambda n, _: n < 3, body, (0, x * w))[1])

    train(build, tmp_path, trial_seconds=0)
    (incident,) = only_run(tmp_path).incidents
    assert incident.first_step == 2
    assert incident.origin.op_type == "Log"
    assert [(i.min, i.nan) for i in incident.origin.inputs] == [(0.0, 0)]


def test_a_healthy_loop_has_no_incident(control_flow: str, tmp_path: Path) -> None:
    train(lambda x, w: loop(x + 1, w), tmp_path)
    assert only_run(tmp_path).incidents == ()


def train(build: Callable[[Any, Any], Any], logdir: Path, **options: Any) -> None:
    """Four steps on two samples of four; the second one of step 2 begins with a zero."""
    with tf1.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, 4], "x")
        w = tf1.get_variable("w", initializer=START, use_resource=True)
        loss = tf.reduce_mean(build(x, w))
        optimizer = tf1.train.GradientDescentOptimizer(1e-9)
        pairs = optimizer.compute_gradients(loss)
        apply = optimizer.apply_gradients(pairs)
        with tf1.Session() as raw:
            raw.run(tf1.global_variables_initializer())
            session = nanwatch.watch_session(raw, logdir, loss=loss, grads_and_vars=pairs, **options)
            for step in range(4):
                rows = np.full((2, 4), 3.0, np.float32)
                rows[1, 0] = 0.0 if step == 2 else 3.0
                session.run(apply, {x: rows})
            session.close()
