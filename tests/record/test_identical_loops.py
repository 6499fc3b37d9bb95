"""Custom loops are bit-identical with the watcher and without.

Eager, tf.function, XLA, and tf.functions called inside.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tb_nanwatch as nanwatch

STEPS, BATCH = 30, 8


def build(style: str) -> tuple[Any, Any, Callable[..., Any]]:
    keras.backend.clear_session()
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [
            keras.Input((12,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(16),
            keras.layers.ReLU(),
            keras.layers.Dense(3),
        ]
    )
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(model.trainable_variables)

    def noise_like(x: Any) -> Any:
        if "xla" in style:  # TensorFlow's stateful random ops give other numbers in every run there
            return tf.random.stateless_normal(tf.shape(x), [1, 2], stddev=0.1)
        return tf.random.normal(tf.shape(x), stddev=0.1)  # seeded by its place in the graph

    def loss_of(x: Any, y: Any) -> Any:
        noise = noise_like(x)
        logits = model(x + noise, training=True)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(x, y)
        gradients = tape.gradient(loss, model.trainable_variables)
        if tf.reduce_sum(x) > -1e9:  # autograph
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return {"loss": loss, "nothing": None}

    if style == "eager":
        return model, optimizer, step
    if style == "nested":
        inner = tf.function(step)
        return model, optimizer, lambda x, y: inner(x, y)  # noqa: PLW0108  # an eager step that calls a tf.function
    if style == "nested_xla":
        inner = tf.function(step, jit_compile=True)
        return model, optimizer, lambda x, y: inner(x, y)  # noqa: PLW0108  # an eager step that calls a tf.function
    if style == "loss_function":
        loss_of = tf.function(loss_of)
        return model, optimizer, step
    if style == "signature":
        spec = [tf.TensorSpec([None, 12], tf.float32), tf.TensorSpec([None], tf.int64)]
        return model, optimizer, tf.function(step, input_signature=spec)
    return model, optimizer, tf.function(step, jit_compile=style == "xla")


def train(style: str, poisoned: bool, logdir: Path | None) -> list[bytes]:
    model, optimizer, step = build(style)
    rng = np.random.default_rng(1)
    watched = step if logdir is None else nanwatch.watch(step, logdir, model=model, optimizer=optimizer)
    losses = []
    for number in range(STEPS):
        x = rng.normal(size=(BATCH, 12)).astype("float32")
        if poisoned and number == 17:
            x[3, 2] = np.nan
        losses.append(np.asarray(watched(tf.constant(x), tf.constant(rng.integers(0, 3, BATCH)))["loss"]))
    if logdir is not None:
        watched.close()
    return [np.ascontiguousarray(np.asarray(v)).tobytes() for v in [*losses, *model.variables, *optimizer.variables]]


@pytest.mark.parametrize("poisoned", [False, True], ids=["finite", "poisoned"])
@pytest.mark.parametrize("style", ["eager", "function", "xla", "signature", "nested", "nested_xla", "loss_function"])
def test_loop_is_bit_identical(style: str, poisoned: bool, tmp_path: Path) -> None:
    assert train(style, poisoned, None) == train(style, poisoned, tmp_path / "run")
