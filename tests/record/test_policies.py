"""on_nonfinite: what happens to a training that becomes non-finite, in Keras fits and in custom loops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import batches, data, descending, mlp, only_run

import tb_nanwatch as nanwatch

# Without the remedies: they take long, and change nothing here.
Watcher = functools.partial(nanwatch.NanWatch, trial_seconds=0)
watch = functools.partial(nanwatch.watch, trial_seconds=0)

BAD = 2  # step
COMPILED = {"uncompiled": {}, "xla": {"jit_compile": True}, "eager": {"run_eagerly": True}}
STYLES: dict[str, Callable[[Any], Any]] = {
    "eager": lambda step: step,
    "function": tf.function,
    "xla": lambda step: tf.function(step, jit_compile=True),
}


def poisoned() -> tuple[Any, Any]:
    return data(bad=8 * BAD + 4)


def fit(model: Any, watcher: Any, **more: Any) -> Any:
    x, y = poisoned()
    return model.fit(x, y, **{"batch_size": 8, "shuffle": False, "verbose": 0, "callbacks": [watcher], **more})


def is_finite(model: Any) -> bool:
    return all(np.isfinite(w).all() for w in model.get_weights())


@pytest.mark.parametrize("how", COMPILED)
def test_record_goes_on(how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = mlp(**COMPILED[how])
    history = fit(model, nanwatch.NanWatch(tmp_path), epochs=2)
    assert len(history.epoch) == 2
    assert not is_finite(model)
    run = only_run(tmp_path)
    assert (run.steps, run.last_step) == (16, 15)
    (incident,) = run.incidents
    assert (incident.first_step, incident.origin.phase, incident.origin.tensor) == (BAD, "input", "x")
    assert (incident.last_step, incident.recovered, incident.action) == (None, False, "record")
    assert incident.last_finite_step == BAD - 1
    assert run.last_finite_step == BAD - 1
    assert incident.origin.output.nan == 4
    reached = {s.kind for s in incident.spread}
    assert {"input", "gradient", "weight"} <= reached
    said = capsys.readouterr().out
    pause = f"step {BAD} is not finite; replaying {BAD + 1} steps and trying remedies, for up to 60 s ..."
    assert said.count(f"tb_nanwatch: {pause}\ntb_nanwatch: step {BAD} is not finite: first in the input x") == 1
    assert said.count("is not finite") == 2


@pytest.mark.parametrize(("options", "told"), [({"replay": False}, 0), ({"trial_seconds": 0}, 1)])
def test_a_pause_is_announced_where_there_is_one(
    options: dict[str, Any], told: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(mlp(steps_per_execution=2), nanwatch.NanWatch(tmp_path, **options))
    said = capsys.readouterr().out
    assert said.count(f"tb_nanwatch: step {BAD} is not finite; replaying {BAD + 1} steps ...\n") == told
    assert said.count("is not finite") == told + 1


@pytest.mark.parametrize("how", COMPILED)
def test_stop_ends_a_fit_after_that_batch(how: str, tmp_path: Path) -> None:
    model = mlp(**COMPILED[how])
    watcher = Watcher(tmp_path, on_nonfinite="stop")
    history = fit(model, watcher, epochs=5)
    assert len(history.epoch) == 1
    assert only_run(tmp_path).steps == BAD + 1
    healthy = mlp(**COMPILED[how])
    model.set_weights(healthy.get_weights())
    model.compile("sgd", "mse", **{"jit_compile": False, **COMPILED[how]})
    x, y = data()
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=[watcher])
    assert len(history.epoch) == 2  # a healthy fit is not stopped by what was before
    assert only_run(tmp_path).steps == BAD + 1 + 16


def test_stop_ends_after_the_group_of_steps(tmp_path: Path) -> None:
    fit(mlp(steps_per_execution=4), Watcher(tmp_path, on_nonfinite="stop"), epochs=5)
    run = only_run(tmp_path)
    assert run.steps == 4
    assert [i.first_step for i in run.incidents] == [BAD]


@pytest.mark.parametrize("how", COMPILED)
def test_raise_leaves_fit_with_the_incident(how: str, tmp_path: Path) -> None:
    model = mlp(**COMPILED[how])
    watcher = Watcher(tmp_path, on_nonfinite="raise")
    with pytest.raises(nanwatch.NonFiniteError, match=f"step {BAD} is not finite.* x .*phase input") as raised:
        fit(model, watcher, epochs=5)
    assert isinstance(raised.value, FloatingPointError)
    assert raised.value.incident["first_step"] == BAD
    assert raised.value.incident["origin"]["phase"] == "input"
    assert "train_step" not in model.__dict__
    run = only_run(tmp_path)
    assert run.steps == BAD + 1
    assert run.ended
    assert [i.first_step for i in run.incidents] == [BAD]
    model.set_weights(mlp().get_weights())
    model.compile("sgd", "mse", **{"jit_compile": False, **COMPILED[how]})
    x, y = data()
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[watcher])  # the same callback watches again
    assert only_run(tmp_path).steps == BAD + 1 + 8


@pytest.mark.parametrize("how", COMPILED)
def test_skip_leaves_that_update_out(how: str, tmp_path: Path) -> None:
    x, y = poisoned()
    model = mlp(optimizer=keras.optimizers.SGD(0.1), **COMPILED[how])
    fit(model, Watcher(tmp_path, on_nonfinite="skip"))
    without = mlp(optimizer=keras.optimizers.SGD(0.1), **COMPILED[how])
    kept = [n for n in range(64) if n // 8 != BAD]
    without.fit(x[kept], y[kept], batch_size=8, shuffle=False, verbose=0)
    for a, b in zip(model.get_weights(), without.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    assert int(model.optimizer.iterations) == 7
    run = only_run(tmp_path)
    assert run.steps == 8
    assert [(i.first_step, i.action) for i in run.incidents] == [(BAD, "skip")]
    assert list(run.series("loss/loss", "value").iterations) == [1, 2, 2, 3, 4, 5, 6, 7]


def test_skip_with_momentum_and_gradient_clipping(tmp_path: Path) -> None:
    optimizer = keras.optimizers.Adam(0.01, global_clipnorm=1.0, use_ema=True)
    model = mlp(optimizer=optimizer)
    fit(model, Watcher(tmp_path, on_nonfinite="skip"), epochs=3)
    assert is_finite(model)
    assert all(np.isfinite(np.asarray(v)).all() for v in optimizer.variables)
    assert [i.first_step for i in only_run(tmp_path).incidents] == [BAD, BAD + 8, BAD + 16] or len(
        only_run(tmp_path).incidents
    ) == 1  # eight steps from one to the next: one incident


def loop(style: str, policy: str, tmp_path: Path) -> tuple[Any, int, Exception | None]:
    """Trains on the poisoned data; the model, how many steps returned, and what was raised."""
    model = mlp(optimizer=keras.optimizers.SGD(0.1))

    train = descending(model)
    x, y = poisoned()
    done = 0
    watched = watch(STYLES[style](train), tmp_path, model=model, optimizer=model.optimizer, on_nonfinite=policy)
    with watched as step:
        try:
            for a, b in batches(x, y):
                step(tf.constant(a), tf.constant(b))
                done += 1
        except nanwatch.NonFiniteError as error:
            return model, done, error
    return model, done, None


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("policy", ["stop", "raise"])
def test_stop_and_raise_raise_in_a_custom_loop(policy: str, style: str, tmp_path: Path) -> None:
    _, done, error = loop(style, policy, tmp_path)
    assert done == BAD
    assert isinstance(error, nanwatch.NonFiniteError)
    assert error.incident["first_step"] == BAD
    run = only_run(tmp_path)
    assert run.steps == BAD + 1
    assert run.ended


@pytest.mark.parametrize("style", STYLES)
def test_record_and_skip_in_a_custom_loop(style: str, tmp_path: Path) -> None:
    model, done, error = loop(style, "record", tmp_path / "record")
    assert (done, error) == (8, None)
    assert not is_finite(model)
    model, done, error = loop(style, "skip", tmp_path / "skip")
    assert (done, error) == (8, None)
    assert is_finite(model)
    for name in ("record", "skip"):
        assert only_run(tmp_path / name).last_step == 7  # a replay does not count
        assert [(i.first_step, i.origin.tensor) for i in only_run(tmp_path / name).incidents] == [(BAD, "x")]


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_weights_that_are_bad_before_the_first_step(bad: float, tmp_path: Path) -> None:
    model = mlp()
    kernel = model.get_layer("second").kernel
    values = kernel.numpy()
    values[0, 0] = bad
    kernel.assign(values)
    x, y = data()
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[Watcher(tmp_path)])
    (incident,) = only_run(tmp_path).incidents
    assert (incident.first_step, incident.origin.phase, incident.origin.tensor) == (0, "weights", "second/kernel")
    assert incident.last_finite_step is None


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_infinities_that_nobody_trains_are_on_purpose(value: float, tmp_path: Path) -> None:
    class Module(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.v = tf.Variable([1.0])
            self.best_loss = tf.Variable(value, trainable=False)

    module = Module()

    @tf.function
    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(module.v * x)
        module.v.assign_sub(0.01 * tape.gradient(loss, module.v))
        return loss

    with watch(train, tmp_path, model=module) as step:
        for _ in range(3):
            step(tf.ones([1]))
    run = only_run(tmp_path)
    assert [i.origin.phase for i in run.incidents] == (["weights"] if np.isnan(value) else [])


def test_a_flash_recovers_after_ten_finite_steps(tmp_path: Path) -> None:
    """A loss that is NaN for one step, while gradients and weights stay finite."""
    v = tf.Variable([1.0, 2.0], name="v")

    @tf.function
    def train(x: Any, bad: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * x)
            shown = loss + tf.stop_gradient(tf.where(bad, np.float32(np.nan), 0.0))
        v.assign_sub(0.01 * tape.gradient(shown, v))
        return shown

    with watch(train, tmp_path, variables=[v]) as step:
        for n in range(40):
            step(tf.ones([2]), tf.constant(n in (5, 9, 20)))
    run = only_run(tmp_path)
    assert [(i.first_step, i.last_step, i.recovered, i.bad_steps) for i in run.incidents] == [
        (5, 9, True, 2),
        (20, 20, True, 1),
    ]
    assert {i.origin.phase for i in run.incidents} == {"loss"}


def test_masks_and_labels_that_do_not_matter(tmp_path: Path) -> None:
    """An activation of -inf on purpose, and NaN in inputs that are weighted away."""
    v = tf.Variable(tf.ones([4]), name="v")

    @tf.function
    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            scores = nanwatch.tap("scores", tf.where(tf.constant([True, True, False, False]), v * x, -np.inf))
            weights = tf.nn.softmax(scores)
            loss = tf.reduce_sum(weights * x) + 0 * tf.reduce_sum(tf.where(tf.math.is_nan(y), 0.0, y))
        v.assign_sub(0.01 * tape.gradient(loss, v))
        return loss

    with watch(train, tmp_path, variables=[v]) as step:
        for _ in range(30):
            step(tf.constant([1.0, 2.0, 3.0, 4.0]), tf.constant([np.nan, 1.0]))
    run = only_run(tmp_path)
    assert run.incidents == ()
    assert run.last_finite_step == 29
    assert run.counts[0]["activation/scores"].neg_inf == 2
    assert run.counts[0]["input/y"].nan == 1


class Scaled(keras.Model):
    """Its loss overflows float16 gradients at first, so that the loss scale is lowered."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1, dtype="mixed_float16", name="dense")
        self.factor = factor

    def call(self, x: Any) -> Any:
        return self.dense(x) * self.factor


@pytest.mark.parametrize("jit", [False, True])
def test_steps_that_loss_scaling_skips_are_no_incident(jit: bool, tmp_path: Path) -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = Scaled(1.0)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-3), initial_scale=2.0**24)
    model.compile(optimizer, "mse", jit_compile=jit)
    x, y = data(256)
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[Watcher(tmp_path)])
    run = only_run(tmp_path)
    scale = run.series("scalar/loss_scale", "value").values
    assert scale[-1] < scale[0]  # there were such steps
    assert run.incidents == ()


@pytest.mark.parametrize("jit", [False, True])
def test_nothing_but_skipped_steps_is_an_incident(jit: bool, tmp_path: Path) -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = Scaled(1.0)
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-3), initial_scale=2.0**126)
    model.compile(optimizer, "mse", jit_compile=jit)
    x, y = data(8 * 70)
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[Watcher(tmp_path)])
    (incident,) = only_run(tmp_path).incidents
    assert incident.first_step == 49
    assert incident.origin.phase == "backward"
