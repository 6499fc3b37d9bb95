"""A learning rate that is too high: the weights oscillate, grow at every step, and the loss overflows.

A back-propagation net (one hidden layer of 32 tanh units) predicts the progression of diabetes. With plain gradient
descent a step is only stable while the learning rate is below 2 / (largest curvature of the loss). Here it is above:
each step overshoots further than the last until squaring the error no longer fits into float32.

Cure: a smaller learning rate.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
from datasets import batches, diabetes
from options import parse

import tb_nanwatch as nanwatch


def main(argv: Sequence[str] | None = None) -> None:
    """Train once."""
    options = parse(__doc__, argv, steps=60)
    keras.utils.set_random_seed(0)
    x, y = diabetes()
    model = keras.Sequential(
        [
            keras.Input([10]),
            keras.layers.Dense(32, activation="tanh", name="hidden"),
            keras.layers.Dense(1, name="progression"),
        ]
    )
    learning_rate = 0.01 if options.cure else 0.4
    model.compile(keras.optimizers.SGD(learning_rate), loss="mean_squared_error")
    model.fit(
        batches(x, y, 32, options.steps),
        steps_per_epoch=options.steps,
        shuffle=False,
        verbose=0,
        callbacks=[nanwatch.NanWatch(options.logdir)],
    )


if __name__ == "__main__":
    main()
