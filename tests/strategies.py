"""Records as Hypothesis draws them: every kind, with NaN, infinities, empty columns and odd names."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import (
    KINDS,
    PHASES,
    BatchPart,
    Closed,
    Column,
    Counts,
    CountsRow,
    FirstBatches,
    FullBlock,
    Incident,
    Note,
    OperandStats,
    Origin,
    RunHeader,
    Source,
    Spread,
    StepBlock,
    TensorInfo,
)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
steps = st.integers(0, 2**40)
small = st.integers(0, 2**31 - 1)
amounts = st.integers(0, 2**50)
shapes = st.lists(st.integers(-1, 2**40), max_size=4).map(tuple)
words = st.dictionaries(names, names, max_size=3)

#: Codes that recorders write: not measured, zero, the states, and finite magnitudes.
codes = st.one_of(st.integers(0, 9), st.integers(magnitude.FIRST_FINITE, magnitude.LAST))


def ids(count: int) -> st.SearchStrategy[Any]:
    return st.lists(small, min_size=count, max_size=count, unique=True).map(lambda v: np.asarray(v, np.int64))


@st.composite
def step_columns(draw: Any, at_least: int = 0) -> Any:
    deltas = draw(st.lists(st.integers(1, 1000), min_size=at_least, max_size=12))
    return np.cumsum(np.asarray([draw(steps), *deltas], np.int64))[1:]


@st.composite
def step_blocks(draw: Any) -> StepBlock:
    column = draw(step_columns())
    n, m, k = len(column), draw(st.integers(0, 5)), draw(st.integers(0, 3))
    return StepBlock(
        steps=column,
        wall_times=draw(hnp.arrays(np.float64, n)),
        iterations=draw(hnp.arrays(np.int64, n)),
        norm_ids=draw(ids(m)),
        norms=draw(hnp.arrays(np.uint16, (n, m), elements=codes)),
        scalar_ids=draw(ids(k)),
        scalars=draw(hnp.arrays(np.float32, (n, k))),
        stride=draw(st.integers(1, 4096)),
    )


@st.composite
def full_blocks(draw: Any) -> FullBlock:
    column = draw(step_columns())
    shape = (len(column), draw(st.integers(0, 5)))
    shares = hnp.arrays(np.float32, shape, elements=st.floats(0, 1, width=32))
    return FullBlock(
        steps=column,
        ids=draw(ids(shape[1])),
        max_abs=draw(hnp.arrays(np.float64, shape, elements=st.floats(0, 1e130) | st.just(np.nan))),
        mean=draw(hnp.arrays(np.float32, shape)),
        zero_share=draw(shares),
        subnormal_share=draw(shares),
    )


headers = st.builds(
    RunHeader,
    writer_id=names,
    segment=small,
    attempt=small,
    first_step=steps,
    wall_time=st.floats(),
    host=names,
    pid=steps,
    entry_point=names,
    every=small,
    versions=words,
    options=words,
    worker=small,
    error_policy=names,
)
tensor_infos = st.builds(
    TensorInfo,
    id=small,
    kind=st.sampled_from(KINDS),
    name=names,
    layer=names,
    layer_class=names,
    dtype=names,
    shape=st.none() | shapes,
    order=steps,
    trainable=st.booleans(),
)
counts = st.builds(Counts, amounts, amounts, amounts, amounts)
sources = st.builds(Source, names, small, names, names)
operands = st.builds(OperandStats, names, names, shapes, st.floats(), st.floats(), amounts, amounts, amounts, amounts)
origins = st.builds(
    Origin,
    phase=st.sampled_from(PHASES),
    layer=names,
    tensor=names,
    tensor_kind=names,
    layer_class=names,
    op_type=names,
    op_name=names,
    source=st.none() | sources,
    replica=st.integers(-1, 1000),
    samples=st.lists(steps, max_size=3).map(tuple),
    precision=names,
    inputs=st.lists(operands, max_size=2).map(tuple),
    output=counts,
)
spreads = st.builds(Spread, small, steps, st.sampled_from(PHASES), names, names, counts, names)
incidents = st.builds(
    Incident,
    id=small,
    first_step=steps,
    detected_step=steps,
    origin=origins,
    last_step=st.none() | steps,
    recovered=st.booleans(),
    spread=st.lists(spreads, max_size=3).map(tuple),
    capsule=names,
    last_finite_step=st.none() | steps,
    wall_time=st.floats(),
    action=names,
    bad_steps=small,
    replay_json=names,
)
columns = st.builds(Column, small, *[st.floats(allow_nan=False)] * 4)
few_columns = st.lists(columns, max_size=3).map(tuple)
parts = st.builds(
    BatchPart, names, names, st.none() | shapes, amounts, small, st.floats(), few_columns, few_columns, small, small
)

records = st.one_of(
    headers,
    st.lists(tensor_infos, max_size=4).map(tuple),
    step_blocks(),
    full_blocks(),
    st.builds(CountsRow, steps, st.dictionaries(small, counts, max_size=4)),
    incidents,
    st.builds(Note, steps, names, names),
    st.builds(Closed, steps, amounts),
    st.builds(FirstBatches, steps, small, st.lists(parts, max_size=3).map(tuple), st.booleans()),
)


def same(one: Any, other: Any) -> bool:
    """Equality of records in which NaN equals NaN; arrays by value and by bits of their dtype's kind."""
    if isinstance(one, np.ndarray):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
        )
    if hasattr(one, "__dataclass_fields__"):
        return type(one) is type(other) and all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other or (one != one and other != other)  # noqa: PLR0124  # NaN
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return bool(one == other)
