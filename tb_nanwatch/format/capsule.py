"""A capsule: the failing step of an incident in a folder of its own, so that it can be looked at and run again.

    manifest.json   strict JSON, what this module writes and parses
    batch.npz       arrays of the batch
    state.npz       variables as they were right before the step; absent where they were left out

Python may be told to write or read it; TensorFlow is not needed. Paths in it are text to show, never opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, TypeVar

from tb_nanwatch.errors import CorruptData, NewerFormat
from tb_nanwatch.format.arrays import Arrays
from tb_nanwatch.format.records import PHASES, Counts, OperandStats, Origin, Source

FORMAT_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
BATCH: Final = "batch.npz"
STATE: Final = "state.npz"
MOST_PARTS: Final = 10_000
MOST_DIMENSIONS: Final = 32
MOST_SAMPLES: Final = 1 << 20  # all of a batch may be bad
DEEPEST: Final = 24  # of structures inside structures

#: How a part of a batch is kept. Ragged: the flat values, then the row splits; sparse: indices, values, dense shape.
PARTS: Final = ("tuple", "list", "dict", "none", "value", "array", "strings", "ragged", "sparse", "left_out")

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """A part of the batch, nested as the step got it. `name` as in the recording: "x", "x/age".

    array: `dtype` and `shape` of the one named by `arrays`. strings: `arrays` are all bytes in a row (uint8) and the
    length of each (int64). tensor: whether it was TensorFlow's rather than numpy's. value: None, a truth value, a
    number or a text.
    """

    kind: str
    name: str = ""
    items: tuple[Part, ...] = ()
    keys: tuple[str | int, ...] = ()
    arrays: tuple[str, ...] = ()
    dtype: str = ""
    shape: tuple[int, ...] = ()
    tensor: bool = True
    value: Any = None

    def leaves(self) -> Iterator[Part]:
        """Parts that hold something, in order; ragged and sparse ones are whole."""
        if self.kind in ("tuple", "list", "dict"):
            for item in self.items:
                yield from item.leaves()
        elif self.kind != "none":
            yield self


@dataclass(frozen=True)
class Kept:
    """A variable. watched: it is a weight with the recording's name; else the name is the variable's own.

    metric: a Keras metric counts in it, which no step reads.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    array: str
    watched: bool
    metric: bool = False


@dataclass(frozen=True)
class Excerpt:
    """Lines of the user's program around `line`, from `first` on."""

    file: str
    line: int
    function: str
    first: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Capsule:
    """A manifest. random: states of Python's, numpy's and TensorFlow's eager generators, as `getstate` gives them."""

    step: int
    origin: Origin
    batch: Part
    wall_time: float = 0.0
    detected_step: int = -1
    last_finite_step: int = -1
    entry_point: str = ""
    under_xla: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    replay: Mapping[str, Any] = field(default_factory=dict)
    source: tuple[Excerpt, ...] = ()
    state: tuple[Kept, ...] = ()
    state_bytes: int = 0
    random: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opened:
    """A capsule with its arrays. Files that it does not need are None."""

    capsule: Capsule
    batch: Arrays | None
    state: Arrays | None


def strict(value: Any) -> Any:
    """`value` as JSON can hold it: non-finite numbers as "NaN", "Infinity" and "-Infinity"."""
    if isinstance(value, float) and value - value != 0:
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124  # NaN alone
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    return [strict(item) for item in value] if isinstance(value, list | tuple) else value


def write(capsule: Capsule) -> str:
    """The manifest."""
    document = {"format_version": FORMAT_VERSION, **strict(asdict(capsule)), "batch": _part_json(capsule.batch)}
    return json.dumps(document, allow_nan=False, indent=1)


def _part_json(part: Part) -> dict[str, Any]:
    told = {f.name: getattr(part, f.name) for f in fields(part) if getattr(part, f.name) != f.default}
    return {**strict(told), "kind": part.kind, "items": [_part_json(item) for item in part.items]}


# ---------------------------------------------------------------- parsing what may come from anybody


def parse(text: str) -> Capsule:
    """The capsule in a manifest. Raises CorruptData for what no recorder writes, NewerFormat for a later version's."""
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise CorruptData(f"{MANIFEST} is no JSON: {error}") from error
    version = _get(document, "format_version", int)
    if version > FORMAT_VERSION:
        raise NewerFormat(f"{MANIFEST} has format version {version}; this package reads up to {FORMAT_VERSION}")
    count = iter(range(MOST_PARTS))
    return Capsule(
        step=_get(document, "step", int),
        origin=_origin(_get(document, "origin", dict)),
        batch=_part(_get(document, "batch", dict), DEEPEST, count),
        wall_time=_number(document, "wall_time"),
        detected_step=_get(document, "detected_step", int, -1),
        last_finite_step=_get(document, "last_finite_step", int, -1),
        entry_point=_get(document, "entry_point", str, ""),
        under_xla=_get(document, "under_xla", bool, False),
        versions={k: v for k, v in _get(document, "versions", dict, {}).items() if isinstance(v, str)},
        replay=_get(document, "replay", dict, {}),
        source=_all(document, "source", _excerpt),
        state=_all(document, "state", _kept),
        state_bytes=_get(document, "state_bytes", int, 0),
        random=_get(document, "random", dict, {}),
        left_out=_texts(document, "left_out"),
    )


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not strict JSON")


