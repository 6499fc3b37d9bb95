from __future__ import annotations

import math

import ml_dtypes
import pytest

from tb_nanwatch.stats import dtypes


@pytest.mark.parametrize("name", dtypes.LIMITS)
def test_limits_are_those_of_the_type(name: str) -> None:
    real = {"complex64": "float32", "complex128": "float64"}.get(name, name)
    limits = ml_dtypes.finfo(real)
    assert dtypes.largest(name) == float(limits.max)
    assert dtypes.smallest_normal(name) == float(limits.smallest_normal)


@pytest.mark.parametrize("name", ["int32", "string", "", "float4"])
def test_other_types_have_no_limits(name: str) -> None:
    assert math.isnan(dtypes.largest(name))
    assert math.isnan(dtypes.smallest_normal(name))
