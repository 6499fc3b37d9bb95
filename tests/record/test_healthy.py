"""Networks that train well: no incident, no finding, whatever oddities they are made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import networks
import numpy as np
import pytest
import tensorflow as tf
from recorded import only_run

import tb_nanwatch as nanwatch
from tb_nanwatch.diagnose import examine

STEPS = 300


def check(logdir: Path, steps: int = STEPS) -> None:
    run = only_run(logdir)
    assert run.steps == steps
    entry = examine(run).entry
    assert (entry["incidents"], entry["findings"]) == ([], [])
    assert entry["status"] == "healthy"
    assert entry["last_finite_step"] == steps - 1


def learnable(shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Samples of three classes that differ by their means."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, STEPS * 8)
    means = rng.normal(size=(3, *shape))
    return (means[y] + 0.5 * rng.normal(size=(len(y), *shape))).astype("float32"), y


@pytest.mark.parametrize("network", networks.ALL)
def test_common_networks(network: str, tmp_path: Path) -> None:
    keras.backend.clear_session()
    model = networks.compiled_model(network, jit=False)
    x, y = learnable(networks.ALL[network]()[0].shape[1:])
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path)])
    check(tmp_path)


def test_a_transformer_with_masks_of_minus_infinity(tmp_path: Path) -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)

    class Attention(keras.layers.Layer):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.qkv = keras.layers.Dense(24, name="qkv")

        def call(self, x: Any) -> Any:
            q, k, v = tf.split(self.qkv(x), 3, axis=-1)
            scores = tf.matmul(q, k, transpose_b=True) / np.sqrt(8)
            causal = tf.linalg.band_part(tf.ones(tf.shape(scores)[-2:]), -1, 0) > 0
            scores = nanwatch.tap("scores", tf.where(causal, scores, -np.inf))
            return tf.matmul(tf.nn.softmax(scores), v)

    inputs = keras.Input((6, 8))
    h = inputs + Attention(name="attention")(keras.layers.LayerNormalization(name="norm")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3, name="out")(keras.layers.GlobalAveragePooling1D()(h)))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    x, y = learnable((6, 8))
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path)])
    run = only_run(tmp_path)
    assert run.counts[0]["activation/scores"].neg_inf == 8 * 15
    check(tmp_path)


@pytest.mark.parametrize("style", ["eager", "function"])
def test_accumulated_gradients_of_an_autoencoder(style: str, tmp_path: Path) -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    layers = keras.layers
    encoder = keras.Sequential(
        [keras.Input((8,)), layers.Dense(6, activation="tanh", name="in"), layers.Dense(2, name="code")]
    )
    decoder = keras.Sequential(
        [keras.Input((2,)), layers.Dense(6, activation="tanh", name="up"), layers.Dense(8, name="out")]
    )
    variables = [*encoder.trainable_variables, *decoder.trainable_variables]
    optimizer = keras.optimizers.Adam(3e-3, gradient_accumulation_steps=4)
    optimizer.build(variables)

    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((decoder(encoder(x)) - x) ** 2)
        optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    step: Callable[..., Any] = tf.function(train) if style == "function" else train
    steps = STEPS if style == "function" else 100
    x, _ = learnable((8,))
    models = {"encoder": encoder, "decoder": decoder}
    with nanwatch.watch(step, tmp_path, model=models, optimizer=optimizer) as watched:
        for i in range(steps):
            watched(tf.constant(x[8 * i : 8 * i + 8]))
    check(tmp_path, steps)


def test_mixed_precision(tmp_path: Path) -> None:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    policy = "mixed_float16"
    layers = [keras.layers.Dense(16, activation="relu", dtype=policy), keras.layers.Dense(3, dtype=policy)]
    model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Activation("softmax", dtype="float32")])
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-3), initial_scale=2.0**20)
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    x, y = learnable((8,))
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[nanwatch.NanWatch(tmp_path)])
    check(tmp_path)
