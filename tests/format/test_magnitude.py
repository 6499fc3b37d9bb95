from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_nanwatch.format import magnitude

REACHABLE = st.floats(min_value=2.0**-450, max_value=2.0**458, allow_nan=False)


@given(st.lists(REACHABLE, min_size=1, max_size=50))
def test_relative_error_stays_below_half_a_percent(values: list[float]) -> None:
    back = magnitude.decode(magnitude.encode(values))
    assert np.max(np.abs(back / np.asarray(values) - 1)) <= magnitude.RELATIVE_ERROR + 1e-12
    assert magnitude.RELATIVE_ERROR < 0.005


@given(st.lists(st.floats(min_value=0, allow_nan=False, allow_infinity=False), min_size=2, max_size=50))
def test_order_is_kept(values: list[float]) -> None:
    codes = magnitude.encode(np.sort(values))
    assert np.all(np.diff(codes.astype(int)) >= 0)


@given(st.floats())
def test_finite_stays_finite_and_the_rest_does_not(value: float) -> None:
    code = magnitude.encode(value)
    assert bool(magnitude.is_finite(code)) == bool(np.isfinite(value))
    assert np.isfinite(magnitude.decode(code)) == np.isfinite(value)


def test_every_code_decodes_to_what_encodes_to_it() -> None:
    codes = np.arange(magnitude.FIRST_FINITE, magnitude.LAST + 1, dtype=np.uint16)
    assert np.array_equal(magnitude.encode(magnitude.decode(codes)), codes)


def test_states() -> None:
    codes = magnitude.encode([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0])
    assert codes.tolist() == [1, 1, 2, 3, 5, 16 + 72 * 451]
    assert magnitude.to_bits(codes).tolist() == [0, 0, 1, 2, 4, 0]
    decoded = magnitude.decode([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15])
    expected = [np.nan, 0, np.nan, np.inf, np.nan, -np.inf, np.nan, np.inf, np.nan, np.nan, np.nan]
    np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize("bits", range(8))
def test_bits_survive_in_codes(bits: int) -> None:
    code = magnitude.from_bits([bits])
    assert magnitude.to_bits(code)[0] == (bits or magnitude.UNKNOWN)
    assert not magnitude.is_finite(code)[0]


def test_beyond_the_ends_is_held_at_them() -> None:
    assert magnitude.encode([5e-324, 1e-200]).tolist() == [16, 16]
    assert magnitude.encode([1e200, np.finfo(np.float64).max]).tolist() == [65535, 65535]
    assert magnitude.decode(65535) > 1e138
