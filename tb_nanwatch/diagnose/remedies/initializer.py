"""Initial weights scaled to the width of the layer."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.remedies.remedy import GRAPH, Advice, Patient, constructor

RECURRENT: Final = ("SimpleRNN", "GRU", "LSTM", "RNN")
BOUNDED: Final = ("saturated_activation", "vanishing_gradient")  # sigmoid or tanh: Xavier's scale, not He's


def initializer(patient: Patient) -> Advice:
    """He for relu, Xavier for sigmoid and tanh, orthogonal for what is applied again and again."""
    where = f" The first to change is {words.printable(patient.layer)}." if patient.layer else ""
    why = (
        f"Initial weights scaled to the layer's width keep numbers and gradients at one size through the depth.{where}"
    )
    name = "glorot_uniform" if patient.cause in BOUNDED else "he_normal"
    if patient.style == GRAPH:
        variable = f"{patient.layer}/w" if patient.layer else "w"
        made = (
            "tf.compat.v1.keras.initializers.he_normal()"
            if name == "he_normal"
            else "tf.compat.v1.glorot_uniform_initializer()"
        )
        return Advice(why, f'w = tf.compat.v1.get_variable("{words.quoted(variable)}", shape, initializer={made})')
    recurrent = patient.layer_class in RECURRENT
    extra = 'recurrent_initializer="orthogonal"' if recurrent else f'kernel_initializer="{name}"'
    weights = patient.weighted
    units = weights.shape[-1] if weights is not None and weights.shape and patient.layer_class == "Dense" else None
    return Advice(why, constructor(patient.layer_class, patient.layer, units, extra))
