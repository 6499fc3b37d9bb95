"""What watching costs, and what it costs to have others watch.

Four networks are trained under each variant: uncompiled, under XLA, uncompiled in groups of eight steps
(steps_per_execution), and uncompiled under a MirroredStrategy of two devices. The number is the ratio of CPU time per
step, over all threads of the process, to that of a plain training in the same process that takes its turn before and
after: the median over groups of some steps each. Beside it the quartiles, the ratio of the sums (with it what happens
less than once in a group), the same ratio of time on the clock (noisy where the machine is shared), and the control: a
second plain training, whose ratio would be 1 if there were no noise.
Variants that change TensorFlow as a whole run in a process of their own, with a plain training of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apart import Job, Result, say

ROOT: Final = Path(__file__).resolve().parent.parent
EXAMPLES: Final = """for example:
  python benchmarks/overhead.py --json overhead.json              everything; two hours or more on two cores
  python benchmarks/overhead.py --networks mlp --groups 3         a first look
  python benchmarks/overhead.py --variants nanwatch --modes xla --style loop
  python benchmarks/overhead.py --variants nanwatch --modes grouped,mirrored
  python benchmarks/overhead.py --seconds 120                     a bound for the rounds of each process

Targets are printed beside the numbers and not enforced. The exit code is 1 only if nothing could be measured.
"""
NETWORKS: Final = ("mlp", "cnn", "transformer", "lstm")
MODES: Final = ("uncompiled", "xla", "grouped", "mirrored")
TARGETS: Final = {"uncompiled": 1.05, "xla": 1.10, "grouped": 1.05, "mirrored": 1.05}


@dataclass(frozen=True)
class Variant:
    """What is compared. apart: changes TensorFlow's state; per_layer: records numbers of single layers, as we do."""

    title: str
    apart: bool = False
    per_layer: bool = False


VARIANTS: Final = {
    "nanwatch": Variant("tb_nanwatch, default options"),
    "norm_scalars": Variant("norm scalars in the step", per_layer=True),
    "tensorboard_histograms": Variant("TensorBoard(histogram_freq=1)", per_layer=True),
    "check_numerics": Variant("enable_check_numerics", apart=True),
    "debugger_v2_curt": Variant("Debugger V2, CURT_HEALTH", apart=True, per_layer=True),
    "debugger_v2_full_health": Variant("Debugger V2, FULL_HEALTH", apart=True, per_layer=True),
}
Found = dict[str, dict[str, dict[str, Result]]]  # network, mode, variant (or "control")

# ---------------------------------------------------------------- processes


def run(options: argparse.Namespace) -> Found:
    """Measure everything, one process after the other, and print each table when it is complete."""
    together = tuple(name for name in options.variants if not VARIANTS[name].apart)
    alone = [(name,) for name in options.variants if VARIANTS[name].apart]
    found: Found = {network: {} for network in options.networks}
    for network in options.networks:
        for mode in options.modes:
            results: dict[str, Result] = {}
            for variants in [together, *alone] if together else alone:
                job = Job(
                    network,
                    mode,
                    options.style,
                    variants,
                    options.groups,
                    options.seconds,
                    options.steps,
                    options.epoch_steps,
                )
                for name, result in _in_process(job).items():
                    # Each process has its control; the first is that of this package, and shown.
                    results.setdefault(name, result)
            say("", sys.stderr)
            found[network][mode] = {name: results[name] for name in ("control", *VARIANTS) if name in results}
            show(network, mode, found[network][mode])
    return found


def _in_process(job: Job) -> dict[str, Result]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    strict = {"TB_NANWATCH_STRICT": "1"}  # a recorder that fails and switches itself off would pass for a cheap one
    environment = {**os.environ, **strict, "PYTHONPATH": path, "KERAS_BACKEND": "tensorflow"}
    with tempfile.TemporaryDirectory() as scratch:
        given, taken, log = (Path(scratch) / name for name in ("job.json", "results.json", "log"))
        job.save(given)
        command = [sys.executable, str(Path(__file__).with_name("apart.py")), str(given)]
        with log.open("wb") as stderr:  # TensorFlow writes a lot there; what its stdout says is our progress
            done = subprocess.run(command, env=environment, stdout=sys.stderr, stderr=stderr, check=False)
        if taken.exists():
            results: dict[str, Result] = json.loads(taken.read_text())
            return results
        last = (log.read_text(errors="replace").splitlines() or [""])[-1]
    return {name: {"reason": f"its process ended with exit code {done.returncode}: {last}"} for name in job.variants}


# ---------------------------------------------------------------- what is told


