"""A type with the range of float32, for all of the network or for the layer that needs it."""

from __future__ import annotations

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.remedies import layer
from tb_nanwatch.diagnose.remedies.remedy import FIT, GRAPH, Advice, Patient


def mixed_precision_policy(patient: Patient) -> Advice:
    """bfloat16 for the network; float32 for the layer named."""
    why = (
        "float16 ends at 65,504; bfloat16 reaches as far as float32 with fewer digits, and needs no loss scale. The "
        "layer that overflowed may also compute in float32, if what follows it does."
    )
    if patient.style == GRAPH:
        return Advice(why, "x = tf.cast(x, tf.float32)  # before the sum or product that overflows")
    lines = ['keras.mixed_precision.set_global_policy("mixed_bfloat16")  # before the model is built']
    own = layer.made(patient, 'dtype="float32"') if patient.layer else None
    if own is not None:
        lines.append(f"{own}  # or only this layer, and those behind it")
    elif patient.layer:
        name = words.quoted(patient.layer)
        lines.append(f"x = tf.cast(x, tf.float32)  # or only inside {name}, before the sum or product that overflows")
    elif patient.style != FIT:
        lines.append("loss = tf.cast(loss, tf.float32)  # before it is multiplied by the loss scale")
    return Advice(why, "\n".join(lines))
