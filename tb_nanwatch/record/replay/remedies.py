"""What a trial changes: the learning rate, the gradients, the batch, the initial weights, the dtype, or an op."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_math_ops

from tb_nanwatch.record import distribution
from tb_nanwatch.record.first_batches import far_columns
from tb_nanwatch.record.naming import everywhere, handle_of
from tb_nanwatch.record.replay import draws
from tb_nanwatch.record.replay.draws import Kernel
from tb_nanwatch.record.replay.guards import Guard

EXTREME: Final = 20.0  # a float input beyond this is scaled in a trial of its own


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@dataclass(frozen=True)
class Remedy:
    """A remedy by its name in the report, as a trial applies it.

    applied: a context in which it is in force; batch: what becomes of a batch. switches: what it turns on in a step
    that was traced for trials. retrace: it takes effect only while a step of its own is traced or runs eagerly. value:
    the number that the report's snippet should have, setting: what it sets to that. also: further remedies that do the
    same. otherwise: what to try if it fails. impossible: why it cannot be tried; then it is only mentioned.
    """

    name: str
    note: str
    applied: Callable[[], Any] = _nothing
    batch: Callable[[Any], Any] = lambda data: data
    switches: Mapping[str, Any] = field(default_factory=dict)
    retrace: bool = False
    value: float | None = None
    setting: str = ""
    also: tuple[str, ...] = ()
    otherwise: Remedy | None = None
    impossible: str = ""


# ---------------------------------------------------------------- learning rate and gradients


def lower_learning_rate(variable: Any, factor: float, otherwise: Remedy | None = None) -> Remedy:
    """The learning rate multiplied by `factor`: a variable's value, or in the traced step where it is none."""
    note = f"learning rate times {factor:g}"
    if variable is None:
        return Remedy("lower_learning_rate", note, switches={"rate": factor}, value=factor, otherwise=otherwise)

    @contextmanager
    def applied() -> Iterator[None]:
        _assign(variable, variable * factor)  # the state that is put back afterwards holds it
        yield

    return Remedy("lower_learning_rate", note, applied, value=factor, otherwise=otherwise)


def clip_gradients(norm: float | None = None, value: float | None = None) -> Remedy:
    """A bound on the global norm of the gradients, or on each of their elements."""
    if norm is not None:
        return Remedy("clip_gradients", f"global_clipnorm={norm:.3g}", switches={"norm": norm}, value=norm)
    return Remedy("clip_gradients", f"clipvalue={value:g}", switches={"value": value}, value=value, setting="clipvalue")


def epsilon(optimizer: Any, value: float) -> Remedy:
    """An optimizer that divides by the root of the squared gradients plus `value`."""

    @contextmanager
    def applied() -> Iterator[None]:
        before = optimizer.epsilon
        optimizer.epsilon = value
        try:
            yield
        finally:
            optimizer.epsilon = before

    return Remedy("guard_division", f"optimizer.epsilon = {value:g}", applied, retrace=True, value=value)


# ---------------------------------------------------------------- weights and dtypes


def initializer(weights: list[Any], kernels: Mapping[int, Kernel]) -> Remedy:
    """The kernels drawn anew, each as its activation asks for; a variant with a small deviation if that fails."""
    mine = [(v, kernels[id(handle_of(v))]) for v in weights if id(handle_of(v)) in kernels and v.shape.rank >= 2]
    name = "initializer"
    if not mine:
        return Remedy(name, "", impossible="no kernel was found among the weights of the step")
    other = [(v, k) for v, k in mine if not _as_it_was(v, k)]
    if not other:
        return Remedy(name, "", impossible="the weights already have the deviation that their layers ask for")
    names = dict.fromkeys(draws.drawn(k, tuple(v.shape), np.random.default_rng(draws.SEED))[1] for v, k in other)
    small = Remedy(
        name,
        "kernels drawn anew by TruncatedNormal(stddev=0.02)",
        _drawn_small([v for v, _ in other]),
        value=0.02,
        setting="TruncatedNormal",
    )
    return Remedy(name, f"kernels drawn anew by {', '.join(names)}", _drawn(other), otherwise=small)


