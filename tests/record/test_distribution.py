"""MirroredStrategy: the same bits with and without the watcher, the guilty replica, numbers over all replicas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_nanwatch.record.fold import Parts
from tb_nanwatch.stats.measures import MAX_ABS, MEAN, NAN, NORM, SIZE, ZERO, exact_statistics
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run

HERE = Path(__file__).parent
STEPS, BAD_STEP = 16, 9
LOOPS = ["loop", "loop_inner", "loop_in_scope"]
FITS = ["fit", "fit_eager"]


def start(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "TB_NANWATCH_STRICT": "1", "CUDA_VISIBLE_DEVICES": ""}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parents[1]), env.get("PYTHONPATH")]))
    command = [sys.executable, str(HERE / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("mirrored")
    done = start("mirrored.py", str(folder), *LOOPS, *FITS, "loop_skip")
    return folder, json.loads(done.stdout.splitlines()[-1])


def run_of(folder: Path) -> Run:
    catalog = Catalog(folder)
    catalog.refresh()
    return catalog.runs()["."]


@pytest.mark.parametrize("batches", ["finite", "poisoned"])
@pytest.mark.parametrize("style", [*LOOPS, *FITS])
def test_training_is_bit_identical(trained: Any, style: str, batches: str) -> None:
    result = trained[1][f"{style}/{batches}"]
    assert result["plain"] == result["watched"]


@pytest.mark.parametrize("style", [*LOOPS, *FITS])
def test_the_replica_is_named(trained: Any, style: str) -> None:
    run = run_of(trained[0] / style / "poisoned")
    (incident,) = run.incidents
    assert (incident.first_step, incident.origin.phase, incident.origin.replica) == (BAD_STEP, "loss", 1)
    assert (incident.origin.op_type, incident.origin.precision) == ("RealDiv", "op")
    assert not incident.recovered
    assert run.steps == STEPS
    assert {a.attempt for a in run.attempts} == {0}


@pytest.mark.parametrize("style", [*LOOPS, *FITS])
def test_nothing_is_reported_of_a_finite_training(trained: Any, style: str) -> None:
    run = run_of(trained[0] / style / "finite")
    assert run.incidents == ()
    assert run.steps == STEPS
    assert [t.tag for t in run.kind("input")] == ["input/x", "input/y"]
    assert "gradient/hidden/kernel" in {t.tag for t in run.tensors}


def test_numbers_are_those_of_all_replicas(trained: Any) -> None:
    run = run_of(trained[0] / "loop" / "finite")
    numbers = np.array(trained[1]["loop/finite"]["numbers"])
    np.testing.assert_allclose(run.series("loss/loss", "value").values, numbers[:, 0], rtol=1e-6)
    np.testing.assert_allclose(run.series("gradient/hidden/kernel").values, np.sqrt(numbers[:, 1]), rtol=0.006)
    batch = np.random.default_rng(1).normal(size=(16, 6)).astype("float32")
    np.testing.assert_allclose(run.series("input/x").values[0], np.linalg.norm(batch), rtol=0.006)
    assert run.series("input/x", "max_abs").values[0] == pytest.approx(np.abs(batch).max(), rel=0.006)


def test_an_update_is_skipped_in_all_replicas(trained: Any) -> None:
    (incident,) = run_of(trained[0] / "loop_skip" / "poisoned").incidents
    assert incident.recovered
    assert incident.last_step == BAD_STEP
    assert incident.origin.op_type == "RealDiv"
    assert np.isfinite(trained[1]["loop_skip/poisoned"]["numbers"][-1]).all()
    assert trained[1]["loop_skip/finite"]["plain"] == trained[1]["loop_skip/finite"]["watched"]


def test_a_parameter_server_job_is_left_alone(tmp_path: Path) -> None:
    done = start("parameter_server.py", str(tmp_path / "run"))
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["plain"] == result["watched"]
    (warning,) = result["warnings"]
    assert "cannot watch ParameterServerStrategyV2: its workers run steps asynchronously" in warning
    run = run_of(tmp_path / "run")
    assert run.steps == 0
    assert [note.kind for note in run.notes] == ["disabled"]


# ------------------------------------------------------------ numbers put together


def test_parts_of_a_tensor_are_folded_as_if_they_were_one() -> None:
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(10, 7))
    whole[3] = 0
    whole[5, 2] = np.nan
    other = np.full(4, 1e300)
    parts = Parts.of([8, 8, 5, 5], [0, 1, 0, 1])
    folded = parts.statistics(np.stack([exact_statistics(p) for p in (whole[:4], whole[4:], other, other)]))
    expected = exact_statistics(whole)
    assert parts.ids == (8, 5)
    for column in (NORM, MAX_ABS, MEAN, ZERO, NAN, SIZE):
        assert folded[0, column] == pytest.approx(expected[column])
    assert folded[1, NORM] == pytest.approx(1e300 * np.sqrt(8))  # squares of it would overflow


def test_the_culprit_is_the_first_bad_replica_unless_all_are() -> None:
    parts = Parts.of([1, 2, 3, 1, 2, 3, 4], [0, 0, 0, 1, 1, 1, -1])
    numbers = np.array([1.0, np.nan, np.inf, np.inf, np.nan, 2.0, np.nan])
    assert parts.culprits(numbers) == {1: 1, 3: 0, 4: -1}
    assert not parts.whole
    assert Parts.of([1, 2]).whole
    total = parts.total(numbers)
    assert np.isnan(total[1])
    assert np.isinf(total[[0, 2]]).all()
