"""The user's side of a capsule's step: what the named function returned, as a program that can run the step.

Much of a program is made by its first step only: layers without an input shape, slots of optimizers, metrics. A
rehearsal runs that step, keeps what it makes as it was made, and puts back what it changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from tb_nanwatch.errors import UsageError
from tb_nanwatch.record.naming import Names, handle_of, is_layer
from tb_nanwatch.record.optimizers import labelled, variables_of
from tb_nanwatch.record.replay.state import Handles, State, draw_elsewhere


class Making:
    """Variables that the user's code makes, each with the value it is made with."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, Any]] = []

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While this lasts, variables are taken note of; inside a graph they have no value yet."""

        def creator(create: Callable[..., Any], **settings: Any) -> Any:
            variable = create(**settings)
            if tf.executing_eagerly() and handle_of(variable) is not None and variable.is_initialized():
                self.made.append((variable, variable.read_value()))
            return variable

        with tf.variable_creator_scope(creator):
            yield


@dataclass
class Program:
    """run(args, kwargs) is one step as the program runs it, by_hand the same eagerly.

    holders: models, modules and optimizers; bare: variables that the function returned by themselves.
    """

    run: Callable[[Any, Any], Any]
    by_hand: Callable[[Any, Any], Any]
    names: Names
    holders: list[Any]
    bare: list[Any] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)

    @property
    def variables(self) -> list[Any]:
        """Those of what the function returned, as far as they are made by now."""
        return [*self.bare, *variables_of(self.holders)]

    @property
    def built(self) -> bool:
        """Whether nothing is known to wait for a first step."""
        return all(_built(one) for one in self.holders)

    def build_optimizer(self) -> None:
        """Have the only optimizer of built models make its variables; several share out the weights in the step."""
        optimizers = [one for one in self.holders if _is_optimizer(one)]
        if len(optimizers) == 1 and all(_built(one) for one in self.holders if not _is_optimizer(one)):
            weights = [v.variable for v in self.names.variables if v.trainable]
            if weights and not _built(optimizers[0]) and hasattr(optimizers[0], "build"):
                optimizers[0].build(weights)

    def rehearse(self, arguments: tuple[Any, Any], making: Making) -> None:
        """Run the step once for what it makes, and put back what it changes. What it raises, it raises again later."""
        known = Handles()
        known.add_variables([*self.variables, *(variable for variable, _ in making.made)])
        before = State.now(known)
        draw_elsewhere()
        were_eager = tf.config.functions_run_eagerly()
        tf.config.run_functions_eagerly(True)
        try:
            with contextlib.suppress(Exception), making.watched():
                self.by_hand(*arguments)
        finally:
            tf.config.run_functions_eagerly(were_eager)
        before.with_others(making.made).put_back()
        self.names.look_again()


def keras(model: Any, target: str) -> Program:
    """Of a compiled Keras model. Raises UsageError for anything else."""
    if not is_layer(model) or not hasattr(model, "train_step") or getattr(model, "optimizer", None) is None:
        raise UsageError(
            f"--model needs a function that returns a compiled Keras model; {target} returned {_about(model)}"
        )
    names = Names()
    names.add_model(model)

    def compiled(args: Any, _: Any) -> Any:
        model.make_train_function(force=True)
        # Keras 3.7 and later trains on what any iterator gives; Keras 2 wants one of tf.data.
        several = (
            iter(args) if hasattr(model, "_make_function") or type(model).__module__.startswith("keras.src") else None
        )
        return model.train_function(several or iter(tf.data.Dataset.from_tensors(args[0])))

    holders = [model, *(optimizer for _, optimizer in labelled(model))]
    return Program(compiled, lambda args, _: model.train_step(*args), names, holders)


def step(made: Any, target: str) -> Program:
    """Of (step, variables). Raises UsageError for anything else."""
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]):
        raise UsageError(f"--step needs a function that returns (step, variables); {target} returned {_about(made)}")
    function, given = made
    names, bare, holders = Names(), [], []
    for one in tf.nest.flatten(given):
        state = getattr(one, "state", None)  # of a generator of random numbers
        if handle_of(one) is not None:
            bare.append(one)
        elif is_layer(one) or isinstance(one, tf.Module) or hasattr(one, "variables"):
            holders.append(one)
        elif handle_of(state) is not None:
            bare.append(state)
        else:
            raise UsageError(
                f"--step: {target} returned {_about(one)} among its variables; give models, optimizers and variables"
            )
    for one in holders:
        if is_layer(one):
            names.add_model(one)
        elif isinstance(one, tf.Module) and not _is_optimizer(one):
            names.add_module(one)
    names.add_variables(bare)
    by_hand: Any = getattr(function, "python_function", function)
    return Program(
        lambda args, kwargs: function(*args, **kwargs),
        lambda args, kwargs: by_hand(*args, **kwargs),
        names,
        holders,
        bare,
    )


def _about(value: Any) -> str:
    """What something is, for a sentence that says that it should be something else."""
    if value is None:
        return "nothing"
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(one).__name__ for one in value[:6])}{', ...' if len(value) > 6 else ''}"
    if is_layer(value) and hasattr(value, "train_step"):
        return f"a {type(value).__name__} that is not compiled"
    return type(value).__name__


def _is_optimizer(value: Any) -> bool:
    return hasattr(value, "apply_gradients") or hasattr(value, "inner_optimizer")


def _built(holder: Any) -> bool:
    """Unknown counts as built: what lacks variables then shows when the capsule's are put in."""
    return bool(getattr(holder, "built", getattr(holder, "_built", True)))
