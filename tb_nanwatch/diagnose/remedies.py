"""What can be done, each with why it helps and the lines to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Remedy:
    """A remedy by its name in the report."""

    name: str
    why: str
    snippet: str


REMEDIES: Final = {
    remedy.name: remedy
    for remedy in (
        Remedy(
            "clean_input",
            "A non-finite value in the batch reaches every weight through the gradient; it has to go before the step.",
            "dataset = dataset.filter(lambda x, y: tf.reduce_all(tf.math.is_finite(x)))",
        ),
        Remedy(
            "lower_learning_rate",
            "The numbers grew from update to update: smaller steps keep the weights where the loss falls.",
            "optimizer.learning_rate = optimizer.learning_rate / 10",
        ),
        Remedy(
            "clip_gradients",
            "A bound on the global gradient norm stops one large gradient from starting the growth.",
            "optimizer = keras.optimizers.Adam(learning_rate, global_clipnorm=1.0)",
        ),
        Remedy(
            "use_activation_or_normalization",
            "Sigmoid and tanh shrink the gradient in every layer; relu-like activations or normalization carry it.",
            'keras.layers.Dense(units, activation="relu"), keras.layers.LayerNormalization()',
        ),
        Remedy(
            "initializer",
            "Initial weights scaled to the layer's width keep the gradient's size from layer to layer.",
            'keras.layers.Dense(units, activation="relu", kernel_initializer="he_normal")',
        ),
    )
}


def entry(name: str) -> dict[str, Any]:
    """A remedy as the report holds it, with a trial that nobody has run."""
    remedy = REMEDIES[name]
    trial = {"outcome": "not_run", "steps": 0, "control": "not_run", "note": ""}
    return {"name": name, "why": remedy.why, "snippet": remedy.snippet, "trial": trial}
