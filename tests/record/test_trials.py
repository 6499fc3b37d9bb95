"""Remedies tried on real trainings: what holds, what does not, and that the run itself never notices."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import recorded
import tensorflow as tf

import tb_nanwatch as nanwatch
from tb_nanwatch.record.replay import draws, plan, trials
from tb_nanwatch.record.replay.draws import Kernel

BATCHES, BAD = 6, 3


def data(spoil: Callable[[Any, Any], None], bad: int = BAD) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(8, 4)).astype(np.float32), np.ones((8, 1), np.float32)) for _ in range(BATCHES)]
    spoil(*batches[bad])
    return batches


def no_row(x: Any, y: Any) -> None:  # the signature of what spoils a batch
    x[5] = 0


def loop(
    loss_of: Callable[[Any, Any], Any], optimizer: Any, **settings: Any
) -> tuple[Any, Any, Callable[[Any, Any], Any]]:
    """A model of one matrix without bias and its compiled step."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, use_bias=False, name="embed")])

    @tf.function(**settings)
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model(x), y)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return model, optimizer, step


def distance(h: Any, y: Any) -> Any:
    return tf.reduce_mean(tf.square(tf.norm(h, axis=-1, keepdims=True) - y))


def tried(logdir: Path) -> list[dict[str, Any]]:
    """The trials of the first incident, in the order in which they ran."""
    incident = recorded.only_run(logdir).incidents[0]
    found: list[dict[str, Any]] = json.loads(incident.replay_json)["trials"]
    return found


def outcomes(logdir: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for trial in tried(logdir):
        found.setdefault(trial["remedy"], []).append(trial["outcome"])
    return found


@pytest.mark.parametrize("settings", [{}, {"jit_compile": True}], ids=["graph", "xla"])
@pytest.mark.parametrize("bad", [0, BAD])
def test_a_guard_holds_where_smaller_steps_do_not(settings: dict[str, Any], bad: int, tmp_path: Path) -> None:
    model, optimizer, step = loop(distance, keras.optimizers.Adam(0.01), **settings)
    with nanwatch.watch(step, tmp_path, model=model, optimizer=optimizer) as watched:
        for x, y in data(no_row, bad):
            watched(x, y)
    found = outcomes(tmp_path)
    assert found["guard_division"] == ["finite"]
    assert found["lower_learning_rate"] == ["nonfinite"] * 3
    assert set(found["clip_gradients"]) == {"nonfinite"}
    guard = tried(tmp_path)[0]
    assert guard["steps"] == trials.HORIZON
    assert guard["control"] == "nonfinite"
    assert guard["course"][1] < guard["course"][0]
    assert [t["outcome"] for t in tried(tmp_path) if t.get("setting") == "samples"] == ["finite"]


@pytest.mark.parametrize("optimizer", [keras.optimizers.Adam, keras.optimizers.Adagrad], ids=["adam", "adagrad"])
def test_an_optimizer_that_made_its_slots_in_the_failing_step(optimizer: Any, tmp_path: Path) -> None:
    """They are NaN after it: trials start from what they were at first, the run goes on with what they are."""

    def trained(watched: bool) -> list[Any]:
        model, made, step = loop(distance, optimizer(0.01))
        run = nanwatch.watch(step, tmp_path, model=model, optimizer=made) if watched else step
        for x, y in data(no_row, bad=0):
            run(x, y)
        if watched:
            run.close()
        return [np.asarray(v) for v in (*model.variables, *made.variables)]

    plain, seen = trained(watched=False), trained(watched=True)
    assert outcomes(tmp_path)["guard_division"] == ["finite"]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(plain, seen, strict=True))
    assert any(np.isnan(v).any() for v in plain if v.dtype.kind == "f")


def test_a_learning_rate_that_trains(tmp_path: Path) -> None:
    model = recorded.mlp(optimizer=keras.optimizers.SGD(5.0, momentum=0.9))
    x, _ = recorded.data(96)
    y = x[:, :1] + 2
    model.fit(x, y, batch_size=8, epochs=9, verbose=0, shuffle=False, callbacks=[nanwatch.NanWatch(tmp_path)])
    rates = [t for t in tried(tmp_path) if t["remedy"] == "lower_learning_rate"]
    assert rates[-1]["outcome"] == "finite"
    assert rates[-1]["value"] in (0.1, 0.01, 0.001)
    assert rates[-1]["course"][1] < rates[-1]["course"][0]
    assert float(model.optimizer.learning_rate.numpy()) == 5.0


