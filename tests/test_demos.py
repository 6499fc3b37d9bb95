"""Each demo shows its own disease, and none once it is cured: trained in a process of its own, judged by the report."""

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
    Disease("bad_initialization", range(1), {"forward"}, {"reader"}),
    Disease("flash", range(25, 26), {"forward"}, {"contrast"}, recovered=True),
]


def report(logdir: Path) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "tb_nanwatch", "report", str(logdir), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert done.returncode in (0, 3, 4), done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    return done.returncode, run


def train(demo: str, logdir: Path, *options: str) -> None:
    command = [sys.executable, str(REPOSITORY / "demo" / f"{demo}.py"), str(logdir), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("disease", DISEASES, ids=lambda d: d.demo)
def test_disease(disease: Disease, tmp_path: Path) -> None:
    train(disease.demo, tmp_path)
    code, run = report(tmp_path)
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


def test_vanishing_is_a_warning_and_no_incident(tmp_path: Path) -> None:
    train("vanishing", tmp_path)
    code, run = report(tmp_path)
    assert (code, run["status"], run["incidents"]) == (3, "warning", [])
    rules = {finding["rule"] for finding in run["findings"]}
    assert "vanishing_gradient" in rules


@pytest.mark.parametrize("demo", [*(d.demo for d in DISEASES), "vanishing"])
def test_cure(demo: str, tmp_path: Path) -> None:
    train(demo, tmp_path, "--cure")
    code, run = report(tmp_path)
    assert (code, run["status"]) == (0, "healthy"), run
    assert run["incidents"] == []


def test_healthy(tmp_path: Path) -> None:
    train("healthy", tmp_path, "--steps", "60")
    code, run = report(tmp_path)
    assert (code, run["status"]) == (0, "healthy"), run
    assert run["steps"] == 60
    assert run["last_finite_step"] == 59


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
