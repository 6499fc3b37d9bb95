"""How fast a large run is read, against the targets, and against TensorBoard's own loaders.

Writes 1,000 tensors by 100,000 steps with `demo/synthetic_run.py` (unless --logdir names such a run), reads it in fresh
processes, and has TensorBoard's loaders read as ordinary scalar events what they would get to see of it. For example:

    python benchmarks/reading.py --json reading.json

The exit code is 1 where a target is missed. Files come from the page cache: the disk is not what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
KINDS: Final = ("weight", "gradient", "activation", "update")
TILES: Final = 400


@dataclass(frozen=True)
class Line:
    """One line of the table. `target` in the same unit as `measured`, None where there is nothing to reach."""

    name: str
    measured: float
    unit: str
    target: float | None = None
    more_is_better: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached."""
        if self.target is None:
            return None
        return self.measured >= self.target if self.more_is_better else self.measured <= self.target


# ---------------------------------------------------------------- our reader


def scan(logdir: Path) -> dict[str, float]:
    """Every record found and its checksum compared, twice; the second time counts."""
    from tb_nanwatch.read.tail import Tail

    for _ in range(2):
        began = time.perf_counter()
        size = sum(frame.size for path in _files(logdir) for frame in Tail(path).frames())
        seconds = time.perf_counter() - began
    return {"megabytes_per_second": size / 1e6 / seconds}


