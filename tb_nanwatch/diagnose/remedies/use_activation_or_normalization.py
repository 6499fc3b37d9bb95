"""An activation that fits what the numbers mean, or a normalization that keeps them near 1."""

from __future__ import annotations

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.remedies import layer
from tb_nanwatch.diagnose.remedies.remedy import GRAPH, Advice, Patient


def use_activation_or_normalization(patient: Patient) -> Advice:
    """For a logarithm an output that is positive; for vanishing and overflow a layer that keeps the size."""
    if patient.cause == "log_of_nonpositive":
        return _positive(patient)
    if patient.cause == "dead_relu":
        why = (
            "A unit whose relu is 0 for every sample gets no gradient and stays so; a slope below 0 lets it come back."
        )
        extra = 'activation="leaky_relu"'
    elif patient.cause in ("vanishing_gradient", "saturated_activation"):
        why = "Sigmoid and tanh shrink the gradient in every layer; relu-like activations or normalization carry it."
        extra = 'activation="relu", kernel_initializer="he_normal"'
    else:
        why = "Normalization brings what a layer puts out back to about 1, whatever went in."
        extra = ""
    if patient.style == GRAPH:
        lines = (
            "mean, variance = tf.nn.moments(hidden, [0])",
            "hidden = tf.nn.relu((hidden - mean) / tf.sqrt(variance + 1e-3))",
        )
        return Advice(why, "\n".join(lines))
    behind = f"  # behind {words.quoted(patient.layer)}" if patient.layer else ""
    own = layer.made(patient, extra) if extra else None
    if own is not None:
        return Advice(why, f"{own}, keras.layers.LayerNormalization()")
    other = "LeakyReLU" if patient.cause == "dead_relu" else "LayerNormalization"
    return Advice(why, f"x = keras.layers.{other}()(x){behind}")


def _positive(patient: Patient) -> Advice:
    last = patient.last_layer
    what = f" of {words.printable(last.layer)}" if last is not None and last.layer else ""
    why = f"Nothing keeps the output{what} above 0, and its logarithm is taken: softplus or exp does."
    if patient.style == GRAPH or last is None or last.layer_class != "Dense":
        return Advice(why, "prediction = tf.nn.softplus(prediction) + 1e-10")
    own = layer.made(patient, 'activation="softplus"', last.layer, "Dense")
    return Advice(why, own or "prediction = tf.nn.softplus(prediction) + 1e-10")
