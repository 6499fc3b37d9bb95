"""A bad value that is made inside an addition to a variable, which is an op without an output."""

import numpy as np
import tensorflow as tf

from tb_nanwatch.record.collect import Collector
from tb_nanwatch.record.guard import Guard
from tb_nanwatch.record.naming import Names
from tb_nanwatch.record.options import Options
from tb_nanwatch.record.replay import observe, origin
from tb_nanwatch.record.replay.memory import Call, Ways


def found_in(step) -> origin.Found | None:
    guard = Guard()
    ways = Ways(step, step, inputs=lambda data: (data,))
    seen = observe.run(ways, Call(0, tf.ones(3), ["x"]), Collector(Names(), Options(), guard))
    assert guard.alive
    assert seen.error is None
    return origin.find(seen, [])


def test_infinity_minus_infinity_in_a_slot() -> None:
    slot = tf.Variable([1.0, np.inf, 2.0])

    def step(x):
        slot.assign_add((x - slot.read_value()) * 0.5)

    found = found_in(step)
    assert found is not None
    assert found.node.op_type == "AssignAddVariableOp"
    assert found.reaches == {origin.VARIABLE}
    assert [bool(np.isnan(v)) for v in found.node.outputs[0].numpy()] == [False, True, False]


def test_the_square_comes_before_the_slot_that_it_overflows() -> None:
    slot = tf.Variable([1.0, 1.0, 1.0])

    def step(x):
        slot.assign_add((tf.square(x * 1e21) - slot) * 0.5)

    found = found_in(step)
    assert found is not None
    assert found.node.op_type == "Square"


def test_a_finite_addition_is_no_origin() -> None:
    slot = tf.Variable([1.0, 1.0, 1.0])
    assert found_in(lambda x: slot.assign_add(x - slot.read_value())) is None
