"""Saturated and dead layers, and the batch that was unlike the rest: found where they are, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import runs

from tb_nanwatch.diagnose.rules.dead_relu import dead_relu
from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.input_extreme_scale import input_extreme_scale
from tb_nanwatch.diagnose.rules.saturated_activation import saturated_activation
from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import SCALAR_KINDS, FullBlock, RunHeader, TensorInfo
from tb_nanwatch.record.blocks import Rows
from tb_nanwatch.record.writer import RunWriter
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run

BATCH, UNITS, STEPS = 32, 16, 60


@dataclass(frozen=True)
class Output:
    """What a layer puts out, elementwise."""

    mean_square: float
    max_abs: float
    mean: float = 0.0
    zero_share: float = 0.0


TANH = Output(0.97, 1.0, 0.1)  # saturated
SIGMOID = Output(0.499, 1.0, 0.5)  # half of the units at 0, half at 1
CALM = Output(0.3, 0.93, 0.05)
RELU = Output(1.3, 4.2, 0.4, 0.5)
DEAD = Output(0.0, 0.0, 0.0, 1.0)

Outputs = Callable[[str, int], Output]


def recorded(
    logdir: Path,
    outputs: Outputs,
    layer_class: str = "Dense",
    steps: int = STEPS,
    gradient: Callable[[str, int], float] = lambda _, __: 0.1,
    inputs: Callable[[int], Output] = lambda _: CALM,
    loss: Callable[[int], float] = lambda step: 2.0 * 0.99**step,
    ends: str = "",
) -> Run:
    """A run of layers a, b and c, with all statistics at every tenth step."""
    rows = [("input", "x", "", "", (BATCH, UNITS))]
    rows += [("activation", f"{n}/output", n, layer_class, (BATCH, UNITS)) for n in "abc"]
    rows += [(kind, f"{n}/kernel", n, layer_class, (UNITS, UNITS)) for kind in ("gradient", "weight") for n in "abc"]
    plain = runs.network([*rows, ("loss", "loss", "", "", ())])
    infos = tuple(replace(info, activation=ends) if info.kind == "activation" else info for info in plain)
    norms = [info for info in infos if info.kind not in SCALAR_KINDS]

    def output(info: TensorInfo, step: int) -> Output:
        return inputs(step) if info.kind == "input" else outputs(info.layer, step)

    def norm(info: TensorInfo, step: int) -> float:
        if info.kind in ("gradient", "weight"):
            return gradient(info.layer, step) if info.kind == "gradient" else 4.0
        return float(np.sqrt(output(info, step).mean_square * BATCH * UNITS))

    numbers = np.arange(steps)
    writer = RunWriter(logdir, RunHeader(writer_id="w", wall_time=runs.START, every=10))
    writer.declare(infos)
    writer.rows(
        Rows(
            steps=numbers,
            wall_times=runs.START + numbers,
            iterations=numbers,
            norm_ids=np.array([info.id for info in norms]),
            norms=magnitude.encode([[norm(info, int(step)) for info in norms] for step in numbers]),
            scalar_ids=np.array([infos[-1].id]),
            scalars=np.array([[loss(int(step))] for step in numbers], np.float32),
        )
    )
    measured = [info for info in norms if info.kind in ("input", "activation")]
    full = numbers[::10]
    table = [[output(info, int(step)) for info in measured] for step in full]
    plane = {name: np.array([[getattr(o, name) for o in row] for row in table]) for name in Output.__dataclass_fields__}
    half = {name: values.astype(np.float32) for name, values in plane.items()}
    ids = np.array([info.id for info in measured])
    writer.full(FullBlock(full, ids, plane["max_abs"], half["mean"], half["zero_share"], half["mean"] * 0))
    writer.flush()
    writer.close()
    catalog = Catalog(logdir)
    catalog.refresh()
    return catalog.runs()["."]


def names(findings: Iterable[Finding]) -> list[str]:
    return [finding.tensor for finding in findings]


@pytest.mark.parametrize(("output", "function"), [(TANH, "tanh"), (SIGMOID, "sigmoid")])
def test_saturated(output: Output, function: str, tmp_path: Path) -> None:
    run = recorded(tmp_path, lambda layer, _: output if layer == "a" else CALM)
    (finding,) = saturated_activation(run)
    assert (finding.tensor, finding.first_step, finding.last_step) == ("a/output", 0, 59)
    assert f"the outputs of a sit at the ends of {function}" in finding.evidence[0]
    assert finding.remedies[0] == "initializer"


def test_saturated_by_raw_pixels(tmp_path: Path) -> None:
    run = recorded(
        tmp_path, lambda layer, _: CALM if layer == "c" else TANH, inputs=lambda _: Output(2e4, 255.0, 120.0)
    )
    (finding,) = saturated_activation(run)
    assert finding.evidence[1:] == ("so do those of b", "its input reaches 256: it is not scaled to about 1")
    assert finding.remedies[:2] == ("clean_input", "initializer")


def test_a_long_run_is_judged_by_its_beginning_too(tmp_path: Path) -> None:
    def late(layer: str, step: int) -> Output:
        return TANH if layer == "a" and step >= 400 else CALM

    assert names(saturated_activation(recorded(tmp_path / "late", late, steps=1000))) == []
    always = recorded(tmp_path / "always", lambda layer, _: TANH if layer == "a" else CALM, steps=1000)
    assert names(saturated_activation(always)) == ["a/output"]


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(CALM, id="tanh at work"),
        pytest.param(RELU, id="relu"),
        pytest.param(DEAD, id="dead"),
        pytest.param(Output(1.0, 3.1, 0.0), id="normalized: mean square 1, but beyond 1"),
        pytest.param(Output(1 / UNITS, 1.0, 1 / UNITS, 0.2), id="a gate that softmax makes"),
        pytest.param(Output(0.85, 1.0), id="tanh that works hard"),
        pytest.param(Output(0.4, 1.0, 0.5), id="sigmoid that works hard"),
        pytest.param(Output(1e-8, 1e-3, 1e-5, 0.9), id="sparse and small"),
    ],
)
def test_not_saturated(output: Output, tmp_path: Path) -> None:
    assert names(saturated_activation(recorded(tmp_path, lambda _, __: output))) == []


def test_saturated_for_a_reason(tmp_path: Path) -> None:
    """The last layer of a sure classifier; a user's own layer that makes signs; a run too short to tell."""
    assert names(saturated_activation(recorded(tmp_path / "1", lambda n, _: SIGMOID if n == "c" else CALM))) == []
    assert names(saturated_activation(recorded(tmp_path / "2", lambda _, __: TANH, layer_class="Binarize"))) == []
    assert names(saturated_activation(recorded(tmp_path / "3", lambda _, __: TANH, steps=15))) == []


