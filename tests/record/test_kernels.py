"""The reductions against numpy in float64, on ordinary kernels and compiled by XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_nanwatch.record import kernels
from tb_nanwatch.stats import dtypes, measures

DTYPES = ("float16", "bfloat16", "float32", "float64")
SHAPES = ((0,), (), (1,), (7,), (3, 5), (0, 4), (80, 64), (70, 63))  # the last two: both products of `finite_flag`


def numpy_type(dtype: str) -> Any:
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def all_kernels(x: Any) -> Any:
    return [
        tf.cast(kernel(x), tf.float64)
        for kernel in (kernels.statistics, kernels.exact_statistics, kernels.sum_of_squares, kernels.finite_flag)
    ]


RUN: dict[str, Callable[[Any], Any]] = {
    "uncompiled": tf.function(all_kernels),
    "xla": tf.function(all_kernels, jit_compile=True),
}


def run(how: str, array: Any) -> list[Any]:
    """statistics, exact_statistics, sum_of_squares, finite_flag."""
    if how == "numpy":
        with np.errstate(all="ignore"):
            squares = measures.sum_of_squares(array)
            return [measures.statistics(array, squares), measures.exact_statistics(array), squares, squares]
    return [np.asarray(r) for r in RUN[how](tf.constant(array))]


@st.composite
def arrays(draw: st.DrawFn, special: bool) -> Any:
    """Arrays whose finite elements span many magnitudes; with `special` also NaN, infinities and subnormals."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.sampled_from(SHAPES))
    seed = draw(st.integers(0, 2**32 - 1))
    scale = draw(st.sampled_from([1.0, 1e-3, 3e3] if dtype == "float16" else [1.0, 1e-8, 1e8, 1e-16, 1e16]))
    values = np.random.default_rng(seed).normal(size=shape) * scale
    values = np.asarray(values).astype(numpy_type(dtype))
    flat = values.reshape(-1)
    if flat.size:
        limits = [0.0, -0.0]
        if special:
            largest, normal = dtypes.largest(dtype), dtypes.smallest_normal(dtype)
            limits += [np.nan, np.inf, -np.inf, largest, -largest, normal, normal / 4, -normal / 4]
        for value in draw(st.lists(st.sampled_from(limits), max_size=6)):
            flat[draw(st.integers(0, flat.size - 1))] = value
    return values


def reference(array: Any) -> dict[str, float]:
    """Every statistic in float64 over the finite elements; counts over all."""
    wide = np.asarray(array).astype(np.float64).ravel()
    finite = wide[np.isfinite(wide)]
    top = np.abs(finite).max(initial=0.0)
    scaled = finite / top if top else finite
    normal = dtypes.smallest_normal(array.dtype.name)
    size = max(wide.size, 1)
    return {
        "norm": min(float(top) * float(np.sqrt((scaled**2).sum())), dtypes.largest("float64")),
        "max_abs": float(top),
        "mean": float(top * (scaled.sum() / max(finite.size, 1))),
        "zero": float((wide == 0).sum() / size),
        "subnormal": float(((wide != 0) & (np.abs(wide) < normal)).sum() / size),
        "nan": float(np.isnan(wide).sum()),
        "pos_inf": float((wide == np.inf).sum()),
        "neg_inf": float((wide == -np.inf).sum()),
        "size": float(wide.size),
    }


def check(columns: Any, array: Any, exact: bool) -> None:
    expected = reference(array)
    dtype = array.dtype.name
    tiny = dtypes.smallest_normal("float64" if dtype == "float64" else "float32")  # kernels flush what lies below
    mean_error = expected["max_abs"] * 1e-5 + tiny
    norm_error = tiny * 10 * max(1.0, np.sqrt(expected["size"]))
    assert columns[measures.NORM] == pytest.approx(expected["norm"], rel=1e-5, abs=norm_error)
    assert max(columns[measures.MAX_ABS], 0) == pytest.approx(expected["max_abs"], rel=1e-6, abs=tiny)
    assert columns[measures.MEAN] == pytest.approx(expected["mean"], abs=mean_error)
    assert columns[measures.ZERO] == pytest.approx(expected["zero"], abs=1e-6)
    assert columns[measures.SUBNORMAL] == pytest.approx(expected["subnormal"], abs=1e-6)
    counted = [columns[i] for i in (measures.NAN, measures.POS_INF, measures.NEG_INF, measures.SIZE)]
    assert counted == [expected["nan"], expected["pos_inf"], expected["neg_inf"], expected["size"]]
    assert not exact or np.isfinite(columns).all()


@pytest.mark.parametrize("how", [*RUN, "numpy"])
@settings(max_examples=50)
@given(array=arrays(special=False))
def test_statistics_of_finite_tensors(how: str, array: Any) -> None:
    statistics, exact, squares, flag = run(how, array)
    check(statistics, array, exact=False)
    check(exact, array, exact=True)
    assert np.sqrt(squares) == pytest.approx(reference(array)["norm"], rel=1e-5)
    assert np.isfinite(flag)


