"""Ops kept in their domain while a trial says so, and untouched while it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tb_nanwatch.format.records import Origin, Source
from tb_nanwatch.record.replay import guards
from tb_nanwatch.record.replay.switches import Switches

X = np.array([-2.0, 0.0, 3.0], np.float32)

OPS: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "Log": (lambda x: tf.math.log(x + 0), [np.log(1e-10), np.log(1e-10), np.log(3)]),
    "RealDiv": (lambda x: 1.0 / x, [-0.5, 0.0, 1 / 3]),
    "Sqrt": (tf.sqrt, [1e-6, 1e-6, 3**0.5]),
    "Pow": (lambda x: x**0.5, [1e-7**0.5, 1e-7**0.5, 3**0.5]),
    "Acos": (tf.acos, [np.arccos(-1 + 1e-6), np.pi / 2, np.arccos(1 - 1e-6)]),
    "Cholesky": (lambda x: tf.linalg.cholesky(x[2:, None] * 0)[0], [1e-5**0.5]),
    "Mean": (lambda x: tf.reduce_mean(x[:0]), [0.0]),
    "Max": (lambda x: tf.reduce_max(x[:0]), [0.0]),
    "Sub": (lambda x: (x / x[2] * 0 - np.inf) - np.float32(-np.inf), [0.0, 0.0, 0.0]),
    "Softmax": (lambda x: tf.nn.softmax(x[None] * 0 - np.inf)[0], [1 / 3, 1 / 3, 1 / 3]),
}  # fmt: skip


@pytest.mark.parametrize("op_type", OPS)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "graph"])
def test_a_guard_is_in_force_while_it_is_switched_on(op_type: str, compiled: bool) -> None:
    function, expected = OPS[op_type]
    plain = np.asarray(function(tf.constant(X)))
    switches = Switches()
    with guards.installed(op_type, Origin("loss"), switches):
        run = tf.function(function) if compiled else function
        off = np.asarray(run(tf.constant(X)))
        with switches.set(guard=True):
            on = np.asarray(run(tf.constant(X)))
    assert np.array_equal(off, plain, equal_nan=True)
    assert np.atleast_1d(on) == pytest.approx(np.array(expected), rel=1e-2, abs=1e-9)
    assert np.array_equal(np.asarray(function(tf.constant(X))), plain, equal_nan=True)


def test_a_whole_power_takes_any_base() -> None:
    switches = Switches()
    with guards.installed("Pow", Origin("loss"), switches), switches.set(guard=True):
        assert np.asarray(tf.constant(X) ** 2).tolist() == [4, 0, 9]


def test_only_at_the_line_of_the_incident() -> None:
    """Also in a function that autograph runs a copy of; its other ops only where that is asked for, too."""
    here = test_only_at_the_line_of_the_incident.__code__
    line = here.co_firstlineno + 6
    x = tf.constant(X)

    def step(x: Any) -> Any:
        return tf.math.log(x) + tf.sqrt(x), tf.math.log(x + 0)

    def other(x: Any) -> Any:
        return tf.math.log(x)

    assert "log(x) + " in open(here.co_filename).read().splitlines()[line]  # noqa: PTH123, SIM115
    origin = Origin("loss", source=Source(here.co_filename, line + 1, "step", ""))
    switches = Switches()
    with guards.installed("Log", origin, switches), switches.set(guard=True):
        for run in (step, tf.function(step)):
            log_and_root, _ = run(x)
            assert np.isnan(np.asarray(log_and_root)[0])
            with switches.set(wide=True):
                assert np.isfinite(np.asarray(run(x)[0])).all()
        assert np.isnan(np.asarray(other(x))[0])


@pytest.mark.parametrize(("shape", "known"), [((0, 3), True), ((4, 3), False)])
def test_a_mean_is_guarded_only_where_it_was_of_nothing(shape: tuple[int, ...], known: bool) -> None:
    from tb_nanwatch.format.records import OperandStats

    origin = Origin("loss", op_type="Mean", inputs=(OperandStats("x", "float32", shape),))
    assert (guards.guard_of("Mean", origin) is not None) is known
    assert guards.guard_of("Relu", origin) is None
