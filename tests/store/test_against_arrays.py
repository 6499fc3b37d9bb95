"""The pyramid and the series against the arrays that were written, computed the slow and obvious way."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from history import INFOS, TAGS, Recorder, count_bits, recorder, shown
from hypothesis import given
from hypothesis import strategies as st

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import Counts
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run


@st.composite
def histories(draw: st.DrawFn) -> list[Recorder]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    found = []
    for attempt in range(draw(st.integers(1, 3))):
        first = draw(st.integers(0, 900))
        for worker in range(draw(st.integers(1, 2))):
            count = draw(st.sampled_from([0, 1, 5, 255, 256, 700, 1300]))
            made = recorder(rng, first, count, draw(st.sampled_from([0.0, 0.3])), attempt=attempt, worker=worker)
            style = draw(st.sampled_from(["aligned", "anywhere", "tiny"]))
            n = len(made.steps)
            cuts = {
                "aligned": np.flatnonzero(np.diff(made.steps >> 8)) + 1,
                "anywhere": np.unique(rng.integers(0, n + 1, 6)),
                "tiny": np.unique(rng.integers(0, n + 1, 40)),
            }[style]
            chosen = rng.choice(made.steps, min(n, 3), replace=False).tolist() if n else []
            counts = {int(s): Counts(int(rng.integers(0, 2)), 0, 1, 16) for s in chosen}
            file_cuts = draw(st.lists(st.integers(0, 5), max_size=2))
            found.append(
                Recorder(made.steps, made.codes, made.losses, attempt, worker, cuts.tolist(), file_cuts, counts)
            )
    return found


def load(recorders: list[Recorder], logdir: Path) -> Run:
    for made in recorders:
        made.write(logdir)
    catalog = Catalog(logdir)
    assert catalog.refresh()
    return catalog.runs()["."]


def by_step(recorders: list[Recorder], column: int, attempt: int | None) -> dict[int, tuple[list[int], int]]:
    """Step to finite codes of all workers, and state with 16 for "measured"."""
    found: dict[int, tuple[list[int], int]] = defaultdict(lambda: ([], 0))
    for made, visible in shown(recorders, attempt):
        for step, code in zip(made.steps[visible].tolist(), made.codes[visible, column].tolist(), strict=True):
            if code:
                codes, state = found[step]
                finite = [code] if magnitude.is_finite(code) else []
                found[step] = codes + finite, state | int(magnitude.to_bits(code)) | 16
        hidden = set(made.steps[~visible].tolist())
        for step, counts in made.counts.items():
            if column == 0 and counts.bad and step not in hidden:
                found[step] = found[step][0], found[step][1] | count_bits(counts) | 16
    return found


@given(histories(), st.integers(0, 12), st.integers(0, 4), st.sampled_from([None, 0, 1]))
def test_tile(recorders: list[Recorder], level: int, tile: int, attempt: int | None) -> None:
    with tempfile.TemporaryDirectory() as logdir:
        run = load(recorders, Path(logdir))
        got = run.tile("weight", level, tile, attempt=attempt)
    assert got.first_step == tile * 256 << level
    for row, column in enumerate((0, 1)):
        low, high, state = np.zeros(256, int), np.zeros(256, int), np.zeros(256, int)
        for step, (codes, bits) in by_step(recorders, column, attempt).items():
            b = (step >> level) - tile * 256
            if 0 <= b < 256:
                state[b] |= bits
                low[b] = min([*codes, *([low[b]] if low[b] else [])], default=0)
                high[b] = max([*codes, high[b]])
        np.testing.assert_array_equal(got.low[row], low)
        np.testing.assert_array_equal(got.high[row], high)
        np.testing.assert_array_equal(got.state[row], state)


@given(histories(), st.sampled_from([None, 0, 1]), st.integers(0, 2000), st.integers(0, 2000))
def test_series_of_norms(recorders: list[Recorder], attempt: int | None, first: int, length: int) -> None:
    with tempfile.TemporaryDirectory() as logdir:
        run = load(recorders, Path(logdir))
        for column in (0, 1, 2):
            got = run.series(TAGS[column], "norm", first, first + length, attempt)
            want = {s: v for s, v in by_step(recorders, column, attempt).items() if first <= s <= first + length}
            np.testing.assert_array_equal(got.steps, sorted(want))
            assert (got.iterations[got.iterations >= 0] == 2 * got.steps[got.iterations >= 0]).all()
            for step, value, state in zip(got.steps.tolist(), got.values, got.state, strict=True):
                bits = want[step][1]
                assert state == (bits & ~8 if bits & 7 else bits)
                if bits == 16:
                    assert value in magnitude.decode(want[step][0])
                elif np.isnan(value):
                    assert bits & 15


@given(histories(), st.integers(0, 500), st.integers(1, 2500), st.sampled_from([1, 7, 64, 1024]))
def test_binned_norms(recorders: list[Recorder], first: int, length: int, bins: int) -> None:
    with tempfile.TemporaryDirectory() as logdir:
        run = load(recorders, Path(logdir))
        got = run.binned(TAGS[0], "norm", first, first + length, bins)
    per_bin = got.steps_per_bin
    want = {s: v for s, v in by_step(recorders, 0, None).items() if first <= s <= first + length}
    grouped: dict[int, list[tuple[list[int], int]]] = defaultdict(list)
    for step, value in want.items():
        grouped[step // per_bin * per_bin].append(value)
    np.testing.assert_array_equal(got.step, sorted(grouped))
    assert len(got.step) <= max(bins + 1, 2)
    if per_bin > 1:
        for i, step in enumerate(got.step.tolist()):
            codes = [c for value in grouped[step] for c in value[0]]
            assert got.state[i] == np.bitwise_or.reduce([value[1] for value in grouped[step]])
            want_low, want_high = (magnitude.decode([min(codes), max(codes)])) if codes else (np.nan, np.nan)
            np.testing.assert_equal([got.low[i], got.high[i]], [want_low, want_high])


@given(histories())
def test_losses_and_facts(recorders: list[Recorder]) -> None:
    with tempfile.TemporaryDirectory() as logdir:
        run = load(recorders, Path(logdir))
        line = run.series("loss/loss", "value")
        last_finite = run.last_finite_step
    want: dict[int, list[float]] = defaultdict(list)
    for made, visible in shown(recorders, None):
        for step, loss in zip(made.steps[visible].tolist(), made.losses[visible].tolist(), strict=True):
            want[step].append(loss)
    np.testing.assert_array_equal(line.steps, sorted(want))
    for step, value, state in zip(line.steps.tolist(), line.values, line.state, strict=True):
        assert bool(state & 15) == (not np.isfinite(want[step]).all())
        assert np.isnan(value) or value == want[step][0]
    assert run.steps == len(want)
    assert (run.first_step, run.last_step) == ((min(want), max(want)) if want else (0, -1))
    bad = {s for s, v in want.items() if not np.isfinite(v).all()}
    for column in (0, 1, 2):
        bad |= {s for s, (_, state) in by_step(recorders, column, None).items() if state & 15}
    assert last_finite == max(set(want) - bad, default=None)


@given(histories(), st.integers(0, 2500))
def test_cell(recorders: list[Recorder], step: int) -> None:
    with tempfile.TemporaryDirectory() as logdir:
        run = load(recorders, Path(logdir))
        cells = [run.cell(tag, step) for tag in TAGS[:3]]
    for column, cell in enumerate(cells):
        want = {s: v for s, v in by_step(recorders, column, None).items() if s <= step}
        assert cell.measured_step == max(want, default=None)
        assert (cell.norm is None) == (not want)
        if want:
            bits = want[max(want)][1]
            assert cell.state == (bits & ~8 if bits & 7 else bits)


def test_an_unknown_statistic_is_refused(tmp_path: Path) -> None:
    run = load([recorder(np.random.default_rng(0), 0, 3)], tmp_path)
    with pytest.raises(ValueError, match="no statistic is called 'median'"):
        run.series(TAGS[0], "median")
    with pytest.raises(ValueError, match="level 41"):
        run.tile("weight", 41, 0)
    assert [info.tag for info in run.kind("weight")] == [info.tag for info in INFOS[:2]]