@pytest.mark.parametrize("how", [*RUN, "numpy"])
@settings(max_examples=100)
@given(array=arrays(special=True))
def test_statistics_of_any_tensor(how: str, array: Any) -> None:
    statistics, exact, squares, flag = run(how, array)
    check(exact, array, exact=True)
    expected = reference(array)
    bad = expected["nan"] + expected["pos_inf"] + expected["neg_inf"]
    if not bad and expected["max_abs"] < dtypes.largest("float32") / 1e6:  # beyond, even the mean overflows
        check(statistics, array, exact=False)
    largest = dtypes.largest("float64" if array.dtype.name == "float64" else "float32")
    overflows = expected["norm"] >= np.sqrt(largest) * (1 - 1e-5)
    assert not (bad and np.isfinite(squares))
    assert not (bad and np.isfinite(flag))
    assert bad or overflows or np.isfinite(squares)
    assert bad or expected["max_abs"] > largest / 1e6 or np.isfinite(flag)


@pytest.mark.parametrize("how", [*RUN, "numpy"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_element_anywhere_is_seen_by_the_cheap_numbers(how: str, dtype: str, bad: float) -> None:
    for shape in ((80, 64), (70, 63)):
        array = np.ones(shape, numpy_type(dtype))
        for place in (0, array.size // 2, array.size - 1):
            array.flat[place] = bad
            _, exact, squares, flag = run(how, array)
            assert not np.isfinite(squares)
            assert not np.isfinite(flag)
            assert exact[[measures.NAN, measures.POS_INF, measures.NEG_INF]].sum() == 1
            array.flat[place] = 1


@pytest.mark.parametrize("how", [*RUN, "numpy"])
def test_opposite_infinities_do_not_cancel(how: str) -> None:
    for shape in ((4,), (80, 64), (70, 63)):
        array = np.zeros(shape, np.float32)
        array.flat[0], array.flat[-1] = np.inf, -np.inf
        _, exact, squares, flag = run(how, array)
        assert not np.isfinite(squares)
        assert not np.isfinite(flag)
        assert list(exact[[measures.NAN, measures.POS_INF, measures.NEG_INF]]) == [0, 1, 1]


@pytest.mark.parametrize("how", [*RUN, "numpy"])
@pytest.mark.parametrize("size", [1 << 16, 100_003, 1 << 17, 3 << 16, 1_000_003])
def test_sampled_shares_are_within_their_error(how: str, size: int) -> None:
    rng = np.random.default_rng(size)
    array = rng.normal(size=size).astype(np.float32)
    array[rng.random(size) < 0.3] = 0
    array[rng.random(size) < 0.1] = 1e-41
    expected = reference(array)
    for columns in run(how, array)[:2]:
        assert columns[measures.ZERO] == pytest.approx(expected["zero"], abs=measures.SHARE_ERROR * 1.5)
        assert columns[measures.SUBNORMAL] == pytest.approx(expected["subnormal"], abs=measures.SHARE_ERROR * 1.5)


@pytest.mark.parametrize("jit", [False, True])
def test_shapes_unknown_while_tracing(jit: bool) -> None:
    traced = tf.function(all_kernels, jit_compile=jit, input_signature=[tf.TensorSpec([None, None])])
    for rows in (0, 3, 70, 3000):
        array = np.random.default_rng(rows).normal(size=(rows, 64)).astype(np.float32)
        statistics, exact, squares, flag = (np.asarray(r) for r in traced(tf.constant(array)))
        assert np.isfinite(flag)
        assert statistics[measures.NORM] == pytest.approx(np.sqrt(squares), rel=1e-6)
        assert exact[measures.NORM] == pytest.approx(np.linalg.norm(array.astype(np.float64)), rel=1e-5)
        assert exact[measures.SIZE] == array.size


def test_counts_are_exact_beyond_what_float32_counts() -> None:
    array = np.full((1 << 24) + 3, np.nan, np.float16)
    columns = np.asarray(kernels.exact_statistics(tf.constant(array)))
    assert columns[measures.NAN] == array.size
    assert columns[measures.SIZE] == array.size


def test_what_can_be_measured() -> None:
    ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
    sparse = tf.SparseTensor([[0, 1]], [4.0], [2, 2])
    slices = tf.IndexedSlices(tf.constant([[5.0]]), tf.constant([0]))
    assert kernels.measurable(ragged) is ragged.flat_values
    assert kernels.measurable(sparse) is sparse.values
    assert kernels.measurable(slices) is slices.values
    for other in (tf.constant(1), tf.constant("text"), tf.constant(1j), None, 3.0, np.ones(2), [tf.constant(1.0)]):
        assert kernels.measurable(other) is None
