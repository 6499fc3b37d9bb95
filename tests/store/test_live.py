"""Runs that change while they are read: written live, restarted, thinned."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from history import INFOS, TAGS, Recorder, recorder

from tb_nanwatch.format import magnitude
from tb_nanwatch.format.records import Closed, Counts, CountsRow, FullBlock, Incident, Origin, RunHeader, StepBlock
from tb_nanwatch.read.recordfile import RecordFile
from tb_nanwatch.record.blocks import Rows
from tb_nanwatch.record.segments import Segments
from tb_nanwatch.record.thinning import PROTECTED_STEPS, read_records
from tb_nanwatch.record.writer import RunWriter
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run

RNG = np.random.default_rng(7)


def rows(steps: range | np.ndarray, codes: np.ndarray | None = None) -> Rows:
    numbers = np.asarray(steps, np.int64)
    if codes is None:
        codes = RNG.integers(1000, 60000, (len(numbers), 3)).astype(np.uint16)
    losses = np.ones((len(numbers), 1), np.float32)
    return Rows(numbers, 1e9 + numbers, numbers, np.arange(3), codes, np.array([3]), losses)


def as_block(part: Rows) -> StepBlock:
    return StepBlock(**{name: value for name, value in vars(part).items() if name != "again"})


def only(catalog: Catalog) -> Run:
    (run,) = catalog.runs().values()
    return run


def test_a_reader_follows_the_writer(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path, RunHeader("w", wall_time=1e9))
    catalog = Catalog(tmp_path)
    assert not catalog.loaded
    catalog.refresh()
    assert catalog.loaded
    writer.declare(INFOS)
    codes = RNG.integers(1, 10, (700, 3)).astype(np.uint16)
    versions = set()
    for end in (1, 2, 100, 255, 256, 300, 700):
        begin = only(catalog).last_step + 1 if catalog.runs() else 0
        writer.rows(rows(range(begin, end), codes[begin:end]))
        assert writer.flush()
        assert catalog.refresh()
        run = only(catalog)
        versions.add(run.version)
        assert (run.first_step, run.last_step, run.steps, run.ended) == (0, end - 1, end, False)
        state = np.zeros(1024, np.uint8)
        state[:end] = magnitude.to_bits(codes[:end, 0]) | 16
        for level in (0, 2, 4, 6, 8, 9):
            want = np.bitwise_or.reduce(state.reshape(-1, 1 << level), axis=1)[:256]
            np.testing.assert_array_equal(run.tile("weight", level, 0).state[0, : len(want)], want)
        assert not catalog.refresh()
    writer.close()
    assert catalog.refresh()
    assert only(catalog).ended
    assert len(versions) == 7


def test_an_old_snapshot_keeps_its_answers(tmp_path: Path) -> None:
    made = recorder(np.random.default_rng(1), 0, 300)
    made.write(tmp_path)
    catalog = Catalog(tmp_path)
    catalog.refresh()
    before = only(catalog)
    replace(made, steps=made.steps + 1000, attempt=1).write(tmp_path)
    catalog.refresh()
    assert (before.last_step, only(catalog).last_step) == (299, 1299)
    assert before.series(TAGS[0]).steps.max() < 300


def test_a_restart_replaces_the_steps_that_it_repeats(tmp_path: Path) -> None:
    old = recorder(np.random.default_rng(1), 0, 400)
    new = recorder(np.random.default_rng(2), 300, 50, attempt=1)
    old.write(tmp_path)
    new.write(tmp_path)
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = only(catalog)
    assert [(a.attempt, a.first_step, a.last_step) for a in run.attempts] == [(0, 0, 399), (1, 300, 349)]
    assert run.header.attempt == 1
    assert run.steps == 400
    losses = run.series("loss/loss", "value").values
    np.testing.assert_array_equal(losses, np.where(np.isfinite(x := merged(old, new)), x, np.nan))
    np.testing.assert_array_equal(run.series("loss/loss", "value", attempt=0).steps, old.steps)
    np.testing.assert_array_equal(run.series("loss/loss", "value", attempt=1).steps, new.steps)
    assert len(run.series("loss/loss", "value", attempt=2).steps) == 0


def merged(old: Recorder, new: Recorder) -> np.ndarray:
    losses = old.losses.astype(float)
    losses[300:350] = new.losses
    return losses


def test_two_runs_copied_into_one_folder_are_two_attempts(tmp_path: Path) -> None:
    for n, first in enumerate((0, 5)):
        writer = RunWriter(tmp_path, RunHeader(f"w{n}", wall_time=1e9 + n))
        writer.declare(INFOS)
        writer.rows(rows(range(first, first + 10)))
        writer.event(Incident(0, first + 3, first + 3, Origin("loss")))
        writer.close()
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = only(catalog)
    assert [(a.attempt, a.writer_id, a.ended) for a in run.attempts] == [(0, "w0", True), (1, "w1", True)]
    assert [(i.id, i.first_step) for i in run.incidents] == [(0, 3), (1, 8)]


def test_workers_tell_of_one_incident_once(tmp_path: Path) -> None:
    origins = (Origin("loss", precision="layer"), Origin("forward", layer="a", precision="op"))
    for worker, origin in enumerate(origins):
        writer = RunWriter(tmp_path, RunHeader(f"w{worker}", wall_time=1e9, worker=worker))
        writer.declare(INFOS)
        writer.rows(rows(range(10)))
        writer.event(Incident(0, 4, 4, origin))
        writer.event(CountsRow(4, {0: Counts(nan=1 + worker, size=16)}))
        if worker:
            writer.close()
        else:
            writer.flush()
            writer._segments.close()  # killed
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = only(catalog)
    (incident,) = run.incidents
    assert incident.origin.precision == "op"
    assert len(run.attempts) == 1
    assert not run.ended  # one of them never said goodbye
    assert run.counts[4]["weight/a/kernel"].nan == 2
    assert run.last_finite_step == 3


def test_named_roots_lead_the_names_of_their_runs(tmp_path: Path) -> None:
    recorder(np.random.default_rng(1), 0, 3).write(tmp_path / "x")
    recorder(np.random.default_rng(1), 0, 3).write(tmp_path / "x" / "deep" / "er")
    catalog = Catalog({"left": tmp_path / "x", "right": tmp_path})
    catalog.refresh()
    assert list(catalog.runs()) == ["left/.", "left/deep/er", "right/x", "right/x/deep/er"]
    catalog = Catalog(tmp_path / "x")
    catalog.refresh()
    assert list(catalog.runs()) == [".", "deep/er"]


def test_a_run_that_is_removed_goes(tmp_path: Path) -> None:
    (path,) = recorder(np.random.default_rng(1), 0, 300).write(tmp_path)
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = only(catalog)
    path.unlink()
    assert len(run.series(TAGS[0]).steps) == 0  # no traceback for whoever still holds it
    assert run.tile("weight", 0, 0).state.max() == 0
    assert dict(catalog.runs()) == {}
    assert not catalog.refresh()


def test_a_large_file_of_another_program_is_not_read(tmp_path: Path) -> None:
    from tensorboard.compat.proto import event_pb2

    from tb_nanwatch.format import framing

    events = [
        framing.frame(event_pb2.Event(step=n, file_version="brain.Event:2").SerializeToString()) for n in range(99)
    ]
    path = tmp_path / "events.out.tfevents.1.h"
    path.write_bytes(b"".join(events))
    file = RecordFile(path)
    assert list(file.new_records(path.stat())) == []
    assert (file.foreign, file.ours) == (True, False)
    assert file.offset < 10 * len(events[0])
    catalog = Catalog(tmp_path)
    catalog.refresh()
    assert catalog.foreign == (path,)


def fill(logdir: Path, disk_bytes: int, count: int, incident_at: int | None = None) -> tuple[Segments, np.ndarray]:
    """Blocks of a run that overruns its budget, with one NaN that flashes by at step 300."""
    segments = Segments(logdir, RunHeader("w", wall_time=1e9, pid=1), disk_bytes)
    segments.append(INFOS, 0)
    codes = np.random.default_rng(3).integers(1000, 60000, (count, 3)).astype(np.uint16)
    codes[300, 1] = 1 + magnitude.NAN
    for first in range(0, count, 256):
        steps = np.arange(first, min(first + 256, count))
        segments.append(as_block(rows(steps, codes[steps])), first)
        half = np.full((len(steps[::10]), 3), 0.5, np.float32)
        segments.append(FullBlock(steps[::10], np.arange(3), half.astype(float), half, half, half), first)
        if incident_at in steps:
            segments.append(Incident(0, incident_at, incident_at, Origin("loss")), incident_at)
            segments.append(CountsRow(incident_at, {0: Counts(nan=3, size=16)}), incident_at)
        assert sum(p.stat().st_size for p in logdir.iterdir()) <= disk_bytes
    return segments, codes


def test_thinning_keeps_the_budget_and_what_matters(tmp_path: Path) -> None:
    budget, count, at = 1 << 20, 300_000, 20_000
    segments, codes = fill(tmp_path, budget, count, at)
    segments.close()
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) > budget // 2
    assert all("tfevents" in p.name for p in tmp_path.iterdir())  # no half-written file is left
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = only(catalog)
    assert run.damage == ()
    steps = run.series("weight/a/kernel").steps
    assert count // 200 < len(steps) < count // 2
    assert np.isin(np.arange(at - PROTECTED_STEPS, at + 1), steps).all()
    assert np.isin(np.arange(count - 256, count), steps).all()
    assert [(i.first_step, len(run.counts[i.first_step])) for i in run.incidents] == [(at, 1)]
    assert len(run.tensors) == 4
    assert run.tile("weight", 20, 0).state[:, 0].tolist() == [17, 17]  # the flash, and what was counted
    assert 300 in steps
    values = run.series("weight/a/kernel").values
    np.testing.assert_allclose(values[steps != at], magnitude.decode(codes[steps[steps != at], 0]))
    assert 0 < len(run.series("weight/a/kernel", "max_abs").steps) < count // 10


def test_a_long_stretch_of_nan_does_not_break_the_budget(tmp_path: Path) -> None:
    budget, count = 1 << 20, 100_000
    segments = Segments(tmp_path, RunHeader("w", wall_time=1e9, pid=1), budget)
    segments.append(INFOS, 0)
    for first in range(0, count, 256):
        part = rows(range(first, first + 256))
        part.norms[:, 1] = 1 + magnitude.NAN
        part.norms[::2, 2] = 1 + magnitude.NAN  # and one that flickers
        segments.append(as_block(part), first)
        assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= budget
    segments.close()
    catalog = Catalog(tmp_path)
    catalog.refresh()
    assert only(catalog).tile("weight", 10, 0).state[1, :50].min() & 1


def test_what_earlier_recorders_left_counts_and_fades_too(tmp_path: Path) -> None:
    budget = 1 << 20
    for attempt in range(3):
        codes = np.random.default_rng(attempt).integers(1000, 60000, (60_000, 3)).astype(np.uint16)
        header = RunHeader(f"w{attempt}", wall_time=1e9 + attempt, pid=os.getpid(), attempt=attempt)
        segments = Segments(tmp_path, header, budget)
        segments.append(INFOS, 0)
        for first in range(0, len(codes), 256):
            segments.append(
                as_block(rows(range(first, min(first + 256, len(codes))), codes[first : first + 256])), first
            )
            if first == 30_208:
                segments.append(Incident(attempt, first, first, Origin("loss")), first)
            assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= budget
        if attempt != 1:
            segments.append(Closed(len(codes)), 0)
        segments.close()  # the second was killed, as far as one can tell, but its process lives
    unfinished = [p for p in sorted(tmp_path.iterdir()) if ".w1." in p.name][-1]
    assert all(getattr(record, "stride", 1) == 1 for _, _, record in read_records(unfinished))
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = only(catalog)
    assert [i.id for i in run.incidents] == [0, 1, 2]
    left: list[int] = []
    for attempt in range(3):
        steps = run.series(TAGS[0], attempt=attempt).steps
        assert np.isin(np.arange(30_208 - 256, 30_208), steps).all()
        assert len(steps) > 1000
        left.append(len(steps))
    assert left[0] <= left[1] <= left[2]  # the oldest fade first
    assert left[0] < 60_000


def test_what_a_killed_recorder_left_half_done_goes(tmp_path: Path) -> None:
    old, new = tmp_path / ".nanwatch-thinning-dead", tmp_path / ".nanwatch-thinning-live"
    capsule = tmp_path / "plugins/nanwatch/.step_3.123"
    capsule.mkdir(parents=True)
    for path in (old, new, capsule / "batch.npz"):
        path.write_bytes(b"half")
    for path in (old, capsule):
        os.utime(path, (1e9, 1e9))
    Segments(tmp_path, RunHeader("w", wall_time=1e9, pid=1), 1 << 20).append(INFOS, 0)
    assert (old.exists(), new.exists(), capsule.exists()) == (False, True, False)


def test_thinning_passes_over_a_damaged_record(tmp_path: Path) -> None:
    segments, _ = fill(tmp_path, 1 << 20, 30_000)
    path = min(tmp_path.iterdir())
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xee" * 4)
    before = sum(1 for _ in read_records(path))
    segments._thin(path)
    assert sum(1 for _ in read_records(path)) > before // 2
    segments.close()


def test_answers_survive_thinning_under_them(tmp_path: Path) -> None:
    segments, codes = fill(tmp_path, 1 << 30, 8192)  # nothing thinned yet, one file
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = only(catalog)
    assert run.steps == 8192
    segments._thin(segments.path)
    line = run.series(TAGS[0])  # indexed before, asked after: the answer is of the run as it is now
    assert line.steps[:3].tolist() == [0, 4, 8]
    np.testing.assert_allclose(line.values, magnitude.decode(codes[line.steps, 0]))
    assert run.tile("weight", 0, 1).state[1, 300 - 256] == 17
    assert run.cell(TAGS[0], 5).measured_step == 4
    assert only(catalog).steps < 3000
    segments.close()


def test_reading_while_thinning(tmp_path: Path) -> None:
    segments, codes = fill(tmp_path, 1 << 30, 4096)
    catalog = Catalog(tmp_path)
    catalog.refresh()
    failures: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                for run in catalog.runs().values():
                    line = run.series(TAGS[0])
                    np.testing.assert_allclose(line.values, magnitude.decode(codes[line.steps, 0]))
                    assert run.tile("weight", 12, 0).state[1, 0] & 1
        except BaseException as error:  # shown by the test
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        segments._thin(segments.path)
        catalog.refresh()
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    segments.close()


def test_many_blocks_of_one_step_take_memory_by_the_step(tmp_path: Path) -> None:
    made = recorder(np.random.default_rng(1), 0, 2048)
    replace(made, cuts=range(1, 2048)).write(tmp_path)
    catalog = Catalog(tmp_path)
    catalog.refresh()
    (part,) = only(catalog).parts
    assert len(part.slots) == 8
    assert sum(slot.low.nbytes for slot in part.slots) == 8 * 3 * 2


def test_import_loads_no_tensorflow() -> None:
    code = (
        "import sys, tb_nanwatch.store.catalog, tb_nanwatch.read.recordfile; "
        "from tb_nanwatch.format import metadata; metadata.version_event(0.0); "
        "sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_damage(tmp_path: Path) -> None:
    (path,) = recorder(np.random.default_rng(1), 0, 3).write(tmp_path)
    path.chmod(0)
    catalog = Catalog(tmp_path)
    catalog.refresh()
    assert "Permission denied" in catalog.damage[0]
