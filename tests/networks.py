"""Small networks of the kinds that people train, for tests that train them with and without the watcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

STEPS = 200
BATCH = 8


def mlp() -> Any:
    layers = keras.layers
    return [
        keras.Input((16,)),
        layers.Dense(24, activation="relu"),
        layers.Dense(24, activation="relu"),
        layers.Dense(3),
    ]


def cnn() -> Any:
    layers = keras.layers
    return [
        keras.Input((8, 8, 2)),
        layers.Conv2D(4, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Conv2D(6, 2, activation="relu"),
        layers.Flatten(),
        layers.Dense(3),
    ]


def rnn() -> Any:
    layers = keras.layers
    return [
        keras.Input((6, 4)),
        layers.LSTM(8, return_sequences=True),
        layers.Dropout(0.3),
        layers.GRU(8),
        layers.Dense(3),
    ]


def separate_relu() -> Any:
    layers = keras.layers
    return [
        keras.Input((16,)),
        layers.Dense(24),
        layers.ReLU(),
        layers.Dense(24),
        layers.Activation("relu"),
        layers.Dense(3),
    ]


def conv_bn_relu() -> Any:
    layers = keras.layers
    return [
        keras.Input((8, 8, 2)),
        layers.Conv2D(4, 3, use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Conv2D(6, 3),
        layers.BatchNormalization(),
        layers.Activation("relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(3),
    ]


ALL: dict[str, Callable[[], Any]] = {f.__name__: f for f in (mlp, cnn, rnn, separate_relu, conv_bn_relu)}


def compiled_model(network: str, jit: bool, **kwargs: Any) -> Any:
    """A freshly seeded, compiled model."""
    keras.utils.set_random_seed(7)
    model = keras.Sequential(ALL[network]())
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=jit,
        **kwargs,
    )
    return model


def data(network: str, poisoned: bool) -> tuple[Any, Any]:
    """STEPS batches; with `poisoned`, one element of one sample in batch 100 is NaN."""
    rng = np.random.default_rng(3)
    shape = ALL[network]()[0].shape[1:]
    x = rng.normal(size=(STEPS * BATCH, *shape)).astype("float32")
    y = rng.integers(0, 3, STEPS * BATCH)
    if poisoned:
        x[100 * BATCH + 3].flat[0] = np.nan
    return x, y
