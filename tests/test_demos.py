"""Each demo shows its own disease, and none once it is cured: trained by `demo/run_all.py`, judged by the report."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[1]


@dataclass(frozen=True)
class Disease:
    """What the report must say. Steps are ranges where rounding on another machine may move them."""

    demo: str
    first_step: range
    phases: set[str]
    layers: set[str]
    recovered: bool = False
    causes: set[str] = field(default_factory=set)


DISEASES = [
    Disease(
        "exploding",
        range(15, 60),
        {"loss", "forward"},
        {"", "progression"},
        causes={"growth_overflow", "bad_learning_rate"},
    ),
    Disease("log_of_zero", range(5, 150), {"loss"}, {""}),
    Disease("zero_by_zero", range(60, 61), {"loss"}, {""}),
    Disease("abnormal_row", range(17, 18), {"input"}, {"", "analysis"}, causes={"input_nonfinite"}),
    Disease("bad_initialization", range(1), {"forward"}, {"reader", "reader/simple_rnn_cell"}),
    Disease("flash", range(25, 26), {"forward"}, {"contrast"}, recovered=True),
]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All demos, ill and cured, in one process: TensorFlow starts once, and no watcher may disturb the next."""
    folder = tmp_path_factory.mktemp("logs")
    command = [sys.executable, str(REPOSITORY / "demo" / "run_all.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def report(logdir: Path) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "tb_nanwatch", "report", str(logdir), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode in (0, 3, 4), done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    return done.returncode, run


@pytest.mark.parametrize("disease", DISEASES, ids=lambda d: d.demo)
def test_disease(disease: Disease, logs: Path) -> None:
    code, run = report(logs / disease.demo)
    assert (code, run["status"]) == (4, "incident")
    incident = run["incidents"][0]
    assert incident["first_step"] in disease.first_step
    assert incident["origin"]["phase"] in disease.phases
    assert (incident["origin"]["layer"] or "") in disease.layers
    assert incident["recovered"] is disease.recovered
    assert run["last_finite_step"] == (incident["first_step"] - 1 if incident["first_step"] else None)
    if disease.causes:
        assert incident["cause"]["name"] in disease.causes
    assert run["damage"] == []


def test_vanishing_is_a_warning_and_no_incident(logs: Path) -> None:
    code, run = report(logs / "vanishing")
    assert (code, run["status"], run["incidents"]) == (3, "warning", [])
    rules = {finding["rule"] for finding in run["findings"]}
    assert "vanishing_gradient" in rules


@pytest.mark.parametrize("demo", [*(d.demo for d in DISEASES), "vanishing"])
def test_cure(demo: str, logs: Path) -> None:
    code, run = report(logs / f"{demo}-cured")
    assert (code, run["status"]) == (0, "healthy"), run
    assert run["incidents"] == []


def test_healthy(logs: Path) -> None:
    code, run = report(logs / "healthy")
    assert (code, run["status"], run["findings"]) == (0, "healthy", []), run


def test_a_demo_is_a_program(tmp_path: Path) -> None:
    command = [sys.executable, str(REPOSITORY / "demo" / "healthy.py"), str(tmp_path), "--steps", "12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    _, run = report(tmp_path)
    assert run["steps"] == 12
    assert run["last_finite_step"] == 11


def test_training_again_leaves_what_is_there(logs: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in logs.rglob("*") if path.is_file()}
    command = [sys.executable, str(REPOSITORY / "demo" / "run_all.py"), str(logs)]
    subprocess.run(command, capture_output=True, check=True)
    assert {path: path.stat().st_mtime_ns for path in logs.rglob("*") if path.is_file()} == before


def test_every_demo_is_tested_and_trained() -> None:
    sys.path.insert(0, str(REPOSITORY / "demo"))
    from run_all import DEMOS

    assert {d.demo for d in DISEASES} | {"vanishing", "healthy"} == set(DEMOS)
    programs = {
        p.stem
        for p in (REPOSITORY / "demo").glob("*.py")
        if "NanWatch(" in p.read_text() or "watch(train" in p.read_text()
    }
    assert programs == set(DEMOS)
