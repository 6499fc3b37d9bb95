"""Reads every record of every run below LOGDIR, numbers included, and lists what cannot be read, by file and offset.

A file that ends inside a record is not damaged: it is being written, or its writer was killed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tb_nanwatch.cli import exits, logdir
from tb_nanwatch.diagnose.words import count, printable
from tb_nanwatch.errors import UnreadableError
from tb_nanwatch.format.records import BlockSummary, FullSummary
from tb_nanwatch.read.discovery import find_runs
from tb_nanwatch.read.recordfile import RecordFile, load

HELP: Final = "check that everything recorded can be read"
EXAMPLES: Final = """\
  nanwatch verify logs
  nanwatch verify logs && cp -r logs archive/"""


@dataclass
class Checked:
    """What was found in one file."""

    records: int = 0
    bytes: int = 0
    unfinished: int = 0
    damage: list[str] = field(default_factory=list)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("logdir", metavar="LOGDIR", help="folder that the recorder wrote to, or one above it")


def run(args: argparse.Namespace) -> int:
    """Print a line per file and one per damaged place."""
    root = logdir.checked(args.logdir)
    files, damaged = 0, 0
    for folder in find_runs({"": root}):
        for path in folder.files:
            with logdir.progress(f"Reading {printable(path.name)}"):
                found = _check(path)
            if found is None:
                continue
            files += 1
            damaged += bool(found.damage)
            size = f"{count(found.records, 'record')}, {count(found.bytes, 'byte')}"
            rest = f", {count(found.unfinished, 'byte')} of an unfinished record at the end" if found.unfinished else ""
            verdict = "DAMAGED" if found.damage else "sound"
            print(f"{printable(folder.name)}: {printable(path.name)}: {size}{rest}: {verdict}")
            for line in found.damage:
                print(f"  {printable(line)}")
    if not files:
        raise UnreadableError(f"no file written by nanwatch below {printable(args.logdir)}")
    print(f"{count(files, 'file')}, {damaged or 'none'} damaged")
    return exits.WARNINGS if damaged else exits.HEALTHY


def _check(path: Path) -> Checked | None:
    """None if another program wrote the file."""
    file, found = RecordFile(path), Checked()
    try:
        for located in file.new_records(path.stat()):
            found.records += 1
            if isinstance(located.record, BlockSummary | FullSummary):
                _unpack(path, located.offset, located.size, found)
    except OSError as error:
        found.damage.append(f"{path.name}: {error.strerror or error}")
    if file.foreign or not (file.ours or found.damage):
        return None
    found.damage += file.damage
    found.bytes, found.unfinished = file.offset, file.pending
    return found


def _unpack(path: Path, offset: int, size: int, found: Checked) -> None:
    try:
        load(path, offset, size)
    except UnreadableError as error:
        found.damage.append(f"{path.name}: the numbers of the record at offset {offset} ({size} bytes): {error}")
