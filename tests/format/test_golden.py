"""Every version still reads what every earlier one wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden.make import RUN, plain

from tb_nanwatch.format import codec, framing, metadata

GOLDEN = Path(__file__).parents[1] / "golden"
TWINS = sorted(GOLDEN.glob("v*/*.json"))


def test_all_kinds_are_there() -> None:
    assert {path.stem for path in TWINS} >= set(RUN)
    assert {path.with_suffix(".bin") for path in TWINS} <= set(GOLDEN.glob("v*/*.bin"))


@pytest.mark.parametrize("twin", TWINS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_golden_record(twin: Path) -> None:
    record = codec.decode(twin.with_suffix(".bin").read_bytes(), unpack_steps=True)
    assert plain(record) == json.loads(twin.read_text(encoding="utf-8"))


def test_golden_event_file() -> None:
    data = (GOLDEN / "v1" / "run.bin").read_bytes()
    payloads = []
    while data:
        length = framing.header_length(data[: framing.HEADER_BYTES])
        assert length is not None
        payloads += metadata.unwrap(metadata.parse(data[framing.HEADER_BYTES : framing.HEADER_BYTES + length]))
        data = data[framing.HEADER_BYTES + length + framing.FOOTER_BYTES :]
    assert payloads == [(GOLDEN / "v1" / f"{name}.bin").read_bytes() for name in RUN]
