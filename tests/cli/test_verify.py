from __future__ import annotations

import re
from pathlib import Path

import pytest
import runs

from tb_nanwatch.cli import exits
from tb_nanwatch.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_sound(tmp_path: Path, capsys: Capture) -> None:
    runs.blow_up(tmp_path / "a", "loss")
    runs.write(tmp_path / "b")
    assert main(["verify", str(tmp_path)]) == exits.HEALTHY
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"a: events\.out\.tfevents\..*\.nanwatch: 7 records, [\d,]+ bytes: sound", lines[0])
    assert lines[-1] == "2 files, none damaged"


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_a_flipped_byte_is_found(part: float, tmp_path: Path, capsys: Capture) -> None:
    runs.write(tmp_path)
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    at = int(part * len(data))
    data[at] ^= 1
    file.write_bytes(data)
    assert main(["verify", str(tmp_path)]) == exits.WARNINGS
    out = capsys.readouterr().out
    assert "DAMAGED" in out
    found = re.search(rf"  {re.escape(file.name)}: skipped (\d+) bytes at offset (\d+)", out)
    assert found is not None
    size, offset = map(int, found.groups())
    assert offset <= at < offset + size


def test_an_unfinished_record_is_no_damage(tmp_path: Path, capsys: Capture) -> None:
    runs.write(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    assert main(["verify", str(tmp_path)]) == exits.HEALTHY
    assert re.search(r"\d+ bytes of an unfinished record at the end: sound", capsys.readouterr().out)


def test_files_of_others_are_passed_over(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"")
    assert main(["verify", str(tmp_path)]) == exits.NOTHING_READABLE
    assert "no file written by nanwatch" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "missing")]) == exits.NOTHING_READABLE
