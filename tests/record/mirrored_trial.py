"""A program of its own, since logical devices must be set before TensorFlow starts: a fit under MirroredStrategy with
two replicas, as `nanwatch try` has it, and the same with the remedy in the program; prints both as JSON.
`python mirrored_trial.py FOLDER REMEDY VALUE`."""

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

import tb_nanwatch as nanwatch
from tb_nanwatch.format import treatment
from tb_nanwatch.format.telling import Listener
from tb_nanwatch.format.treatment import Treatment
from tb_nanwatch.store.catalog import Catalog

STEPS = 6
RATE = 0.2


def trained(folder: Path | None, **settings: Any) -> list[list[float]]:
    """The weights after the fit."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(3)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(16 * STEPS, 4)).astype("float32")
    y = 3 * x[:, :1] - x[:, 1:2]
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        layers = [keras.layers.Dense(5, "tanh"), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((4,)), *layers])
        model.compile(
            keras.optimizers.SGD(**{"learning_rate": RATE, "momentum": 0.9, **settings}), "mse", jit_compile=False
        )
    callbacks = [] if folder is None else [nanwatch.NanWatch(folder)]
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16, drop_remainder=True)
    model.fit(data, verbose=0, callbacks=callbacks)
    return [np.asarray(v).reshape(-1).tolist() for v in model.trainable_variables]


def main() -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    folder, remedy, value = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    kind, _, bound = value.partition(":")
    by_hand = {
        "control": {},
        "lower_learning_rate": {"learning_rate": RATE * float(value or 1) if remedy == "lower_learning_rate" else RATE},
        "clip_gradients": {"global_clipnorm" if kind == "norm" else "clipvalue": float(bound or 1)},
    }[remedy]
    expected, plain = trained(None, **by_hand), trained(None)
    report = folder / "report"
    report.touch()
    os.environ[treatment.VARIABLE] = Treatment(remedy, value, 2 * STEPS, str(report)).as_json()
    found = trained(folder / "logs")
    catalog = Catalog(folder / "logs")
    catalog.refresh()
    (run,) = catalog.runs().values()
    told = [event for event in Listener(report).new() if event["event"] != "step"]
    rates = run.series("scalar/learning_rate", "value").values.tolist()
    result = {"found": found, "expected": expected, "plain": plain, "told": told, "steps": run.steps, "rates": rates}
    print(f"RESULT {json.dumps(result)}")


if __name__ == "__main__":
    main()
