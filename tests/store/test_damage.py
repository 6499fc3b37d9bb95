"""Files cut and flipped at every byte, read through the catalog."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from history import INFOS, TAGS, frames, recorder

from tb_nanwatch.format import framing
from tb_nanwatch.format.records import FORMAT_VERSION, Counts, Note, RunHeader
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run

WILD = Path(__file__).resolve().parents[3] / "shared" / "wild"


def ask_everything(run: Run) -> None:
    for info in run.tensors:
        for stat in ("norm", "value", "max_abs", "headroom", "update_ratio"):
            run.series(info.tag, stat)
            run.binned(info.tag, stat, 0, 100, 4)
        run.cell(info.tag, 50)
    for level in (0, 4, 9):
        run.tile("weight", level, 0)
    assert run.last_finite_step is None or run.last_finite_step >= 0
    assert dict(run.counts) is not None


@pytest.fixture
def whole(tmp_path: Path) -> tuple[Path, list[tuple[int, int]]]:
    """A small file and where its records begin and end."""
    made = replace(recorder(np.random.default_rng(0), 0, 12), cuts=(4, 8), counts={3: Counts(nan=1, size=4)})
    (path,) = made.write(tmp_path / "whole")
    data, spans, at = path.read_bytes(), [], 0
    while at < len(data):
        size = (framing.header_length(data[at : at + 12]) or 0) + 16
        spans.append((at, at + size))
        at += size
    assert len(spans) == 7  # version, header, table, three blocks, counts
    return path, spans


def test_every_flipped_byte(whole: tuple[Path, list[tuple[int, int]]], tmp_path: Path) -> None:
    path, spans = whole
    data = path.read_bytes()
    folder = tmp_path / "flipped"
    folder.mkdir()
    for at in range(len(data)):
        broken = bytearray(data)
        broken[at] ^= 1 << (at % 8)
        (folder / path.name).unlink(missing_ok=True)
        (folder / path.name).write_bytes(bytes(broken))
        catalog = Catalog(folder)
        catalog.refresh()
        run = catalog.runs()["."]
        hurt = next(n for n, (start, stop) in enumerate(spans) if start <= at < stop)
        lost = {3: range(4), 4: range(4, 8), 5: range(8, 12)}.get(hurt, range(0))
        assert run.steps == 12 - len(lost)
        assert len(run.tensors) == (0 if hurt == 2 else 4)
        assert list(run.counts) == ([] if hurt == 6 else [3])
        assert run.header.writer_id == "w00"
        assert len(run.damage) == 1
        assert f"skipped {spans[hurt][1] - spans[hurt][0]} bytes at offset {spans[hurt][0]}" in run.damage[0]
        if at % 5 == 0:
            ask_everything(run)


def test_cut_at_every_byte_and_continued(whole: tuple[Path, list[tuple[int, int]]], tmp_path: Path) -> None:
    path, spans = whole
    data = path.read_bytes()
    for cut in range(len(data)):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / path.name).write_bytes(data[:cut])
        catalog = Catalog(folder)
        catalog.refresh()
        run = catalog.runs()["."]
        complete = sum(stop <= cut for _, stop in spans)
        assert run.steps == 4 * max(0, min(3, complete - 3))
        assert run.damage == ()
        if cut % 5 == 0:
            ask_everything(run)
        with (folder / path.name).open("ab") as file:
            file.write(data[cut:])
        assert catalog.refresh()
        after = catalog.runs()["."]
        assert (after.steps, len(after.tensors), after.damage) == (12, 4, ())
        assert run.version != after.version
        assert not catalog.refresh()
        shutil.rmtree(folder)


def test_a_file_of_a_later_format_is_reported_and_not_guessed_at(tmp_path: Path) -> None:
    header = RunHeader("w", format_version=FORMAT_VERSION + 1)
    name = "events.out.tfevents.1.h.1.w.00000.nanwatch"
    (tmp_path / name).write_bytes(b"".join(frames([header, INFOS, Note(0, "restart", "x")])))
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = catalog.runs()["."]
    assert (run.tensors, run.notes) == ((), ())
    (sentence,) = run.damage
    assert "upgrade tb_nanwatch" in sentence


def test_records_that_make_no_sense_are_damage(tmp_path: Path) -> None:
    made = recorder(np.random.default_rng(0), 0, 9)
    backwards = replace(made, steps=made.steps[::-1].copy(), attempt=1)
    made.write(tmp_path)
    backwards.write(tmp_path)
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = catalog.runs()["."]
    assert run.steps == 9
    assert "steps do not count up" in run.damage[0]
    ask_everything(run)


def test_a_block_destroyed_after_it_was_indexed_reads_as_not_measured(tmp_path: Path) -> None:
    made = replace(recorder(np.random.default_rng(0), 0, 512), cuts=(256,))
    (path,) = made.write(tmp_path)
    catalog = Catalog(tmp_path)
    catalog.refresh()
    run = catalog.runs()["."]
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(-400, 2)
        file.write(b"\xee" * 300)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # bit rot leaves no trace
    line = run.series(TAGS[0])
    assert line.steps.max() < 256
    assert len(line.steps) > 200


@pytest.mark.skipif(not WILD.is_dir(), reason=f"the folder {WILD} with other programs' event files is absent")
def test_files_of_other_programs_are_no_runs_of_ours() -> None:
    catalog = Catalog(WILD)
    assert catalog.refresh()
    assert dict(catalog.runs()) == {}
    assert catalog.damage == ()
    assert len(catalog.foreign) == 4
