"""One row of the data holds a value that is not a number.

A field of one wine's analysis could not be read and became NaN. The update after its batch carries it into every
weight of the first layer. The loss may not even show it: on a CPU the ReLU swallows the NaN, the loss stays near
log(3), that of guessing among three cultivars, and nothing is learned any more.

Cure: look at the data first; here the row is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np
from datasets import batches, wine
from options import parse

import tb_nanwatch as nanwatch


def main(argv: Sequence[str] | None = None) -> None:
    """Train once."""
    options = parse(__doc__, argv, steps=60)
    keras.utils.set_random_seed(0)
    x, y = wine()
    x[137, 12] = np.nan  # the amount of proline in a wine of batch 17
    if options.cure:
        readable = np.isfinite(x).all(axis=1)
        x, y = x[readable], y[readable]
    model = keras.Sequential(
        [
            keras.Input([13], name="analysis"),
            keras.layers.Dense(16, activation="relu", name="hidden"),
            keras.layers.Dense(3, activation="softmax", name="cultivar"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy")
    model.fit(
        batches(x, y, 8, options.steps),
        steps_per_epoch=options.steps,
        shuffle=False,
        verbose=0,
        callbacks=[nanwatch.NanWatch(options.logdir)],
    )


if __name__ == "__main__":
    main()