def dead(layer: str, step: int, since: int = 20) -> float:
    return 0.0 if layer == "b" and step >= since else 0.1


def test_dead(tmp_path: Path) -> None:
    run = recorded(tmp_path, lambda n, s: DEAD if n == "b" and s >= 20 else RELU, gradient=dead)
    (finding,) = dead_relu(run)
    assert (finding.rule, finding.tensor, finding.first_step, finding.last_step) == ("dead_relu", "b/output", 20, 59)
    assert finding.remedies[0] == "use_activation_or_normalization"


def test_dead_for_good_after_it_woke(tmp_path: Path) -> None:
    """Full statistics know two of the dead steps, the norms all of them."""

    def woken(step: int) -> bool:
        return step < 3 or 14 <= step < 17

    run = recorded(
        tmp_path,
        lambda n, s: DEAD if n == "b" and not woken(s) else RELU,
        gradient=lambda n, s: 0.0 if n == "b" and not woken(s) else 0.1,
        steps=40,
    )
    (finding,) = dead_relu(run)
    assert (finding.tensor, finding.first_step, finding.last_step) == ("b/output", 17, 39)


def test_as_good_as_dead(tmp_path: Path) -> None:
    """A few outputs of a large layer are not 0: the shares say so, at the full steps."""
    nearly = Output(1e-9, 1e-3, 0.0, 0.9995)
    run = recorded(tmp_path, lambda n, s: nearly if n == "b" and s >= 20 else RELU, gradient=dead)
    (finding,) = dead_relu(run)
    assert (finding.tensor, finding.first_step) == ("b/output", 20)


def test_dead_in_a_long_run(tmp_path: Path) -> None:
    run = recorded(tmp_path, lambda n, _: DEAD if n == "b" else RELU, gradient=lambda n, s: dead(n, s, 0), steps=900)
    (finding,) = dead_relu(run)
    assert (finding.first_step, finding.last_step) == (0, 899)


