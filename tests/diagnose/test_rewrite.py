from __future__ import annotations

import pytest

from tb_nanwatch.diagnose.rewrite import (
    guarded_call,
    guarded_root,
    kept,
    none_of_nothing,
    safe_division,
    where_inside,
)


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
        ("z = m(a); e = tf.exp(z)", "Exp", "z = m(a)\ne = tf.exp(tf.maximum(z, 1e-10))"),
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


@pytest.mark.parametrize(
    ("code", "op", "expected"),
    [
        ("d = tf.sqrt(v)", "Sqrt", "d = tf.sqrt(tf.maximum(v, 1e-12))"),
        (
            "d = tf.norm(a - b, axis=-1)",
            "Sqrt",
            "d = tf.sqrt(tf.maximum(tf.reduce_sum(tf.square(a - b), axis=-1), 1e-12))",
        ),
        ("d = tf.norm(a, 1)", "Sqrt", None),
        ("d = tf.math.reduce_std(h, 0)", "Sqrt", "d = tf.sqrt(tf.maximum(tf.math.reduce_variance(h, 0), 1e-12))"),
        ("d = v ** 0.5", "Pow", "d = tf.maximum(v, 1e-12) ** 0.5"),
        ("d = v ** 2", "Pow", None),
        ("d = v ** 'a'", "Sqrt", None),
    ],
)
def test_roots(code: str, op: str, expected: str | None) -> None:
    assert guarded_root(code, op, "1e-12") == expected


def test_nothing() -> None:
    assert none_of_nothing("m = tf.reduce_mean(h)", "Mean") == "m = tf.where(tf.size(h) > 0, tf.reduce_mean(h), 0.0)"
    assert none_of_nothing("m = tf.reduce_mean(h, axis=0)", "Mean") is None


def test_a_line_with_two_logs_is_guarded_in_both() -> None:
    """Names that the line itself uses are left alone."""
    lines = where_inside("inner = x * tf.math.log(p) + (1 - x) * tf.math.log(1 - p)", "Log", "{x} > 0", "ones")
    assert lines is not None
    assert lines.splitlines() == [
        "safe = tf.where(p > 0, p, tf.ones_like(p))",
        "inner_2 = 1 - p",
        "safe_2 = tf.where(inner_2 > 0, inner_2, tf.ones_like(inner_2))",
        (
            "inner = x * tf.where(p > 0, tf.math.log(safe), tf.zeros_like(safe)) + "
            "(1 - x) * tf.where(inner_2 > 0, tf.math.log(safe_2), tf.zeros_like(safe_2))"
        ),
    ]


def test_an_argument_may_be_made_by_the_statement_before() -> None:
    assert where_inside("z = m(a); e = tf.math.log(z)", "Log", "{x} > 0", "ones") is None


def test_a_division_inside_a_where() -> None:
    lines = where_inside("r = tf.where(n > 0, s / n, 0.0)", "RealDiv", "tf.not_equal({x}, 0)", "ones", divides=True)
    assert lines == "safe = tf.where(tf.not_equal(n, 0), n, tf.ones_like(n))\nr = tf.where(n > 0, s / safe, 0.0)"


@pytest.mark.parametrize(
    ("code", "begins"),
    [
        ("neg = tf.math.log(", "neg = "),
        ("self.neg=tf.math.log(", "self.neg = "),
        ("return tf.math.log(", "return "),
        ("returned = 1", "returned = "),
        ("w = 1; h = x / n", "result = "),
        ("if a == tf.math.log(x):", "result = "),
        ("a == tf.math.log(x)", "result = "),
        ("tf.math.log(x),", "result = "),
        ("\x1b = 1", "result = "),
        ("", "result = "),
    ],
)
def test_a_general_line_keeps_the_beginning_of_the_statement(code: str, begins: str) -> None:
    assert kept(code, "result") == begins
