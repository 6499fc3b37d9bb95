"""A layer of Keras as a program makes it, with what was recorded of it: its class, name and size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tb_nanwatch.diagnose import words
from tb_nanwatch.diagnose.remedies.remedy import Patient
from tb_nanwatch.format.records import TensorInfo

Shape = tuple[int, ...]


def _filters(shape: Shape) -> str:
    return f"{shape[-1]}, {shape[:-2]}"


def _transposed(shape: Shape) -> str:
    return f"{shape[-2]}, {shape[:-2]}"


#: The arguments that a class cannot do without, from the shape of its largest weights; and that shape's length.
ARGUMENTS: Final[dict[str, tuple[int, Callable[[Shape], str]]]] = {
    "Dense": (2, lambda shape: f"{shape[-1]}"),
    "Conv1D": (3, _filters),
    "Conv2D": (4, _filters),
    "Conv3D": (5, _filters),
    "Conv1DTranspose": (3, _transposed),
    "Conv2DTranspose": (4, _transposed),
    "Conv3DTranspose": (5, _transposed),
    "SimpleRNN": (2, lambda shape: f"{shape[-1]}"),
    "GRU": (2, lambda shape: f"{shape[-1] // 3}"),
    "LSTM": (2, lambda shape: f"{shape[-1] // 4}"),
}


def made(patient: Patient, extra: str, layer: str = "", layer_class: str = "") -> str | None:
    """The line that makes the layer in question, or the one named, with `extra` arguments; None for a class whose
    arguments nobody knows, such as the program's own.
    """
    layer = (layer or patient.layer).partition(":")[0]
    weights = largest(patient, layer)
    layer_class = layer_class or patient.layer_class or (weights.layer_class if weights is not None else "")
    size, of_weights = ARGUMENTS.get(layer_class, (0, None))
    shape = weights.shape if weights is not None else None
    if of_weights is None or shape is None or len(shape) != size or min(shape) < 1:
        return None
    name = f', name="{words.quoted(layer.rpartition("/")[2])}"' if layer else ""
    return f"keras.layers.{layer_class}({of_weights(shape)}, {extra}{name})"


def largest(patient: Patient, layer: str) -> TensorInfo | None:
    """The largest weights of a layer or of what it is made of, such as the cell of a recurrent one."""
    found = [i for i in patient.run.kind("weight") if i.shape and (i.layer == layer or i.layer.startswith(f"{layer}/"))]
    return max(found, key=lambda info: int(np.prod(info.shape or ())), default=None)
