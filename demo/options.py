"""The command line that every demo has: `python demo/NAME.py LOGDIR [--cure] [--steps N]`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Where to record, whether to train the cured program, and for how many steps."""

    logdir: str
    cure: bool
    steps: int


def parse(description: str | None, argv: Sequence[str] | None = None, steps: int = 120) -> Options:
    """Options from the command line; the description is the demo's docstring."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logdir", metavar="LOGDIR", help="folder of this run, for example logs/exploding")
    parser.add_argument("--cure", action="store_true", help="train the cured program instead")
    parser.add_argument("--steps", type=int, default=steps, metavar="N", help="training steps (default %(default)s)")
    given = parser.parse_args(argv)
    if given.steps < 1:
        parser.error(f"--steps must be at least 1, not {given.steps}")
    return Options(given.logdir, given.cure, given.steps)
