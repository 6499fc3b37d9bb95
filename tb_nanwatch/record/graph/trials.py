"""Remedies tried in a session of their own, on the steps of a graph that were kept.

What a remedy changes is fed: the input of an op, the learning rate of an optimizer's kernel, gradients, the batch. The
control is the same steps with nothing changed.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.format.records import Origin
from tb_nanwatch.record.graph import flat, guards, names, walk
from tb_nanwatch.record.graph.guarded import guarded
from tb_nanwatch.record.graph.memory import Fed
from tb_nanwatch.record.replay import remedies
from tb_nanwatch.record.replay.remedies import EXTREME
from tb_nanwatch.record.replay.trials import HORIZON, SHARE, strict_number

BEYOND: Final = (
    4  # steps behind the failing one where an op's input is fed: its gradient is not cut off as a bound would
)
TRAINED: Final = ("forward", "loss", "backward", "update")

Feeds = dict[Any, Any]
Change = Callable[[Feeds], Feeds]  # from what the program feeds to what is fed
Run = tuple[bool, int, list[float]]  # whether all stayed finite, steps, the losses


@dataclass
class Bench:
    """variables: before the first of `steps`, by name; op: the forward op of the origin; deadline: of monotonic()."""

    session: Any
    graph: Any
    variables: Mapping[str, Any]
    steps: Sequence[Fed]
    losses: Sequence[Any]
    gradients: Sequence[Any]
    deadline: float
    op: Any = None
    _control: bool | None = field(default=None)

    def run(self, change: Change, horizon: int = HORIZON) -> Run:
        """(whether all stayed finite, steps, the losses) from the kept variables on."""
        load(self.session, self.graph, self.variables)
        weights = list(variables(self.graph).values())
        until = time.monotonic() + max(1.0, (self.deadline - time.monotonic()) * SHARE)
        losses: list[float] = []
        total, steps = max(horizon, len(self.steps)), 0
        while True:
            fed = self.steps[steps % len(self.steps)]
            values = self.session.run([list(self.losses), fed.fetches], change(feeds(self.graph, fed)))[0]
            losses += [float(np.mean(values[0]))] if values else []
            steps += 1
            over = steps == total or time.monotonic() > until
            look = over or steps % 8 == 0 or steps == len(self.steps)
            if not finite(values) or (look and not finite(self.session.run(weights))):
                return False, steps, losses
            if over:
                return steps >= len(self.steps), steps, losses

    def with_(self, change: Change) -> Callable[[int], Run]:
        """The attempt to run so many steps with other feeds."""
        return functools.partial(self.run, change)

    @property
    def control(self) -> bool:
        """Whether the unchanged steps fail here too."""
        if self._control is None:
            self._control = not self.run(lambda given: given)[0]
        return self._control


def run(bench: Bench, origin: Origin, through_where: bool) -> Iterator[dict[str, Any]]:
    """Entries for JSON, one a trial, likeliest first."""
    guard = _guard(bench)
    for name, note, value, also, attempt in _plan(bench, origin, through_where):
        entry: dict[str, Any] = {"remedy": name, "note": note, "also": list(also), "losses": []}
        entry |= {} if value is None else {"value": value}
        if isinstance(attempt, str):
            yield entry | {"outcome": "not_run", "steps": 0, "control": "not_run", "note": attempt}
            continue
        if time.monotonic() > bench.deadline:
            yield entry | {
                "outcome": "not_run", "steps": 0, "control": "not_run", "note": f"{note}; no time was left for it"
            }  # fmt: skip
            continue
        try:
            if not bench.control:
                why = f"{note}; the same steps unchanged were finite, too"
                yield entry | {"outcome": "inconclusive", "steps": 0, "control": "finite", "note": why}
                return
            horizon = len(bench.steps) + BEYOND if guard is not None and note == guard[-1] else HORIZON
            held, steps, losses = attempt(horizon)
        except (tf.errors.OpError, ValueError, TypeError) as error:
            why = f"{note}; {type(error).__name__}: {told(error)[:200]}"
            yield entry | {"outcome": "inconclusive", "steps": 0, "control": "not_run", "note": why}
            continue
        course = [strict_number(v) for v in losses[:: max(1, len(losses) // 8)]]
        width = len(bench.steps) if len(losses) >= 2 * len(bench.steps) else len(losses) // 4
        if held and width:
            entry["course"] = [float(np.mean(losses[:width])), float(np.mean(losses[-width:]))]
        yield entry | {
            "outcome": "finite" if held else "nonfinite", "steps": steps, "control": "nonfinite", "losses": course
        }  # fmt: skip


Attempt = Callable[[int], Run]  # from the number of steps
Planned = tuple[str, str, float | None, tuple[str, ...], Attempt | str]


def _plan(bench: Bench, origin: Origin, through_where: bool) -> Iterator[Planned]:
    kind = bench.op.type if bench.op is not None else ""
    guard = _guard(bench) if origin.phase != "input" else None
    if guard is not None:
        number, kept, name, words = guard
        also = guards.ALSO.get(kind, ())
        named = ("safe_where", name, *also) if through_where else (name, *also)
        yield named[0], words, None, named[1:], _guarded(bench, number, kept)
    if guard is None and origin.phase in TRAINED:
        yield from _slower(bench)
    yield from _cleaner(bench, origin)
    if guard is not None:
        yield from _slower(bench)
    if origin.phase in TRAINED:
        yield "clip_gradients", "global norm of the gradients at most 1", 1.0, (), _clipped(bench, 1.0)


def _guard(bench: Bench) -> tuple[int, Callable[[Any], Any], str, str] | None:
    op = bench.op
    return None if op is None or not op.inputs else guards.guard_of(op.type, op.outputs[0].dtype.base_dtype.name)


def _guarded(bench: Bench, number: int, kept: Callable[[Any], Any]) -> Attempt:
    if bench.op.graph is bench.graph and not walk.goes_inside(bench.op):
        tensor = bench.op.inputs[number]
        return bench.with_(lambda given: {**given, tensor: kept(bench.session.run(tensor, given))})

    def inside(horizon: int) -> Run:
        copy = guarded(bench.graph, bench.steps, bench.losses, bench.gradients, (bench.op, number), kept)
        with tf.compat.v1.Session(graph=copy.graph, config=flat.config()) as session:
            return replace(
                bench,
                session=session,
                graph=copy.graph,
                steps=copy.steps,
                losses=copy.losses,
                gradients=copy.gradients,
            ).run(lambda given: given, horizon)

    return inside


def _slower(bench: Bench) -> Iterator[Planned]:
    name = "lower_learning_rate"
    training = [op for op in bench.graph.get_operations() if walk.is_apply(op)]
    rates = names.rates_of(training)
    if not rates or not all(bench.graph.is_feedable(t) for t in rates):
        yield name, "", None, (), "no training op of this graph takes a learning rate as an input"
        return
    for factor in (0.1, 0.01):

        def change(given: Feeds, factor: float = factor) -> Feeds:
            values = bench.session.run(rates, given)
            return {**given, **{t: v * v.dtype.type(factor) for t, v in zip(rates, values, strict=True)}}

        yield name, f"learning rate times {factor:g}", factor, (), bench.with_(change)


def _cleaner(bench: Bench, origin: Origin) -> Iterator[Planned]:
    name, failing = "clean_input", bench.steps[-1].feeds
    size = next((len(v) for v in map(np.asarray, failing.values()) if v.ndim), 0)
    bad = set(origin.samples)
    if bad and len(bad) < size:
        rows = remedies.rows_without(bad, size)

        def without(given: Feeds) -> Feeds:
            mine = all(given[t] is failing.get(t.name) for t in given)
            return (
                {t: np.asarray(v)[rows] if np.ndim(v) and len(v) == size else v for t, v in given.items()}
                if mine
                else given
            )

        yield name, remedies.without_samples(bad), None, (), bench.with_(without)
    elif bad and not size:
        yield name, "", None, (), "the batch is not fed: it comes out of a data set of the program"
    elif bad:
        yield name, "", None, (), f"all {size} samples of the batch fail: there is no good one to keep"
    sizes = {
        n: float(np.abs(a[np.isfinite(a)]).max(initial=0))
        for n, v in failing.items()
        if is_floating(a := np.asarray(v))
    }
    large = {n: s for n, s in sizes.items() if s > EXTREME}
    if large and origin.phase != "input":
        divided = " and ".join(f"{n.removesuffix(':0')} divided by {s:.4g}" for n, s in large.items())
        yield (
            name,
            f"{divided}, the largest magnitude",
            None,
            (),
            bench.with_(
                lambda given: {
                    t: np.asarray(v) / np.asarray(v).dtype.type(large[t.name]) if t.name in large else v
                    for t, v in given.items()
                }
            ),
        )


def _clipped(bench: Bench, bound: float) -> Attempt | str:
    dense = [t for t in bench.gradients if isinstance(t, tf.Tensor) and bench.graph.is_feedable(t)]
    if not dense or len(dense) != len(bench.gradients):
        return "the graph does not let its gradients be fed"

    def change(given: Feeds) -> Feeds:
        values = bench.session.run(dense, given)
        with np.errstate(all="ignore"):  # they may be what they were before: bad
            norm = float(np.sqrt(sum(np.square(v.astype(np.float64)).sum() for v in values)))
            scale = bound / norm if norm > bound else 1.0
            return {**given, **{t: v * v.dtype.type(scale) for t, v in zip(dense, values, strict=True)}}

    return bench.with_(change)


# ---------------------------------------------------------------- the session


def variables(graph: Any) -> dict[str, Any]:
    """All variables of a graph by name."""
    tf1 = tf.compat.v1
    with graph.as_default():
        return {v.name: v for v in (*tf1.global_variables(), *tf1.local_variables())}


def load(session: Any, graph: Any, values: Mapping[str, Any]) -> None:
    """Put values into the session's variables, by the initializers that are in the graph already."""
    targets, given = [], {}
    for name, variable in variables(graph).items():
        value = values.get(name, values.get(name.removesuffix(":0")))
        targets.append(variable.initializer)
        if value is not None:
            given[variable.initializer.inputs[1]] = value
    session.run(targets, given)
    session.run(walk.fills(graph))


def feeds(graph: Any, fed: Fed) -> Feeds:
    """What a step was fed, by tensor."""
    return {graph.get_tensor_by_name(name): value for name, value in fed.feeds.items()}


def finite(values: Sequence[Any]) -> bool:
    """Whether all floating numbers among values are."""
    return all(np.isfinite(v).all() for v in map(np.asarray, values) if is_floating(v))


def is_floating(array: Any) -> bool:
    """Whether an array holds floating numbers; those that numpy does not have itself, as bfloat16, are void to it."""
    return array.dtype.kind in "fV"


def told(error: Exception) -> str:
    """The line of an error that says what is wrong."""
    lines = [line for line in map(str.strip, str(error).splitlines()) if line]
    node = next((place for place, line in enumerate(lines) if line.startswith("Node: ")), -1)
    first = [line for line in lines[node + 1 :] if line != "Graph execution error:"]
    return (first or lines or [""])[0]