_REQUIRED: Final[Any] = object()


def _get(document: Any, key: str, kind: type[T], default: Any = _REQUIRED) -> T:
    value = document.get(key, default) if isinstance(document, dict) else _REQUIRED
    if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
        return value
    raise CorruptData(f"{MANIFEST}: {key!r} is missing or no {kind.__name__}")


def _number(document: Any, key: str) -> float:
    """A float, or one of the texts that stand for what JSON lacks."""
    value = document.get(key, 0.0)
    if (isinstance(value, int | float) and not isinstance(value, bool)) or value in ("NaN", "Infinity", "-Infinity"):
        try:
            return float(value)
        except OverflowError:
            pass
    raise CorruptData(f"{MANIFEST}: {key!r} is no number")


def _all(document: Any, key: str, one: Callable[[Any], T]) -> tuple[T, ...]:
    return tuple(one(item) for item in _get(document, key, list, []))


def _texts(document: Any, key: str) -> tuple[str, ...]:
    found = _get(document, key, list, [])
    if not all(isinstance(item, str) for item in found):
        raise CorruptData(f"{MANIFEST}: {key!r} holds what is no text")
    return tuple(found)


def _ints(document: Any, key: str, most: int) -> tuple[int, ...]:
    found = _get(document, key, list, [])
    if len(found) > most or not all(type(item) is int and 0 <= item < 1 << 62 for item in found):
        raise CorruptData(f"{MANIFEST}: {key!r} is no shape and no list of indices")
    return tuple(found)


def _part(document: Any, depth: int, count: Iterator[int]) -> Part:
    kind = _get(document, "kind", str)
    if kind not in PARTS or depth == 0 or next(count, None) is None:
        raise CorruptData(f"{MANIFEST}: the batch has a part of kind {kind[:20]!r}, or is nested too deeply")
    items = tuple(_part(item, depth - 1, count) for item in _get(document, "items", list, []))
    keys = tuple(_get(document, "keys", list, []))
    value = document.get("value")
    wrong = not all(isinstance(key, str | int) for key in keys) or (kind == "dict" and len(keys) != len(items))
    wrong |= not isinstance(value, str | int | float | None)
    arrays = _texts(document, "arrays")
    wrong |= len(arrays) != {"array": 1, "strings": 2}.get(kind, 0)
    wrong |= (kind == "sparse" and len(items) != 3) or (kind == "ragged" and len(items) < 2)
    if wrong:
        raise CorruptData(f"{MANIFEST}: a part of the batch of kind {kind!r} is malformed")
    name, dtype = _get(document, "name", str, ""), _get(document, "dtype", str, "")
    tensor = _get(document, "tensor", bool, True)
    return Part(kind, name, items, keys, arrays, dtype, _ints(document, "shape", MOST_DIMENSIONS), tensor, value)


def _kept(document: Any) -> Kept:
    return Kept(
        _get(document, "name", str),
        _get(document, "dtype", str),
        _ints(document, "shape", MOST_DIMENSIONS),
        _get(document, "array", str),
        _get(document, "watched", bool, False),
        _get(document, "metric", bool, False),
    )


def _excerpt(document: Any) -> Excerpt:
    return Excerpt(
        _get(document, "file", str, ""),
        _get(document, "line", int, 0),
        _get(document, "function", str, ""),
        _get(document, "first", int, 1),
        _texts(document, "lines"),
    )


def _origin(document: Any) -> Origin:
    phase = _get(document, "phase", str)
    if phase not in PHASES:
        raise CorruptData(f"{MANIFEST}: there is no phase {phase[:20]!r}")
    names = ("layer", "tensor", "tensor_kind", "layer_class", "op_type", "op_name", "precision")
    source, output = document.get("source"), _get(document, "output", dict, {})
    return Origin(
        phase,
        **{name: _get(document, name, str, "") for name in names},
        source=None if source is None else _source(source),
        replica=_get(document, "replica", int, -1),
        samples=_ints(document, "samples", MOST_SAMPLES),
        inputs=_all(document, "inputs", _operand),
        output=Counts(*(_get(output, name, int, 0) for name in ("nan", "pos_inf", "neg_inf", "size"))),
    )


def _source(document: Any) -> Source:
    texts = {name: _get(document, name, str, "") for name in ("file", "function", "code")}
    return Source(line=_get(document, "line", int, 0), **texts)


def _operand(document: Any) -> OperandStats:
    counts = {name: _get(document, name, int, 0) for name in ("nan", "inf", "zero", "negative")}
    return OperandStats(
        _get(document, "name", str, ""),
        _get(document, "dtype", str, ""),
        _ints(document, "shape", MOST_DIMENSIONS),
        _number(document, "min"),
        _number(document, "max"),
        **counts,
    )
