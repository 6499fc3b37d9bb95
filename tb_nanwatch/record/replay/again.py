"""A capsule's step run again with the user's code, as it is now: does an edit hold?

The user's function makes the program's objects; state and random states are put in from the capsule, by name and shape;
then the step runs op by op, and where that is finite once more as the program compiles it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import re
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from tb_nanwatch.errors import CorruptData, NanWatchError, UsageError
from tb_nanwatch.format.capsule import Kept, Opened
from tb_nanwatch.format.records import Origin
from tb_nanwatch.record import off
from tb_nanwatch.record.collect import Collector
from tb_nanwatch.record.graph import again as graph_again
from tb_nanwatch.record.guard import Guard
from tb_nanwatch.record.naming import Names, handle_of, is_layer
from tb_nanwatch.record.optimizers import variables_of
from tb_nanwatch.record.options import Options
from tb_nanwatch.record.replay import batch, observe, rerun, source
from tb_nanwatch.record.replay.capsule import label
from tb_nanwatch.record.replay.memory import Call, Ways
from tb_nanwatch.record.replay.state import Handles, RandomState, State
from tb_nanwatch.record.replay.verdict import Verdict

STEP, MODEL = "step", "model"


@dataclass
class Program:
    """The user's side. run(args, kwargs) is one step as the program runs it, by_hand the same eagerly."""

    run: Callable[[Any, Any], Any]
    by_hand: Callable[[Any, Any], Any]
    names: Names
    variables: list[Any]
    results: list[Any] = field(default_factory=list)


def run(opened: Opened, kind: str, target: str) -> Verdict:
    """Run the step with what `target` ("module:function") returns: (step, variables), or with MODEL a compiled model.

    Raises UsageError for a target that is not there, NanWatchError where the user's code or the capsule's state cannot
    be used, CorruptData for a damaged capsule. What the user's code prints goes to stderr.
    """
    weights = {kept.name for kept in opened.capsule.state if kept.watched}
    notes: list[str] = []
    with contextlib.redirect_stdout(sys.stderr), off.everywhere():
        verdict = _run(opened, kind, target, notes).judged(weights)
    return replace(verdict, notes=tuple(notes))


def _run(opened: Opened, kind: str, target: str, notes: list[str]) -> Verdict:
    if opened.capsule.entry_point in graph_again.ENTRY_POINTS:
        if kind != STEP:
            raise UsageError("this capsule is of a graph: name the function that builds it with --step")
        return graph_again.run(opened, lambda: _called(target, notes), target)
    arguments, names = _arguments(opened)
    made = _called(target, notes)
    program = _keras(made, arguments) if kind == MODEL else _step(made, target)
    handles = Handles()
    named = [v.variable for v in (*program.names.variables, *program.names.metrics)]
    handles.add_variables([*named, *program.variables])
    handles.learn_names(program.variables)
    put_in, missing, unset = _put_in(opened, handles, program.names)
    _put_back_random(opened)
    start = State.now(handles)
    verdict = _observed(opened, program, arguments, names)
    if verdict.outcome == "finite" and not _finite(handles):
        verdict = Verdict("nonfinite", verdict.loss, why="the variables are not finite after the step")
    if verdict.outcome == "finite":
        start.put_back()
        verdict = _compiled(program, arguments, handles, verdict)
    return Verdict(verdict.outcome, verdict.loss, verdict.how, verdict.origin, verdict.why, put_in, missing, unset)


# ---------------------------------------------------------------- the user's code


def _called(target: str, notes: list[str]) -> Any:
    """What the user's function returns. The module is looked for in the current folder first.

    `notes` gets what is to be told of an import that trains.
    """
    module_name, _, function_name = target.partition(":")
    if os.getcwd() not in sys.path:  # noqa: PTH109  # sys.path holds texts
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    with _users_code(f"importing {module_name}"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name not in (module_name, module_name.partition(".")[0]):
                raise
            raise UsageError(f"there is no module {module_name} in this folder or among the installed ones") from error
    if off.asked():
        notes.append(_recorded(module_name, off.asked()))
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"{module_name} has no function {function_name}")
    with _users_code(f"{target}()"):
        return function()


def _recorded(module_name: str, logdirs: Sequence[str]) -> str:
    """That an import would have recorded a training."""
    return (
        f"importing {module_name} begins a recording in {', '.join(logdirs)}, so it seems to train: the recorder was "
        'left off, and nothing was written there. Put what trains under if __name__ == "__main__"'
    )


@contextlib.contextmanager
def _users_code(what: str) -> Any:
    """An exception of the user's code, or its end of the program, becomes an error that says where."""
    try:
        yield
    except NanWatchError:
        raise
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if source.is_users(f.filename)]
        where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        raise NanWatchError(f"{what} raised {type(error).__name__}{where}: {str(error)[:500]}") from error


