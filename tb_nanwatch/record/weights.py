"""The weights, measured from outside the step: that cannot change the training, costs the same whether or not the
step is compiled, and shows a NaN that an activation swallowed.

In host memory numpy reads them in place, at twice the speed of TensorFlow's kernels; on an accelerator
tf.functions do, without waiting for their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tb_nanwatch.record import kernels, own
from tb_nanwatch.record.naming import NamedVariable
from tb_nanwatch.stats import measures


class Weights(Protocol):
    """Measures a fixed list of variables as they are now.

    Results are arrays, or tensors on their way to become such.
    """

    def squares(self) -> Any:
        """float64[w] sums of squares."""

    def statistics(self, squares: Any) -> Any:
        """float64[w, COLUMNS] of weights that are finite, given their `squares`."""

    def exact_statistics(self) -> NDArray[np.float64]:
        """float64[w, COLUMNS], whatever the weights hold."""

    def remember(self) -> None:
        """Keep a copy of the trainable ones, from which the next update is measured."""

    def updates(self) -> Any:
        """float64[trainable] norms of the change since `remember`; None before its first call."""


class HostWeights:
    """In host memory."""

    def __init__(self, weights: Sequence[NamedVariable]) -> None:
        self._weights = [named.variable for named in weights]
        self._trainable = [named.variable for named in weights if named.trainable]
        self._before: list[NDArray[Any]] = []

    def squares(self) -> NDArray[np.float64]:
        with np.errstate(all="ignore"):
            return np.array([measures.sum_of_squares(in_place(v)) for v in self._weights])

    def statistics(self, squares: Any) -> NDArray[np.float64]:
        rows = [measures.statistics(in_place(v), s) for v, s in zip(self._weights, squares, strict=True)]
        return np.array(rows).reshape(-1, measures.COLUMNS)

    def exact_statistics(self) -> NDArray[np.float64]:
        rows = [measures.exact_statistics(in_place(v)) for v in self._weights]
        return np.array(rows).reshape(-1, measures.COLUMNS)

    def remember(self) -> None:
        now = [in_place(v) for v in self._trainable]
        if not self._before:
            self._before = [np.array(a) for a in now]
            return
        for kept, a in zip(self._before, now, strict=True):
            np.copyto(kept, a)

    def updates(self) -> NDArray[np.float64] | None:
        if not self._before:
            return None
        return np.array([distance(in_place(v), kept) for kept, v in zip(self._before, self._trainable, strict=True)])


class DeviceWeights:
    """On an accelerator."""

    def __init__(self, weights: Sequence[NamedVariable]) -> None:
        self._weights = [named.variable for named in weights]
        self._trainable = [named.variable for named in weights if named.trainable]
        self._before: list[Any] = []
        self._squares = own.function(lambda: self._each(kernels.sum_of_squares))
        self._statistics = own.function(lambda: self._each(kernels.statistics))
        self._exact = own.function(lambda: self._each(kernels.exact_statistics))
        self._remember = own.function(self._copy)
        self._updates = own.function(self._update_norms)

    def squares(self) -> Any:
        return self._squares()

    def statistics(self, squares: Any) -> Any:  # noqa: ARG002  # taken anew: it would have to be waited for
        return self._statistics()

    def exact_statistics(self) -> NDArray[np.float64]:
        return np.asarray(self._exact())

    def remember(self) -> None:
        if self._before:
            self._remember()
        else:
            self._before = [own.variable(tf.convert_to_tensor(v), "before") for v in self._trainable]

    def updates(self) -> Any:
        return self._updates() if self._before else None

    def _each(self, kernel: Any) -> Any:
        return tf.stack([tf.cast(kernel(tf.convert_to_tensor(v)), tf.float64) for v in self._weights])

    def _copy(self) -> None:
        for before, variable in zip(self._before, self._trainable, strict=True):
            before.assign(variable)

    def _update_norms(self) -> Any:
        pairs = zip(self._before, self._trainable, strict=True)
        changes = [tf.convert_to_tensor(v) - tf.convert_to_tensor(b) for b, v in pairs]
        return tf.stack([tf.sqrt(tf.cast(kernels.sum_of_squares(c), tf.float64)) for c in changes])


def in_place(variable: Any) -> NDArray[Any]:
    """A variable's value as an array, without a copy where it lies in host memory. Use it and let it go."""
    return np.asarray(tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype))


def distance(now: NDArray[Any], before: NDArray[Any]) -> float:
    """L2 norm of the difference."""
    pairs = zip(measures.pieces(measures.wide(now)), measures.pieces(measures.wide(before)), strict=True)
    with np.errstate(all="ignore"):
        return float(np.sqrt(sum(measures.sum_of_squares(a - b) for a, b in pairs)))
