"""The command `nanwatch`: finds the commands, parses, and turns endings into exit codes."""

from __future__ import annotations

import argparse
import os
import pkgutil
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tb_nanwatch.cli import commands, exits
from tb_nanwatch.diagnose.words import printable
from tb_nanwatch.errors import NanWatchError, UnreadableError, UsageError
from tb_nanwatch.version import __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; those of the process by default.

    Returns:
        The exit code. Wrong usage raises SystemExit(2), as argparse does.
    """
    # Names from logs may hold what this terminal's encoding lacks; a report must not die of that.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    args = parser().parse_args(argv)
    try:
        code = int(args.run_command(args))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has had enough. Python would complain again when it closes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.BROKEN_PIPE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return exits.INTERRUPTED
    except UsageError as error:
        return _say(error, exits.USAGE)
    except UnreadableError as error:
        return _say(error, exits.NOTHING_READABLE)
    except (NanWatchError, OSError) as error:
        return _say(error, exits.FAILURE)
    return code


def parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    top = argparse.ArgumentParser(
        prog="nanwatch",
        description="Says where, when and why the values of a training run became NaN or Inf.",
        epilog=exits.TEXT,
    )
    top.add_argument("--version", action="version", version=f"nanwatch {__version__}")
    subparsers = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in pkgutil.iter_modules(commands.__path__):
        command: Any = import_module(f"{commands.__name__}.{module.name}")
        sub = subparsers.add_parser(
            module.name,
            help=command.HELP,
            description=command.__doc__,
            epilog=f"examples:\n{command.EXAMPLES}\n\n{exits.TEXT}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        sub.set_defaults(run_command=command.run)
    return top


def _say(error: Exception, code: int) -> int:
    print(f"nanwatch: {_words(error)}", file=sys.stderr)
    return code


def _words(error: Exception) -> str:
    """What an error says; of the system's errors the file and the reason, without its numbers."""
    if isinstance(error, OSError) and error.strerror:
        return f"{printable(str(error.filename))}: {error.strerror}" if error.filename else error.strerror
    return str(error)