def test_an_epsilon_for_an_optimizer_that_divides_by_zero(tmp_path: Path) -> None:
    """A feature that is always 0 has a gradient of 0, and 0 / sqrt(0) is NaN."""
    model, optimizer, step = loop(lambda h, y: tf.reduce_mean(tf.square(h - y)), keras.optimizers.Adam(epsilon=0.0))
    with nanwatch.watch(step, tmp_path, model=model, optimizer=optimizer) as watched:
        for x, y in data(no_row):
            x[:, 2] = 0
            watched(x, y)
    assert outcomes(tmp_path)["guard_division"] == ["finite"]
    assert optimizer.epsilon == 0.0


def test_float32_where_float16_overflows(tmp_path: Path) -> None:
    def loss_of(h: Any, y: Any) -> Any:
        squares = tf.reduce_sum(tf.square(tf.cast(h - y, tf.float16)))
        return tf.cast(squares, tf.float32)

    def far(x: Any, y: Any) -> None:  # the signature of what spoils a batch
        y[2] = 300

    model, optimizer, step = loop(loss_of, keras.optimizers.SGD(1e-4))
    with nanwatch.watch(step, tmp_path, model=model, optimizer=optimizer) as watched:
        for x, y in data(far):
            watched(x, y)
    assert outcomes(tmp_path)["mixed_precision_policy"] == ["finite"]
    assert outcomes(tmp_path)["clip_gradients"] == ["not_run"]


def test_new_weights_only_at_the_start_and_without_the_runs_randomness(tmp_path: Path) -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    large = keras.initializers.RandomNormal(stddev=1e5)
    hidden = [keras.layers.Dense(8, "relu", kernel_initializer=large, name=f"h{n}") for n in range(9)]
    model = keras.Sequential([keras.Input((4,)), *hidden, keras.layers.Dense(1, name="last")])
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=False)
    x, y = recorded.data(32)
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    watched = nanwatch.NanWatch(tmp_path)
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False, callbacks=[watched])
    watched.close()
    found = next(t for t in tried(tmp_path) if t["remedy"] == "initializer")
    assert found["outcome"] == "finite"
    assert "he_normal" in found["note"]
    after = random.getstate(), np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert np.array_equal(before[1][1], after[1][1])


@pytest.mark.parametrize(
    ("activation", "recurrent", "name"),
    [
        ("Relu", False, "he_normal"),
        ("Tanh", False, "glorot_uniform"),
        ("", False, "glorot_uniform"),
        ("Tanh", True, "orthogonal"),
        ("Relu", True, "identity"),
    ],
)
def test_what_is_drawn(activation: str, recurrent: bool, name: str) -> None:
    values, drawn = draws.drawn(Kernel(0, activation, recurrent), (64, 64), np.random.default_rng(0))
    assert drawn == name
    deviation = {"he_normal": (2 / 64) ** 0.5, "glorot_uniform": (2 / 128) ** 0.5}.get(name, 1 / 8)
    assert values.std() == pytest.approx(deviation, rel=0.1)
    if recurrent:
        assert values @ values.T == pytest.approx(np.eye(64), abs=1e-5)


def test_ctrl_c_during_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the trials, passes, and leaves the weights as the step left them and what was found in the file."""
    model, optimizer, step = loop(distance, keras.optimizers.SGD(0.01))
    batches = data(no_row)
    watched = nanwatch.watch(step, tmp_path, model=model, optimizer=optimizer)
    for x, y in batches[:BAD]:
        watched(x, y)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "_cleaner", interrupted)  # what is planned behind the guard
    with pytest.raises(KeyboardInterrupt):
        watched(*batches[BAD])
    watched.close()
    assert np.isnan(model.layers[0].kernel.numpy()).all()
    assert outcomes(tmp_path) == {"guard_division": ["finite"]}
    assert recorded.only_run(tmp_path).incidents[0].origin.op_type == "SqrtGrad"


def test_a_control_that_stays_finite_proves_nothing(tmp_path: Path) -> None:
    """The step is spoilt by something that the recorded batches do not hold."""
    model, optimizer, step = loop(lambda h, y: tf.reduce_mean(tf.square(h - y)), keras.optimizers.SGD(0.01))
    with nanwatch.watch(step, tmp_path, model=model, optimizer=optimizer) as watched:
        for number, (x, y) in enumerate(data(no_row)):
            if number == BAD:  # between two steps, so that no state holds it
                model.layers[0].kernel.assign(np.full((4, 3), np.nan))
            watched(x, y)
    assert {t["outcome"] for t in tried(tmp_path)} <= {"inconclusive", "not_run"}
