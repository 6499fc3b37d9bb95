"""Records whose checksums fit and whose content does not: what a malicious or a mistaken writer may leave."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from history import INFOS, TAGS, frames, recorder
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto import event_pb2

from tb_nanwatch.format import codec, framing, metadata
from tb_nanwatch.format.records import (
    Closed,
    Counts,
    CountsRow,
    FullBlock,
    Incident,
    Note,
    Origin,
    Record,
    RunHeader,
    Spread,
    StepBlock,
)
from tb_nanwatch.store.catalog import Catalog

NAME = "events.out.tfevents.1.h.1.w.00000.nanwatch"
HALF = np.full((2, 3), 0.5, np.float32)


def block() -> StepBlock:
    made = recorder(np.random.default_rng(0), 0, 6)
    return StepBlock(
        made.steps, 1e9 + made.steps, made.steps, np.arange(3), made.codes, np.array([3]), made.losses[:, None]
    )


RECORDS: list[Record] = [
    RunHeader("w", wall_time=1e9, versions={"a": "b"}, options={"c": "d"}),
    INFOS,
    block(),
    FullBlock(np.array([0, 5]), np.arange(3), HALF.astype(float), HALF, HALF, HALF),
    CountsRow(3, {0: Counts(1, 2, 3, 9), 1: Counts(1, 0, 0, 9)}),
    Incident(0, 3, 3, Origin("loss"), spread=(Spread(0, 3, "loss", "loss", "loss", Counts(1, 0, 0, 1)),)),
    Note(3, "restart", "text"),
    Closed(6, 0),
]


def ask_everything(logdir: Path) -> None:
    catalog = Catalog(logdir)
    catalog.refresh()
    for run in catalog.runs().values():
        assert run.started <= run.updated or run.updated != run.updated
        assert (run.last_finite_step, run.notes, run.damage, run.incidents, run.version) is not None
        for tag in {*TAGS, *(info.tag for info in run.tensors)}:
            for stat in ("norm", "value", "max_abs", "headroom", "update_ratio"):
                run.series(tag, stat)
                run.binned(tag, stat, run.first_step, run.last_step, 3)
            run.cell(tag, run.last_step)
        for level in (0, 5, 9, 40):
            run.tile("weight", level, 0)
            run.tile("weight", level, max(0, run.last_step >> level >> 8))
        for step in run.counts:
            assert run.counts[step] is not None


def raw(payload: bytes) -> bytes:
    event = event_pb2.Event()
    value = event.summary.value.add(tag="nanwatch")
    value.metadata.plugin_data.plugin_name = "nanwatch"
    value.tensor.dtype = 7
    value.tensor.string_val.append(payload)
    return framing.frame(event.SerializeToString())


@pytest.mark.parametrize("number", range(len(RECORDS)))
def test_any_byte_of_a_record_changed(tmp_path: Path, number: int) -> None:
    payload = codec.encode(RECORDS[number])
    whole = [raw(codec.encode(record)) for record in RECORDS]
    version = framing.frame(metadata.version_event(1e9))
    for at in range(len(payload)):
        broken = bytearray(payload)
        broken[at] ^= (0x01, 0x80, 0xFF)[at % 3]
        data = b"".join([version, *whole[:number], raw(bytes(broken)), *whole[number + 1 :]])
        (tmp_path / NAME).unlink(missing_ok=True)
        (tmp_path / NAME).write_bytes(data)
        ask_everything(tmp_path)


@given(st.lists(st.one_of(st.sampled_from(RECORDS), st.binary(max_size=30)), max_size=12))
def test_records_in_any_order(tmp_path_factory: pytest.TempPathFactory, records: list[Record | bytes]) -> None:
    logdir = tmp_path_factory.mktemp("run")
    data = [raw(r if isinstance(r, bytes) else codec.encode(r)) for r in records]
    (logdir / NAME).write_bytes(framing.frame(metadata.version_event(1e9)) + b"".join(data))
    ask_everything(logdir)


@pytest.mark.parametrize(
    "change",
    [
        {"steps": np.array([5, 4, 3, 2, 1, 0])},
        {"steps": np.array([-3, -2, -1, 0, 1, 2])},
        {"steps": np.array([0, 1, 2, 3, 4, 2**62])},
        {"norm_ids": np.array([1, 1, 1])},
        {"wall_times": np.full(6, np.nan)},
        {"iterations": np.full(6, np.iinfo(np.int64).min)},
        {"norm_ids": np.array([7, 8, 9])},
        {"scalar_ids": np.array([0])},
    ],
)
def test_blocks_that_make_no_sense(tmp_path: Path, change: dict[str, np.ndarray]) -> None:
    records = [*RECORDS[:2], replace(block(), **change), *RECORDS[3:]]
    (tmp_path / NAME).write_bytes(b"".join(frames(records)))
    ask_everything(tmp_path)


def test_names_that_are_no_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"r\xff\xfe")
    folder.mkdir()
    data = b"".join(frames(RECORDS))
    (folder / os.fsdecode(b"events.out.tfevents.\xff.nanwatch")).write_bytes(data[:-10] + b"\xee" * 10)
    ask_everything(tmp_path)
    catalog = Catalog(tmp_path)
    catalog.refresh()
    (run,) = catalog.runs().values()
    assert run.name == "r\ufffd\ufffd"
    assert "".join(run.damage).encode()
