"""Train every demo, ill and cured, into one folder: `python demo/run_all.py [LOGS]`.

Runs that are there already are left alone, so a second call ends at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its notes on CPU features would tear the bar apart

DEMOS = (
    "healthy",
    "exploding",
    "log_of_zero",
    "zero_by_zero",
    "abnormal_row",
    "bad_initialization",
    "vanishing",
    "flash",
)


def main() -> int:
    """Train what is missing; the number of demos that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="?", default="logs", type=Path, help="folder for the runs (default %(default)s)")
    logs: Path = parser.parse_args().logs
    runs = [(name, cured) for name in DEMOS for cured in (False, True) if not (cured and name == "healthy")]
    console = Console()
    failed = 0
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("starting TensorFlow", total=len(runs))
        for name, cured in runs:
            folder = logs / (f"{name}-cured" if cured else name)
            progress.update(task, description=str(folder))
            if not any(folder.glob("*tfevents*")):
                failed += not _train(name, folder, cured, console)
            progress.advance(task)
        progress.update(task, description="done")
    console.print(f"{len(runs) - failed} runs in {logs}. Read one with: nanwatch report {logs} --run exploding")
    return failed


def _train(name: str, folder: Path, cured: bool, console: Console) -> bool:
    try:
        import_module(name).main([str(folder), *(["--cure"] if cured else [])])
    except Exception:
        console.print(f"{name} failed:")
        console.print_exception()
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
