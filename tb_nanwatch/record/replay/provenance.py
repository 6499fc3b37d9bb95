"""The way back from an op to the data: variables, layers and parts of the batch that fed it; where a batch is bad."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.record import kernels
from tb_nanwatch.record.replay.observe import Node, Observation, state_of
from tb_nanwatch.stats import places

MOST: Final = 12  # of each kind that are named
MOST_FEATURES: Final = 32
MOST_OPS: Final = 20_000  # that are walked back through
_COMPARED: Final = 1 << 22  # elements; a larger array is recognised only as itself


def fed_by(seen: Observation, node: Node) -> dict[str, list[str]]:
    """Names of "variables", "layers" and "inputs" (parts of the batch), nearest first, MOST of each."""
    found: dict[str, dict[str, None]] = {"variables": {}, "layers": {}, "inputs": {}}
    given, arrays = _given(seen)
    waiting, known, ops = deque(node.inputs), set(), 0
    while waiting and ops < MOST_OPS:
        tensor = waiting.popleft()
        if tensor is None or id(tensor) in known:
            continue
        known.add(id(tensor))
        made = seen.producers.get(id(tensor))
        if id(tensor) in given:
            found["inputs"].setdefault(given[id(tensor)])
        elif getattr(tensor, "dtype", None) == tf.resource:
            named = seen.collector.names.by_handle(tensor)
            if named is not None:
                found["variables"].setdefault(named.name)
        elif made is not None:
            ops += 1
            if made.layer:
                found["layers"].setdefault(made.layer)
            waiting.extend(made.inputs)
        else:
            name = _equal(tensor, arrays)
            if name:
                found["inputs"].setdefault(name)
    return {kind: list(names)[:MOST] for kind, names in found.items()}


def bad_input(seen: Observation) -> dict[str, Any]:
    """Which part of the batch is not finite, as "element" (and all of them as "elements" if several).

    "features": at which places of a sample, as lists of indices without the sample's, at most MOST_FEATURES.
    """
    bad = [s for s in seen.collector.seen if s.kind == "input" and any(state_of(s.tensor))]
    if not bad:
        return {}
    array = np.asarray(bad[0].tensor).astype(np.float64)
    told: dict[str, Any] = {"element": bad[0].name, "features": places.bad_features(array, MOST_FEATURES)}
    return told if len(bad) == 1 else told | {"elements": [s.name for s in bad][:MOST]}


def _given(seen: Observation) -> tuple[dict[int, str], list[tuple[str, Any]]]:
    """Names of the batch's tensors by id; and its arrays, which TensorFlow copied where they were used."""
    tensors = {id(s.tensor): s.name for s in seen.collector.seen if s.kind == "input"}
    arrays = []
    for name, value in seen.given:
        for part in _dense(value):
            if isinstance(part, np.ndarray):
                arrays.append((name, part))
            else:
                tensors[id(part)] = name
    return tensors, arrays


def _dense(value: Any) -> list[Any]:
    inner = kernels.measurable(value)
    if isinstance(value, tf.RaggedTensor):
        return [value.flat_values, *value.nested_row_splits]
    if isinstance(value, tf.SparseTensor):
        return [value.indices, value.values, value.dense_shape]
    return [value if inner is None else inner]


def _equal(tensor: Any, arrays: list[tuple[str, Any]]) -> str:
    """Name of the array that a tensor without an origin was made from."""
    for name, array in arrays:
        if 1 < array.size < _COMPARED and tuple(tensor.shape) == array.shape:
            there = np.asarray(tensor)
            numbers = there.dtype.kind in "biuf" and array.dtype.kind in "biuf"
            if numbers and np.array_equal(there, array.astype(there.dtype), equal_nan=there.dtype.kind == "f"):
                return name
    return ""
