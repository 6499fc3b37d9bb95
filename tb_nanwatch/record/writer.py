"""The writing thread: takes rows and events from the training thread, and never makes it wait for a disk.

The queue is bounded by bytes; what does not fit is dropped and counted. Events are durable on request: the
caller waits until they are with the operating system. A failure of the disk ends the writing, with one message.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tb_nanwatch.format.records import (
    Closed,
    CountsRow,
    FirstBatches,
    FullBlock,
    Incident,
    Note,
    Record,
    RunHeader,
    TensorInfo,
)
from tb_nanwatch.record import scalars
from tb_nanwatch.record.blocks import FullGatherer, Rows, StepGatherer
from tb_nanwatch.record.scalars import ScalarFile
from tb_nanwatch.record.segments import Segments

QUEUE_BYTES: Final = 64 << 20
FLUSH_SECONDS: Final = 5.0  # a live view lags by no more than this
DURABLE_SECONDS: Final = 10.0  # how long the training thread waits for an incident to reach the disk


class RunWriter:
    """Writes one recorder's records below `logdir`.

    `on_failure` is called once, from the writing thread, with the exception that ended the writing. With
    `also_scalars`, norms and losses are also written for TensorBoard's Scalars tab.
    Raises OSError from the constructor if the logdir cannot be written.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        header: RunHeader,
        disk_bytes: int = 1024 << 20,
        on_failure: Callable[[Exception], None] | None = None,
        also_scalars: bool = False,
    ) -> None:
        for_scalars = disk_bytes // scalars.SHARE if also_scalars else 0
        self._segments = Segments(Path(logdir), header, disk_bytes - for_scalars)
        self._scalars = ScalarFile(self._segments.path, header.every, for_scalars) if also_scalars else None
        self._on_failure = on_failure
        self._steps = StepGatherer()
        self._fulls = FullGatherer()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._queued = 0
        self._lock = threading.Lock()
        self._failed = False
        self._closed = False
        self._pid = os.getpid()
        self._last_flush = time.monotonic()
        self.steps_written = 0
        self.rows_dropped = 0
        self._thread = threading.Thread(target=self._run, name="nanwatch-writer", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ called by the training thread

    def declare(self, tensors: Sequence[TensorInfo]) -> None:
        """Introduce tensors before the first rows that name their ids."""
        if tensors:
            self._put(tuple(tensors), 0)

    def rows(self, rows: Rows) -> None:
        """Queue measured steps; dropped and counted if the disk cannot keep up."""
        self._put(rows, rows.norms.nbytes + rows.scalars.nbytes + 24 * len(rows.steps), droppable=len(rows.steps))

    def full(self, row: FullBlock) -> None:
        """Queue full statistics of one or more steps."""
        self._put(row, 4 * row.max_abs.nbytes, droppable=len(row.steps))

    def event(self, record: Incident | CountsRow | Note | FirstBatches, durable: bool = False) -> bool:
        """Queue an event; with `durable`, return only when it and all before it are on the disk (False: timed out)."""
        self._put(record, 1024)
        return self.flush() if durable else True

    def flush(self, timeout: float = DURABLE_SECONDS) -> bool:
        """Wait until all that was queued is with the operating system."""
        done = threading.Event()
        self._put(done, 0)
        return done.wait(timeout)

    def close(self, timeout: float = DURABLE_SECONDS) -> None:
        """Write what is queued and say goodbye. Does nothing the second time, or in a forked child."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._queue.put(None)
        if threading.current_thread() is not self._thread:  # garbage may be collected in any thread
            self._thread.join(timeout)

    def _put(self, item: Any, size: int, droppable: int = 0) -> None:
        if self._failed or self._closed or os.getpid() != self._pid:
            if isinstance(item, threading.Event):
                item.set()
            return
        with self._lock:
            if droppable and self._queued + size > QUEUE_BYTES:
                self.rows_dropped += droppable
                return
            self._queued += size
        self._queue.put((item, size))

    # ------------------------------------------------------------ the writing thread

    def _run(self) -> None:
        try:
            while True:
                try:
                    entry = self._queue.get(timeout=FLUSH_SECONDS)
                except queue.Empty:
                    self._drain()
                    continue
                if entry is None:
                    break
                item, size = entry
                with self._lock:
                    self._queued -= size
                self._take(item)
                if time.monotonic() - self._last_flush > FLUSH_SECONDS:
                    self._drain()
            self._drain()
            self._segments.append(Closed(self.steps_written, self.rows_dropped), 0)
        except Exception as error:  # the disk is full, the folder is gone: training must not notice
            self._failed = True
            self._release()
            if self._on_failure is not None:
                self._on_failure(error)
        finally:
            self._segments.close()
            if self._scalars is not None:
                self._scalars.close()

    def _take(self, item: Any) -> None:
        if isinstance(item, Rows):
            if not item.again:
                self.steps_written += len(item.steps)
            if self._scalars is not None and not item.again:
                self._scalars.add(item)
            for block in self._steps.add(item):
                self._segments.append(block, int(block.steps[0]))
        elif isinstance(item, FullBlock):
            for full in self._fulls.add(item):
                self._segments.append(full, int(full.steps[0]))
        elif isinstance(item, threading.Event):
            self._drain()
            item.set()
        else:
            if self._scalars is not None and isinstance(item, tuple):
                self._scalars.declare(item)
            self._segments.append(item, _step_of(item))

    def _drain(self) -> None:
        for block in self._steps.drain():
            self._segments.append(block, int(block.steps[0]))
        for full in self._fulls.drain():
            self._segments.append(full, int(full.steps[0]))
        if self._scalars is not None:
            self._scalars.flush()
        self._last_flush = time.monotonic()

    def _release(self) -> None:
        """Wake whoever waits for a flush that will not come."""
        while True:
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return
            if entry is not None and isinstance(entry[0], threading.Event):
                entry[0].set()


def _step_of(record: Record) -> int:
    if isinstance(record, Incident):
        return record.first_step
    if isinstance(record, CountsRow | Note | FirstBatches):
        return record.step
    return 0
