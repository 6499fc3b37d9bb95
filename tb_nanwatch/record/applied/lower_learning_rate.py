"""A fraction of the learning rate, whatever sets it: a number, a schedule, a callback.

The rate is multiplied where an optimizer of Keras 3 reads it to apply gradients; who reads it elsewhere sees the user's
own. Without such an optimizer, what a step adds to the weights is multiplied instead: the rate is a factor of it. In a
graph of TensorFlow 1 the rate that enters the optimizer's kernels is fed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from tb_nanwatch.record import collect, distribution
from tb_nanwatch.record.applied import pure
from tb_nanwatch.record.applied.remedy import Feeds, GraphLoop, NotApplicable, Remedy
from tb_nanwatch.record.graph import names as graph_names
from tb_nanwatch.record.optimizers import inner_of


class LowerLearningRate(Remedy):
    """The learning rate times `factor`."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.words = f"learning rate times {factor:g}"
        self._optimizers: dict[int, Any] = {}  # those whose rate is multiplied

    def applying(self, optimizer: Any) -> None:
        inner = inner_of(optimizer)
        if hasattr(inner, "_get_current_learning_rate") and id(inner) not in self._optimizers:
            self._optimizers[id(inner)] = inner
            object.__setattr__(inner, "_get_current_learning_rate", self._lowered(inner._get_current_learning_rate))

    def _lowered(self, original: Callable[[], Any]) -> Callable[[], Any]:
        def rate() -> Any:
            value = original()
            return value * self.factor if _is_applying() else value

        return rate

    @contextmanager
    def around(self) -> Iterator[None]:
        assert self.loop is not None
        variables = [v.variable for v in self.loop.names.variables if v.trainable]
        scaling = not self._optimizers and not distribution.in_replica()
        before = [v.read_value() for v in variables] if scaling else []
        yield
        if self._optimizers:  # met while this step was traced, if not before
            return
        if not scaling:
            raise NotApplicable("no Keras optimizer was seen whose rate could be lowered in every replica")
        if len([v for v in self.loop.names.variables if v.trainable]) != len(variables) or not variables:
            raise NotApplicable("the weights are made inside the first step, and no Keras optimizer was seen in it")
        self.words = f"updates of the weights times {self.factor:g}"
        for variable, old in zip(variables, before, strict=True):
            new = variable.read_value()
            variable.assign(tf.where(tf.equal(old, new), new, old + tf.cast(self.factor, old.dtype) * (new - old)))

    def applied_rate(self, rate: float) -> float:
        return rate if self.loop is None else rate * self.factor  # of a graph, what is fed is what is read

    # ------------------------------------------------------------ TensorFlow 1

    def feeds(self, loop: GraphLoop, feeds: Feeds) -> dict[Any, Any]:
        rates = graph_names.rates_of(loop.training)
        if not rates:
            raise NotApplicable("no training op of this graph takes a learning rate as an input")
        values = pure.read(loop, rates, feeds, "the learning rate")
        return {t: value * value.dtype.type(self.factor) for t, value in zip(rates, values, strict=True)}


def _is_applying() -> bool:
    """Whether an optimizer is applying gradients in this thread; a strategy does some of it in the thread around."""
    collector = collect.current()
    return collector is not None and (collector.optimizer_depth > 0 or collector.distributing)
