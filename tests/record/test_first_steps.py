"""Incidents of the first steps, in which optimizers make their variables: replayed from what those held at first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import batches, data, mlp, only_run

import tb_nanwatch as nanwatch

SIZE, STEPS = 8, 6
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(1e-2),
    "momentum": lambda: keras.optimizers.SGD(1e-2, momentum=0.9, nesterov=True),
    "adagrad": lambda: keras.optimizers.Adagrad(1e-2, initial_accumulator_value=0.3),
    "average": lambda: keras.optimizers.Adam(1e-2, use_ema=True),
    "ftrl": lambda: keras.optimizers.Ftrl(1e-2, initial_accumulator_value=0.2),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-2)),
}


def spoiled(step: int) -> tuple[Any, Any]:
    x, y = data(SIZE * STEPS)
    y[SIZE * step + 3] = np.nan
    return x, y


def bits(model: Any) -> list[bytes]:
    return [np.asarray(v).tobytes() for v in [*model.variables, *model.optimizer.variables]]


def check(logdir: Path, step: int, seconds: int) -> dict[str, Any]:
    (incident,) = only_run(logdir).incidents
    replay: dict[str, Any] = json.loads(incident.replay_json)
    assert incident.first_step == step
    assert incident.origin.precision == "op", replay
    assert replay["replayed_steps"] == step + 1
    if seconds:
        outcomes = {t["remedy"]: (t["outcome"], t["control"]) for t in replay["trials"]}
        assert outcomes["clean_input"] == ("finite", "nonfinite"), replay["trials"]
    return replay


@pytest.mark.parametrize(("name", "step"), [*((name, 0) for name in OPTIMIZERS), ("adam", 2)])
def test_a_fit_repeats_from_its_first_step(name: str, step: int, tmp_path: Path) -> None:
    x, y = spoiled(step)

    def fit(*callbacks: Any) -> list[bytes]:
        model = mlp(optimizer=OPTIMIZERS[name]())
        model.fit(x, y, batch_size=SIZE, shuffle=False, verbose=0, callbacks=list(callbacks))
        return bits(model)

    seconds = 10 if name == "adam" else 0
    watcher = nanwatch.NanWatch(tmp_path, every=10, trial_seconds=seconds)
    watched = fit(watcher)
    watcher.close()
    check(tmp_path, step, seconds)
    assert watched == fit()
    run = only_run(tmp_path)  # the steps were repeated to the bit, from the optimizer's first variables on
    assert set(range(step + 1)) <= set(run.series("activation/first/output", "max_abs").steps.tolist())


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "xla"])
def test_a_custom_loop(jit: bool, tmp_path: Path) -> None:
    x, y = spoiled(0)
    model = mlp()

    @tf.function(jit_compile=jit)
    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    with nanwatch.watch(train, tmp_path, model=model, trial_seconds=10) as watched:  # it knows no optimizer
        for batch in batches(x, y, SIZE):
            watched(*map(tf.constant, batch))
    check(tmp_path, 0, 10)


class Momentum(tf.Module):
    """An optimizer of the user's own, which makes its variables when it needs them and starts them at 0.5."""

    def __init__(self) -> None:
        super().__init__()
        self.slots: list[Any] = []

    def apply(self, gradients: Any, variables: Any) -> None:
        if not self.slots:
            with tf.init_scope():
                self.slots = [tf.Variable(tf.fill(v.shape, 0.5)) for v in variables]
        for slot, gradient, v in zip(self.slots, gradients, variables, strict=True):
            slot.assign(0.9 * slot + gradient)
            v.assign_sub(0.01 * slot)


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("way", ["function", "eager"])
def test_an_optimizer_of_the_users_own(way: str, step: int, tmp_path: Path) -> None:
    x, y = spoiled(step)
    model, momentum = mlp(), Momentum()

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        momentum.apply(tape.gradient(loss, model.trainable_variables), [v.value for v in model.trainable_variables])
        return loss

    with nanwatch.watch(
        tf.function(train) if way == "function" else train, tmp_path, model=model, trial_seconds=0
    ) as watched:
        for batch in batches(x, y, SIZE):
            watched(*map(tf.constant, batch))
    check(tmp_path, step, 0)
    run = only_run(tmp_path)
    assert set(range(step + 1)) <= set(run.series("activation/first/output", "max_abs").steps.tolist())


def test_a_model_that_is_built_by_its_first_step(tmp_path: Path) -> None:
    x, y = spoiled(1)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(6, activation="relu", name="first"), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(1e-2)

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    with nanwatch.watch(train, tmp_path, model=model, variables=[tf.Variable(1.0)], trial_seconds=0) as watched:
        for batch in batches(x, y, SIZE):
            watched(*map(tf.constant, batch))
    check(tmp_path, 1, 0)
