"""Real trainings that grow, fall and spike: what the console says while they run, and the report of what is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.diagnose.rules.falling_loss_scale import falling_loss_scale
from tb_nanwatch.diagnose.rules.forecast import forecast
from tb_nanwatch.diagnose.rules.growth import growth
from tb_nanwatch.diagnose.rules.loss_spike import loss_spike
from tb_nanwatch.diagnose.rules.small_headroom import small_headroom

LEAD = 10  # steps before the overflow


def regression(rate: float, dtype: str = "float32") -> tuple[Any, Any]:
    """A linear regression by gradient descent, and its step: too high a rate and the error grows at every step."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((16,), dtype=dtype), keras.layers.Dense(1, dtype=dtype, name="line")])
    optimizer = keras.optimizers.SGD(rate)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return model, (step, optimizer)


def batches(steps: int, dtype: str = "float32") -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(steps, 8, 16))
    y = x @ rng.normal(size=(16, 1))
    return [(tf.constant(a, dtype), tf.constant(b, dtype)) for a, b in zip(x, y, strict=True)]


def rnn(factor: float) -> tuple[Any, Callable[[Any, Any], Any]]:
    """A float16 network of the kind that runs away: its recurrent weights gain a little at every step."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    cell = keras.layers.SimpleRNN(8, activation=None, dtype="float16", name="rnn")
    model = keras.Sequential([keras.Input((6, 4), dtype="float16"), cell])

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.cast(model(x), tf.float32) ** 2)
        tape.gradient(loss, model.trainable_variables)
        for variable in model.trainable_variables:
            variable.assign(variable * factor)
        return loss

    return model, step


@pytest.mark.parametrize(
    ("rate", "dtype", "jit"),
    [
        pytest.param(0.5, "float32", False, id="slowly"),
        pytest.param(1.5, "float32", False, id="thirtyfold at every step"),
        pytest.param(0.5, "float32", True, id="compiled"),
        pytest.param(0.27, "float16", False, id="float16"),
    ],
)
def test_the_console_warns_in_time_and_once(
    rate: float, dtype: str, jit: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, (step, optimizer) = regression(rate, dtype)
    warned, said = None, ""
    function, same = tf.function(step, jit_compile=jit), batches(1, dtype)[0]
    with nanwatch.watch(function, tmp_path, model=model, optimizer=optimizer, replay=False) as watched:
        for number, (x, y) in enumerate(batches(220, dtype)):
            watched(*(same if dtype == "float16" else (x, y)))  # it has too few octaves for the noise of batches
            out = capsys.readouterr().out
            if "reaches the" in out or "reach the" in out:
                assert warned is None, "warned twice"
                warned, said = number, out
                watched._recorder.flush()
                (finding,) = forecast(only_run(tmp_path))
    run = only_run(tmp_path)
    assert warned is not None
    first_bad = run.incidents[0].first_step
    assert warned <= first_bad - LEAD
    foreseen = int(said.rpartition("near step ")[2].replace(",", ""))
    assert warned + (first_bad - warned) / 2 <= foreseen <= warned + 2 * (first_bad - warned)
    # The report, at the step of the warning, says the same of the same tensor.
    assert finding.evidence[0].partition(" in about ")[2] == said.strip().partition(" in about ")[2]
    assert finding.last_step == warned
    notes = [note for note in run.notes if note.kind == "forecast"]
    assert [note.text for note in notes] == [said.strip().removeprefix("tb_nanwatch: ")]
    assert list(forecast(run)) == []  # now there is an incident


def test_a_float16_rnn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, step = rnn(1.06)
    x = tf.constant(np.random.default_rng(0).normal(size=(8, 6, 4)), tf.float16)
    with nanwatch.watch(tf.function(step), tmp_path, model=model, replay=False) as watched:
        for _ in range(120):
            watched(x, x)
    run = only_run(tmp_path)
    (note,) = [note for note in run.notes if note.kind == "forecast"]
    assert "the float16 maximum (65,504) in about" in note.text
    assert note.text in capsys.readouterr().out
    assert note.step <= run.incidents[0].first_step - LEAD


def test_weights_that_grow_without_end_in_sight(tmp_path: Path) -> None:
    weight = tf.Variable(tf.ones([4, 4]), name="w")

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(x * tf.math.log(tf.reduce_sum(weight)))
        tape.gradient(loss, [weight])
        weight.assign(weight * 1.2)
        return loss

    with nanwatch.watch(step, tmp_path, variables=[weight], replay=False) as watched:
        for _ in range(80):
            watched(tf.ones([3]))
    (finding,) = growth(only_run(tmp_path))
    assert finding.tensor == "w"
    assert "double every 3.8 steps" in finding.evidence[0]  # log(2) / log(1.2)


def test_activations_near_the_end_of_float16(tmp_path: Path) -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)

    def faint(_: Any, outputs: Any) -> Any:
        return 1e-6 * tf.reduce_mean(tf.cast(outputs, tf.float32))

    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8, dtype="mixed_float16", name="wide")])
    model.compile(keras.optimizers.SGD(0.0), faint, jit_compile=False)
    x = np.random.default_rng(0).normal(scale=12_000, size=(800, 16)).astype("float32")
    model.fit(x, np.zeros((800, 8)), batch_size=8, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path, replay=False)])
    (finding,) = small_headroom(only_run(tmp_path))
    assert finding.tensor == "wide/output"


def test_gradients_that_outgrow_every_loss_scale(tmp_path: Path) -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(1, dtype="mixed_float16")])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-6), initial_scale=2.0**12)
    model.compile(optimizer, "mse", jit_compile=False)
    x = np.random.default_rng(0).normal(size=(400 * 8, 16)).astype("float32")
    importance = np.exp2(np.arange(400 * 8) // 8 // 30)  # doubles every 30 steps
    watcher = nanwatch.NanWatch(tmp_path, replay=False)
    model.fit(x, np.ones((len(x), 1)), 8, sample_weight=importance, shuffle=False, verbose=0, callbacks=[watcher])
    (finding,) = falling_loss_scale(only_run(tmp_path))
    assert finding.tensor == "loss_scale"
    assert finding.first_step > 30


def test_a_few_steps_that_were_too_large(tmp_path: Path) -> None:
    model, (step, optimizer) = regression(0.02)
    with nanwatch.watch(tf.function(step), tmp_path, model=model, optimizer=optimizer, replay=False) as watched:
        for number, (x, y) in enumerate(batches(400)):
            if number in (200, 203):
                optimizer.learning_rate = 1.5 if number == 200 else 0.1
            watched(x, y + (0.1 if number % 2 else -0.1))
    (finding,) = loss_spike(only_run(tmp_path))
    assert finding.first_step in range(200, 206)
    assert finding.last_step < 300
