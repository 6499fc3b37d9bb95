"""What the tab shows: every run with its diagnosis, kept fresh by one background thread.

Requests read the newest finished picture and never wait for a scan.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from tb_nanwatch.diagnose import PostMortem, examine
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.run import Run

logger = logging.getLogger(__name__)


class Board:
    """Diagnosed runs below the roots of `catalog`.

    `reload_seconds` is TensorBoard's --reload_interval: at 0 or below there is one scan and no other.
    """

    def __init__(self, catalog: Catalog, reload_seconds: float) -> None:
        self.catalog = catalog
        self.reload_seconds = max(0.0, reload_seconds)
        self._runs: Mapping[str, PostMortem] = {}
        self._loaded = False
        self._damage: tuple[str, ...] = ()
        self._complained: set[str] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def runs(self) -> Mapping[str, PostMortem]:
        """Run name to diagnosis, sorted by name; replaced as a whole, never changed."""
        return self._runs

    @property
    def damage(self) -> tuple[str, ...]:
        """What could not be read or diagnosed, apart from what the runs themselves report."""
        return self._damage

    @property
    def loaded(self) -> bool:
        """False until the first scan has ended."""
        return self._loaded

    def start(self) -> None:
        """Start the thread; it ends with the process or with `stop`."""
        self._thread = threading.Thread(target=self._run, name="nanwatch-refresh", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the scan it is in."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def refresh(self) -> None:
        """Scan once and diagnose what changed. A failure is logged once, shown as damage, tried again next time."""
        try:
            self.catalog.refresh()
            self._examine(self.catalog.runs())
        except Exception as error:  # the thread must live on: the folder may come back
            self._damage = (self._complaint("the logs could not be read", error),)
        self._loaded = True

    def _examine(self, runs: Mapping[str, Run]) -> None:
        found: dict[str, PostMortem] = {}
        damage = list(self.catalog.damage)
        for name, run in runs.items():
            known = self._runs.get(name)
            if known is not None and known.run.version == run.version:
                found[name] = known
                continue
            try:
                found[name] = examine(run)
            except Exception as error:  # one run that nobody expected must not hide the others
                damage.append(self._complaint(f"run {name!r} could not be diagnosed", error))
        self._runs, self._damage = found, tuple(damage)

    def _complaint(self, what: str, error: Exception) -> str:
        complaint = f"{what}: {type(error).__name__}: {error}"
        if complaint not in self._complained:
            logger.warning("NaN Watch: %s", complaint, exc_info=error)
            self._complained.add(complaint)
        return complaint

    def _warm(self) -> None:
        """Unpack ahead what zooming needs, when a scan has left time for it."""
        for known in self._runs.values():
            try:
                known.run.warm()
            except Exception as error:  # a tile will say so itself if somebody asks for it
                self._complaint(f"run {known.run.name!r} could not be unpacked ahead", error)

    def _run(self) -> None:
        self.refresh()
        self._warm()
        while self.reload_seconds and not self._stop.wait(self.reload_seconds):
            self.refresh()
            self._warm()
