"""Initial weights scaled to the width of the layer."""

from __future__ import annotations

from typing import Final

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.remedies import layer
from tb_nanwatch.diagnose.remedies.remedy import GRAPH, Advice, Patient

RECURRENT: Final = ("SimpleRNN", "GRU", "LSTM")
SHAPE: Final = (64, 64)  # where none is known
BOUNDED: Final = ("saturated_activation", "vanishing_gradient")  # sigmoid or tanh: Xavier's scale, not He's


def initializer(patient: Patient) -> Advice:
    """He for relu, Xavier for sigmoid and tanh, orthogonal for what is applied again and again."""
    where = f" The first to change is {words.printable(patient.layer)}." if patient.layer else ""
    why = (
        f"Initial weights scaled to the layer's width keep numbers and gradients at one size through the depth.{where}"
    )
    name = "glorot_uniform" if patient.cause in BOUNDED else "he_normal"
    weights = layer.largest(patient, patient.layer) or patient.last_layer
    shape = weights.shape if weights is not None and weights.shape and min(weights.shape) > 0 else SHAPE
    remark = "" if shape is not SHAPE else "  # the shape that it has in your program"
    if patient.style == GRAPH:
        variable = words.quoted(f"{patient.layer}/w" if patient.layer else "w")
        drawn = "variance_scaling(scale=2.0)" if name == "he_normal" else "glorot_uniform()"
        made = f"tf.compat.v1.initializers.{drawn}"
        return Advice(why, f'w = tf.compat.v1.get_variable("{variable}", {shape}, initializer={made}){remark}')
    recurrent = patient.layer_class in RECURRENT
    extra = 'recurrent_initializer="orthogonal"' if recurrent else f'kernel_initializer="{name}"'
    own = layer.made(patient, extra)
    if own is not None:
        return Advice(why, own)
    drawn = "GlorotUniform" if name == "glorot_uniform" else "HeNormal"
    return Advice(why, f"w = tf.Variable(keras.initializers.{drawn}()({shape})){remark}")
