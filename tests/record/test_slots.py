"""An optimizer's slot that is lost before the weights: the replay names it, its step, and the op that made it so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from recorded import mlp, only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.diagnose import examine

SIZE, STEPS, SEEN = 8, 14, 8


def train(folder: Path, optimizer: Any, at: int, scale: float, **options: Any) -> tuple[dict[str, Any], Any]:
    """(the report's first incident, its record). The gradients of step `at` are multiplied by `scale`."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(SIZE * STEPS, 4)).astype(np.float32)
    y = rng.normal(size=(SIZE * STEPS, 1)).astype(np.float32)
    model = mlp(optimizer=optimizer)

    @tf.function
    def step(x: Any, y: Any, scale: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply([g * scale for g in gradients], model.trainable_variables)
        return loss

    with nanwatch.watch(step, folder, model=model, optimizer=model.optimizer, **options) as watched:
        for n in range(STEPS):
            rows = slice(n * SIZE, (n + 1) * SIZE)
            watched(tf.constant(x[rows]), tf.constant(y[rows]), tf.constant(scale if n == at else 1.0))
    run = only_run(folder)
    report: dict[str, Any] = examine(run).entry["incidents"][0]
    return report, run.incidents[0]


def test_a_second_moment_that_overflows_a_step_before_the_weights(tmp_path: Path) -> None:
    report, incident = train(tmp_path, keras.optimizers.Adam(1e-2), SEEN - 1, 1e25)
    assert report["first_step"] == SEEN
    slot = report["replay"]["slot"]
    assert slot["name"] == "Adam's second moment of first/kernel"
    assert (slot["step"], slot["nan"]) == (SEEN - 1, False)
    origin = report["origin"]
    assert (origin["phase"], origin["op_type"], origin["precision"]) == ("update", "Square", "op")
    assert "model.optimizer.apply(" in origin["source"]["code"]
    assert 1e20 < max(abs(origin["inputs"][0][end]) for end in ("min", "max")) < 3e38
    assert report["cause"]["name"] == "growth_overflow"
    assert {r["name"] for r in report["remedies"]} >= {"clip_gradients", "lower_learning_rate"}
    outcomes = {(t["remedy"], t["note"]): t["outcome"] for t in json.loads(incident.replay_json)["trials"]}
    assert outcomes["clip_gradients", "global_clipnorm=1"] == "finite"


def test_the_report_tells_it_in_a_sentence(tmp_path: Path) -> None:
    train(tmp_path, keras.optimizers.Adam(1e-2), SEEN - 1, 1e25, trial_seconds=0)
    told = " ".join(examine(only_run(tmp_path)).verdict.paragraphs)
    assert f"At step {SEEN - 1}, in the optimizer's update, `Square`" in told
    assert (
        f"Adam's second moment of first/kernel overflowed at step {SEEN - 1}; the weights followed at step {SEEN}, "
        "when they were changed by it."
    ) in told


def test_a_slot_of_an_earlier_time_than_the_kept_steps(tmp_path: Path) -> None:
    model = mlp(optimizer=keras.optimizers.Adam(1e-2))
    model.optimizer.build(model.trainable_variables)
    x, y = tf.ones((SIZE, 4)), tf.ones((SIZE, 1))
    model.optimizer._velocities[2].assign(tf.fill(model.optimizer._velocities[2].shape, np.inf))

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    with nanwatch.watch(step, tmp_path, model=model, optimizer=model.optimizer, trial_seconds=0) as watched:
        for _ in range(3):
            watched(x, y)
    (incident,) = examine(only_run(tmp_path)).entry["incidents"]
    slot = incident["replay"]["slot"]
    assert incident["origin"]["op_type"] == "AssignAddVariableOp"
    assert [i["name"] for i in incident["origin"]["inputs"]][-1] == slot["name"]
    assert slot == {"name": "Adam's second moment of second/kernel", "step": None, "oldest": 0, "nan": False}
