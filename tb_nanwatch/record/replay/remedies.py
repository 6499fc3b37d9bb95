"""What a trial changes: the learning rate, the batch, the initial weights, or an op at the incident's line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf

from tb_nanwatch.format.records import Origin
from tb_nanwatch.record.replay import source

EXTREME: Final = 20.0  # a float input beyond this is scaled in a trial of its own
EPSILON: Final = 1e-7


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@dataclass(frozen=True)
class Remedy:
    """A remedy by its name in the report, as a trial applies it.

    applied: a context in which it is in force; batch: what becomes of a batch; retrace: it takes effect while the
    step is traced or runs eagerly, so that the step compiled before cannot be used.
    """

    name: str
    note: str
    applied: Callable[[], Any] = _nothing
    batch: Callable[[Any], Any] = lambda data: data
    retrace: bool = False


# ---------------------------------------------------------------- learning rate and gradients


def lower_learning_rate(variable: Any, factor: float) -> Remedy:
    """The learning rate multiplied by `factor`."""

    @contextmanager
    def applied() -> Iterator[None]:
        variable.assign(variable * factor)  # the state that is put back afterwards holds it
        yield

    return Remedy("lower_learning_rate", f"learning rate times {factor:g}", applied)


def clip_gradients(optimizer: Any, setting: str, value: float) -> Remedy:
    """A Keras optimizer with `clipnorm`, `clipvalue` or `global_clipnorm` set."""

    @contextmanager
    def applied() -> Iterator[None]:
        before = getattr(optimizer, setting)
        setattr(optimizer, setting, value)
        try:
            yield
        finally:
            setattr(optimizer, setting, before)

    return Remedy("clip_gradients", f"{setting}={value:g}", applied, retrace=True)


def initializer(weights: list[Any]) -> Remedy:
    """Kernels scaled to the deviation that He's or Glorot's initializer would have drawn (the larger: He's)."""

    @contextmanager
    def applied() -> Iterator[None]:
        for variable in weights:
            if variable.shape.rank is not None and variable.shape.rank >= 2:
                fan_in = float(np.prod(variable.shape[:-1]))
                deviation = float(tf.math.reduce_std(tf.cast(variable, tf.float32)))
                if np.isfinite(deviation) and deviation > 0:
                    variable.assign(variable * tf.cast(np.sqrt(2 / fan_in) / deviation, variable.dtype))
        yield

    return Remedy("initializer", "kernels drawn with the deviation of He's initializer", applied)


# ---------------------------------------------------------------- the batch


def replace_samples(bad: tuple[int, ...], only: Any) -> Remedy:
    """Rows `bad` of the failing batch (the one whose data is `only`) replaced by good ones, so that shapes stay."""

    def batch(data: Any) -> Any:
        return with_rows(data, bad) if data is only else data

    return Remedy("clean_input", f"without the {len(bad)} bad samples of the failing batch", batch=batch)


def with_rows(data: Any, bad: tuple[int, ...]) -> Any:
    """The batch with rows `bad` replaced by the others in turn."""
    size = batch_size(data)
    good = [n for n in range(size) if n not in set(bad)]
    rows = [n if n not in set(bad) else good[n % len(good)] for n in range(size)]
    return pick(data, rows)


def pick(data: Any, rows: list[int]) -> Any:
    """The batch with only these rows, in this order."""
    size = batch_size(data)

    def of(x: Any) -> Any:
        return tf.gather(x, rows) if tf.is_tensor(x) and x.shape.rank and x.shape[0] == size else x

    return tf.nest.map_structure(of, data)


def batch_size(data: Any) -> int:
    """Length of the first axis of the first tensor of a batch; 0 where there is none."""
    return next((int(x.shape[0]) for x in tf.nest.flatten(data) if tf.is_tensor(x) and x.shape.rank), 0)


def scale_inputs(data: Any) -> Remedy | None:
    """Float inputs divided by the largest magnitude in `data`; None where they are of ordinary size."""
    first = data[0] if isinstance(data, tuple | list) and data else data
    floats = [x for x in tf.nest.flatten(first) if tf.is_tensor(x) and x.dtype.is_floating]
    sizes = [
        float(tf.reduce_max(tf.abs(tf.where(tf.math.is_finite(x), x, 0)))) for x in floats if x.shape.num_elements()
    ]
    if not sizes or max(sizes) <= EXTREME:
        return None
    largest = max(sizes)

    def batch(given: Any) -> Any:
        head = given[0] if isinstance(given, tuple | list) else given
        same = {id(x) for x in tf.nest.flatten(head)}
        # Targets that are the inputs themselves, as an auto-encoder's, are scaled with them.
        return tf.nest.map_structure(
            lambda x: (
                x / tf.cast(largest, x.dtype)
                if tf.is_tensor(x) and x.dtype.is_floating and (id(x) in same or _twin(x, head))
                else x
            ),
            given,
        )

    return Remedy("clean_input", f"inputs divided by {largest:g}, their largest magnitude", batch=batch)


def _twin(x: Any, head: Any) -> bool:
    return any(
        tf.is_tensor(h) and h.shape == x.shape and h.dtype == x.dtype and bool(tf.reduce_all(tf.equal(h, x)))
        for h in tf.nest.flatten(head)
    )


# ---------------------------------------------------------------- ops


def _floor(x: Any, low: float) -> Any:
    return tf.maximum(x, tf.cast(low, x.dtype))


def _away_from_zero(x: Any) -> Any:
    small = tf.cast(EPSILON if x.dtype != tf.float16 else 1e-3, x.dtype)
    return tf.where(tf.abs(x) < small, tf.where(x < 0, -small, small), x)


def _within_one(x: Any) -> Any:
    return tf.clip_by_value(x, tf.cast(-1 + 1e-6, x.dtype), tf.cast(1 - 1e-6, x.dtype))


#: forward op -> (module, function, remedy, what is done to its inputs, in words)
_GUARDS: Final[dict[str, tuple[str, str, str, Callable[..., Any], str]]] = {
    "Log": ("math", "log", "clip_predictions_or_from_logits", lambda x: (_floor(x, 1e-10),), "log(max(x, 1e-10))"),
    "Log1p": (
        "math",
        "log1p",
        "clip_predictions_or_from_logits",
        lambda x: (_floor(x, -1 + 1e-7),),
        "log1p(max(x, -1 + 1e-7))",
    ),
    "RealDiv": (
        "math",
        "real_div",
        "guard_division",
        lambda x, y: (x, _away_from_zero(y)),
        "a divisor kept 1e-7 away from 0",
    ),
    "Div": ("math", "div", "guard_division", lambda x, y: (x, _away_from_zero(y)), "a divisor kept 1e-7 away from 0"),
    "Reciprocal": (
        "math",
        "reciprocal",
        "guard_division",
        lambda x: (_away_from_zero(x),),
        "an argument kept 1e-7 away from 0",
    ),
    "Sqrt": ("math", "sqrt", "guard_division", lambda x: (_floor(x, 1e-12),), "sqrt(max(x, 1e-12))"),
    "Rsqrt": ("math", "rsqrt", "guard_division", lambda x: (_floor(x, 1e-12),), "rsqrt(max(x, 1e-12))"),
    "Pow": ("math", "_pow", "guard_division", lambda x, y: (_floor(x, EPSILON), y), "pow(max(x, 1e-7), y)"),
    "Exp": (
        "math",
        "exp",
        "clip_predictions_or_from_logits",
        lambda x: (tf.minimum(x, tf.cast(10 if x.dtype == tf.float16 else 80, x.dtype)),),
        "exp(min(x, 80))",
    ),
    "Softmax": (
        "nn",
        "softmax",
        "safe_where",
        lambda x: (_floor(x, -1e4 if x.dtype == tf.float16 else -1e9),),
        "a mask of -1e9 in the place of -inf",
    ),
    "Acos": (
        "math",
        "acos",
        "clip_predictions_or_from_logits",
        lambda x: (_within_one(x),),
        "an argument within 1 - 1e-6",
    ),
    "Asin": (
        "math",
        "asin",
        "clip_predictions_or_from_logits",
        lambda x: (_within_one(x),),
        "an argument within 1 - 1e-6",
    ),
    "Atanh": (
        "math",
        "atanh",
        "clip_predictions_or_from_logits",
        lambda x: (_within_one(x),),
        "an argument within 1 - 1e-6",
    ),
}


def guard_op(op_type: str, origin: Origin, through_where: bool) -> Remedy | None:
    """The op replaced by a safe one where the origin's line calls it; None for ops without a known guard."""
    if op_type not in _GUARDS:
        return None
    where, function, name, guard, words = _GUARDS[op_type]
    module = sys.modules[f"tensorflow.python.ops.gen_{where}_ops"]
    original = getattr(module, function)

    def guarded(*args: Any, **kwargs: Any) -> Any:
        count = guard.__code__.co_argcount
        tensors = [tf.convert_to_tensor(a) for a in args[:count]]
        if len(tensors) < count or not tensors[0].dtype.is_floating or not _at(origin):
            return original(*args, **kwargs)
        return original(*guard(*tensors[:count]), *args[count:], **kwargs)

    @contextmanager
    def applied() -> Iterator[None]:
        places = [m for n, m in list(sys.modules.items()) if n.split(".")[0] in ("tensorflow", "keras", "tf_keras")]
        names = (function, function.strip("_"))
        hit = [(m, n) for m in places for n in names if getattr(m, "__dict__", {}).get(n) is original]
        for place, attribute in hit:
            setattr(place, attribute, guarded)
        try:
            yield
        finally:
            for place, attribute in hit:
                setattr(place, attribute, original)

    return Remedy("safe_where" if through_where else name, words, applied, retrace=True)


def _at(origin: Origin) -> bool:
    """Whether the incident's line is on the stack; True where that line is not known."""
    wanted = origin.source
    if wanted is None:
        return True
    return any(code.co_filename == wanted.file and line == wanted.line for code, line in source.stack(3))
