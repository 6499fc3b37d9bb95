"""A program of its own: one worker of a MultiWorkerMirroredStrategy job; TF_CONFIG says which.

`python worker.py FOLDER` prints a digest of all bits of each training as JSON: plain, watched, and once more.
"""

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

STEPS, BATCH, BAD_STEP, BAD_WORKER = 12, 4, 7, 1


def network(strategy: Any) -> Any:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((3,)),
                keras.layers.Dense(4, activation="tanh", name="hidden"),
                keras.layers.Dense(1, name="out"),
            ]
        )
        optimizer = keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def batches(worker: int) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(worker)
    found = []
    for number in range(STEPS):
        x = rng.normal(size=(BATCH, 3)).astype("float32")
        y = x[:, :1].copy()
        if (number, worker) == (BAD_STEP, BAD_WORKER):
            y[:] = -1  # of which the logarithm is taken
        found.append((x, np.abs(y) if y[0, 0] != -1 else y))
    return found


def loss_of(y: Any, predicted: Any) -> Any:
    return tf.reduce_mean(tf.square(predicted - tf.math.log(y + 0.5)))


def loop(strategy: Any, worker: int, logdir: Path | None) -> str:
    model, optimizer = network(strategy)

    def replica_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True)) / strategy.num_replicas_in_sync
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def step(x: Any, y: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(replica_step, args=(x, y)), axis=None)

    watched = step if logdir is None else nanwatch.watch(step, logdir, model=model, optimizer=optimizer)
    losses = [watched(tf.constant(x), tf.constant(y)) for x, y in batches(worker)]
    if logdir is not None:
        watched.close()
    return digest(*losses, *model.variables)


def digest(*variables: Any) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(np.asarray(v)).tobytes() for v in variables)).hexdigest()


def main(folder: Path) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    found = {
        "plain": loop(strategy, worker, None),
        "watched": loop(strategy, worker, folder / "loop"),
        "again": loop(strategy, worker, folder / "loop"),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
