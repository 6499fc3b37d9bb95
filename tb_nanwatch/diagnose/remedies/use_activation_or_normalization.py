"""An activation that fits what the numbers mean, or a normalization that keeps them near 1."""

from __future__ import annotations

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.remedies.remedy import GRAPH, Advice, Patient, constructor


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
        return Advice(why, "hidden = tf.nn.relu(tf.compat.v1.layers.batch_normalization(hidden, training=True))")
    after = f"  # behind {words.quoted(patient.layer)}" if patient.layer else ""
    if not extra:
        return Advice(why, f"x = keras.layers.LayerNormalization()(x){after}")
    return Advice(
        why,
        f"{constructor(patient.layer_class, patient.layer, _units(patient), extra)}, keras.layers.LayerNormalization()",
    )


def _positive(patient: Patient) -> Advice:
    last = patient.last_layer
    what = f" of {words.printable(last.layer)}" if last is not None and last.layer else ""
    why = f"Nothing keeps the output{what} above 0, and its logarithm is taken: softplus or exp does."
    if patient.style == GRAPH or last is None or last.layer_class != "Dense":
        return Advice(why, "prediction = tf.nn.softplus(prediction) + 1e-10")
    units = last.shape[-1] if last.shape else None
    return Advice(why, constructor("Dense", last.layer, units, 'activation="softplus"'))


def _units(patient: Patient) -> int | None:
    weights = patient.weighted
    return weights.shape[-1] if weights is not None and weights.shape and patient.layer_class == "Dense" else None
