"""tf.distribute: which replica a tensor belongs to, which worker this process is, and what cannot be watched.

MirroredStrategy and MultiWorkerMirroredStrategy run the same Python function once for every replica of this
process, each time in a thread of its own, one after the other; a graph that is being traced is the same for all. So
every replica gets a collector of its own, and what they gathered is read where the whole step ends: as it was before it
was reduced across replicas.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import tensorflow as tf

from tb_nanwatch.record import collect


def in_replica() -> bool:
    """Whether this code runs inside a replica of a strategy."""
    return bool(tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context())


def replica() -> int:
    """Number of this replica among all of the job; in replicas only."""
    number = tf.distribute.get_replica_context().replica_id_in_sync_group
    return int(number if not tf.is_tensor(number) else tf.get_static_value(number) or 0)


def replicas(strategy: Any) -> int:
    """Number of replicas that train together; 1 without a strategy."""
    return 1 if strategy is None else int(strategy.num_replicas_in_sync)


def is_last_here() -> bool:
    """Whether all other replicas of this process are done when this one is."""
    extended = tf.distribute.get_strategy().extended
    return replica() == extended._get_replica_id_in_sync_group(len(extended.worker_devices) - 1)


def is_first_here() -> bool:
    """Whether this is the first replica of this process to start."""
    return replica() == tf.distribute.get_strategy().extended._get_replica_id_in_sync_group(0)


def in_replicas(
    collector: collect.Collector, original: Callable[..., Any], strategy: Any, function: Any, args: Any, kwargs: Any
) -> Any:
    """Run `function` once per replica, as `original` does, with a collector for each."""
    if collector.distributing:  # a library distributes once more inside, such as a loss-scale optimizer
        return original(strategy, function, args, kwargs)
    names = _argument_names(function)

    def in_one(*args: Any, **kwargs: Any) -> Any:
        mine = collector.in_replica(replica())
        with collect.collecting(mine):
            with collector.guard.contained("reading the inputs of a replica"):
                if len(args) == 1 and not kwargs and isinstance(args[0], list | tuple | dict):
                    mine.inputs(args[0], None)
                else:
                    mine.inputs((*args, *kwargs.values()), [*names[: len(args)], *kwargs])
            return function(*args, **kwargs)

    collector.distributing = True
    try:
        with collect.paused():
            return original(strategy, in_one, args, kwargs)
    finally:
        collector.distributing = False


class _Alone(tf.distribute.ReplicaContext):
    """A replica that runs without the others: what it would add up with theirs stays as it is."""

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:  # noqa: ARG002
        return value

    def all_gather(self, value: Any, axis: Any, options: Any = None) -> Any:  # noqa: ARG002
        return value


@contextmanager
def as_replica(number: int) -> Iterator[None]:
    """`strategy.run` runs the part of one replica only, here and without collectives; nothing changes below 0."""
    if number < 0:
        yield
        return
    strategies, extended = tf.distribute.Strategy, tf.distribute.StrategyExtended
    calling = tf.compat.v1.distribute.StrategyExtended
    originals = strategies.run, strategies.reduce
    originals_of_extended = extended.reduce_to, extended.batch_reduce_to
    original_call = calling.call_for_each_replica

    def run(strategy: Any, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:  # noqa: ARG001
        return call(strategy.extended, fn, args, kwargs)

    def call(self: Any, fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = part((args, kwargs or {}), number)
        with tf.device(self.worker_devices[number]), _Alone(self._container_strategy(), number):
            return fn(*args, **kwargs)

    def reduce(strategy: Any, reduce_op: Any, value: Any, axis: Any) -> Any:
        return originals[1](strategy, reduce_op, value, axis) if is_split(value) else value

    def reduce_to(self: Any, reduce_op: Any, value: Any, *rest: Any, **more: Any) -> Any:
        return originals_of_extended[0](self, reduce_op, value, *rest, **more) if is_split(value) else value

    def batch_reduce_to(self: Any, reduce_op: Any, pairs: Any, *rest: Any, **more: Any) -> Any:
        if any(is_split(value) for value, _ in pairs):
            return originals_of_extended[1](self, reduce_op, pairs, *rest, **more)
        return [value for value, _ in pairs]

    strategies.run, strategies.reduce = run, reduce
    extended.reduce_to, extended.batch_reduce_to = reduce_to, batch_reduce_to
    calling.call_for_each_replica = call
    try:
        yield
    finally:
        strategies.run, strategies.reduce = originals
        extended.reduce_to, extended.batch_reduce_to = originals_of_extended
        calling.call_for_each_replica = original_call


def is_split(value: Any) -> bool:
    """Whether every replica has a value of its own."""
    return isinstance(value, tf.distribute.DistributedValues) and not isinstance(value, tf.Variable)


def part(data: Any, number: int) -> Any:
    """What replica `number` of this process is given of a batch: its part of what is split, all else whole.

    All of it below 0.
    """
    if number < 0:
        return data
    return tf.nest.map_structure(lambda value: value.values[number] if is_split(value) else value, data)


def parts(data: Any) -> list[Any]:
    """What each replica of this process is given of a batch; only the batch itself if nothing in it is split."""
    count = next((len(value.values) for value in tf.nest.flatten(data) if is_split(value)), 0)
    return [part(data, number) for number in range(count)] or [data]


def with_parts(data: Any, change: Callable[[Any], Any], only: int = -1) -> Any:
    """The batch with `change(part)` in the place of each replica's part, or of the one of replica `only`."""
    several = parts(data)
    if len(several) == 1:
        return change(data)
    changed = [change(one) if only in (-1, number) else one for number, one in enumerate(several)]

    def whole(value: Any, *its: Any) -> Any:
        return type(value)(its) if is_split(value) else its[max(only, 0)]

    return tf.nest.map_structure(whole, data, *changed)


def beside(tensor: Any) -> AbstractContextManager[Any]:
    """Ops made inside are placed where a replica's tensor lies, so that it is not copied to another device."""
    device = getattr(tensor, "device", "")
    return tf.device(device) if device else nullcontext()


def worker(strategy: Any) -> int | None:
    """Index of this process among those that train together; None where it is alone."""
    resolver: Any = getattr(strategy, "cluster_resolver", None)
    spec = resolver.cluster_spec() if resolver is not None else None
    if not spec or resolver.task_id is None:
        return None
    if sum(spec.num_tasks(job) for job in ("chief", "worker") if job in spec.jobs) < 2:
        return None
    return int(resolver.task_id) + int(resolver.task_type == "worker" and "chief" in spec.jobs)


def unsupported(strategy: Any) -> str:
    """Why training with this strategy cannot be watched; empty if it can."""
    name = type(strategy).__name__
    if "TPU" in name:
        return (
            f"cannot watch {name}: a replica is one compiled TPU program, to which nothing can be added from outside. "
            "Train the same step on a GPU or CPU to watch it"
        )
    if name.startswith("ParameterServer"):
        return (
            f"cannot watch {name}: its workers run steps asynchronously, so that there is no order of steps to record. "
            "MirroredStrategy and MultiWorkerMirroredStrategy are supported"
        )
    return ""


def _argument_names(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
