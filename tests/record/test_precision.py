"""Half precision in its four forms: what is recorded in which type, the loss scale as a series, and which overflows are
incidents."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import batches, data, incidents, norm, only_run, values

import tb_nanwatch as nanwatch

Watcher = functools.partial(nanwatch.NanWatch, trial_seconds=0)
HOW = {"uncompiled": {}, "eager": {"run_eagerly": True}, "xla": {"jit_compile": True}}


def network(policy: str, optimizer: Any, **compiled: Any) -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((4,), dtype="float16" if policy == "float16" else None),
            keras.layers.Dense(8, activation="tanh", name="hidden", dtype=policy),
            keras.layers.Dense(1, name="out", dtype=policy),
        ]
    )
    model.compile(optimizer, "mse", **{"jit_compile": False, **compiled})
    return model


class Scales(keras.callbacks.Callback):
    """The loss scale behind every batch, as the optimizer itself has it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(float(self.model.optimizer.dynamic_scale))


@pytest.mark.parametrize("how", HOW)
def test_dynamic_loss_scaling(how: str, tmp_path: Path) -> None:
    """The scale at every step from the first; gradients without it; steps that it skips are no incident."""
    x, y = data(160)
    optimizer = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.0), initial_scale=2.0**22, dynamic_growth_steps=4
    )
    model = network("mixed_float16", optimizer, **HOW[how])
    scales = Scales()
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[Watcher(tmp_path, every=1), scales])
    run = only_run(tmp_path)
    assert run.steps == 20
    assert values(run, "scalar/loss_scale", "value") == dict(enumerate(scales.seen))
    assert scales.seen[0] == 2.0**21  # the first step overflowed,
    assert max(np.diff(scales.seen)) > 0  # and in the end the scale grew again
    assert run.incidents == ()
    twin = network("float32", "sgd")
    twin.set_weights(model.get_weights())
    recorded = {n: v for n, v in values(run, "gradient/out/kernel").items() if np.isfinite(v)}
    assert recorded
    for step, value in recorded.items():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((twin(x[8 * step : 8 * step + 8]) - y[8 * step : 8 * step + 8]) ** 2)
        assert value == pytest.approx(norm(tape.gradient(loss, twin.trainable_variables)[2]), rel=0.03)
    skipped = [n for n in range(20) if scales.seen[n] < ([2.0**22, *scales.seen])[n]]
    assert skipped
    if how != "xla":  # there norms rotate
        assert set(range(20)) - set(recorded) <= set(skipped)


def test_an_activation_beyond_float16_is_an_incident_behind_a_loss_scale(tmp_path: Path) -> None:
    x, y = data(80)
    x[53] = 6e4
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-3), initial_scale=2.0**10)
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(8, activation="relu", name="hidden", dtype="mixed_float16", kernel_initializer="ones"),
            keras.layers.Dense(1, name="out", dtype="mixed_float16"),
        ]
    )
    model.compile(optimizer, "mse", jit_compile=False)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[Watcher(tmp_path)])
    run = only_run(tmp_path)
    assert [(i[0], i[1]) for i in incidents(run)] == [(6, "forward")]
    assert run.incidents[0].origin.layer == "hidden"
    assert run.incidents[0].origin.samples == (5,)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16", "bfloat16"])
def test_without_a_loss_scale(policy: str, tmp_path: Path) -> None:
    """Types are those of the policy, norms those of the tensors; the first number beyond the type is an incident."""
    x, y = data(80)
    model = network(policy, keras.optimizers.SGD(1e-3))
    before = norm(model.weights[2])
    y[53] = 3e38 if "bfloat16" in policy else 1e6  # its square is beyond float32, or its gradient beyond float16
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[Watcher(tmp_path, every=1)])
    run = only_run(tmp_path)
    weight = policy.removeprefix("mixed_") if "mixed" not in policy else "float32"
    assert {i.dtype for i in run.kind("weight")} == {weight}
    assert {i.dtype for i in run.kind("activation")} == {policy.removeprefix("mixed_")}
    first = run.incidents[0]
    assert first.first_step == 6
    assert first.origin.phase == ("loss" if "bfloat16" in policy else "backward")
    assert first.origin.samples == (5,)
    assert values(run, "weight/out/kernel")[0] == pytest.approx(before, rel=0.02)
    assert (
        "scalar/loss_scale" not in {i.tag for i in run.tensors}
        or np.isnan(list(values(run, "scalar/loss_scale", "value").values())).all()
    )


@pytest.mark.parametrize("style", ["eager", "function"])
def test_a_fixed_scale_by_hand(style: str, tmp_path: Path) -> None:
    """The tape's gradients carry the scale, what is applied does not: both are recorded. The scale is a tap."""
    w = tf.Variable(np.ones((4, 1), np.float32), name="w")
    optimizer, scale = keras.optimizers.SGD(0.1), 1024.0
    optimizer.build([w])

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            half = tf.cast(w, tf.float16)
            loss = tf.reduce_mean((tf.cast(x, tf.float16) @ half - tf.cast(y, tf.float16)) ** 2)
            scaled = tf.cast(loss, tf.float32) * nanwatch.tap("scale", tf.constant(scale))
        gradient = tape.gradient(scaled, w)
        optimizer.apply([gradient / scale], [w])
        return loss

    x, y = data(64, bad=43)
    here, expected = np.ones((4, 1)), []
    with nanwatch.watch(
        train if style == "eager" else tf.function(train),
        tmp_path,
        variables=[w],
        optimizer=optimizer,
        every=1,
        trial_seconds=0,
    ) as step:
        for a, b in batches(x, y):
            step(tf.constant(a), tf.constant(b))
            gradient = 2 * a.T @ (a @ here - b) / len(a)
            here = here - 0.1 * gradient
            expected.append((norm(gradient), norm(here)))
    run = only_run(tmp_path)
    scaled, applied, weight = (values(run, f"{kind}/w") for kind in ("gradient", "applied", "weight"))
    for n in range(5):
        assert scaled[n] == pytest.approx(scale * expected[n][0], rel=0.02)
        assert applied[n] == pytest.approx(expected[n][0], rel=0.02)
        assert weight[n] == pytest.approx(expected[n][1], rel=0.02)
    assert values(run, "activation/scale") == pytest.approx(dict.fromkeys(range(8), scale), rel=6e-3)
    assert incidents(run)[0] == (5, "input", "x")
