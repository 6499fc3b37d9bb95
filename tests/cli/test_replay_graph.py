"""Capsules of TF1 graphs: what they hold, and their step run again with the graph as the program builds it now."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tb_nanwatch.cli import exits
from tb_nanwatch.cli.main import main
from tb_nanwatch.read.capsule import load

PROGRAM = """
import numpy as np
import tensorflow as tf
import tb_nanwatch as nanwatch
tf1 = tf.compat.v1


def build():
    x = tf1.placeholder(tf.float32, [None, 2], "x")
    w = tf1.get_variable("w", initializer=np.ones(2, np.float32), use_resource=True)
    b = tf1.get_variable("b", initializer=np.float32(0), use_resource=True)
    loss = tf.reduce_mean(tf.math.log(tf.abs(x * w) + EPSILON)) + b
    return loss, tf1.train.MomentumOptimizer(0.01, 0.9).compute_gradients(loss, [w, b])


def train(logdir):
    with tf1.Graph().as_default():
        loss, pairs = build()
        train_op = tf1.train.MomentumOptimizer(0.01, 0.9).apply_gradients(pairs)
        with tf1.Session() as raw:
            raw.run(tf1.global_variables_initializer())
            session = nanwatch.watch_session(raw, logdir, loss=loss, grads_and_vars=pairs, trial_seconds=0)
            for number in range(5):
                x = np.full((4, 2), 1.0 + number, np.float32)
                if number == 3:
                    x[2, 1] = 0
                session.run(train_op, {"x:0": x})
            session.close()


def build_another():
    x = tf1.placeholder(tf.float32, [None, 2], "z")
    return tf.reduce_mean(x), []


def build_nothing():
    return None
"""
CAPSULE = "graph/plugins/nanwatch/step_3"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    (folder / "graph_as_it_was.py").write_text(f"EPSILON = 0.0\n{PROGRAM}")
    (folder / "graph_edited.py").write_text(f"EPSILON = 1e-6\n{PROGRAM}")
    sys.path.insert(0, str(folder))
    import_module("graph_as_it_was").train(folder / "graph")
    sys.path.remove(str(folder))
    return folder


def test_it_holds_feeds_and_variables(here: Path, capsys: Capture) -> None:
    opened = load(here / CAPSULE)
    assert (opened.capsule.step, opened.capsule.origin.op_type, opened.capsule.origin.samples) == (3, "Log", (2,))
    (first, *_) = opened.capsule.source
    assert "loss = tf.reduce_mean(tf.math.log" in first.lines[first.line - first.first]
    state = {kept.name: kept.watched for kept in opened.capsule.state}
    assert state["w"] is state["b"] is True
    assert state["w/Momentum"] is False
    assert opened.batch is not None
    assert main(["replay", CAPSULE]) == exits.HEALTHY
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("  x:0: float32 4x2") for line in lines), lines
    assert any("random states, which lie in the session's kernels" in line for line in lines)


MONITORED = """
def train_monitored(logdir):
    with tf1.Graph().as_default():
        loss, pairs = build()
        tf1.train.get_or_create_global_step()
        train_op = tf1.train.GradientDescentOptimizer(0.01).apply_gradients(pairs)
        hook = nanwatch.NanWatchHook(logdir, loss=loss, grads_and_vars=pairs)
        with tf1.train.MonitoredTrainingSession(hooks=[hook]) as session:
            session.run(train_op, {"x:0": np.ones((4, 2), np.float32)})
"""


def test_a_program_that_trains_when_imported_records_nothing(here: Path, tmp_path: Path, capsys: Capture) -> None:
    calls = f"train({str(tmp_path / 'a')!r})\ntrain_monitored({str(tmp_path / 'b')!r})\n"
    (here / "graph_unguarded.py").write_text(f"EPSILON = 1e-6\n{PROGRAM}{MONITORED}\n{calls}")
    main(["replay", CAPSULE, "--step", "graph_unguarded:build", "--format", "json"])
    (note,) = json.loads(capsys.readouterr().out)["again"]["notes"]
    assert f"begins a recording in {tmp_path / 'a'}, {tmp_path / 'b'}" in note
    assert list(tmp_path.iterdir()) == []


def test_it_fails_again(here: Path, capsys: Capture) -> None:
    assert main(["replay", CAPSULE, "--step", "graph_as_it_was:build", "--format", "json"]) == exits.INCIDENT
    told = json.loads(capsys.readouterr().out)["again"]
    assert (told["outcome"], told["loss"], told["origin"]["op_type"]) == ("nonfinite", "-Infinity", "Log")
    assert told["origin"]["source"]["file"].endswith("graph_as_it_was.py")
    assert told["put_in"] == 2
    assert told["missing"] == ["w/Momentum", "b/Momentum"]
    assert told["unset"] == []


def test_an_edit_holds(here: Path, capsys: Capture) -> None:
    assert main(["replay", CAPSULE, "--step", "graph_edited:build"]) == exits.HEALTHY
    assert capsys.readouterr().out.startswith("finite now: loss")


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("graph_edited:build_another", "the graph has no tensor x:0, which was fed"),
        ("graph_edited:build_nothing", "has to return (loss, grads_and_vars), not NoneType"),
    ],
)
def test_another_graph(target: str, says: str, here: Path, capsys: Capture) -> None:
    assert main(["replay", CAPSULE, "--step", target]) in (exits.FAILURE, exits.USAGE)
    assert says in capsys.readouterr().err


def test_a_model_is_no_graph(here: Path, capsys: Capture) -> None:
    assert main(["replay", CAPSULE, "--model", "graph_edited:build"]) == exits.USAGE
    assert "name the function that builds it with --step" in capsys.readouterr().err
