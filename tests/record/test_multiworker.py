"""Two processes train together under MultiWorkerMirroredStrategy; what they write is one run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run

PROGRAM = Path(__file__).with_name("worker.py")
STEPS, BAD_STEP = 12, 7


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    except OSError as error:
        pytest.skip(f"no ports on the loopback interface: {error}")
    finally:
        for one in sockets:
            one.close()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, str]], list[str]]:
    folder = tmp_path_factory.mktemp("job")
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    root = str(Path(__file__).parents[2])
    workers = []
    for index in range(2):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        env = {**os.environ, "TF_CONFIG": json.dumps(config), "TB_NANWATCH_STRICT": "1", "CUDA_VISIBLE_DEVICES": ""}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [root, env.get("PYTHONPATH")]))
        command = [sys.executable, str(PROGRAM), str(folder)]
        workers.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env))
    try:
        said = [worker.communicate(timeout=240) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, (_, errors) in zip(workers, said, strict=True):
        assert worker.returncode == 0, errors[-4000:]
    return folder, [json.loads(out.splitlines()[-1]) for out, _ in said], [out for out, _ in said]


def run_of(folder: Path) -> Run:
    catalog = Catalog(folder)
    catalog.refresh()
    return catalog.runs()["."]


def test_training_is_bit_identical(job: Any) -> None:
    for results in job[1]:
        assert results["plain"] == results["watched"] == results["again"]


def test_workers_write_one_run(job: Any) -> None:
    files = list((job[0] / "loop").glob("*.nanwatch"))
    run = run_of(job[0] / "loop")
    assert len(files) == 4  # two workers, twice
    assert [(a.attempt, a.first_step, a.last_step, a.ended) for a in run.attempts] == [
        (0, 0, STEPS - 1, True),
        (1, STEPS, 2 * STEPS - 1, True),
    ]
    assert run.steps == 2 * STEPS
    assert not run.damage
    assert not any("seems to be writing" in said for said in job[2])
    assert {note.kind for note in run.notes} == {"continued"}


def test_the_worker_whose_batch_was_bad_is_named(job: Any) -> None:
    run = run_of(job[0] / "loop")
    assert [(i.first_step, i.origin.phase, i.origin.replica) for i in run.incidents] == [
        (BAD_STEP, "loss", 1),
        (STEPS + BAD_STEP, "loss", 1),
    ]


def test_why_nothing_was_replayed_is_told(job: Any) -> None:
    for incident in run_of(job[0] / "loop").incidents:
        assert json.loads(incident.replay_json) == {
            "replay": "not possible",
            "why": "the workers of a job would have to run its steps again together",
        }
