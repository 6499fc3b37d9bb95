"""Inputs of ops kept where the op is finite. A graph cannot be changed; but a session takes a value for any tensor."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

CLIP, DIVISION, WHERE = "clip_predictions_or_from_logits", "guard_division", "safe_where"


def _away_from_zero(value: Any) -> Any:
    return np.where(np.abs(value) < 1e-7, np.where(value < 0, -1e-7, 1e-7), value).astype(value.dtype)


def _inside(value: Any) -> Any:
    return np.clip(value, value.dtype.type(-1 + 1e-6), value.dtype.type(1 - 1e-6))


#: forward op -> number of the input that is kept in its domain, how, the remedy, and in words
GUARDS: Final[dict[str, tuple[int, Any, str, str]]] = {
    "Log": (0, lambda x: np.maximum(x, 1e-10), CLIP, "log(max(x, 1e-10))"),
    "Log1p": (0, lambda x: np.maximum(x, -1 + 1e-6), CLIP, "log1p(max(x, 1e-6 - 1))"),
    "Xlogy": (1, lambda x: np.maximum(x, 1e-10), CLIP, "xlogy(x, max(y, 1e-10))"),
    "Exp": (0, lambda x: np.minimum(x, 80), CLIP, "exp(min(x, 80))"),
    "Expm1": (0, lambda x: np.minimum(x, 80), CLIP, "expm1(min(x, 80))"),
    "RealDiv": (1, _away_from_zero, DIVISION, "a divisor kept 1e-7 away from 0"),
    "Div": (1, _away_from_zero, DIVISION, "a divisor kept 1e-7 away from 0"),
    "Reciprocal": (0, _away_from_zero, DIVISION, "an argument kept 1e-7 away from 0"),
    "Inv": (0, _away_from_zero, DIVISION, "an argument kept 1e-7 away from 0"),
    "Sqrt": (0, lambda x: np.maximum(x, 1e-12), DIVISION, "sqrt(max(x, 1e-12))"),
    "Rsqrt": (0, lambda x: np.maximum(x, 1e-12), DIVISION, "rsqrt(max(x, 1e-12))"),
    "Pow": (0, lambda x: np.maximum(x, 1e-7), DIVISION, "pow(max(x, 1e-7), y)"),
    "Acos": (0, _inside, CLIP, "an argument within 1 - 1e-6"),
    "Asin": (0, _inside, CLIP, "an argument within 1 - 1e-6"),
    "Atanh": (0, _inside, CLIP, "an argument within 1 - 1e-6"),
    "Acosh": (0, lambda x: np.maximum(x, 1 + 1e-6), CLIP, "acosh(max(x, 1 + 1e-6))"),
    "Softmax": (0, lambda x: np.maximum(x, -1e9), WHERE, "a mask of -1e9 in the place of -inf"),
    "LogSoftmax": (0, lambda x: np.maximum(x, -1e9), WHERE, "a mask of -1e9 in the place of -inf"),
}

#: of a trial that speaks for further remedies, which do the same there
ALSO: Final = {"Sqrt": (CLIP,), "Rsqrt": (CLIP,), "Pow": (CLIP,), "Acos": (WHERE,), "Asin": (WHERE,), "Atanh": (WHERE,)}


def guard_of(op_type: str) -> tuple[int, Any, str, str] | None:
    """(number of the input that is kept in its domain, how, name of the remedy, in words); None where none is known."""
    return GUARDS.get(op_type)
