"""The rules on what grows, falls or spikes, on hand-built series."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import runs

from tb_nanwatch.diagnose import examine
from tb_nanwatch.diagnose.rules.falling_loss_scale import falling_loss_scale
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.forecast import forecast
from tb_nanwatch.diagnose.rules.growth import growth
from tb_nanwatch.diagnose.rules.loss_spike import loss_spike
from tb_nanwatch.diagnose.rules.small_headroom import small_headroom
from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import FullBlock, RunHeader, TensorInfo
from tb_nanwatch.record.blocks import Rows
from tb_nanwatch.record.writer import RunWriter
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run

Line = Callable[[int], float]


def recorded(logdir: Path) -> Run:
    catalog = Catalog(logdir)
    catalog.refresh()
    return catalog.runs()["."]


def run_of(logdir: Path, lines: dict[str, Line], steps: int, close: bool = False, **more: object) -> Run:
    """The network of `runs` with these lines by tag; everything else is calm."""

    def values(info: TensorInfo, step: int) -> float:
        return lines[info.tag](step) if info.tag in lines else runs.calm(info, step % 50)

    runs.write(logdir, values, range(steps), close=close, **more)  # type: ignore[arg-type]
    return recorded(logdir)


def noise(step: int) -> float:
    """The same for a step each time, between -1 and 1."""
    return float(np.random.default_rng(step).uniform(-1, 1))


# ---------------------------------------------------------------- forecast


def test_a_loss_that_will_overflow(tmp_path: Path) -> None:
    lines = {"loss/loss": lambda s: 2.0 * 4.0**s, "weight/dense/kernel": lambda s: 3.0 * 2.0**s}
    found = examine(run_of(tmp_path, lines, 40))
    (finding,) = forecast(found.run)
    assert (finding.rule, finding.severity, finding.tensor) == ("forecast", "warning", "loss")
    # 2 * 4**63 = 1.7e38 fits into float32, one step more does not; the last step known is 39.
    assert finding.evidence == (
        "the loss reaches the float32 maximum (3.4e38) in about 25 steps, near step 64",
        f"from step 0 to step 39 it grew 4-fold at every step, up to {2.0 * 4.0**39:.2e}".replace("e+", "e"),
        "of the weights, dense/kernel lead: growing 2-fold at every step",
    )
    assert finding.remedies[0] == "lower_learning_rate"
    assert found.status == "warning"
    said = found.verdict
    assert said.headline == f"The {finding.evidence[0].removeprefix('the ')}; no NaN or Inf in 40 steps so far"
    assert said.paragraphs[0].startswith("Forecast at loss, steps 0 to 39: from step 0 to step 39 it grew 4-fold")


def test_a_run_that_ended_on_the_way(tmp_path: Path) -> None:
    run = run_of(tmp_path, {"gradient/out/kernel": lambda s: 8.0**s}, 30, close=True)
    (finding,) = forecast(run)
    # 8**29 is 2**87, and at the only full step the largest element was a quarter of the norm: 43 octaves are left.
    said = "the gradient of out/kernel was about 15 steps from the float32 maximum (3.4e38) when the run ended"
    assert finding.evidence[0] == said


def half(logdir: Path, norm: Line, largest: float, steps: int = 40, dtype: str = "float16", every: int = 10) -> Run:
    """One activation of a half type, whose largest element is this share of its norm."""
    info = TensorInfo(0, "activation", "h/output", "h", "Dense", dtype, (8, 64))
    writer = RunWriter(logdir, RunHeader("w0", every=every))
    writer.declare([info])
    numbers, none = np.arange(steps), np.zeros((steps, 0), np.float32)
    norms = np.array([[norm(s)] for s in range(steps)])
    ids = np.zeros(1, np.int64)
    codes = magnitude.encode(norms)
    writer.rows(Rows(numbers, numbers * 1.0, numbers, ids, codes, np.zeros(0, np.int64), none))
    for step in range(0, steps, every):
        flat = np.zeros((1, 1), np.float32)
        writer.full(FullBlock(np.array([step]), ids, norms[step : step + 1] * largest, flat, flat, flat))
    writer.close()
    return recorded(logdir)


def test_the_largest_element_counts_and_not_the_norm(tmp_path: Path) -> None:
    """Norm 2**(s/2): beyond 65,504 at step 32; its largest element is a sixteenth of it, 8 steps behind."""
    run = half(tmp_path, lambda s: 2.0 ** (s / 2), 1 / 16, 31)
    (finding,) = forecast(run)
    assert finding.evidence[0].startswith("the output of h was about 10 steps from the float16 maximum (65,504)")
    assert "mixed_precision_policy" in finding.remedies


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(lambda s: 2.0 * 0.97**s, id="falls"),
        pytest.param(lambda s: 1e15 * (1 + 0.1 * noise(s)), id="huge"),
        pytest.param(lambda s: 1e15 * 1.01**s, id="huge and creeping"),
        pytest.param(lambda s: 1e-6 + 0.01 * s, id="linear"),
        pytest.param(lambda s: 1e-9 * (s + 1.0) ** 8, id="a power"),
        pytest.param(lambda s: 1e6 / (1 + 1e9 * 2.0**-s), id="a sigmoid that levels off"),
        pytest.param(lambda s: 1e30 if s == 60 else 1.0, id="a spike"),
        pytest.param(lambda s: 1e20 ** min(1.0, max(0.0, (s - 40) / 4)), id="a cliff"),
        pytest.param(lambda s: 1e14 * 2.0 ** (s // 30), id="stairs"),
        pytest.param(lambda s: 10.0 ** (14 + 10 * np.sin(s / 20)), id="waves"),
        pytest.param(lambda s: 10.0 ** (14 + 6 * noise(s)), id="wild"),
        pytest.param(lambda s: 0.0, id="zero"),
    ],
)
@pytest.mark.parametrize("tag", ["loss/loss", "weight/dense/kernel", "gradient/dense/kernel"])
def test_no_forecast(tag: str, line: Line, tmp_path: Path) -> None:
    assert list(forecast(run_of(tmp_path, {tag: line}, 110))) == []


def test_an_incident_says_more_than_a_forecast(tmp_path: Path) -> None:
    runs.blow_up(tmp_path, "loss", runs.exploding)
    assert list(forecast(recorded(tmp_path))) == []


def test_what_came_before_a_recovered_incident_is_no_run_up(tmp_path: Path) -> None:
    def values(info: TensorInfo, step: int) -> float:
        return 8.0**step if step < runs.BAD and info.kind == "loss" else runs.calm(info, step)

    runs.blow_up(tmp_path, "loss", values, last=runs.BAD + 1)
    assert list(forecast(recorded(tmp_path))) == []


# ---------------------------------------------------------------- growth


def test_weights_that_double_steadily(tmp_path: Path) -> None:
    lines = {"weight/dense/kernel": lambda s: 2.0 ** (s / 5), "loss/loss": lambda s: 2.0}
    (finding,) = growth(run_of(tmp_path, lines, 100))
    assert (finding.rule, finding.tensor, finding.last_step) == ("growth", "dense/kernel", 99)
    said = "the weights dense/kernel double every 5 steps, from step 0 on, and are 916,360 times where the run began"
    assert finding.evidence == (said,)


def test_a_growing_loss_names_the_layer_that_leads(tmp_path: Path) -> None:
    lines = {"loss/loss": lambda s: 2.0 ** (s / 4), "weight/out/kernel": lambda s: 2.0 ** (s / 8)}
    (finding,) = growth(run_of(tmp_path, lines, 100))
    assert (finding.rule, finding.tensor) == ("growth", "loss")
    assert finding.evidence[1] == "of the weights, out/kernel lead: doubling every 8 steps"


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param({"loss/loss": lambda s: 1e-4 * 2.0 ** (s / 8)}, id="a loss that is still small"),
        pytest.param({"gradient/dense/kernel": lambda s: 1e-4 * 2.0 ** (s / 8)}, id="a gradient that leaves a plateau"),
        pytest.param({"weight/dense/kernel": lambda s: 1.0 + 30 * s}, id="weights that grow evenly"),
        pytest.param({"weight/dense/kernel": lambda s: 1e5 / (1 + 1e5 * 0.7**s)}, id="weights that level off"),
    ],
)
def test_no_growth(lines: dict[str, Line], tmp_path: Path) -> None:
    assert list(growth(run_of(tmp_path, lines, 100))) == []


# ---------------------------------------------------------------- small headroom


def test_half_a_maximum(tmp_path: Path) -> None:
    (finding,) = small_headroom(half(tmp_path, lambda s: 60_000 + 4_000 * noise(s), 0.6, 200))
    assert (finding.rule, finding.tensor) == ("small_headroom", "h/output")
    assert finding.evidence[0].startswith("the largest element of the output of h was 3")
    assert finding.evidence[0].endswith("float16 ends at 65,504, 0.8 doublings above")
    assert finding.remedies == ("mixed_precision_policy",)


@pytest.mark.parametrize(
    ("norm", "largest", "dtype"),
    [
        pytest.param(lambda s: 10_000 * (1 + 0.1 * noise(s)), 0.6, "float16", id="room enough"),
        pytest.param(lambda s: 65_504.0 * 8, 1 / 8, "float16", id="a mask"),
        pytest.param(lambda s: 60_000 if s == 50 else 10.0, 0.6, "float16", id="once"),
        pytest.param(lambda s: 60_000 * (1 + 0.1 * noise(s)), 0.6, "bfloat16", id="bfloat16"),
        pytest.param(lambda s: 2e38 * (1 + 0.1 * noise(s)), 0.6, "float32", id="float32 is not half"),
    ],
)
def test_headroom_enough(norm: Line, largest: float, dtype: str, tmp_path: Path) -> None:
    assert list(small_headroom(half(tmp_path, norm, largest, 200, dtype))) == []


# ---------------------------------------------------------------- falling loss scale


def scaled(logdir: Path, scale: Line, steps: int = 3000) -> list[Finding]:
    infos = runs.network([*runs.TABLE, ("scalar", "loss_scale", "", "", ())])

    def values(info: TensorInfo, step: int) -> float:
        return scale(step) if info.kind == "scalar" else runs.calm(info, step % 50)

    runs.write(logdir, values, range(steps), infos)
    return list(falling_loss_scale(recorded(logdir)))


def test_a_scale_that_falls(tmp_path: Path) -> None:
    (finding,) = scaled(tmp_path, lambda s: 2.0 ** (15 - s // 300))
    assert (finding.rule, finding.tensor, finding.first_step) == ("falling_loss_scale", "loss_scale", 300)
    assert finding.evidence[0].startswith("the loss scale fell from 32,768 to 64 between step 300 and step 2,700")


def test_a_scale_below_one(tmp_path: Path) -> None:
    (finding,) = scaled(tmp_path, lambda s: 2.0 if s < 1500 else 0.5)
    assert "below 1" in finding.evidence[-1]


@pytest.mark.parametrize(
    "scale",
    [
        pytest.param(lambda s: 2.0**15, id="stays"),
        pytest.param(lambda s: 2.0 ** (15 + s // 2000), id="doubles"),
        pytest.param(lambda s: 2.0 ** max(24 - s, 15), id="searches at the beginning"),
        pytest.param(lambda s: 2.0 ** (15 + s // 500 - s // 502), id="doubles and is halved"),
        pytest.param(lambda s: 2.0 ** (15 - min(8, max(0, s - 1000))), id="one bad stretch"),
        pytest.param(lambda s: 2.0 ** (15 - min(4, s // 600)), id="a few halvings"),
        pytest.param(lambda s: float("nan"), id="no scale"),
    ],
)
def test_a_scale_that_is_well(scale: Line, tmp_path: Path) -> None:
    assert scaled(tmp_path, scale) == []


# ---------------------------------------------------------------- loss spike


def spiking(heights: dict[int, float]) -> Line:
    return lambda s: heights.get(s, 0.5 + 1.5 * 0.99**s + 0.1 * noise(s))


def test_a_spike_that_recovers(tmp_path: Path) -> None:
    jump = spiking({300: 6.0, 301: 45.0, 302: 20.0, 303: 4.0})
    lines = {"loss/loss": jump, "gradient/out/kernel": lambda s: 0.5 * (40 if 299 < s < 303 else 1)}
    (finding,) = loss_spike(run_of(tmp_path, lines, 500))
    assert (finding.rule, finding.tensor, finding.first_step, finding.last_step) == ("loss_spike", "loss", 301, 304)
    assert finding.evidence[0].startswith("at step 301 the loss was 45, ")
    assert finding.evidence[1] == "the gradients were up to 28.1 times what they usually were before"


def test_a_spike_back_to_the_beginning_that_lasts(tmp_path: Path) -> None:
    (finding,) = loss_spike(run_of(tmp_path, {"loss/loss": lambda s: 0.99**s + (2.5 if 450 <= s < 453 else 0)}, 500))
    assert (finding.first_step, finding.last_step) == (450, 453)


def test_spikes_are_counted(tmp_path: Path) -> None:
    line = spiking({200: 50.0, 201: 30.0, 400: 90.0, 401: 80.0})
    (finding,) = loss_spike(run_of(tmp_path, {"loss/loss": line}, 500))
    assert finding.evidence[-1] == "it spiked 2 times, the last one at step 400"
    assert finding.evidence[0].startswith("at step 400 the loss was 90")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(spiking({}), id="calm"),
        pytest.param(spiking({300: 4.0}), id="a small one"),
        pytest.param(lambda s: 0.99**s + (20.0 if s == 450 else 0), id="one hard batch"),
        pytest.param(spiking(dict.fromkeys(range(300, 500), 50.0)), id="it stays there"),
        pytest.param(spiking({498: 50.0}), id="not over yet"),
        pytest.param(spiking({3: 50.0, 4: 60.0}), id="at the beginning"),
        pytest.param(lambda s: 2 * 0.9**s + (2.0 if s % 97 == 96 else 0), id="hard samples of a fitted network"),
        pytest.param(lambda s: 1e-6 * np.exp(3 * noise(s)), id="long tails"),
    ],
)
def test_no_spike(line: Line, tmp_path: Path) -> None:
    assert list(loss_spike(run_of(tmp_path, {"loss/loss": line}, 500))) == []
