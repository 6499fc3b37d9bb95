"""The lookout on rows as the recorder hands them over, without a training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.record.lookout import Limits, Lookout
from tb_nanwatch.stats.overflow import soonest

GRADIENT = TensorInfo(1, "gradient", "dense/kernel", "dense", "Dense")
HALF = TensorInfo(2, "activation", "dense/output", "dense", "Dense", "float16")
WEIGHT = TensorInfo(3, "weight", "dense/kernel", "dense", "Dense", trainable=True)
STATISTIC = TensorInfo(4, "weight", "norm/moving_mean", "norm", "BatchNormalization")
LOSS = TensorInfo(5, "loss", "loss")


def limits() -> Limits:
    return Limits([GRADIENT, HALF, WEIGHT, STATISTIC], [LOSS])


def warnings(rows: Any, lookout: Lookout | None = None, of: Limits | None = None, first: int = 0) -> dict[int, str]:
    """What is said at which step. rows float64[n, 5], the loss in the last column."""
    lookout, of = lookout or Lookout(), of or limits()
    said = {s: lookout.follow(s, of, row[:4], None, row[4:]) for s, row in enumerate(np.asarray(rows, float), first)}
    return {step: text for step, text in said.items() if text is not None}


def growing(column: int, rate: float, steps: int, start: float = 1.0) -> Any:
    rows = np.ones((steps, 5))
    rows[:, column] = start * 2.0 ** (rate * np.arange(steps))
    return rows


@pytest.mark.parametrize(
    ("column", "rate", "name"),
    [
        (0, 2.0, "the gradient of dense/kernel grows 4-fold at every step and reaches the float32 maximum (3.4e38)"),
        (1, 0.5, "the output of dense doubles every 2 steps and reaches the float16 maximum (65,504)"),
        (2, 4.0, "the weight dense/kernel grows 16-fold at every step and reaches the float32 maximum (3.4e38)"),
        (4, 2.0, "the loss grows 4-fold at every step and reaches the float32 maximum (3.4e38)"),
    ],
)
def test_one_warning_and_no_more(column: int, rate: float, name: str) -> None:
    end = int((16 if column == 1 else 128) / rate)
    ((step, text),) = warnings(growing(column, rate, end)).items()
    assert text.startswith(f"{name} in about ")
    assert text.endswith(f"near step {end}")
    assert step <= end - 10


def test_statistics_that_nobody_trains_are_left_alone() -> None:
    assert warnings(growing(3, 2.0, 60)) == {}


def test_an_incident_begins_everything_anew() -> None:
    lookout, rows = Lookout(), growing(4, 2.0, 60)
    assert warnings(rows[:15], lookout) == {}
    lookout.forget()
    assert warnings(np.ones((20, 5)), lookout, first=15) == {}
    assert warnings(rows[35:38], lookout, first=35) == {}  # three steps are no growth


def test_rows_of_another_plan_are_not_mixed_in() -> None:
    """Two networks that train in turn, as the halves of a GAN do: each has rows of its own."""
    lookout, one, other = Lookout(), limits(), limits()
    rows, said = growing(4, 1.0, 120), {}
    for step in range(120):
        row = rows[step] if step % 2 else np.ones(5)
        said[step] = lookout.follow(step, one if step % 2 else other, row[:4], None, row[4:])
    (text,) = [text for text in said.values() if text]
    assert "near step 128" in text


def test_steps_that_loss_scaling_skipped_are_passed_over() -> None:
    rows = growing(0, 2.0, 60)
    rows[::7, 0] = np.inf
    ((step, text),) = warnings(rows).items()
    assert "near step 64" in text
    assert step <= 50


def test_codes_say_more_than_norms() -> None:
    """Squares that overflowed make an infinite norm; the close look at the step knew the true one."""
    lookout, of, said = Lookout(), limits(), {}
    for step, row in enumerate(growing(0, 4.0, 31)):
        codes = magnitude.encode(row[:4])
        norms = np.where(row[:4] > 1e19, np.inf, row[:4])
        said[step] = lookout.follow(step, of, norms, codes if np.isinf(norms).any() else None, row[4:])
    (text,) = [text for text in said.values() if text]
    assert "near step 32" in text


def test_the_largest_element_puts_it_off() -> None:
    of = limits()
    of.measured([1], np.array([1.0]), np.array([16.0]))
    ((_, text),) = warnings(growing(1, 0.5, 45), of=of).items()
    assert text.endswith("near step 40")  # 2**(0.5 * 40) is sixteen times the maximum


@pytest.mark.parametrize("seed", range(5))
def test_the_report_would_say_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = growing(4, 1.5, 80) * np.exp2(0.2 * rng.normal(size=(80, 5)))
    ((step, text),) = warnings(rows).items()
    of = limits()
    found = soonest(np.arange(step + 1), rows[: step + 1].T, of.largest)
    assert found is not None
    assert text.endswith(f"in {found.about()}, near step {found.step:,}")


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e15, 1e30])
def test_training_that_is_well_hears_nothing(scale: float) -> None:
    rng = np.random.default_rng(1)
    calm = np.exp(0.3 * rng.normal(size=(1500, 5))) * [scale, 100.0, scale, scale, scale]
    calm[700] *= [1e3, 30.0, 1.0, 1.0, 1e3]  # a spike
    assert warnings(calm) == {}
