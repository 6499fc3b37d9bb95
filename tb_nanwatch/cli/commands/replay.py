"""Shows the failing step that a capsule holds: where the first bad value was made, from what, and the batch.

With --step or --model it runs that step again with your code as it is now, from the same state and on the same batch,
and says whether an edit holds. MODULE is imported from the current folder; FUNCTION is called without arguments. For
--model it returns a compiled Keras model, for --step a pair (step, variables): the function that trains on one batch,
and the model, the variables, or a list of models, optimizers and variables; for the step of a TF1 graph, which it
builds, a pair (loss, grads_and_vars). Only then TensorFlow is needed.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tb_nanwatch.cli import exits, logdir
from tb_nanwatch.cli.render import capsule as as_text
from tb_nanwatch.diagnose.capsule import describe
from tb_nanwatch.diagnose.report import origin_entry
from tb_nanwatch.diagnose.strict import dumps
from tb_nanwatch.diagnose.words import printable
from tb_nanwatch.errors import NanWatchError, UsageError
from tb_nanwatch.format.capsule import Opened
from tb_nanwatch.read.capsule import load

CODES: Final = {"finite": exits.HEALTHY, "no verdict": exits.FAILURE}
HELP: Final = "show the failing step of an incident, or run it again after an edit"
EXAMPLES: Final = """\
  nanwatch replay logs/run1/plugins/nanwatch/step_12
  nanwatch replay logs/run1/plugins/nanwatch/step_12 --model train:build_model
  nanwatch replay logs/run1/plugins/nanwatch/step_12 --step train:build_step"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("capsule", metavar="CAPSULE", help="folder of a capsule, as the report names it")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--model", metavar="MODULE:FUNCTION", help="run again the train_step of the model that this returns"
    )
    how.add_argument(
        "--step", metavar="MODULE:FUNCTION", help="run again the step that this returns, with its variables"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    """Print the capsule, or the verdict of running it again.

    4 if the step is still not finite, 1 if it ran without variables of the capsule that found no place in the program.
    """
    target = _target(args)
    opened = load(Path(args.capsule).expanduser())
    document = describe(opened, args.capsule)
    code = exits.HEALTHY
    if target:
        with logdir.progress(f"Running step {opened.capsule.step:,} with {printable(target)}"):
            document["again"] = _again(opened, "model" if args.model else "step", target)
        code = CODES.get(document["again"]["outcome"], exits.INCIDENT)
    if args.format == "json":
        sys.stdout.write(f"{dumps(document, indent=2)}\n")
    elif target:
        as_text.render_again(document, sys.stdout)
    else:
        as_text.render(document, sys.stdout)
    return code


def _target(args: argparse.Namespace) -> str:
    """What to run the step with, empty for nothing. Raises UsageError for another form than module:function."""
    option, target = ("--step", args.step) if args.model is None else ("--model", args.model)
    if target is None:
        return ""
    module, _, function = target.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)) or module.endswith(".py"):
        example = "train:build_step" if option == "--step" else "train:build_model"
        raise UsageError(
            f"{option} {printable(target)!r} is not of the form module:function, as {example}; the module is what "
            "import would be given, found from the current folder: train for train.py"
        )
    return str(target)


def _again(opened: Opened, kind: str, target: str) -> dict[str, Any]:
    try:
        from tb_nanwatch.record.replay import again
    except ModuleNotFoundError as error:
        if error.name not in ("tensorflow", "keras"):
            raise
        raise NanWatchError(f"running the step again needs {error.name}, which is not installed here") from error
    verdict = again.run(opened, kind, target)
    told = asdict(verdict)
    told["origin"] = None if verdict.origin is None else origin_entry(verdict.origin)
    return told
