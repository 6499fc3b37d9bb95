"""Inputs of ops kept where the op is finite. A graph cannot be changed; but a session takes a value for any tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

CLIP, DIVISION, WHERE = "clip_predictions_or_from_logits", "guard_division", "safe_where"


def _away_from_zero(value: Any, small: float) -> Any:
    return np.where(np.abs(value) < small, np.where(value < 0, -small, small), value).astype(value.dtype)


def _at_least(value: Any, small: float) -> Any:
    return np.maximum(value, value.dtype.type(small))


def _at_most(value: Any, large: float) -> Any:
    return np.minimum(value, value.dtype.type(large))


def _inside(value: Any, bound: float) -> Any:
    return np.clip(value, value.dtype.type(-bound), value.dtype.type(bound))


_Guard = tuple[int, Callable[[Any, float], Any], tuple[float, float, float], str, str]
_TINY, _SMALL, _TOP, _EDGE = (1e-10, 1e-4, 1e-10), (1e-7, 1e-4, 1e-7), (80.0, 10.0, 80.0), (1 - 1e-6, 0.999, 0.99)

#: forward op -> number of the input that is kept in its domain, how, the bound (in general, in float16, in bfloat16),
#: the remedy, and in words
GUARDS: Final[dict[str, _Guard]] = {
    "Log": (0, _at_least, _TINY, CLIP, "log(max(x, {:g}))"),
    "Log1p": (0, _at_least, (-1 + 1e-6, -0.999, -0.99), CLIP, "log1p(max(x, {:.7g}))"),
    "Xlogy": (1, _at_least, _TINY, CLIP, "xlogy(x, max(y, {:g}))"),
    "Exp": (0, _at_most, _TOP, CLIP, "exp(min(x, {:g}))"),
    "Expm1": (0, _at_most, _TOP, CLIP, "expm1(min(x, {:g}))"),
    "RealDiv": (1, _away_from_zero, _SMALL, DIVISION, "a divisor kept {:g} away from 0"),
    "Div": (1, _away_from_zero, _SMALL, DIVISION, "a divisor kept {:g} away from 0"),
    "Reciprocal": (0, _away_from_zero, _SMALL, DIVISION, "an argument kept {:g} away from 0"),
    "Inv": (0, _away_from_zero, _SMALL, DIVISION, "an argument kept {:g} away from 0"),
    "Sqrt": (0, _at_least, (1e-12, 1e-4, 1e-12), DIVISION, "sqrt(max(x, {:g}))"),
    "Rsqrt": (0, _at_least, (1e-12, 1e-4, 1e-12), DIVISION, "rsqrt(max(x, {:g}))"),
    "Pow": (0, _at_least, _SMALL, DIVISION, "pow(max(x, {:g}), y)"),
    "Acos": (0, _inside, _EDGE, CLIP, "an argument within {:.7g}"),
    "Asin": (0, _inside, _EDGE, CLIP, "an argument within {:.7g}"),
    "Atanh": (0, _inside, _EDGE, CLIP, "an argument within {:.7g}"),
    "Acosh": (0, _at_least, (1 + 1e-6, 1.001, 1.01), CLIP, "acosh(max(x, {:.7g}))"),
    "Softmax": (0, _at_least, (-1e9, -1e4, -1e9), WHERE, "a mask of {:g} in the place of -inf"),
    "LogSoftmax": (0, _at_least, (-1e9, -1e4, -1e9), WHERE, "a mask of {:g} in the place of -inf"),
}

#: of a trial that speaks for further remedies, which do the same there
ALSO: Final = {"Sqrt": (CLIP,), "Rsqrt": (CLIP,), "Pow": (CLIP,), "Acos": (WHERE,), "Asin": (WHERE,), "Atanh": (WHERE,)}


def guard_of(op_type: str, dtype: str = "float32") -> tuple[int, Callable[[Any], Any], str, str] | None:
    """(number of the input that is kept in its domain, how, name of the remedy, in words); None where none is known.

    `dtype`: name of the type that the op computes in.
    """
    if op_type not in GUARDS:
        return None
    number, keep, bounds, remedy, words = GUARDS[op_type]
    bound = bounds[("float16", "bfloat16").index(dtype) + 1 if dtype in ("float16", "bfloat16") else 0]
    return (
        number,
        lambda value: keep(np.asarray(value), bound),
        remedy,
        words.format(bound).replace("e+0", "e").replace("e-0", "e-"),
    )
