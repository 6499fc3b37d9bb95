"""Thirty sigmoid layers: each passes on about a fifth of the gradient, the first ones get nothing.

The slope of the sigmoid is 0.25 at most, so thirty layers scale the gradient by about 0.2 to the 30th, 1e-21.
Nothing is NaN and nothing is learned: the layers near the input stay as they were initialized.

Cure: ReLU with its initialization, and a connection past every layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from datasets import batches, digits
from options import parse

import tb_nanwatch as nanwatch

LAYERS = 30


def main(argv: Sequence[str] | None = None) -> None:
    """Train once."""
    options = parse(__doc__, argv, steps=120)
    keras.utils.set_random_seed(0)
    x, y = digits()
    inputs = keras.Input([8, 8, 1])
    hidden: Any = keras.layers.Flatten(name="pixels")(inputs)
    hidden = keras.layers.Dense(32, name="embedding")(hidden)
    for number in range(LAYERS):
        name = f"deep_{number:02d}"
        if options.cure:
            layer = keras.layers.Dense(32, activation="relu", kernel_initializer="he_normal", name=name)
            hidden = keras.layers.Add(name=f"past_{number:02d}")([hidden, 0.1 * layer(hidden)])
        else:
            hidden = keras.layers.Dense(32, activation="sigmoid", name=name)(hidden)
    outputs = keras.layers.Dense(10, activation="softmax", name="digit")(hidden)
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.05), loss="sparse_categorical_crossentropy")
    model.fit(
        batches(x, y, 64, options.steps),
        steps_per_epoch=options.steps,
        shuffle=False,
        verbose=0,
        callbacks=[nanwatch.NanWatch(options.logdir)],
    )


if __name__ == "__main__":
    main()
