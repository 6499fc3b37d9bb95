"""A recurrent net whose weights start too large: it overflows before the first update.

The net reads a digit pixel by pixel, 64 steps in time. Its recurrent weights are standard normal: 64 units with
ReLU multiply the state by about 5 at every step, and 5 to the 64th does not fit into float32.

Cure: start from the identity, which passes the state on as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
from datasets import batches, digits
from options import parse

import tb_nanwatch as nanwatch


def main(argv: Sequence[str] | None = None) -> None:
    """Train once."""
    options = parse(__doc__, argv, steps=60)
    keras.utils.set_random_seed(0)
    x, y = digits()
    pixels = x.reshape(len(x), 64, 1)
    initializer = keras.initializers.Identity() if options.cure else keras.initializers.RandomNormal(stddev=1.0)
    model = keras.Sequential(
        [
            keras.Input([64, 1]),
            keras.layers.SimpleRNN(64, activation="relu", recurrent_initializer=initializer, name="reader"),
            keras.layers.Dense(10, activation="softmax", name="digit"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.0003), loss="sparse_categorical_crossentropy")
    model.fit(
        batches(pixels, y, 64, options.steps),
        steps_per_epoch=options.steps,
        shuffle=False,
        verbose=0,
        callbacks=[nanwatch.NanWatch(options.logdir)],
    )


if __name__ == "__main__":
    main()