def show(network: str, mode: str, results: Mapping[str, Result]) -> None:
    """Print the table of one network and mode, and how it stands to the targets."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=110, highlight=False, markup=False)
    plain = [f"{r['plain_milliseconds']:,.1f} ms of CPU time per plain step" for r in results.values() if "cpu" in r]
    table = Table(title=f"{network}, {mode}: {(plain or ['nothing measured'])[0]}", title_justify="left")
    table.add_column("variant", no_wrap=True)
    for column in ("CPU ratio", "quartiles", "overall", "wall ratio", "ms per step", "groups"):
        table.add_column(column, justify="right")
    for name, result in results.items():
        if "cpu" not in result:
            table.add_row(_title(name), "none")
            continue
        table.add_row(
            _title(name),
            f"{result['cpu']:.3f}",
            f"{result['low']:.3f} to {result['high']:.3f}",
            f"{result['overall']:.3f}",
            f"{result['wall']:.3f}",
            f"{result['milliseconds']:,.1f}",
            f"{result['groups']:.0f}",
        )
    console.print(table)
    reasons = [f"{_title(name)}: {result['reason']}" for name, result in results.items() if "cpu" not in result]
    for line in [*reasons, *judge(mode, results), ""]:
        console.print(line, soft_wrap=True)


def judge(mode: str, results: Mapping[str, Result]) -> list[str]:
    """How this package stands to its targets: an absolute one, and every peer that records per layer."""
    measured = {name: result for name, result in results.items() if "cpu" in result}
    if not {"nanwatch", "control"} <= set(measured):
        return []
    ours, spread = measured["nanwatch"]["cpu"], measured["control"]["high"] - measured["control"]["low"]
    bounds = [(TARGETS[mode], f"{TARGETS[mode]:.2f}")]
    for name, result in measured.items():
        if name in VARIANTS and VARIANTS[name].per_layer:
            bounds.append((result["cpu"] + spread, f"{result['cpu']:.3f} of {_title(name)} + spread {spread:.3f}"))
    return [f"target: {ours:.3f} ≤ {text}: {'reached' if ours <= bound else 'MISSED'}" for bound, text in bounds]


def _title(name: str) -> str:
    return VARIANTS[name].title if name in VARIANTS else "control (plain again)"


def document(options: argparse.Namespace, found: Found) -> dict[str, Any]:
    """Ratios of CPU time by network, mode and variant, null where a variant cannot run; all else in "details"."""
    ratios = {
        network: {
            mode: {name: result.get("cpu") for name, result in results.items() if name in VARIANTS}
            for mode, results in modes.items()
        }
        for network, modes in found.items()
    }
    about = {
        "style": options.style,
        "epoch_steps": options.epoch_steps,
        "targets": TARGETS,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **_versions("tensorflow", "tensorflow-cpu", "keras", "numpy"),
    }
    return {"networks": ratios, "details": found, "about": about}


def _versions(*names: str) -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


# ---------------------------------------------------------------- the command line


def main(argv: Sequence[str] | None = None) -> int:
    """Measure as the command line says."""
    options = _parser().parse_args(argv)
    found = run(options)
    if options.json:
        options.json.write_text(json.dumps(document(options, found), indent=2, allow_nan=False) + "\n")
    results = [result for modes in found.values() for of_mode in modes.values() for result in of_mode.values()]
    return int(not any("cpu" in result for result in results))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag, known in (("--networks", NETWORKS), ("--variants", VARIANTS), ("--modes", MODES)):
        text = f"some of {', '.join(known)} (all)"
        parser.add_argument(flag, type=_some_of(known), default=list(known), metavar="A,B", help=text)
    styles = "fit: Keras with its callback; loop: watch() around a tf.function (%(default)s)"
    parser.add_argument("--style", choices=("fit", "loop"), default="fit", help=styles)
    groups = "groups of steps of each variant (%(default)s)"
    parser.add_argument("--groups", type=_at_least(3), default=15, metavar="N", help=groups)
    steps = "steps in a group, a multiple of 10 to be fair (20 for the mlp, 10 for the others)"
    parser.add_argument("--steps", type=_at_least(1), metavar="N", help=steps)
    seconds = "begin no further groups after so many seconds, but take 3"
    parser.add_argument("--seconds", type=float, metavar="S", help=seconds)
    epoch = "what happens once in an epoch is spread over so many steps (%(default)s)"
    parser.add_argument("--epoch-steps", type=_at_least(1), default=500, metavar="N", help=epoch)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here, too")
    return parser


def _some_of(known: Iterable[str]) -> Any:
    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",")]
        unknown = [repr(name) for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is not one of {', '.join(known)}")
        return [name for name in known if name in names]

    return parse


def _at_least(least: int) -> Any:
    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, not {text!r}")
        return int(text)

    return parse


if __name__ == "__main__":
    sys.exit(main())
