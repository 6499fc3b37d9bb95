"""Ops kept inside the domain where they are finite, at the incident's line, as the remedies' snippets do it.

While guards are `installed`, the op's function is another one that looks whether it was called from that line; in force
are they only where the Switches say so, so that one trace of a step serves with and without.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf
from tensorflow.python.util import tf_stack

from tb_nanwatch.format.records import Origin
from tb_nanwatch.record.replay import source
from tb_nanwatch.record.replay.switches import Switches

CLIP, DIVISION, WHERE = "clip_predictions_or_from_logits", "guard_division", "safe_where"
Change = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class Guard:
    """How an op is kept finite.

    change: (small, *inputs) -> inputs; small: what it keeps away from the edge by, at least. remedies: whom a trial of
    it speaks for, the best first. empty: instead of its inputs, its output over nothing is changed, to 0.
    """

    module: str
    function: str
    words: str
    remedies: tuple[str, ...]
    change: Change
    small: float = 0.0
    empty: bool = False


def _floor(small: Any, x: Any) -> tuple[Any, ...]:
    return (tf.maximum(x, small),)


def _floor_second(small: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return x, tf.maximum(y, small)


def _above_minus_one(small: Any, x: Any) -> tuple[Any, ...]:
    return (tf.maximum(x, small - 1),)


def _fractional(small: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """The base of a fractional or negative power kept above 0; a whole one takes any."""
    whole = tf.logical_and(tf.equal(y, tf.round(y)), y > 0)
    return tf.where(whole, x + tf.zeros_like(y), tf.maximum(x, small) + tf.zeros_like(y)), y


def _skip_zero(small: Any, x: Any, y: Any) -> tuple[Any, ...]:
    """0/1 in the place of x/0; a divisor of at least `small` in the place of a smaller one."""
    tiny = tf.cast(1e-4 if x.dtype == tf.float16 else 1e-30, x.dtype)
    nothing = tf.logical_and(tf.abs(y) <= tiny, small <= tiny)
    away = tf.where(tf.abs(y) < small, tf.where(y < 0, -small, small), y)
    return tf.where(nothing, tf.zeros_like(x + y), x), tf.where(nothing, tf.ones_like(y), away)


def _away(small: Any, x: Any) -> tuple[Any, ...]:
    return (tf.where(tf.abs(x) < small, tf.where(x < 0, -small, small), x),)


def _inside(small: Any, x: Any) -> tuple[Any, ...]:
    return (tf.clip_by_value(x, small - 1, 1 - small),)


def _below(_: Any, x: Any) -> tuple[Any, ...]:
    return (tf.minimum(x, tf.cast(10 if x.dtype == tf.float16 else 80, x.dtype)),)


def _between(_: Any, x: Any) -> tuple[Any, ...]:
    most = tf.cast(10 if x.dtype == tf.float16 else 80, x.dtype)
    return (tf.clip_by_value(x, -most, most),)


def _finite_mask(_: Any, x: Any) -> tuple[Any, ...]:
    return (tf.maximum(x, tf.cast(-1e4 if x.dtype == tf.float16 else -1e9, x.dtype)),)


def _finite_masks(_: Any, x: Any, y: Any) -> tuple[Any, ...]:
    return *_finite_mask(_, x), *_finite_mask(_, y)


def _not_both_zero(_: Any, y: Any, x: Any) -> tuple[Any, ...]:
    nowhere = tf.logical_and(tf.equal(y, 0), tf.equal(x, 0))
    return tf.where(nowhere, tf.zeros_like(y), y), tf.where(nowhere, tf.ones_like(x), x)


def _definite(small: Any, x: Any) -> tuple[Any, ...]:
    return (tf.linalg.set_diag(x, tf.linalg.diag_part(x) + small),)


def _same(_: Any, x: Any) -> tuple[Any, ...]:
    return (x,)


_EDGE: Final = (CLIP, WHERE)
_ROOT: Final = (DIVISION, CLIP)

#: by forward op
GUARDS: Final[dict[str, Guard]] = {
    "Log": Guard("math", "log", "log(max(x, {small:g}))", (CLIP,), _floor, 1e-10),
    "Log1p": Guard("math", "log1p", "log1p(max(x, {small:g} - 1))", (CLIP,), _above_minus_one, 1e-6),
    "Xlogy": Guard("math", "xlogy", "xlogy(x, max(y, {small:g}))", (CLIP,), _floor_second, 1e-10),
    "RealDiv": Guard("math", "real_div", "a quotient that is 0 where its denominator is", (DIVISION,), _skip_zero),
    "Div": Guard("math", "div", "a quotient that is 0 where its denominator is", (DIVISION,), _skip_zero),
    "Reciprocal": Guard("math", "reciprocal", "1/x with x kept {small:g} away from 0", (DIVISION,), _away, 1e-7),
    "Inv": Guard("math", "inv", "1/x with x kept {small:g} away from 0", (DIVISION,), _away, 1e-7),
    "Sqrt": Guard("math", "sqrt", "sqrt(max(x, {small:g}))", _ROOT, _floor, 1e-12),
    "Rsqrt": Guard("math", "rsqrt", "rsqrt(max(x, {small:g}))", _ROOT, _floor, 1e-12),
    "Pow": Guard("math", "_pow", "pow(max(x, {small:g}), y)", _ROOT, _fractional, 1e-7),
    "Exp": Guard("math", "exp", "exp(min(x, 80))", (CLIP,), _below),
    "Expm1": Guard("math", "expm1", "expm1(min(x, 80))", (CLIP,), _below),
    "Cosh": Guard("math", "cosh", "cosh of an argument within 80", (CLIP,), _between),
    "Sinh": Guard("math", "sinh", "sinh of an argument within 80", (CLIP,), _between),
    "Acos": Guard("math", "acos", "an argument within 1 - {small:g}", _EDGE, _inside, 1e-6),
    "Asin": Guard("math", "asin", "an argument within 1 - {small:g}", _EDGE, _inside, 1e-6),
    "Atanh": Guard("math", "atanh", "an argument within 1 - {small:g}", _EDGE, _inside, 1e-6),
    "Erfinv": Guard("math", "erfinv", "an argument within 1 - {small:g}", _EDGE, _inside, 1e-6),
    "Acosh": Guard("math", "acosh", "acosh(max(x, 1 + {small:g}))", _EDGE, lambda s, x: (tf.maximum(x, 1 + s),), 1e-6),
    "Lgamma": Guard("math", "lgamma", "lgamma(max(x, {small:g}))", _EDGE, _floor, 1e-6),
    "Digamma": Guard("math", "digamma", "digamma(max(x, {small:g}))", _EDGE, _floor, 1e-6),
    "Cholesky": Guard("linalg", "cholesky", "{small:g} added to the diagonal", (DIVISION,), _definite, 1e-5),
    "Atan2": Guard("math", "atan2", "the angle 0 where both arguments are 0", (WHERE, DIVISION), _not_both_zero),
    "Softmax": Guard("nn", "softmax", "a mask of -1e9 in the place of -inf", (WHERE,), _finite_mask),
    "LogSoftmax": Guard("nn", "log_softmax", "a mask of -1e9 in the place of -inf", (WHERE,), _finite_mask),
    "Mean": Guard("math", "mean", "0 as the mean of nothing", (DIVISION, WHERE), _same, empty=True),
    "Max": Guard("math", "_max", "0 as the largest of nothing", (DIVISION, WHERE), _same, empty=True),
    "Min": Guard("math", "_min", "0 as the smallest of nothing", (DIVISION, WHERE), _same, empty=True),
    "Mul": Guard("math", "mul", "a mask of -1e9 in the place of -inf", (WHERE,), _finite_masks),
    "Sub": Guard("math", "sub", "a mask of -1e9 in the place of -inf", (WHERE,), _finite_masks),
}  # fmt: skip
_LIBRARIES: Final = ("tensorflow", "keras", "tf_keras")
_ONLY_AS_ORIGIN: Final = ("Mul", "Sub")  # masks: they are no danger of their own


def guard_of(op_type: str, origin: Origin) -> Guard | None:
    """The guard for the op of an incident; None where none is known, or where it is not what went wrong."""
    guard = GUARDS.get(op_type)
    if guard is None:
        return None
    first = origin.inputs[0] if origin.inputs else None
    if guard.empty and (first is None or 0 not in first.shape):
        return None
    if op_type in _ONLY_AS_ORIGIN and not any(operand.inf for operand in origin.inputs):
        return None
    return guard


@contextmanager
def installed(op_type: str, origin: Origin, switches: Switches) -> Iterator[None]:
    """The guards of all ops at the origin's line, in force as `switches` say: that of `op_type`, or all of them."""
    others: dict[int, tuple[Any, Any]] = {}  # id of a function -> it, and what stands in for it
    for kind, guard in GUARDS.items():
        if kind != op_type and kind in _ONLY_AS_ORIGIN:
            continue
        original = getattr(sys.modules[f"tensorflow.python.ops.gen_{guard.module}_ops"], guard.function)
        others[id(original)] = (original, _guarded(original, guard, kind == op_type, origin, switches))
    names = {name for guard in GUARDS.values() for name in (guard.function, guard.function.strip("_"))}
    replaced: list[tuple[Any, str, Any]] = []
    try:
        for place in [m for n, m in list(sys.modules.items()) if n.split(".")[0] in _LIBRARIES]:
            there = getattr(place, "__dict__", {})
            for name in names & there.keys():
                original, other = others.get(id(there[name]), (None, None))
                if original is not None:
                    replaced.append((place, name, original))
                    setattr(place, name, other)
        yield
    finally:
        for place, name, original in replaced:
            setattr(place, name, original)


