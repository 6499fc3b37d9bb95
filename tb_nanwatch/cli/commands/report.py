"""The post-mortem of every run below LOGDIR: what happened, when, where first, how it spread, and what came before."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Final

from tb_nanwatch.cli import exits, logdir
from tb_nanwatch.cli.document import Document
from tb_nanwatch.diagnose import PostMortem, examine
from tb_nanwatch.errors import UnreadableError

HELP: Final = "say what happened in a run"
EXAMPLES: Final = """\
  nanwatch report logs
  nanwatch report logs --run run1 --format markdown > report.md
  nanwatch report logs --format json | jq '.runs[].incidents[0].origin'"""

#: Format to the module below `render` that writes it.
FORMATS: Final = {"text": "text", "json": "as_json", "markdown": "markdown", "html": "html"}
CODES: Final = {
    "incident": exits.INCIDENT,
    "mended": exits.WARNINGS,
    "warning": exits.WARNINGS,
    "healthy": exits.HEALTHY,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("logdir", metavar="LOGDIR", help="folder that the recorder wrote to, or one above it")
    parser.add_argument("--run", metavar="NAME", help="only this run, by TensorBoard's name (default: all)")
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Print the report; the exit code is that of the worst run."""
    renderer = import_module(f"tb_nanwatch.cli.render.{FORMATS[args.format]}")
    try:
        catalog = logdir.load(args.logdir)
    except UnreadableError:
        if args.format == "json":  # who parses our output gets JSON in any case; the reason is on stderr
            renderer.render(Document(args.logdir, (), ()), sys.stdout)
        raise
    runs = logdir.chosen(catalog, args.run)
    with logdir.progress("Diagnosing"):
        found = tuple(examine(each) for each in runs)
    renderer.render(Document(args.logdir, found, catalog.damage), sys.stdout)
    return _code(found)


def _code(found: tuple[PostMortem, ...]) -> int:
    codes = [CODES[each.status] for each in found if each.status in CODES]
    return max(codes, default=exits.NOTHING_READABLE)
