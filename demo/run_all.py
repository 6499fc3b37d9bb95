"""Train every demo, ill and cured, into one folder: `python demo/run_all.py [LOGS]`.

Runs that are there already are left alone, so a second call ends at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

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
            if not any(folder.glob("*tfevents*")):
                if "tensorflow" not in sys.modules:
                    _start_tensorflow()
                progress.update(task, description=str(folder))
                failed += not _train(name, folder, cured, console)
            progress.advance(task)
        progress.update(task, description="done")
    console.print(f"{len(runs) - failed} runs in {logs}. Read one with: nanwatch report {logs} --run exploding")
    return failed


def _start_tensorflow() -> None:
    """Import it with stderr set aside: its notes on CPU features and missing GPUs would tear the bar apart.

    They come from C++ before any log level holds; replacing sys.stderr is not enough. If it fails, they are shown.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    visible = os.dup(2)
    with tempfile.TemporaryFile() as notes:
        os.dup2(notes.fileno(), 2)
        try:
            import_module("tensorflow").config.list_physical_devices()
        except BaseException:
            notes.seek(0)
            os.write(visible, notes.read())
            raise
        finally:
            os.dup2(visible, 2)
            os.close(visible)


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
