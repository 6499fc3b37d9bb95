"""How the weights were drawn: scale over the depth, zeros behind zeros, units that are copies."""

from __future__ import annotations

from pathlib import Path

import pytest
from layers import UNITS, Value, recorded, rules, steady

from tb_nanwatch.diagnose.rules.bad_initialization import bad_initialization
from tb_nanwatch.diagnose.rules.symmetric_weights import symmetric_weights
from tb_nanwatch.diagnose.rules.zero_weights import zero_weights


def flat(step: int) -> float:
    return 1.1 + 0.01 * (step % 3)


def growing(factor: float) -> Value:
    return lambda layer, _: 16.0 * factor**layer


def test_outputs_that_grow(tmp_path: Path) -> None:
    (finding,) = bad_initialization(recorded(tmp_path, 8, output=growing(6.0)))
    assert (finding.tensor, finding.first_step, finding.last_step) == ("d7/output", 0, 0)
    assert finding.evidence[0].startswith(
        "at step 0 the outputs grow 280,419-fold over 8 layers: the typical element is"
    )
    assert finding.evidence[1] == "on average each layer multiplies by 6, where about 1 is right"
    assert finding.remedies[0] == "initializer"


def test_outputs_that_fade(tmp_path: Path) -> None:
    (finding,) = bad_initialization(recorded(tmp_path / "stuck", 8, output=growing(0.1), loss=flat))
    assert "the outputs fade 9.98e6-fold" in finding.evidence[0]
    assert list(bad_initialization(recorded(tmp_path / "learns", 8, output=growing(0.1)))) == []


@pytest.mark.parametrize(
    ("output", "depth", "iterations"),
    [
        pytest.param(growing(0.7), 20, 1, id="Glorot behind relu"),
        pytest.param(growing(20.0), 3, 1, id="too few layers"),
        pytest.param(lambda i, _: 1e9 if i > 3 else 16.0, 8, 1, id="one layer on another scale"),
        pytest.param(lambda i, _: 16.0 * 10.0 ** (i % 2 * 6), 8, 1, id="up and down"),
        pytest.param(growing(6.0), 8, 900, id="trained before"),
    ],
)
def test_outputs_of_one_size(output: Value, depth: int, iterations: int, tmp_path: Path) -> None:
    run = recorded(tmp_path, depth, output=output, loss=flat, iterations=iterations)
    assert rules(bad_initialization(run)) == []


def zero_in(*layers: int) -> Value:
    return lambda layer, _: 0.0 if layer in layers else 0.5


def test_zeros_behind_zeros(tmp_path: Path) -> None:
    run = recorded(tmp_path, gradient=zero_in(0, 1, 2), weight=zero_in(0, 1, 2), mean=steady(0.0), loss=flat)
    (finding,) = zero_weights(run)
    assert finding.evidence[:2] == (
        "every weight of d0/kernel is 0, and so is its gradient at every step",
        "so it is with d1/kernel and d2/kernel",
    )
    assert rules(symmetric_weights(run)) == []  # said once


def test_zeros_that_learn(tmp_path: Path) -> None:
    """A residual branch that begins at zero; a layer that receives nothing; a gate that opens later."""
    branch = recorded(tmp_path / "1", weight=lambda i, s: 0.0 if i == 1 and s == 0 else 0.5)
    detached = recorded(tmp_path / "2", gradient=zero_in(1))
    opens = recorded(tmp_path / "3", gradient=lambda i, s: 0.0 if i == 1 and s < 100 else 0.5, weight=zero_in(1))
    assert [rules(zero_weights(run)) for run in (branch, detached, opens)] == [[], [], []]


def ones(*layers: int) -> dict[str, Value]:
    """Norms and means of matrices of ones among others."""
    return {
        "weight": lambda layer, _: float(UNITS) if layer in layers else 4.0,
        "mean": lambda layer, _: 1.0 if layer in layers else 0.001,
    }


def test_copies(tmp_path: Path) -> None:
    (finding,) = symmetric_weights(recorded(tmp_path, 4, **ones(1, 2)))
    assert (finding.rule, finding.tensor) == ("bad_initialization", "d1/kernel")
    assert finding.evidence[0] == "every weight of d1/kernel began as 1, and every weight of d2/kernel behind it as 1"
    assert finding.evidence[1].startswith("so its 16 units put out the same")


def test_no_copies(tmp_path: Path) -> None:
    one = recorded(tmp_path / "1", 4, **ones(2))
    apart = recorded(tmp_path / "2", 4, **ones(0, 2))
    moved = recorded(tmp_path / "3", 4, **ones(1, 2), update=steady(8.0))  # the update hides what was before
    later = recorded(tmp_path / "4", 4, **ones(1, 2), iterations=300)
    spread = recorded(tmp_path / "5", 4, weight=steady(float(UNITS)), mean=steady(0.8))
    assert [rules(symmetric_weights(run)) for run in (one, apart, moved, later, spread)] == [[]] * 5