def _keras(model: Any, arguments: tuple[Any, Any]) -> Program:
    (data,), _ = arguments
    if not is_layer(model) or not hasattr(model, "train_step") or getattr(model, "optimizer", None) is None:
        raise UsageError("--model needs a function that returns a compiled Keras model")
    with _users_code("building the model"):
        if not model.built:
            model(data[0] if isinstance(data, tuple) else data)
        _build(model.optimizer, model.trainable_variables)
    names = Names()
    names.add_model(model)

    def compiled(args: Any, _: Any) -> Any:
        model.make_train_function(force=True)
        # Keras 3.7 and later trains on what any iterator gives; Keras 2 wants one of tf.data.
        several = (
            iter(args) if hasattr(model, "_make_function") or type(model).__module__.startswith("keras.src") else None
        )
        return model.train_function(several or iter(tf.data.Dataset.from_tensors(args[0])))

    return Program(compiled, lambda args, _: model.train_step(*args), names, variables_of([model, model.optimizer]))


def _step(made: Any, target: str) -> Program:
    if not isinstance(made, tuple) or len(made) != 2 or not callable(made[0]):
        raise UsageError(
            f"--step needs a function that returns (step, variables), and {target} returned {type(made).__name__}"
        )
    step, given = made
    several = list(given.values()) if isinstance(given, dict) else given if isinstance(given, list | tuple) else [given]
    names, bare, holders = Names(), [], []
    for one in several:
        if handle_of(one) is not None:
            bare.append(one)
        elif is_layer(one) or isinstance(one, tf.Module) or hasattr(one, "variables"):
            holders.append(one)
        else:
            raise UsageError(f"--step: {target} returned a {type(one).__name__} among its variables")
    for one in holders:
        if is_layer(one):
            names.add_model(one)
        elif isinstance(one, tf.Module) and not _is_optimizer(one):
            names.add_module(one)
    names.add_variables(bare)
    for one in holders:
        if _is_optimizer(one):
            _build(one, [v.variable for v in names.variables if v.trainable])
    by_hand: Any = getattr(step, "python_function", step)
    return Program(
        lambda args, kwargs: step(*args, **kwargs),
        lambda args, kwargs: by_hand(*args, **kwargs),
        names,
        [*bare, *variables_of(holders)],
    )


def _is_optimizer(value: Any) -> bool:
    return hasattr(value, "apply_gradients") or hasattr(value, "inner_optimizer")


def _build(optimizer: Any, variables: Sequence[Any]) -> None:
    """Have the optimizer make its variables now, so that the capsule's can be put in."""
    if hasattr(optimizer, "build") and not getattr(optimizer, "built", getattr(optimizer, "_built", True)):
        optimizer.build(variables)


# ---------------------------------------------------------------- what the capsule gives


def _arguments(opened: Opened) -> tuple[tuple[Any, Any], list[str]]:
    """((args, kwargs), names of the parts) of the step."""
    read: Any = None if opened.batch is None else opened.batch.read
    part = opened.capsule.batch
    data = batch.together(part, read)
    if opened.capsule.entry_point == "watch":
        if (
            not isinstance(data, tuple)
            or len(data) != 2
            or not isinstance(data[0], tuple)
            or not isinstance(data[1], dict)
        ):
            raise CorruptData("the batch is not that of a watched step")
        return data, [item.name for group in part.items for item in group.items]
    return ((data,), {}), ["x", "y", "sample_weight"]


def pair(kept: Sequence[Kept], labels: Sequence[tuple[str, tuple[int, ...]]]) -> dict[int, int]:
    """Which of the capsule's variables goes where: number in `kept` to number in `labels` (names and shapes).

    First by name and shape; then by name without the numbers that Keras counts up, then by the last part of that, in
    their order.
    """
    pairs: dict[int, int] = {}
    keys: tuple[Callable[[str], str], ...] = (str, _without_numbers, _last)
    for key in keys:
        free: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
        for number, (name, shape) in enumerate(labels):
            if number not in pairs.values():
                free[key(name), shape].append(number)
        for number, variable in enumerate(kept):
            same = free.get((key(variable.name), variable.shape))
            if number not in pairs and same:
                pairs[number] = same.pop(0)
    return pairs


def _without_numbers(name: str) -> str:
    return re.sub(r"_\d+(?=/|_|$)", "", name)


def _last(name: str) -> str:
    return _without_numbers(name).rpartition("/")[2]


