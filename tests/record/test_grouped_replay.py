"""Several steps in a call of fit: the step inside the group is replayed, and the run is left as it would have been."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import data, mlp, only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.read.capsule import load
from tb_nanwatch.record.replay import batch, groups

STEPS, GROUP, SIZE = 22, 5, 8  # the last group is short


def log_loss(y: Any, p: Any) -> Any:
    return tf.reduce_mean(y * tf.math.log(p * p), axis=-1)  # of 0 where y says so


def train(bad: int | None, callbacks: list[Any], **compiled: Any) -> list[bytes]:
    x, y = data(SIZE * STEPS)
    if bad is not None:
        x[SIZE * bad + 3] = 0
    model = mlp(**compiled)
    for layer in model.layers:
        layer.set_weights([layer.get_weights()[0], np.zeros_like(layer.get_weights()[1])])
        layer.bias.trainable = False  # so that an input of 0 stays 0
    model.compile(keras.optimizers.Adam(1e-2), log_loss, **{"jit_compile": False, **compiled})
    model.fit(x, y, batch_size=SIZE, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    return [np.asarray(v).tobytes() for v in [*model.variables, *model.optimizer.variables]]


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
@pytest.mark.parametrize("bad", [0, 13, 21])
def test_the_op_of_the_step(bad: int, jit: bool, tmp_path: Path) -> None:
    watcher = nanwatch.NanWatch(tmp_path, every=10, trial_seconds=0)
    compiled = {"steps_per_execution": GROUP, "jit_compile": jit}
    watched = train(bad, [watcher], **compiled)
    watcher.close()
    assert watched == train(bad, [], **compiled)
    run = only_run(tmp_path)
    incident = run.incidents[0]
    replay = json.loads(incident.replay_json)
    assert incident.first_step == bad
    assert (incident.origin.op_type, incident.origin.precision) == ("Log", "op"), replay
    assert incident.origin.samples == (3,)
    assert incident.origin.source is not None
    assert "of 0 where y says so" in incident.origin.source.code
    assert replay["replayed_steps"] == bad + 1
    full = set(run.series("activation/first/output", "max_abs").steps.tolist())
    assert set(range(bad + 1)) <= full
    opened = load(tmp_path / incident.capsule)
    assert opened.batch is not None
    given, _ = batch.together(opened.capsule.batch, opened.batch.read)[:2]
    fed = data(SIZE * STEPS)[0][SIZE * bad : SIZE * (bad + 1)].tolist()
    assert given.numpy().tolist() == [*fed[:3], [0.0] * 4, *fed[4:]]


def test_batches_stay_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it takes long to keep one of them."""
    keep, kept = tf.raw_ops.Stage, []

    def work(*parts: Any) -> list[Any]:
        kept.append(len(kept))
        if len(kept) == 1:
            np.linalg.svd(np.ones((900, 900)))  # while it lasts, other threads are free
        return list(parts)

    def slowly(values: list[Any], **about: Any) -> Any:
        return keep(values=tf.py_function(work, values, [v.dtype for v in values]), **about)

    monkeypatch.setattr(groups.tf.raw_ops, "Stage", slowly)
    watcher = nanwatch.NanWatch(tmp_path, trial_seconds=0)
    train(0, [watcher], steps_per_execution=GROUP)
    watcher.close()
    incident = only_run(tmp_path).incidents[0]
    assert kept
    assert (incident.first_step, incident.origin.op_type) == (0, "Log"), incident.replay_json


def test_shadows_are_renewed(tmp_path: Path) -> None:
    """An epoch later than the first shadow reaches."""
    bad, steps = 150, 160
    x, y = data(SIZE * steps)
    y[SIZE * bad + 3] = np.nan
    model = mlp(steps_per_execution=7)
    watcher = nanwatch.NanWatch(tmp_path, trial_seconds=0)
    model.fit(x, y, batch_size=SIZE, epochs=1, shuffle=False, verbose=0, callbacks=[watcher])
    watcher.close()
    (incident,) = only_run(tmp_path).incidents
    replay = json.loads(incident.replay_json)
    assert (incident.first_step, incident.origin.precision) == (bad, "op")
    assert 1 < replay["replayed_steps"] <= 64 + 7


def test_a_healthy_fit_stays_the_same(tmp_path: Path) -> None:
    watcher = nanwatch.NanWatch(tmp_path)
    watched = train(None, [watcher], steps_per_execution=GROUP)
    watcher.close()
    assert watched == train(None, [], steps_per_execution=GROUP)
    assert only_run(tmp_path).incidents == ()
    assert only_run(tmp_path).steps == 2 * STEPS
