"""Real trainings that stay finite and are ill all the same: each gives the finding that names its disease."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.diagnose import examine

BATCH = 8
Layers = list[Any]


def data(steps: int, noise: float = 3.0) -> tuple[Any, Any]:
    """Samples of three classes that overlap."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, steps * BATCH)
    means = rng.normal(size=(3, 16))
    return (means[y] + noise * rng.normal(size=(len(y), 16))).astype("float32"), y


def stack(activation: str, initializer: Any, depth: int = 2) -> Layers:
    hidden = [
        keras.layers.Dense(12, activation, kernel_initializer=initializer, name=f"hidden{i}") for i in range(depth)
    ]
    return [keras.Input((16,)), *hidden, keras.layers.Dense(3, kernel_initializer=initializer, name="out")]


def found(
    logdir: Path, layers: Layers, optimizer: Any, steps: int = 60, x: Any = None, y: Any = None
) -> list[tuple[str, str]]:
    """(rule, tensor) of each finding of a fit."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential(layers)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    own = data(steps)
    x, y = own[0] if x is None else x, own[1] if y is None else y
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[nanwatch.NanWatch(logdir)])
    return rules(logdir)


def rules(logdir: Path) -> list[tuple[str, str]]:
    examined = examine(only_run(logdir))
    assert examined.status == "warning"
    return [(finding["rule"], finding["tensor"]) for finding in examined.entry["findings"]]


@pytest.mark.parametrize(
    ("activation", "initializer", "first"),
    [("relu", "zeros", "hidden0"), ("sigmoid", "zeros", "hidden0"), ("tanh", "ones", "hidden0")],
)
def test_weights_that_are_all_alike(activation: str, initializer: str, first: str, tmp_path: Path) -> None:
    layers = stack(activation, initializer)
    names = found(tmp_path, layers, keras.optimizers.SGD(1e-2))
    echo = [("saturated_activation", "hidden1/output")] if initializer == "ones" else []  # sums of ones are large
    assert names == [("bad_initialization", f"{first}/kernel"), *echo]


def test_weights_that_are_too_small(tmp_path: Path) -> None:
    small = keras.initializers.RandomNormal(stddev=0.01, seed=1)
    names = found(tmp_path, stack("relu", small, depth=6), keras.optimizers.SGD(1e-2), steps=100)
    assert ("bad_initialization", "out/output") in names


@pytest.mark.parametrize("optimizer", [lambda: keras.optimizers.Adam(3.0), lambda: keras.optimizers.RMSprop(1.0)])
def test_a_rate_that_is_too_high(optimizer: Any, tmp_path: Path) -> None:
    names = found(tmp_path, stack("tanh", "glorot_uniform"), optimizer())
    assert [rule for rule, _ in names if rule.startswith("learning")] == ["learning_rate_too_high"]


@pytest.mark.parametrize("optimizer", [lambda: keras.optimizers.Adam(1e-8), lambda: keras.optimizers.SGD(1e-7)])
def test_a_rate_that_is_too_low(optimizer: Any, tmp_path: Path) -> None:
    ((rule, _),) = found(tmp_path, stack("relu", "he_normal"), optimizer(), steps=120)
    assert rule == "learning_rate_too_low"


def test_gradients_that_explode(tmp_path: Path) -> None:
    @tf.custom_gradient
    def louder(x: Any) -> Any:
        return tf.identity(x), lambda g: 8 * g

    class Louder(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            return louder(x)

    hidden = [layer for i in range(8) for layer in (keras.layers.Dense(12, "selu", name=f"hidden{i}"), Louder())]
    optimizer = keras.optimizers.Adam(1e-4)
    names = found(tmp_path, [keras.Input((16,)), *hidden, keras.layers.Dense(3, name="out")], optimizer)
    assert names == [("exploding_gradient", "hidden0/kernel")]


def test_a_sigmoid_at_its_lower_end(tmp_path: Path) -> None:
    layers = [
        keras.Input((16,)),
        keras.layers.Dense(12, "sigmoid", kernel_initializer=keras.initializers.RandomNormal(-1, 0.1), name="hidden"),
        keras.layers.Dense(3, name="out"),
    ]
    x = np.abs(data(60)[0]) * 255
    assert found(tmp_path, layers, keras.optimizers.SGD(1e-2), x=x) == [("saturated_activation", "hidden/output")]


def test_data_that_changes_its_scale(tmp_path: Path) -> None:
    x, _ = data(60)
    x[30 * BATCH :] *= 1e4
    names = found(tmp_path, stack("relu", "he_normal"), keras.optimizers.Adam(1e-3), x=x)
    assert ("input_extreme_scale", "x") in names


def test_a_label_that_does_not_exist(tmp_path: Path) -> None:
    x, y = data(60)
    y[30 * BATCH + 2] = 3
    with pytest.raises(tf.errors.InvalidArgumentError):
        found(tmp_path, stack("relu", "he_normal"), keras.optimizers.Adam(1e-3), x=x, y=y)
    assert rules(tmp_path) == [("label_invalid", "loss")]
    told = examine(only_run(tmp_path)).verdict
    assert told.headline == "Ended by an error at step 30: InvalidArgumentError"
    assert "the loss was given the label 3, and the logits know the classes 0 to 2 only" in told.paragraphs[0]
    assert "in its batch it was sample 2" in told.paragraphs[0]


def test_a_variable_that_the_optimizer_was_not_given(tmp_path: Path) -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(12, "relu", name="in"), keras.layers.Dense(3)])
    variables, optimizer = model.trainable_variables, keras.optimizers.SGD(0.1)
    optimizer.build(variables[2:])

    @tf.function
    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=model(x)))
        gradients = tape.gradient(loss, variables)
        optimizer.apply(gradients[2:], variables[2:])
        return loss

    x, y = data(120, noise=0.5)
    with nanwatch.watch(train, tmp_path, model=model, optimizer=optimizer) as step:
        for i in range(0, len(x), BATCH):
            step(tf.constant(x[i : i + BATCH]), tf.constant(y[i : i + BATCH]))
    assert rules(tmp_path) == [("update_too_small", "in/kernel")]


@pytest.mark.parametrize(
    ("optimizer", "weight", "says"),
    [
        (lambda: keras.optimizers.RMSprop(1e-3), 1e21, "its square is beyond float32"),
        (lambda: keras.optimizers.Adagrad(1e-2), 1e21, "its square is beyond float32"),
        (lambda: keras.optimizers.RMSprop(1e-3), 1e17, "keeps that for long"),
    ],
    ids=["rmsprop", "adagrad", "finite"],
)
def test_a_training_that_ends_by_the_square_of_a_gradient(
    optimizer: Any, weight: float, says: str, tmp_path: Path
) -> None:
    """One sample of enormous weight: loss, gradients and weights stay finite, and no step changes anything any more."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    model = keras.Sequential(stack("tanh", "glorot_uniform"))
    made = optimizer()
    model.compile(made, keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    x, y = data(120)
    weights = np.ones(len(y), np.float32)
    weights[20 * BATCH + 3] = weight
    watcher = nanwatch.NanWatch(tmp_path)
    model.fit(x, y, BATCH, shuffle=False, verbose=0, sample_weight=weights, callbacks=[watcher])
    slots = [np.asarray(v) for v in made.variables if np.ndim(v) == 2]
    assert any(np.isinf(v).any() for v in slots) == (weight == 1e21)
    run = only_run(tmp_path)
    assert run.incidents == ()
    told = next(f for f in examine(run).entry["findings"] if f["rule"] == "stalled")
    assert (told["tensor"], told["first_step"]) == ("hidden0/kernel", 30)
    assert says in " ".join(told["evidence"])
    assert "at step 20" in " ".join(told["evidence"])
