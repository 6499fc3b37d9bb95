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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
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
from tb_nanwatch.record.naming import handle_of
from tb_nanwatch.record.options import Options
from tb_nanwatch.record.replay import batch, observe, rerun, source
from tb_nanwatch.record.replay import program as programs
from tb_nanwatch.record.replay.capsule import label
from tb_nanwatch.record.replay.memory import Call, Ways
from tb_nanwatch.record.replay.program import Making, Program
from tb_nanwatch.record.replay.state import Handles, RandomState, State
from tb_nanwatch.record.replay.verdict import Verdict

STEP, MODEL = "step", "model"


def run(opened: Opened, kind: str, target: str) -> Verdict:
    """Run the step with what `target` ("module:function") returns: (step, variables), or with MODEL a compiled model.

    Raises UsageError for a target that is not there, NanWatchError where the user's code or the capsule's state cannot
    be used, CorruptData for a damaged capsule. What the user's code prints goes to stderr.
    """
    weights = {kept.name for kept in opened.capsule.state if kept.watched}
    notes: list[str] = []
    with contextlib.redirect_stdout(sys.stderr), off.everywhere(), _arguments_of(target):
        verdict = _run(opened, kind, target, notes).judged(weights)
    return replace(verdict, notes=tuple(notes))


def _run(opened: Opened, kind: str, target: str, notes: list[str]) -> Verdict:
    if opened.capsule.entry_point in graph_again.ENTRY_POINTS:
        if kind != STEP:
            raise UsageError("this capsule is of a graph: name the function that builds it with --step")
        return graph_again.run(opened, lambda: _called(target, notes), target)
    arguments, names = _arguments(opened)
    making = programs.Making()
    with making.watched():
        made = _called(target, notes)
    program = programs.keras(made, target) if kind == MODEL else programs.step(made, target)
    with _users_code("building the optimizer"):
        program.build_optimizer()
    rehearsed = not program.built
    if rehearsed:
        program.rehearse(arguments, making)
    handles, put_in, missing, unset = _put_in(opened, program, making)
    if missing and not rehearsed:
        program.rehearse(arguments, making)
        handles, put_in, missing, unset = _put_in(opened, program, making)
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
def _arguments_of(target: str) -> Iterator[None]:
    """The command line that a program sees which reads it: its own name, and not what this command was given."""
    given = sys.argv
    sys.argv = [f"{target.partition(':')[0]}.py"]
    try:
        yield
    finally:
        sys.argv = given


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


def _plain(name: str) -> str:
    """Without the number by which a capsule tells variables of the same name apart."""
    return re.sub(r" \(\d+\)$", "", name)


def _without_numbers(name: str) -> str:
    return re.sub(r"_\d+(?=/|_|$)", "", _plain(name))


def _last(name: str) -> str:
    return _without_numbers(name).rpartition("/")[2]


Labels = Sequence[tuple[str, tuple[int, ...]]]


def pair(
    kept: Sequence[Kept], labels: Labels, keys: Sequence[Callable[[str], str]] = (_plain, _without_numbers, _last)
) -> dict[int, int]:
    """Which of the capsule's variables goes where: number in `kept` to number in `labels` (names and shapes).

    First by name and shape; then by name without the numbers that Keras counts up, then by the last part of that, in
    their order.
    """
    pairs: dict[int, int] = {}
    for key in keys:
        taken = set(pairs.values())
        free: dict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
        for number, (name, shape) in enumerate(labels):
            if number not in taken:
                free[key(name), shape].append(number)
        for number, variable in enumerate(kept):
            same = free.get((key(variable.name), variable.shape))
            if number not in pairs and same:
                pairs[number] = same.pop(0)
    return pairs


def _put_in(opened: Opened, program: Program, making: Making) -> tuple[Handles, int, tuple[str, ...], tuple[str, ...]]:
    """(the program's variables, how many were put in, the capsule's that were not, the program's that were not).

    A metric that is in one of them alone is in neither: it only counts. What the step has of its own, beside what the
    function returned, is known by its name alone.
    """
    handles, names = Handles(), program.names
    named = [v.variable for v in (*names.variables, *names.metrics)]
    handles.add_variables([*named, *program.variables])
    handles.learn_names(program.variables)
    have = handles.read()
    labels = [(label(handle, handles, names)[0], tuple(value.shape)) for handle, _, value in have]
    kept = [k for k in opened.capsule.state if not k.name.endswith("learning_rate")]  # may be what the edit changed
    pairs = pair(kept, labels)
    for number, place in pairs.items():
        _assign(opened, kept[number], have[place])
    rest = [kept[number] for number in range(len(kept)) if number not in pairs]
    found = _put_in_others(opened, rest, handles, making)
    metrics = {id(handle_of(metric.variable)) for metric in names.metrics}
    taken = set(pairs.values())
    unset = tuple(
        name for number, (name, _) in enumerate(labels) if number not in taken and id(have[number][0]) not in metrics
    )
    missing = tuple(about.name for about in rest if about.name not in found and not about.metric)
    return handles, len(pairs) + len(found), missing, unset


def _put_in_others(opened: Opened, rest: Sequence[Kept], handles: Handles, making: Making) -> set[str]:
    """Put what has no place yet into variables that the program made and did not return; gives the names of those.

    `handles` learns of the variables.
    """
    others = Handles()
    known = handles.ids()
    variables = [v for v, _ in making.made if id(handle_of(v)) not in known]
    others.add_variables(variables)
    others.learn_names(variables)
    have = others.read()
    labels = [(others.name(handle), tuple(value.shape)) for handle, _, value in have]
    pairs = pair(rest, labels, (_plain, _without_numbers))
    for number, place in pairs.items():
        _assign(opened, rest[number], have[place])
        handles.add(have[place][0])
    return {rest[number].name for number in pairs}


def _assign(opened: Opened, about: Kept, place: tuple[Any, Any, Any]) -> None:
    assert opened.state is not None
    handle, dtype, _ = place
    try:
        array = batch.numpy_of(opened.state.read(about.array, about.dtype, about.shape), about.dtype)
        value = tf.cast(tf.constant(array), dtype)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise CorruptData(f"the variable {about.name} cannot be read: {str(error)[:200]}") from error
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)


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
