"""The steps before an incident at full resolution, whatever `every` was: all tensors, as numpy says they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import ERROR, batches, data, mean_squared, mlp, norm, only_run, sequential_by_hand, values

import tb_nanwatch as nanwatch
from tb_nanwatch.record.replay.memory import EVERY

SIZE, BAD, STEPS = 8, 13, 16
NAMES = ("first", "second", "last")


def bad_batch(step: int = BAD, steps: int = STEPS) -> tuple[Any, Any]:
    """Batches of 8, of which one has a label whose square overflows."""
    x, y = data(SIZE * steps)
    y[SIZE * step + 2] = 3e38
    return x, y


def tags(run: Any, *kinds: str) -> list[str]:
    return [info.tag for kind in kinds for info in run.kind(kind)]


def check(run: Any, by_hand: Any, steps: range, *kinds: str) -> None:
    """Norms, largest magnitudes, means and shares of every tensor of the kinds, at every one of the steps."""
    checked = tags(run, *kinds)
    assert checked
    for tag in checked:
        norms = values(run, tag)
        expected = {step: norm(by_hand[step][tag]) for step in steps}
        assert {s: norms[s] for s in steps} == pytest.approx(expected, rel=ERROR, abs=1e-9), tag
        if tag.startswith("update/"):
            continue
        arrays = {step: by_hand[step][tag].astype(np.float64) for step in steps}
        found = {stat: values(run, tag, stat) for stat in ("max_abs", "mean", "zero_share", "subnormal_share")}
        for step, array in arrays.items():
            largest = float(np.abs(array).max())
            assert found["max_abs"][step] == pytest.approx(largest, rel=ERROR), (tag, step)
            assert found["mean"][step] == pytest.approx(float(array.mean()), rel=2**-8, abs=1e-4 * largest), (tag, step)
            assert found["zero_share"][step] == pytest.approx(float((array == 0).mean()), abs=1e-4), (tag, step)
            assert found["subnormal_share"][step] == 0, (tag, step)


@pytest.mark.parametrize("compiled", ["uncompiled", "xla", "eager"])
def test_a_fit(compiled: str, tmp_path: Path) -> None:
    x, y = bad_batch()
    settings = {"jit_compile": compiled == "xla", "run_eagerly": compiled == "eager"}
    model = mlp(optimizer=keras.optimizers.SGD(1e-2), **settings)
    watcher = nanwatch.NanWatch(tmp_path, every=10, trial_seconds=0)
    model.fit(x, y, batch_size=SIZE, epochs=1, shuffle=False, verbose=0, callbacks=[watcher])
    watcher.close()
    run = only_run(tmp_path)
    assert [i.first_step for i in run.incidents] == [BAD]
    assert run.steps == STEPS
    assert run.parts[-1].closed is not None
    assert run.parts[-1].closed.steps == STEPS  # none was counted twice
    assert run.last_finite_step == BAD - 1
    by_hand = sequential_by_hand(mlp(optimizer=keras.optimizers.SGD(1e-2)), batches(x, y), mean_squared)
    before = range(BAD)
    check(run, by_hand, before, "activation", "gradient", "weight", "update", "input")
    losses = values(run, "loss/loss", "value")
    assert {s: losses[s] for s in before} == pytest.approx(
        {s: float(by_hand[s]["loss/loss"]) for s in before}, rel=1e-5
    )


@pytest.mark.parametrize("way", ["function", "xla", "eager"])
def test_a_custom_loop(way: str, tmp_path: Path) -> None:
    x, y = bad_batch()
    model = mlp(optimizer=keras.optimizers.SGD(1e-2))

    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    step = train if way == "eager" else tf.function(train, jit_compile=way == "xla")
    with nanwatch.watch(step, tmp_path, model=model, optimizer=model.optimizer, every=5, trial_seconds=0) as watched:
        for batch in batches(x, y):
            watched(*map(tf.constant, batch))
    by_hand = sequential_by_hand(mlp(optimizer=keras.optimizers.SGD(1e-2)), batches(x, y), mean_squared)
    check(only_run(tmp_path), by_hand, range(BAD), "activation", "gradient", "weight", "update")


def test_a_cell_tells_them(tmp_path: Path) -> None:
    """What the tab shows of a step between two full ones is of that very step."""
    x, y = bad_batch()
    model = mlp()
    with_every = nanwatch.NanWatch(tmp_path, every=10, trial_seconds=0)
    model.fit(x, y, batch_size=SIZE, epochs=1, shuffle=False, verbose=0, callbacks=[with_every])
    with_every.close()
    run = only_run(tmp_path)
    for tag in tags(run, "activation", "gradient", "weight"):
        cell = run.cell(tag, BAD - 1)
        assert cell.measured_step == BAD - 1
        assert cell.full is not None
        assert cell.full.step == BAD - 1, tag
        assert cell.full.update_ratio is not None or tag.startswith("activation/"), tag


def test_only_as_far_back_as_the_shadow(tmp_path: Path) -> None:
    bad, steps = EVERY + 40, EVERY + 42
    x, y = bad_batch(bad, steps)
    model = mlp(optimizer=keras.optimizers.SGD(1e-2), jit_compile=True)
    watcher = nanwatch.NanWatch(tmp_path, every=10, trial_seconds=0)
    model.fit(x, y, batch_size=SIZE, epochs=1, shuffle=False, verbose=0, callbacks=[watcher])
    watcher.close()
    measured = set(values(only_run(tmp_path), "weight/first/kernel", "max_abs"))
    full = {step for step in range(bad) if step not in measured}
    assert full
    assert max(full) < EVERY + 1
    assert set(range(EVERY + 1, bad)) <= measured


def test_steps_that_do_not_repeat_are_not_written(tmp_path: Path) -> None:
    """A counter outside of TensorFlow makes every call another one."""
    x, y = bad_batch()
    model = mlp(optimizer=keras.optimizers.SGD(1e-2))
    calls: list[int] = []

    def noise() -> Any:
        calls.append(1)
        return np.float32(len(calls))

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            more = tf.ensure_shape(tf.numpy_function(noise, [], tf.float32), [])
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2) + more
        model.optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    with nanwatch.watch(step, tmp_path, model=model, every=5, trial_seconds=0) as watched:
        for batch in batches(x, y):
            watched(*map(tf.constant, batch))
    run = only_run(tmp_path)
    assert run.incidents[0].first_step == BAD
    assert set(values(run, "activation/first/output", "max_abs")) & set(range(BAD)) == {0, 5, 10}
