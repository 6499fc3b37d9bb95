"""A program of its own, as mirrored.py: fits that go wrong under MirroredStrategy with two replicas.

`python mirrored_fit.py FOLDER FAULT ...` prints as JSON for each whether training came out the same to the bit.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf
from mirrored import bits

import tb_nanwatch as nanwatch

SIZE, BATCHES, WIDTH = 16, 6, 5
BAD_STEP, BAD_SAMPLE = 9, 2  # in the second epoch, and in the part of replica 1


def data(fault: str) -> tuple[Any, Any]:
    """x float32[n, WIDTH], y float32[n, 1], the last batch smaller than the others."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(SIZE * (BATCHES - 1) + 6, WIDTH)).astype("float32")
    y = rng.uniform(1, 2, size=(len(x), 1)).astype("float32")
    row = (BAD_STEP - BATCHES) * SIZE + SIZE // 2 + BAD_SAMPLE
    if fault == "input":
        x[row, 3] = np.nan
    return x, y


class Fading(keras.layers.Layer):
    """Keeps its input until it was called often enough; then takes the logarithm of what is below zero in one row."""

    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, inputs: Any) -> Any:
        context = tf.distribute.get_replica_context()
        if context is None:  # the model is only being built
            return inputs
        self.calls.assign_add(1.0)
        guilty = tf.equal(context.replica_id_in_sync_group, 1) & tf.equal(self.calls, BAD_STEP + 1.0)
        rows = tf.one_hot(BAD_SAMPLE, tf.shape(inputs)[0])[:, tf.newaxis]
        return inputs + tf.math.log(1.0 - 2.0 * rows * tf.cast(guilty, tf.float32))


def network(strategy: Any, fault: str) -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(4)
    layers = keras.layers
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((WIDTH,)),
                layers.Dense(6, activation="tanh", name="hidden"),
                *([Fading(name="fading")] if fault == "sample" else []),
                layers.BatchNormalization(name="norm"),
                layers.Dropout(0.2),
                layers.Dense(1, name="out"),
            ]
        )
        optimizer = keras.optimizers.Adam(0.01)
        if fault == "growth":
            optimizer = keras.optimizers.SGD(1e12)
        model.compile(optimizer, "mse", metrics=["mae"])
    return model


def train(strategy: Any, fault: str, logdir: Path | None) -> str:
    model = network(strategy, fault)
    x, y = data(fault)
    callbacks = [] if logdir is None else [nanwatch.NanWatch(logdir, every=5)]
    history = model.fit(x, y, SIZE, epochs=3, shuffle=False, callbacks=callbacks, verbose=0)
    for callback in callbacks:
        callback.close()
    return bits(*history.history["loss"], *model.variables, *model.optimizer.variables)


def main(folder: Path, faults: list[str]) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["/CPU:0", "/CPU:1"])
    print(json.dumps({f: train(strategy, f, None) == train(strategy, f, folder / f) for f in faults}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
