"""A mean over the rows that matter, in a batch where none does: 0 / 0.

The loss counts only the patients whose disease progressed most, about one in eight. Most batches of 16 have one,
until one has none: both sums are 0, their quotient is NaN, and one update later so is every weight.

Cure: a division that says what 0 / 0 shall be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from datasets import batches, diabetes
from options import parse

import tb_nanwatch as nanwatch


def main(argv: Sequence[str] | None = None) -> None:
    """Train once."""
    options = parse(__doc__, argv, steps=120)
    keras.utils.set_random_seed(0)
    x, y = diabetes()
    model = keras.Sequential(
        [
            keras.Input([10]),
            keras.layers.Dense(16, activation="relu", name="hidden"),
            keras.layers.Dense(1, name="progression"),
        ]
    )
    optimizer = keras.optimizers.SGD(0.01)

    @tf.function
    def train_step(features: Any, progression: Any) -> Any:
        with tf.GradientTape() as tape:
            errors = tf.square(model(features, training=True) - progression)
            severe = tf.cast(progression > 1.0, tf.float32)
            if options.cure:
                loss = tf.math.divide_no_nan(tf.reduce_sum(severe * errors), tf.reduce_sum(severe))
            else:
                loss = tf.reduce_sum(severe * errors) / tf.reduce_sum(severe)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    with nanwatch.watch(train_step, options.logdir, model=model, optimizer=optimizer) as step:
        for features, progression in batches(x, y, 16, options.steps):
            step(features, progression)


if __name__ == "__main__":
    main()