def _put_in(opened: Opened, handles: Handles, names: Names) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """(how many were put in, the capsule's that were not, the program's that were not)."""
    have = handles.read()
    labels = [(label(handle, handles, names)[0], tuple(value.shape)) for handle, _, value in have]
    kept = [k for k in opened.capsule.state if not k.name.endswith("learning_rate")]  # may be what the edit changed
    pairs = pair(kept, labels)
    for number, place in pairs.items():
        assert opened.state is not None
        handle, dtype, _ = have[place]
        about = kept[number]
        try:
            array = batch.numpy_of(opened.state.read(about.array, about.dtype, about.shape), about.dtype)
            value = tf.cast(tf.constant(array), dtype)
        except (TypeError, ValueError, tf.errors.OpError) as error:
            raise CorruptData(f"the variable {about.name} cannot be read: {str(error)[:200]}") from error
        tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    missing = tuple(about.name for number, about in enumerate(kept) if number not in pairs)
    taken = set(pairs.values())
    return len(pairs), missing, tuple(name for number, (name, _) in enumerate(labels) if number not in taken)


def _put_back_random(opened: Opened) -> None:
    told = opened.capsule.random
    if not told:
        return
    try:
        kind, keys, position, *rest = told["numpy"]
        if kind != "MT19937" or len(keys) != 624 or not 0 <= position <= 624:  # numpy would believe it
            raise ValueError("numpy's state is none of its generator")
        eager = told.get("eager")
        state = RandomState(
            _state(told["python"]), (kind, np.array(keys, np.uint32), position, *rest), eager and _state(eager)
        )
        if eager and getattr(context.context(), "_rng", None) is None:
            tf.random.set_seed(0)  # makes the generator that the state goes into
        state.put_back()
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise CorruptData(f"the random states are malformed: {error}") from error


def _state(told: Any) -> tuple[Any, ...]:
    version, numbers, gauss = told
    state = (version, tuple(numbers), gauss)
    random.Random().setstate(state)  # raises what is wrong with it
    return state


# ---------------------------------------------------------------- running


def _observed(opened: Opened, program: Program, arguments: Any, names: list[str]) -> Verdict:
    """Op by op."""

    def by_hand(data: Any) -> None:
        program.results.append(program.by_hand(*data))

    inputs = (
        (lambda data: (*data[0], *data[1].values()))
        if opened.capsule.entry_point == "watch"
        else lambda data: data[0][0]
    )
    guard = Guard()
    collector = Collector(program.names, Options(), guard)
    seen = observe.run(Ways(by_hand, by_hand, inputs=inputs), Call(opened.capsule.step, arguments, names), collector)
    if not guard.alive:
        raise NanWatchError("the step could not be observed")
    coarse = Origin("loss", precision="op")
    outcome = rerun.told(seen, coarse, opened.capsule.under_xla, 1)
    losses = [float(np.asarray(loss).astype(np.float64).mean()) for _, loss in collector.losses] or _losses(
        program.results
    )
    loss = losses[-1] if losses else None
    if outcome.origin is not None:
        how = "compiled" if outcome.extra["replay"] == "reproduced under XLA only" else "op by op"
        return Verdict("nonfinite", loss, how, outcome.origin, str(outcome.extra.get("error", "")))
    if seen.error is not None:
        with _users_code("the step"):
            raise seen.error
    if loss is not None and not np.isfinite(loss):
        return Verdict("nonfinite", loss, why="the loss is not finite")
    return Verdict("finite", loss)


def _compiled(program: Program, arguments: Any, handles: Handles, finite: Verdict) -> Verdict:
    """As the program runs it: XLA and fused kernels may compute otherwise."""
    with _users_code("the step, compiled,"):
        try:
            result = program.run(*arguments)
        except tf.errors.OpError as error:
            return Verdict("nonfinite", None, "compiled", why=str(error).splitlines()[0][:500])
    losses = _losses([result])
    if all(np.isfinite(losses)) and _finite(handles):
        return Verdict("finite", finite.loss if finite.loss is not None else losses[-1] if losses else None)
    return Verdict("nonfinite", losses[-1] if losses else None, "compiled", why="op by op the step is finite")


def _losses(results: Iterable[Any]) -> list[float]:
    """What looks like a loss among the results of steps: scalars, "loss" last."""
    found = []
    for result in results:
        flat = (
            sorted(result.items(), key=lambda item: item[0] == "loss")
            if isinstance(result, dict)
            else [("", r) for r in tf.nest.flatten(result)]
        )
        found += [
            float(v) for _, v in flat if getattr(v, "shape", None) == () and getattr(v.dtype, "is_floating", False)
        ]
    return found


def _finite(handles: Handles) -> bool:
    return all(not any(observe.state_of(value)) for _, _, value in handles.read())


__all__ = ["MODEL", "STEP", "Verdict", "pair", "run"]