def tiles(logdir: Path) -> dict[str, float]:
    """Opening the run, then tiles in random order, as a tab that zooms and pans without a cache asks for them."""
    began = time.perf_counter()
    from tb_nanwatch.store.catalog import Catalog

    catalog = Catalog(logdir)
    catalog.refresh()
    (run,) = catalog.runs().values()
    top = max(0, (run.steps // 256).bit_length())
    run.tile("weight", top, 0)
    first = time.perf_counter() - began
    rng = random.Random(0)
    taken = []
    for _ in range(TILES):
        level = rng.randrange(top + 1)
        kind, tile = rng.choice(KINDS), rng.randrange((run.steps >> level >> 8) + 1)
        began = time.perf_counter()
        run.tile(kind, level, tile)
        taken.append(time.perf_counter() - began)
    taken.sort()
    return {
        "first": first,
        "p50": taken[TILES // 2],
        "p95": taken[TILES * 95 // 100],
        "max": taken[-1],
        "megabytes": _peak_megabytes(),
    }


def series(logdir: Path) -> dict[str, float]:
    """Every value of every block unpacked once."""
    from tb_nanwatch.store.catalog import Catalog

    began = time.perf_counter()
    catalog = Catalog(logdir)
    catalog.refresh()
    (run,) = catalog.runs().values()
    values = sum(run.loader.norms(block).size for piece in run.pieces for block, _, _ in piece.blocks())
    return {"values": values, "seconds": time.perf_counter() - began}


def report(logdir: Path) -> dict[str, float]:
    """`python -m tb_nanwatch report` as a process of its own: all its seconds, and the most memory that it held."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "tb_nanwatch", "report", str(logdir)], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3, 4):
        raise SystemExit(f"nanwatch report ended with exit code {process.returncode}")
    return {"seconds": time.perf_counter() - began, "megabytes": usage.ru_maxrss / 1024}


# ---------------------------------------------------------------- TensorBoard's


def tensorboard(folder: Path, scalars: int) -> dict[str, float]:
    """Seconds that TensorBoard's loaders take for as many ordinary scalar events, one event each."""
    import logging

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader, RawEventFileLoader

    logging.disable(logging.WARNING)
    path = str(_write_scalars(folder, scalars))
    found = {
        "raw": _seconds(lambda: sum(1 for _ in RawEventFileLoader(path).Load())),
        "events": _seconds(lambda: sum(1 for _ in EventFileLoader(path).Load())),
        "accumulator": _seconds(lambda: EventAccumulator(path, size_guidance={"scalars": 0, "tensors": 0}).Reload()),
    }
    return {**found, "megabytes": _peak_megabytes()}


def _write_scalars(folder: Path, count: int) -> Path:
    from tensorboard.compat.proto import event_pb2

    from tb_nanwatch.format import framing, metadata

    path = folder / "events.out.tfevents.1.scalars"
    with path.open("wb") as file:
        file.write(framing.frame(metadata.version_event(1.0)))
        event = event_pb2.Event(wall_time=1.0)
        value = event.summary.value.add(tag="", simple_value=0.0)
        for i in range(count):
            event.step, value.tag, value.simple_value = i // 1000, f"gradient/layer_{i % 1000}/norm", i * 0.001
            file.write(framing.frame(event.SerializeToString()))
    return path


# ---------------------------------------------------------------- the table


def measure(logdir: Path, scratch: Path, tensors: int, steps: int, scalars: int) -> list[Line]:
    """All lines of the table."""
    size = sum(path.stat().st_size for path in _files(logdir))
    lines = [Line("bytes on disk per tensor and step", size / tensors / steps, "B", 2)]
    scanned = _apart("scan", logdir)
    lines.append(Line("raw scan", scanned["megabytes_per_second"], "MB/s", 200, more_is_better=True))
    reported = report(logdir)
    lines.append(Line("report", reported["seconds"], "s", 10))
    lines.append(Line("report, peak memory", reported["megabytes"], "MB", 1000))
    asked = _apart("tiles", logdir)
    lines.append(Line("first tile after opening", asked["first"], "s", 3))
    lines.append(Line("later tiles, median", asked["p50"] * 1000, "ms"))
    lines.append(Line("later tiles, 95th percentile", asked["p95"] * 1000, "ms", 50))
    lines.append(Line("later tiles, slowest", asked["max"] * 1000, "ms"))
    lines.append(Line("tiles, peak memory", asked["megabytes"], "MB", 1000))
    unpacked = _apart("series", logdir)
    lines.append(Line("every value unpacked, per million", unpacked["seconds"] / unpacked["values"] * 1e9, "ms"))
    if scalars:
        theirs = _apart("tensorboard", scratch, str(scalars))
        per = 1e9 / scalars
        lines.append(Line("TensorBoard RawEventFileLoader, per million", theirs["raw"] * per, "ms"))
        lines.append(Line("TensorBoard EventFileLoader, per million", theirs["events"] * per, "ms"))
        lines.append(Line("TensorBoard EventAccumulator, per million", theirs["accumulator"] * per, "ms"))
        lines.append(Line("TensorBoard, peak memory", theirs["megabytes"], "MB"))
    return lines


def show(lines: Sequence[Line]) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table("what")
    for name in ("measured", "target", ""):
        table.add_column(name, justify="right")
    words = {None: "", True: "reached", False: "MISSED"}
    for line in lines:
        sign = "≥" if line.more_is_better else "≤"
        target = "" if line.target is None else f"{sign} {line.target:,g} {line.unit}"
        table.add_row(line.name, f"{line.measured:,.4g} {line.unit}", target, words[line.reached])
    Console(width=100).print(table)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure as the command line says; 0 if every target is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logdir", type=Path, help="a run of synthetic_run.py (made in a temporary folder)")
    parser.add_argument("--tensors", type=int, default=1000, help="of that run (%(default)s)")
    parser.add_argument("--steps", type=int, default=100_000, help="of that run (%(default)s)")
    parser.add_argument("--scalars", type=int, default=1_000_000, help="for TensorBoard's loaders; 0: leave them out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here, too")
    parser.add_argument("--apart", nargs="+", help=argparse.SUPPRESS)  # one measurement in this process
    options = parser.parse_args(argv)
    if options.apart:
        name, logdir, *more = options.apart
        measurement: Callable[..., dict[str, float]] = globals()[name]
        sys.stdout.write(json.dumps(measurement(Path(logdir), *map(int, more))))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        logdir = options.logdir
        if logdir is None:
            logdir = Path(scratch) / "run"
            sizes = ["--tensors", str(options.tensors), "--steps", str(options.steps)]
            nan_at = ["--nan-at", str(options.steps * 3 // 5)]
            script = ROOT / "demo" / "synthetic_run.py"
            subprocess.run([sys.executable, script, *sizes, *nan_at, logdir], check=True, env=_environment())
        lines = measure(logdir, Path(scratch), options.tensors, options.steps, options.scalars)
    show(lines)
    if options.json:
        document = {"targets": [{**asdict(line), "reached": line.reached} for line in lines]}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return int(any(line.reached is False for line in lines))


def _apart(name: str, *arguments: Any) -> dict[str, float]:
    """A measurement in a fresh process, so that its memory and its imports are its own."""
    command = [sys.executable, __file__, "--apart", name, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=_environment())
    numbers: dict[str, float] = json.loads(done.stdout)
    return numbers


def _environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}


def _files(logdir: Path) -> list[Path]:
    return sorted(logdir.rglob("*tfevents*"))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _peak_megabytes() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    sys.exit(main())
