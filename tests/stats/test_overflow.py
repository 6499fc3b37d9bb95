"""Forecasts: what grows steadily is foretold, in time and about right; what does not is left alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tb_nanwatch.stats.doubling import WINDOW, doubling
from tb_nanwatch.stats.dtypes import largest
from tb_nanwatch.stats.overflow import AHEAD, NEAR, Forecast, soonest

DTYPES = ("float16", "bfloat16", "float32")
LEAD = 10  # steps before the overflow that a warning must come


def at(octaves: NDArray[np.float64], dtype: str, until: int | None = None) -> Forecast | None:
    """The forecast from the first `until` steps of a line of logarithms."""
    values = np.exp2(octaves[None, :until])
    return soonest(np.arange(values.shape[1]), values, np.array([largest(dtype)]))


def warned(octaves: NDArray[np.float64], dtype: str) -> tuple[int, Forecast] | None:
    """Step of the first forecast, and the forecast, as somebody who looks at every step has it."""
    for step in range(len(octaves)):
        found = at(octaves, dtype, step + 1)
        if found is not None:
            return step, found
    return None


@st.composite
def growing(draw: st.DrawFn) -> tuple[str, NDArray[np.float64], int]:
    """Exponential growth that takes at least 25 steps from about 1 to the end of the dtype; the step that overflows."""
    dtype = draw(st.sampled_from(DTYPES))
    octaves = float(np.log2(largest(dtype)))
    length = draw(st.integers(25, 150))
    rate = octaves / length
    noise = draw(st.floats(0, 0.25)) * min(1.0, 4 * rate)
    wobble = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).normal(scale=noise, size=length + 40)
    line = rate * np.arange(length + 40) + wobble
    return dtype, line, int(np.argmax(line > octaves))


@settings(deadline=None, max_examples=25)
@given(growing())
def test_growth_is_foretold_ten_steps_ahead(case: tuple[str, NDArray[np.float64], int]) -> None:
    dtype, line, end = case
    found = warned(line[:end], dtype)
    assert found is not None
    step, forecast = found
    assert step <= end - LEAD
    assert (end - step) / 2 <= forecast.steps_left <= 2 * (end - step)


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(DTYPES), st.floats(0.02, 1.0), st.floats(0, 0.3), st.floats(-30, -5), st.integers(0, 2**32 - 1))
def test_what_levels_off_in_time_is_left_alone(dtype: str, rate: float, noise: float, low: float, seed: int) -> None:
    """A logistic curve from 2**low up to just below what counts as near."""
    steps = np.arange(400)
    height = np.log2(largest(dtype)) * NEAR - 1.5
    line = height - np.log2(1 + np.exp2(np.minimum(height - low - rate * steps, 900)))
    line = line + np.random.default_rng(seed).normal(scale=min(noise, 0.3), size=400).clip(-1.2, 1.2)
    assert warned(line, dtype) is None


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(DTYPES), st.floats(0.05, 3.0), st.floats(0.35, 0.95), st.integers(0, 60))
def test_once_level_there_is_no_forecast(dtype: str, rate: float, share: float, later: int) -> None:
    """However high a logistic curve ends, and however soon after it has."""
    height = np.log2(largest(dtype)) * share
    end = int(height / rate + 12 / rate) + 4 + later  # within 2**-12 of the height for some steps
    line = height - np.log2(1 + np.exp2(np.minimum(height - rate * np.arange(end), 900)))
    found = at(line, dtype)
    assert found is None or found.growth.last_step - found.growth.first_step < 4


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(DTYPES), st.floats(1e-3, 2.0), st.floats(1.0, 6.0), st.integers(10, 300))
def test_powers_of_time_are_not_exponential(dtype: str, scale: float, power: float, length: int) -> None:
    line = power * np.log2(scale * (1 + np.arange(length)))
    found = at(line, dtype)
    assert found is None or dtype == "float16"  # there a cube of the steps is an overflow to come


@pytest.mark.parametrize("seed", range(8))
def test_noise_is_no_growth(seed: int) -> None:
    """Independent noise, and a walk, around a number that is large already."""
    rng = np.random.default_rng(seed)
    for line in (60 + rng.normal(scale=3, size=1000), 60 + np.cumsum(rng.normal(scale=0.1, size=1000))):
        assert warned(line, "float32") is None


def test_a_way_back_to_earlier_heights_is_no_growth() -> None:
    """Gradients of a fitted network: tiny, until a sample is hard again."""
    line = np.concatenate([np.full(20, 7.0), 7.0 - 2.5 * np.arange(6), 7.0 - 2.5 * np.arange(6)[::-1]])
    assert warned(line, "float16") is None
    higher = np.append(line, [9.5, 12.0])
    assert warned(higher, "float16") is not None


def test_the_earliest_overflow_is_told() -> None:
    steps = np.arange(40)
    values = np.stack([2.0**steps, 4.0**steps, 3.0**steps])
    found = soonest(steps, values, np.array([3.4e38, 3.4e38, np.nan]))
    assert found is not None
    assert (found.row, found.step) == (1, 64)


def test_a_peak_below_the_norm_gives_time() -> None:
    steps = np.arange(48)
    limit = np.array([largest("float32")])
    found = [soonest(steps, 2.0 ** steps[None], limit, lambda _, o=o: o) for o in (0.0, -6.0)]
    assert [f.step if f else None for f in found] == [128, None]  # 2**41 is not near yet


def test_gaps_and_bad_values_are_passed_over() -> None:
    steps = np.arange(60)
    values = 3.0**steps
    values[::3] = np.nan
    values[10] = np.inf
    values[20] = 0.0
    found = soonest(steps, values[None], np.array([largest("float32")]))
    assert found is not None
    assert found.step == 81


def test_what_was_last_measured_long_ago_is_old_news() -> None:
    steps = np.arange(70)
    values = np.where(steps < 50, 3.0**steps, np.nan)
    assert soonest(steps, values[None], np.array([largest("float32")])) is None


def test_the_forecast_reaches_no_further_than_it_saw() -> None:
    steps = np.arange(WINDOW)
    found = soonest(steps, np.exp2(60 + 0.2 * steps)[None], np.array([largest("float32")]))
    assert found is not None
    assert found.steps_left <= AHEAD * WINDOW
    assert soonest(steps, np.exp2(60 + 0.1 * steps)[None], np.array([largest("float32")])) is None


def test_doubling_times() -> None:
    steps = np.arange(30)
    found = doubling(steps, 5.0 * 2.0 ** (steps / 3))
    assert found is not None
    assert (found.first_step, found.last_step) == (0, 29)
    assert found.time == pytest.approx(3)
    assert found.octaves == pytest.approx(29 / 3)
    assert found.level == pytest.approx(np.log2(5) + 29 / 3)
    assert found.words() == "doubles every 3 steps"
    assert doubling(steps, np.zeros(30)) is None
    assert doubling(steps[:4], 8.0 ** steps[:4]) is None


@pytest.mark.parametrize(("steps", "said"), [(0.2, "about 1 step"), (17.2, "about 18 steps"), (38.1, "about 40 steps")])
def test_about(steps: float, said: str) -> None:
    growth = doubling(np.arange(9), 4.0 ** np.arange(9))
    assert growth is not None
    assert Forecast(0, growth, steps).about() == said


def test_no_tensors() -> None:
    assert soonest(np.arange(5), np.zeros((0, 5)), np.zeros(0)) is None
    assert soonest(np.zeros(0, np.int64), np.zeros((2, 0)), np.array([1.0, 2.0])) is None
