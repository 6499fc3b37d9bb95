"""A program of its own, since logical devices must be set before TensorFlow starts: trains under MirroredStrategy with
two replicas, watched and not, and prints what came out as JSON. `python mirrored.py FOLDER STYLE ...`."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import tb_nanwatch as nanwatch

Result = tuple[str, list[Any]]  # digest of all bits; numbers of each step
STEPS, BATCH, WIDTH, BAD_STEP = 16, 8, 6, 9


def batches(poisoned: bool) -> list[tuple[Any, Any]]:
    """Global batches; the second replica's half of one of them has nothing valid in it."""
    rng = np.random.default_rng(1)
    found = []
    for number in range(STEPS):
        x = rng.normal(size=(2 * BATCH, WIDTH)).astype("float32")
        y = np.stack([x[:, 0] - x[:, 1], np.ones(2 * BATCH)], 1).astype("float32")
        if poisoned and number == BAD_STEP:
            y[BATCH:, 1] = 0
        found.append((x, y))
    return found


def masked_mean(y: Any, predicted: Any) -> Any:
    return tf.reduce_sum(tf.square(predicted[:, 0] - y[:, 0]) * y[:, 1]) / tf.reduce_sum(y[:, 1])


def network(strategy: Any) -> Any:
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((WIDTH,)),
                keras.layers.Dense(8, activation="tanh", name="hidden"),
                keras.layers.BatchNormalization(name="norm"),
                keras.layers.Dropout(0.1),
                keras.layers.Dense(1, name="out"),
            ]
        )
        optimizer = keras.optimizers.Adam(0.01)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def bits(*variables: Any) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(np.asarray(v)).tobytes() for v in variables)).hexdigest()


def loop(strategy: Any, style: str, poisoned: bool, logdir: Path | None) -> Result:
    model, optimizer = network(strategy)

    def replica_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            noisy = x + tf.random.normal(tf.shape(x), stddev=0.1)
            loss = masked_mean(y, model(noisy, training=True)) / strategy.num_replicas_in_sync
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if tf.reduce_sum(x) > -1e9:  # autograph, also where strategy.run is given a tf.function
            loss = loss + 0
        return loss, tf.reduce_sum(tf.square(gradients[0]))

    replica_function = tf.function(replica_step) if "inner" in style else replica_step

    def update(x: Any, y: Any) -> Any:
        outputs = strategy.run(replica_function, args=(x, y))
        return [strategy.reduce("SUM", output, axis=None) for output in outputs]

    step = update if style == "loop_inner" else tf.function(update)
    if logdir is not None:
        policy = {"on_nonfinite": "skip"} if "skip" in style else {}
        step = nanwatch.watch(step, logdir, model=model, optimizer=optimizer, every=5, **policy)
    numbers: list[Any] = []
    for x, y in batches(poisoned):
        parts = [
            strategy.experimental_distribute_values_from_function(
                lambda context, v=v: tf.constant(np.split(v, 2)[context.replica_id_in_sync_group])
            )
            for v in (x, y)
        ]
        if style == "loop_in_scope":
            with strategy.scope():
                numbers.append([float(n) for n in step(*parts)])
        else:
            numbers.append([float(n) for n in step(*parts)])
    if logdir is not None:
        step.close()
    return bits(np.array(numbers), *model.variables, *optimizer.variables), numbers


def fit(strategy: Any, style: str, poisoned: bool, logdir: Path | None) -> Result:
    model, optimizer = network(strategy)
    data = tf.data.Dataset.from_tensor_slices(tuple(np.stack(part) for part in zip(*batches(poisoned), strict=True)))
    with strategy.scope():
        model.compile(
            optimizer,
            loss=masked_mean,
            metrics=["mae"],
            run_eagerly=style == "fit_eager",
        )
    callbacks = [] if logdir is None else [nanwatch.NanWatch(logdir, every=5)]
    history = model.fit(data, epochs=1, callbacks=callbacks, verbose=0)
    if logdir is not None:
        callbacks[0].close()
    return bits(*history.history["loss"], *model.variables, *optimizer.variables), []


def main(folder: Path, styles: list[str]) -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["/CPU:0", "/CPU:1"])
    found: dict[str, Any] = {}
    for style in styles:
        train = fit if style.startswith("fit") else loop
        for name in ("finite", "poisoned"):
            plain = train(strategy, style, name == "poisoned", None)
            watched = train(strategy, style, name == "poisoned", folder / style / name)
            found[f"{style}/{name}"] = {"plain": plain[0], "watched": watched[0], "numbers": watched[1]}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
