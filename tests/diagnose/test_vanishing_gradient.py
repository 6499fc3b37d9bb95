from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import runs

from tb_nanwatch.diagnose.rules.finding import Finding
from tb_nanwatch.diagnose.rules.vanishing_gradient import vanishing_gradient
from tb_nanwatch.format.records import TensorInfo
from tb_nanwatch.store.catalog import Catalog

DEPTH = 12
Gradient = Callable[[int, int], float]


def deep(depth: int) -> tuple[TensorInfo, ...]:
    rows = [(kind, f"d{i}/kernel", f"d{i}", "Dense", (8, 8)) for kind in ("gradient", "weight") for i in range(depth)]
    return runs.network([*rows, ("loss", "loss", "", "", ())])


def findings(logdir: Path, gradient: Gradient, depth: int = DEPTH, steps: int = 60) -> list[Finding]:
    """Of a network of `depth` layers where layer i at step s receives a gradient of norm gradient(i, s)."""

    def values(info: TensorInfo, step: int) -> float:
        return gradient(int(info.layer[1:]), step) if info.kind == "gradient" else 1.0

    runs.write(logdir, values, range(steps), deep(depth))
    catalog = Catalog(logdir)
    catalog.refresh()
    return list(vanishing_gradient(catalog.runs()["."]))


def sigmoid(layer: int, _: int) -> float:
    return 2e-2 * 0.25 ** (DEPTH - 1 - layer)


def test_a_stack_of_sigmoids(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, sigmoid)
    assert (finding.rule, finding.severity, finding.tensor) == ("vanishing_gradient", "warning", "d0/kernel")
    assert (finding.first_step, finding.last_step) == (0, 59)
    assert finding.evidence[0].startswith("the gradient of d0/kernel is 2.38e-7 times that of d11/kernel")
    assert finding.remedies[0] == "use_activation_or_normalization"


def test_a_long_run_is_judged_as_a_short_one(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, sigmoid, steps=3000)
    assert (finding.first_step, finding.last_step) == (0, 2999)


def test_it_is_found_from_where_it_begins(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, lambda i, s: sigmoid(i, s) if s >= 40 else 0.02, steps=120)
    assert 36 <= finding.first_step <= 44


def test_layers_that_receive_nothing_are_left_out(tmp_path: Path) -> None:
    """An underflow to zero in the first layers: the first that still receives something is named."""
    (finding,) = findings(tmp_path, lambda i, s: 0.0 if i < 2 else sigmoid(i, s))
    assert finding.tensor == "d2/kernel"


@pytest.mark.parametrize(
    "gradient",
    [
        pytest.param(lambda i, s: 0.02, id="even"),
        pytest.param(lambda i, s: 0.02 * 0.6 ** (DEPTH - 1 - i), id="mild decline"),
        pytest.param(lambda i, s: 20.0 * 0.25 ** (DEPTH - 1 - i) * 1e3, id="declines but still moves the layer"),
        pytest.param(lambda i, s: 1e-9, id="converged: all layers alike"),
        pytest.param(lambda i, s: 1e-9 if i == 0 else 0.02, id="one small layer"),
        pytest.param(lambda i, s: 1e-9 if i % 3 == 0 else 0.02, id="small layers here and there"),
        pytest.param(lambda i, s: sigmoid(i, s) if s < 30 else 0.02, id="a plateau at the beginning"),
        pytest.param(lambda i, s: sigmoid(i, s) if s % 3 else 0.02, id="now and then"),
        pytest.param(lambda i, s: 0.0, id="no gradient at all"),
        pytest.param(lambda i, s: sigmoid(DEPTH - 1 - i, s), id="exploding backwards"),
    ],
)
def test_no_false_alarm(gradient: Gradient, tmp_path: Path) -> None:
    assert findings(tmp_path, gradient) == []


def test_short_runs_and_shallow_networks_are_not_judged(tmp_path: Path) -> None:
    assert findings(tmp_path / "short", sigmoid, steps=15) == []
    assert findings(tmp_path / "shallow", lambda i, s: 1e-5 ** (3 - i), depth=3) == []