@pytest.mark.parametrize(
    ("output", "gradient"),
    [
        pytest.param(lambda _, __: RELU, lambda _, __: 0.1, id="alive"),
        pytest.param(lambda _, __: Output(0.1, 2.0, 0.1, 0.9), lambda _, __: 0.1, id="nine of ten zeros"),
        pytest.param(lambda _, __: DEAD, lambda _, __: 0.1, id="a branch that starts at zero and learns"),
        pytest.param(lambda _, s: DEAD if s < 40 else RELU, lambda _, s: 0.1 * (s >= 40), id="woken"),
        pytest.param(lambda _, s: DEAD if s % 20 else RELU, lambda _, __: 0.0, id="now and then"),
        pytest.param(lambda _, s: DEAD if s >= 50 else RELU, lambda _, s: 0.1 * (s < 50), id="for a moment"),
    ],
)
def test_not_dead(output: Outputs, gradient: Callable[[str, int], float], tmp_path: Path) -> None:
    assert names(dead_relu(recorded(tmp_path, output, gradient=gradient))) == []


def outlier(step: int) -> Output:
    return Output(1e6, 3e4, 10.0) if step == 40 else CALM


def spike(step: int) -> float:
    return 500.0 if step == 40 else 1.0


def test_an_outlier_that_was_survived(tmp_path: Path) -> None:
    (finding,) = input_extreme_scale(recorded(tmp_path, lambda _, __: CALM, inputs=outlier, loss=spike))
    assert (finding.tensor, finding.first_step, finding.last_step) == ("x", 40, 40)
    assert "at step 40 the input x was" in finding.evidence[0]
    assert finding.remedies[0] == "clean_input"


def test_no_outlier(tmp_path: Path) -> None:
    """A batch that did no harm; a loss that jumped alone; data that is large all along."""
    harmless = recorded(tmp_path / "1", lambda _, __: CALM, inputs=outlier)
    jumped = recorded(tmp_path / "2", lambda _, __: CALM, loss=spike)
    large = recorded(tmp_path / "3", lambda _, __: CALM, inputs=lambda _: Output(1e14, 5e7, 1e7), loss=spike)
    assert [names(input_extreme_scale(run)) for run in (harmless, jumped, large)] == [[], [], []]


def test_data_that_changes_its_scale(tmp_path: Path) -> None:
    """Measured by the first batches, however many of the later ones are so."""

    def shifted(step: int) -> Output:
        return Output(1e6, 3e4, 10.0) if step >= 20 else CALM

    run = recorded(tmp_path, lambda _, __: CALM, inputs=shifted, loss=lambda s: 500.0 if s >= 20 else 1.0, steps=200)
    (finding,) = input_extreme_scale(run)
    assert (finding.tensor, finding.first_step, finding.last_step) == ("x", 20, 199)
    assert finding.evidence[0].startswith("from step 20 on most batches of the input x are on another scale: 1,8")
    assert finding.evidence[1] == "the loss of step 20 was 500 times that of the steps before"


@pytest.mark.parametrize("activation", ["relu", "gelu", ""])
def test_dead_by_its_function(activation: str, tmp_path: Path) -> None:
    run = recorded(
        tmp_path, lambda n, _: DEAD if n == "b" else RELU, gradient=lambda n, s: dead(n, s, 0), ends=activation
    )
    assert (names(dead_relu(run)), names(saturated_activation(run))) == (["b/output"], [])


def test_a_sigmoid_at_zero_is_saturated(tmp_path: Path) -> None:
    run = recorded(
        tmp_path, lambda n, _: DEAD if n == "b" else CALM, gradient=lambda n, s: dead(n, s, 0), ends="sigmoid"
    )
    assert names(dead_relu(run)) == []
    (finding,) = saturated_activation(run)
    assert (finding.rule, finding.tensor) == ("saturated_activation", "b/output")
    assert (
        finding.evidence[0]
        == "every output of b is exactly 0, the lower end of sigmoid: no gradient reaches its weights"
    )


@pytest.mark.parametrize("activation", ["linear", "tanh", "elu", "softmax"])
def test_zeros_of_other_functions(activation: str, tmp_path: Path) -> None:
    run = recorded(
        tmp_path, lambda n, _: DEAD if n == "b" else CALM, gradient=lambda n, s: dead(n, s, 0), ends=activation
    )
    assert (names(dead_relu(run)), names(saturated_activation(run))) == ([], [])


def test_the_known_function_counts(tmp_path: Path) -> None:
    """What looks like a saturated tanh may be signs, or a sigmoid that is never 0; what is known needs no class."""
    outputs = lambda n, _: TANH if n == "a" else CALM  # noqa: E731
    found = [
        names(saturated_activation(recorded(tmp_path / e, outputs, ends=e))) for e in ("linear", "sigmoid", "relu")
    ]
    assert found == [[], [], []]
    known = recorded(tmp_path / "t", outputs, layer_class="Mine", ends="tanh")
    assert names(saturated_activation(known)) == ["a/output"]
