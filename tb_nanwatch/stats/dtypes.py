"""Limits of the floating types that networks train in. TensorFlow's names; float8 types as in ml_dtypes."""

from __future__ import annotations

from typing import Final

#: dtype name to (largest finite value, smallest normal value).
LIMITS: Final = {
    "float64": (1.7976931348623157e308, 2.2250738585072014e-308),
    "float32": (3.4028234663852886e38, 1.1754943508222875e-38),
    "bfloat16": (3.3895313892515355e38, 1.1754943508222875e-38),
    "float16": (65504.0, 6.103515625e-05),
    "float8_e4m3fn": (448.0, 0.015625),
    "float8_e5m2": (57344.0, 6.103515625e-05),
    "complex64": (3.4028234663852886e38, 1.1754943508222875e-38),
    "complex128": (1.7976931348623157e308, 2.2250738585072014e-308),
}


def largest(dtype: str) -> float:
    """Largest finite value of a dtype; NaN for one that has no such limit here, as integers and strings."""
    return LIMITS.get(dtype, (float("nan"), float("nan")))[0]


def smallest_normal(dtype: str) -> float:
    """Smallest positive value of a dtype that keeps its full precision; NaN for an unknown one."""
    return LIMITS.get(dtype, (float("nan"), float("nan")))[1]
