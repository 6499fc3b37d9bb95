from __future__ import annotations

import numpy as np
import pytest

from tb_nanwatch.diagnose.growth import run_up
from tb_nanwatch.diagnose.window import carried_forward, total_norm

NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 4, 8], (0, 3, 1.0, 8.0, True)),
        ([5, 4, 1, 2, 4], (2, 4, 1.0, 4.0, True)),
        ([1, NAN, 3, 9], (0, 3, 1.0, 9.0, True)),
        ([1, 9, 2, 8, 3], (0, 4, 1.0, 3.0, False)),
        ([1, float("inf"), 2, 4], (0, 3, 1.0, 4.0, True)),
        ([-1, -2, -4], (0, 2, 1.0, 4.0, True)),
    ],
)
def test_run_up(values: list[float], expected: tuple[int, int, float, float, bool]) -> None:
    assert run_up(np.arange(len(values), dtype=np.int64), np.array(values, np.float64)) == expected


@pytest.mark.parametrize("values", [[], [1, 2], [4, 2, 1], [NAN] * 9, [0, 0, 0, 1]])
def test_no_rise(values: list[float]) -> None:
    assert run_up(np.arange(len(values), dtype=np.int64), np.array(values, np.float64)) is None


def test_gaps_are_filled_from_before() -> None:
    filled = carried_forward(np.array([[NAN, 1, NAN, 2]]))
    assert np.array_equal(filled, [[NAN, 1, 1, 2]], equal_nan=True)


def test_total_norm() -> None:
    """Known from where every tensor is; a tensor that was never measured does not count; infinity stays."""
    plane = np.array([[3, NAN, 3, np.inf], [NAN, 4, 4, 4], [NAN, NAN, NAN, NAN]])
    assert np.array_equal(total_norm(plane), [NAN, 5, 5, np.inf], equal_nan=True)
    assert np.isnan(total_norm(np.zeros((0, 3)))).all()