def _guarded(original: Any, guard: Guard, own: bool, origin: Origin, switches: Switches) -> Any:
    count = guard.change.__code__.co_argcount - 1

    def guarded(*args: Any, **kwargs: Any) -> Any:
        if len(args) < count or not _at(origin):
            return original(*args, **kwargs)
        kind = next((a.dtype for a in args[:count] if tf.is_tensor(a)), None)  # numbers take that of the tensor
        tensors = [a if tf.is_tensor(a) else tf.convert_to_tensor(a, kind) for a in args[:count]]
        if not tensors[0].dtype.is_floating:
            return original(*args, **kwargs)
        on = switches.guard if own else tf.logical_and(switches.guard, switches.wide)
        if guard.empty:
            result = original(*args, **kwargs)
            return tf.where(tf.logical_and(on, tf.equal(tf.size(tensors[0]), 0)), tf.zeros_like(result), result)
        dtype = tensors[0].dtype
        least = tf.maximum(switches.least, guard.small if dtype != tf.float16 or not guard.small else 1e-4)
        changed = guard.change(tf.cast(least, dtype), *tensors)
        kept = [tf.where(on, new, old) for new, old in zip(changed, tensors, strict=True)]
        return original(*kept, *args[count:], **kwargs)

    return tf.autograph.experimental.do_not_convert(guarded)


def _at(origin: Origin) -> bool:
    """Whether the incident's line is on the stack; True where that line is not known."""
    wanted = origin.source
    if wanted is None:
        return True
    if any(code.co_filename == wanted.file and line == wanted.line for code, line in source.stack(3)):
        return True
    # Autograph runs a copy of the program's functions; TensorFlow knows which of its lines are which of the program's.
    return any(frame.filename == wanted.file and frame.lineno == wanted.line for frame in tf_stack.extract_stack())
