from __future__ import annotations

import pytest

from tb_nanwatch.diagnose.rewrite import argument, fraction, guarded_call, safe_division


def clipped(space: str, x: str) -> str:
    return f"{space}.maximum({x}, 1e-10)"


@pytest.mark.parametrize(
    ("code", "op", "expected"),
    [
        (
            "loss = -tf.reduce_sum(y * tf.math.log(p))",
            "Log",
            "loss = -tf.reduce_sum(y * tf.math.log(tf.maximum(p, 1e-10)))",
        ),
        ("return keras.ops.log(p + 1)", "Log", "return keras.ops.log(keras.ops.maximum(p + 1, 1e-10))"),
        ("a = K.sqrt(v)", "Sqrt", "a = K.sqrt(K.maximum(v, 1e-10))"),
        ("a = log(v)", "Log", "a = log(tf.maximum(v, 1e-10))"),
        ("a = tf.exp(v)", "Log", None),
        ("a = tf.math.log(", "Log", None),
        ("if tf.math.log(x) > 0:", "Log", None),
        ("import os; os.system('x')", "Log", None),
        ("a = tf.math.log()", "Log", None),
        ("", "Log", None),
        ("\x00", "Log", None),
        ("(" * 500, "Log", None),
    ],
)
def test_calls(code: str, op: str, expected: str | None) -> None:
    assert guarded_call(code, op, clipped) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("return a / b", "return tf.math.divide_no_nan(a, b)"),
        ("x = (a - m) / (s + e)", "x = tf.math.divide_no_nan(a - m, s + e)"),
        ("x = a / 2.0", None),
        ("x = a // b", None),
        ("x = (a /", None),
    ],
)
def test_divisions(code: str, expected: str | None) -> None:
    assert safe_division(code) == expected


def test_parts() -> None:
    assert fraction("return tf.reduce_sum(a) / n") == ("tf.reduce_sum(a)", "n")
    assert fraction("return a * n") is None
    assert argument("y = tf.math.log(a - b)", "Log") == "a - b"
    assert argument("y = tf.math.exp(a)", "Log") is None
