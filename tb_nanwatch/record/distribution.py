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


@contextmanager
def as_replica(number: int) -> Iterator[None]:
    """`strategy.run` runs the part of one replica only, here and without collectives; nothing changes below 0."""
    if number < 0:
        yield
        return
    strategies = tf.distribute.Strategy
    originals = strategies.run, strategies.reduce

    def run(strategy: Any, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:  # noqa: ARG001
        def mine(value: Any) -> Any:
            several = isinstance(value, tf.distribute.DistributedValues)
            return strategy.experimental_local_results(value)[number] if several else value

        return fn(*(mine(a) for a in args), **{name: mine(value) for name, value in (kwargs or {}).items()})

    def reduce(strategy: Any, reduce_op: Any, value: Any, axis: Any) -> Any:
        several = isinstance(value, tf.distribute.DistributedValues)
        return originals[1](strategy, reduce_op, value, axis) if several else value

    strategies.run, strategies.reduce = run, reduce
    try:
        yield
    finally:
        strategies.run, strategies.reduce = originals


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