def _as_it_was(variable: Any, kernel: Kernel) -> bool:
    has = float(tf.math.reduce_std(tf.cast(variable, tf.float32)))
    wanted = draws.deviation(kernel, tuple(variable.shape))
    return bool(wanted / draws.AS_IT_WAS <= has <= wanted * draws.AS_IT_WAS)


def _drawn(chosen: list[tuple[Any, Kernel]]) -> Callable[[], Any]:
    @contextmanager
    def applied() -> Iterator[None]:
        generator = np.random.default_rng(draws.SEED)  # none of the run's
        for variable, kernel in chosen:
            _assign(variable, draws.drawn(kernel, tuple(variable.shape), generator)[0])
        yield

    return applied


def _drawn_small(chosen: list[Any]) -> Callable[[], Any]:
    @contextmanager
    def applied() -> Iterator[None]:
        generator = np.random.default_rng(draws.SEED)
        for variable in chosen:
            _assign(variable, draws.truncated(tuple(variable.shape), 0.02, generator))
        yield

    return applied


def _assign(variable: Any, value: Any) -> None:
    """In every replica."""
    for one in everywhere(variable):
        one.assign(tf.cast(value, one.dtype))


def float32(weights: list[Any]) -> Remedy:
    """What the program casts to float16 left in float32."""
    name, note = "mixed_precision_policy", "computed in float32 instead of float16"
    if any(v.dtype.base_dtype == tf.float16 for v in weights):
        return Remedy(name, "", impossible="the weights themselves are float16: a new policy needs a new model")
    original = gen_math_ops.cast

    def cast(x: Any, DstT: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N803  # TensorFlow's name
        wanted = tf.float32 if tf.as_dtype(DstT) == tf.float16 else DstT
        return tf.identity(x) if getattr(x, "dtype", None) == wanted else original(x, wanted, *args, **kwargs)

    @contextmanager
    def applied() -> Iterator[None]:
        gen_math_ops.cast = tf.autograph.experimental.do_not_convert(cast)
        try:
            yield
        finally:
            gen_math_ops.cast = original

    return Remedy(name, note, applied, retrace=True)


def guard(found: Guard, through_where: bool) -> Remedy:
    """The op kept in its domain; then all ops of its line; then those farther from the edge."""
    names = ("safe_where", *found.remedies) if through_where else found.remedies
    words = found.words.format(small=found.small)

    def variant(note: str, otherwise: Remedy | None, value: float | None = None, **more: Any) -> Remedy:
        return Remedy(
            names[0], note, switches={"guard": True, **more}, value=value, also=names[1:], otherwise=otherwise
        )

    least = 1e-3
    farthest = variant(
        f"{found.words.format(small=least)}, and so the other ops of the line", None, least, wide=True, least=least
    )
    line = variant(f"{words}, and the other ops of the line kept where they are defined", farthest, wide=True)
    return variant(words, line)


# ---------------------------------------------------------------- the batch


def replace_samples(bad: tuple[int, ...], only: Any, replica: int = -1) -> Remedy:
    """Rows `bad` of the failing batch (the one whose data is `only`) replaced by good ones, so that shapes stay.

    They are rows of the part of `replica` where batches are split.
    """

    def batch(data: Any) -> Any:
        return distribution.with_parts(data, lambda part: with_rows(part, bad), replica) if data is only else data

    return Remedy("clean_input", without_samples(bad), batch=batch, setting="samples")


def without_samples(bad: Collection[int]) -> str:
    """What a trial does that leaves these out, in words."""
    samples = "the bad sample" if len(bad) == 1 else f"the {len(bad)} bad samples"
    return f"without {samples} of the failing batch"


def with_rows(data: Any, bad: tuple[int, ...]) -> Any:
    """The batch with rows `bad` replaced by the others in turn."""
    return pick(data, rows_without(bad, batch_size(data)))


def rows_without(bad: Collection[int], size: int) -> list[int]:
    """Which row to take in the place of each: good ones stay, and stand in for the bad ones in turn."""
    good = [n for n in range(size) if n not in set(bad)]
    return [n if n not in set(bad) else good[n % len(good)] for n in range(size)]


def pick(data: Any, rows: list[int], replica: int = -1) -> Any:
    """The batch with only these rows, in this order; in the part of one replica where it is split."""

    def of(x: Any, size: int) -> Any:
        if isinstance(x, np.ndarray) and x.ndim and len(x) == size:
            return x[rows]
        return tf.gather(x, rows) if tf.is_tensor(x) and x.shape.rank and x.shape[0] == size else x

    def of_all(part: Any) -> Any:
        size = batch_size(part)
        return tf.nest.map_structure(lambda x: of(x, size), part)

    return distribution.with_parts(data, of_all, replica)


def batch_size(data: Any) -> int:
    """Length of the first axis of the first array of a batch; 0 where there is none."""
    sized = (x for x in tf.nest.flatten(data) if isinstance(x, np.ndarray) or tf.is_tensor(x))
    return next((int(x.shape[0]) for x in sized if len(x.shape)), 0)


def scale_inputs(data: Any, names: Sequence[str]) -> Remedy | None:
    """Parts of the batch divided each by its largest magnitude, or only the columns of a part that are far larger than
    its others; None where all are of ordinary size.

    Whole numbers behind the first part are labels, and stay. `names` are those of the parts, as far as known.
    """
    divisors: dict[int, Any] = {}
    for replica in distribution.parts(data):
        for n, part in enumerate(tf.nest.flatten(replica)):
            largest = _divisor(part, labels=n > 0)
            if largest is not None:
                divisors[n] = np.maximum(largest, divisors.get(n, largest))
    if not divisors:
        return None

    def scale(given: Any) -> Any:
        flat = tf.nest.flatten(given)
        scaled = [x / divisors[n] if n in divisors else x for n, x in enumerate(flat)]
        return tf.nest.pack_sequence_as(given, scaled)

    def batch(given: Any) -> Any:
        return distribution.with_parts(given, scale)

    named = {n: names[n] if n < len(names) else f"part {n}" for n in divisors}
    first = min(divisors)
    by_column = np.ndim(divisors[first]) > 0
    told = [f"{named[n]} divided by {np.max(d):.4g}{_of_columns(d)}" for n, d in divisors.items()]
    return Remedy(
        "clean_input",
        f"{' and '.join(told)}, the largest magnitude",
        batch=batch,
        value=None if by_column else float(divisors[first]),
        setting=f"scale {'columns of ' if by_column else ''}{named[first]}",
    )


def _of_columns(divisor: Any) -> str:
    """Which columns are divided, if not all."""
    places = np.flatnonzero(divisor != 1).tolist() if np.ndim(divisor) else []
    more = "and others " if len(places) > 3 else ""
    return f" at most ({', '.join(map(str, places[:3]))} {more}of its columns only)" if places else ""


def _divisor(part: Any, labels: bool) -> Any:
    """The largest finite magnitude of a floating array, of its dtype, where that is EXTREME; else None.

    Where only some columns are far larger than the others, those of all columns, 1 for the others.
    """
    array = (
        np.asarray(part) if isinstance(part, np.ndarray) or (tf.is_tensor(part) and part.dtype.is_floating) else None
    )
    if array is None or array.dtype.kind != "f" or not array.size:
        return None
    finite = array[np.isfinite(array)]
    largest = np.abs(finite).max(initial=0)
    if largest <= EXTREME or (labels and np.array_equal(finite, np.round(finite))):
        return None
    if array.ndim > 1:
        reach = np.where(np.isfinite(array), np.abs(array), 0).reshape(-1, array.shape[-1]).max(axis=0)
        _, far = far_columns(reach.astype(np.float64))
        if far.any():
            return np.where(far, reach, 1).astype(array.dtype)
    return largest.astype(array.dtype)
