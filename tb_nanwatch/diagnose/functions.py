"""Functions that are not defined, or not finite, everywhere: how a program calls them, and what keeps them in bounds.

Arguments are written "{x}", the one that matters, and "{y}", another one. A guard is Python source, given the namespace
of the call ("tf", "keras.ops"), that argument and the smallest number to keep from the edge by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tb_nanwatch.diagnose.operation import exponent_limit

INSIDE: Final = "1 - 1e-6"  # float32 has steps of 6e-8 just below 1


@dataclass(frozen=True)
class Function:
    """One function.

    call: its source. valid: a condition on the argument with which value and slope are finite. harmless: an argument
    like "{x}" that is. bounded: the argument kept inside; "{low}" is a small number. argument: its place in the call.
    """

    call: str
    valid: str
    harmless: str = "tf.ones_like({x})"
    bounded: str = "{space}.maximum({x}, {low})"
    low: str = "1e-12"
    argument: int = 0


def _within_one(name: str) -> Function:
    inside = f"tf.clip_by_value({{x}}, -({INSIDE}), {INSIDE})"
    return Function(f"{name}({{x}})", "tf.abs({x}) < 1", "tf.zeros_like({x})", inside)


def _exponential(name: str) -> Function:
    return Function(f"{name}({{x}})", "{x} < {top}", "tf.zeros_like({x})", "{space}.minimum({x}, {top})")


def _even(name: str) -> Function:
    bounded = "tf.clip_by_value({x}, -{top}, {top})"
    return Function(f"{name}({{x}})", "tf.abs({x}) < {top}", "tf.zeros_like({x})", bounded)


#: By type of op, as TensorFlow calls it.
FUNCTIONS: Final[dict[str, Function]] = {
    "Log": Function("tf.math.log({x})", "{x} > 0", low="1e-10"),
    "Log1p": Function(
        "tf.math.log1p({x})", "{x} > -1", "tf.zeros_like({x})", "{space}.maximum({x}, {low} - 1)", "1e-06"
    ),
    "Xlogy": Function("tf.math.xlogy({y}, {x})", "{x} > 0", low="1e-10", argument=1),
    "Xlog1py": Function(
        "tf.math.xlog1py({y}, {x})", "{x} > -1", "tf.zeros_like({x})", "{space}.maximum({x}, {low} - 1)", "1e-06", 1
    ),
    "Exp": _exponential("tf.exp"),
    "Expm1": _exponential("tf.math.expm1"),
    "Sinh": _even("tf.sinh"),
    "Cosh": _even("tf.cosh"),
    "Sqrt": Function("tf.sqrt({x})", "{x} > 0"),
    "Rsqrt": Function("tf.math.rsqrt({x})", "{x} > 0"),
    "Pow": Function("tf.pow({x}, {y})", "{x} > 0"),
    "Reciprocal": Function("tf.math.reciprocal({x})", "tf.not_equal({x}, 0)", bounded=""),
    "Acos": _within_one("tf.acos"),
    "Asin": _within_one("tf.asin"),
    "Atanh": _within_one("tf.atanh"),
    "Erfinv": _within_one("tf.math.erfinv"),
    "Acosh": Function("tf.acosh({x})", "{x} > 1", "2 * tf.ones_like({x})", low="1 + 1e-6"),
    "Ndtri": Function(
        "tf.math.ndtri({x})", "tf.abs({x} - 0.5) < 0.5", "0.5 * tf.ones_like({x})",
        f"tf.clip_by_value({{x}}, 1e-6, {INSIDE})",
    ),
    "Lgamma": Function("tf.math.lgamma({x})", "{x} > 0", low="1e-6"),
    "Digamma": Function("tf.math.digamma({x})", "{x} > 0", low="1e-6"),
}  # fmt: skip


def top(dtype: str) -> str:
    """The largest argument of an exponential in a type, with room for a sum of several: 80 in float32."""
    return f"{exponent_limit(dtype or 'float32') // 1 - 8:g}"
