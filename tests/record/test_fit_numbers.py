"""What a watched fit writes is what happened: every number against a loop by hand and numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from recorded import (
    batches,
    check_norms,
    check_statistics,
    data,
    mean_squared,
    mlp,
    only_run,
    sequential_by_hand,
    values,
)

import tb_nanwatch as nanwatch

STEPS = 24  # of 8 samples
WEIGHTS = [f"{layer}/{name}" for layer in ("first", "second", "last") for name in ("kernel", "bias")]
EVERYWHERE = [f"{kind}/{name}" for kind in ("weight", "gradient") for name in WEIGHTS] + ["input/x", "input/y"]


def by_hand(x: Any, y: Any, **model: Any) -> list[Any]:
    return sequential_by_hand(mlp(**model), batches(x, y), mean_squared)


def watched(logdir: Path, x: Any, y: Any, every: int = 10, **model: Any) -> Any:
    network = mlp(**model)
    network.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[nanwatch.NanWatch(logdir, every=every)])
    return network


@pytest.mark.parametrize("eagerly", [False, True])
def test_every_number_of_every_step(eagerly: bool, tmp_path: Path) -> None:
    x, y = data(8 * STEPS)
    steps = by_hand(x, y)
    watched(tmp_path, x, y, every=7, run_eagerly=eagerly)
    run = only_run(tmp_path)
    assert (run.steps, run.first_step, run.last_step) == (STEPS, 0, STEPS - 1)
    activations = [info.tag for info in run.kind("activation")]
    assert activations[:2] == ["activation/first/output", "activation/second/output"]
    check_norms(run, steps, EVERYWHERE + activations)
    check_statistics(run, steps, EVERYWHERE + activations, every=7)
    assert values(run, "loss/loss", "value") == pytest.approx(
        {n: float(s["loss/loss"]) for n, s in enumerate(steps)}, rel=1e-4
    )
    assert values(run, "scalar/learning_rate", "value") == pytest.approx(dict.fromkeys(range(STEPS), 1e-2))
    assert np.array_equal(run.series("loss/loss", "value").iterations, np.arange(1, STEPS + 1))
    assert run.incidents == ()
    assert run.last_finite_step == STEPS - 1


def test_learning_rates_that_change(tmp_path: Path) -> None:
    """A schedule is evaluated at full steps only; what a callback sets is read at every step."""
    x, y = data(8 * STEPS)
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    for name, rate, callbacks in (
        ("schedule", schedule, []),
        ("callback", 0.1, [keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)]),
    ):
        model = mlp(optimizer=keras.optimizers.SGD(rate))
        watcher = nanwatch.NanWatch(tmp_path / name, every=5)
        model.fit(x, y, batch_size=8 * 6, epochs=3, verbose=0, callbacks=[*callbacks, watcher])
    decayed = {n: 0.1 * 0.5 ** ((n + 1) / 10) for n in (0, 5, 10)}
    assert values(only_run(tmp_path / "schedule"), "scalar/learning_rate", "value") == pytest.approx(decayed)
    halved = {n: 0.1 / 2 ** (n // 4 + 1) for n in range(12)}
    assert values(only_run(tmp_path / "callback"), "scalar/learning_rate", "value") == pytest.approx(halved)


def test_updates_at_full_steps(tmp_path: Path) -> None:
    x, y = data(8 * STEPS)
    steps = by_hand(x, y)
    watched(tmp_path, x, y, every=5)
    run = only_run(tmp_path)
    for name in WEIGHTS:
        found = values(run, f"update/{name}")
        assert sorted(found) == [0, 5, 10, 15, 20]
        check_norms(run, steps, [f"update/{name}"], every=10)
        ratio = values(run, f"update/{name}", "update_ratio")
        expected = {n: found[n] / values(run, f"weight/{name}")[n] for n in found}
        assert ratio == pytest.approx(expected, rel=0.02)


def test_under_xla_weights_at_every_step_and_the_rest_in_turn(tmp_path: Path) -> None:
    x, y = data(8 * STEPS)
    steps = by_hand(x, y)
    watched(tmp_path, x, y, every=5, jit_compile=True)
    run = only_run(tmp_path)
    weights = [f"weight/{name}" for name in WEIGHTS]
    check_norms(run, steps, weights)
    check_statistics(run, steps, weights, every=5)
    rotating = [info.tag for kind in ("input", "activation", "gradient") for info in run.kind(kind)]
    assert {f"gradient/{layer}/kernel" for layer in ("first", "second", "last")} <= set(rotating)
    check_norms(run, steps, rotating, every=5)
    assert values(run, "loss/loss", "value") == pytest.approx(
        {n: float(s["loss/loss"]) for n, s in enumerate(steps)}, rel=1e-3
    )


@pytest.mark.parametrize("jit", [False, True])
def test_steps_per_execution_lose_no_step(jit: bool, tmp_path: Path) -> None:
    x, y = data(8 * 18 + 3)  # the last group is short, and so is its last batch
    steps = by_hand(x, y)
    watched(tmp_path, x, y, every=4, steps_per_execution=4, jit_compile=jit)
    run = only_run(tmp_path)
    assert run.steps == 19
    check_norms(run, steps, [f"weight/{name}" for name in WEIGHTS], every=4 if jit else 1)
    check_norms(run, steps, [f"gradient/{layer}/kernel" for layer in ("first", "last")], every=4 if jit else 1)
    assert values(run, "loss/loss", "value") == pytest.approx(
        {n: float(s["loss/loss"]) for n, s in enumerate(steps)}, rel=1e-3
    )
    assert np.array_equal(run.series("loss/loss", "value").iterations, np.arange(1, 20))


def test_the_last_batch_may_be_smaller(tmp_path: Path) -> None:
    x, y = data(8 * 5 + 3)
    watched(tmp_path, x, y)
    run = only_run(tmp_path)
    assert run.steps == 6
    check_norms(run, by_hand(x, y), EVERYWHERE)


def test_float64(tmp_path: Path) -> None:
    x, y = (a.astype(np.float64) for a in data(8 * STEPS))
    steps = by_hand(x, y, dtype="float64")
    watched(tmp_path, x, y, dtype="float64")
    run = only_run(tmp_path)
    check_norms(run, steps, EVERYWHERE)
    assert {info.dtype for info in run.tensors if info.kind in ("weight", "gradient", "activation")} == {"float64"}


def test_what_is_said_about_tensors(tmp_path: Path) -> None:
    x, y = data()
    watched(tmp_path, x, y)
    run = only_run(tmp_path)
    kernel = run.by_tag("weight/second/kernel")
    assert kernel is not None
    assert (kernel.layer, kernel.layer_class, kernel.dtype, kernel.shape) == ("second", "Dense", "float32", (6, 5))
    assert kernel.trainable
    gradient = run.by_tag("gradient/second/kernel")
    assert gradient is not None
    assert (gradient.layer, gradient.shape) == ("second", (6, 5))
    output = run.by_tag("activation/first/output")
    assert output is not None
    assert (output.layer, output.layer_class) == ("first", "Dense")
    assert output.shape is not None
    assert output.shape[1:] == (6,)
    for kind in ("weight", "gradient"):
        assert [info.layer for info in run.kind(kind)] == ["first", "first", "second", "second", "last", "last"]
    assert run.header.entry_point == "keras_fit"
    assert run.header.options["every"] == "10"
    assert {"tensorflow", "keras", "python", "tb_nanwatch"} <= set(run.header.versions)


def test_batch_normalization_and_frozen_layers(tmp_path: Path) -> None:
    def network() -> Any:
        keras.backend.clear_session()
        keras.utils.set_random_seed(3)
        model = keras.Sequential(
            [
                keras.Input((4,)),
                keras.layers.Dense(6, name="first", trainable=False),
                keras.layers.BatchNormalization(name="norm"),
                keras.layers.Dense(1, name="last"),
            ]
        )
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
        return model

    x, y = data(8 * STEPS)
    steps = sequential_by_hand(network(), batches(x, y), mean_squared)
    network().fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path)])
    run = only_run(tmp_path)
    check_norms(run, steps, [tag for tag in steps[0] if tag.startswith(("weight/", "gradient/"))])
    assert run.by_tag("gradient/first/kernel") is None
    assert run.by_tag("update/first/kernel") is None
    assert run.by_tag("update/norm/moving_mean") is None
    assert run.by_tag("update/norm/gamma") is not None


def test_include_exclude_and_no_activations(tmp_path: Path) -> None:
    x, y = data()
    for name, options in {
        "include": {"include": ["first*"]},
        "exclude": {"exclude": "*/kernel"},
        "plain": {"activations": False},
    }.items():
        model = mlp()
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path / name, **options)])
    included = {
        i.layer for i in only_run(tmp_path / "include").tensors if i.kind in ("weight", "gradient", "activation")
    }
    assert included == {"first"}
    excluded = [i.name for i in only_run(tmp_path / "exclude").kind("weight")]
    assert excluded == ["first/bias", "second/bias", "last/bias"]
    assert only_run(tmp_path / "plain").kind("activation") == ()
    assert len(only_run(tmp_path / "plain").kind("gradient")) == 6


def test_the_function_that_a_layer_ends_with(tmp_path: Path) -> None:
    x, y = data()
    watched(tmp_path, x, y)
    ends = {info.name: info.activation for info in only_run(tmp_path).tensors if info.activation}
    assert ends == {"first/output": "relu", "second/output": "tanh", "last/output": "linear"}
