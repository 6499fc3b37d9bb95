"""Several programs at a time, until all have ended or somebody interrupts."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tb_nanwatch.cli.trying.program import Program

PAUSE: Final = 0.1  # seconds between two looks
#: How programs are ended, each stage with the seconds that it gets.
STAGES: Final = ((signal.SIGINT, 10.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 30.0))


def run(programs: Sequence[Program], jobs: int, show: Callable[[], None], worth_it: Callable[[], bool]) -> bool:
    """Start them in order, `jobs` at a time; True if all that were started ended by themselves, False if interrupted.

    show: called at every look. worth_it: whether to start further ones. No process is left afterwards, also not after
    an exception.
    """
    waiting = list(programs)
    try:
        with _signals_interrupt():
            while waiting or any(p.running for p in programs):
                while waiting and sum(p.running for p in programs) < jobs and worth_it():
                    waiting.pop(0).start()
                if not worth_it():
                    waiting.clear()
                for program in programs:
                    program.look()
                show()
                time.sleep(PAUSE)
    except KeyboardInterrupt:
        return False
    finally:
        _end(programs)
    return True


def _end(programs: Sequence[Program]) -> None:
    """Interrupt, then terminate, then kill what still runs. A second Ctrl-C goes on to the next stage."""
    for program in programs:
        program.stopped |= program.running
    for number, seconds in STAGES:
        with contextlib.suppress(KeyboardInterrupt), _signals_interrupt():
            for program in programs:
                program.signal(number)
            deadline = time.monotonic() + seconds
            while any(p.running for p in programs) and time.monotonic() < deadline:
                time.sleep(PAUSE)
                for program in programs:
                    program.look()


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """The signals that end us raise KeyboardInterrupt, as Ctrl-C does, so that no program is left behind."""
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {name: signal.signal(getattr(signal, name), _interrupt) for name in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
