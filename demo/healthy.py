"""A convolutional net on handwritten digits with nothing wrong: what a healthy run looks like.

It is already as it should be; `--cure` changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
from datasets import batches, digits
from options import parse

import tb_nanwatch as nanwatch


def main(argv: Sequence[str] | None = None) -> None:
    """Train once."""
    options = parse(__doc__, argv, steps=200)
    keras.utils.set_random_seed(0)
    x, y = digits()
    model = keras.Sequential(
        [
            keras.Input([8, 8, 1]),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu", name="edges"),
            keras.layers.MaxPooling2D(name="half"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu", name="shapes"),
            keras.layers.Flatten(name="flat"),
            keras.layers.Dropout(0.2, name="dropout"),
            keras.layers.Dense(10, activation="softmax", name="digit"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.001), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        batches(x, y, 64, options.steps),
        steps_per_epoch=options.steps,
        shuffle=False,
        verbose=0,
        callbacks=[nanwatch.NanWatch(options.logdir)],
    )


if __name__ == "__main__":
    main()
