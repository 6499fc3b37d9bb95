"""The plugin: its routes and what TensorBoard asks of it. The routes are specified in http_api.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from tb_nanwatch.diagnose import PostMortem
from tb_nanwatch.format.metadata import PLUGIN_NAME
from tb_nanwatch.format.records import SCALAR_KINDS, TensorInfo
from tb_nanwatch.plugin import answer, payload, query, roots, static
from tb_nanwatch.plugin.board import Board
from tb_nanwatch.store.catalog import Catalog
from tb_nanwatch.store.columns import STATS

DEFAULT_RELOAD_SECONDS: Final = 5.0
UPDATE_RATIO_KINDS: Final = ("weight", "update")


class NanWatchPlugin(base_plugin.TBPlugin):
    """The NaN Watch tab's server side. Reads the event files itself, since TensorBoard's readers drop points."""

    plugin_name = PLUGIN_NAME

    def __init__(self, context: Any) -> None:
        where, self._logdir = roots.from_context(context)
        seconds = getattr(context.flags, "reload_interval", None)
        self.board = Board(Catalog(where), DEFAULT_RELOAD_SECONDS if seconds is None else float(seconds))
        self.board.start()

    def is_active(self) -> bool:
        """Whether there is a run to show; a look at what the last scan found."""
        return bool(self.board.runs)

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """The tab's name and the module that TensorBoard's page imports."""
        return base_plugin.FrontendMetadata(es_module_path="/static/index.js", tab_name="NaN Watch")

    def get_plugin_apps(self) -> Mapping[str, answer.App]:
        """Route to WSGI application."""
        serve = {
            "/runs": self._runs,
            "/report": self._report,
            "/tensors": self._tensors,
            "/tile": self._tile,
            "/series": self._series,
            "/cell": self._cell,
            "/static/*": static.serve,
        }
        return {path: answer.route(function) for path, function in serve.items()}

    # ------------------------------------------------------------ routes

    def _runs(self, request: wrappers.Request) -> wrappers.Response:
        query.nothing(request.args)
        return answer.json(
            request,
            {
                "runs": [payload.summary(found) for found in self.board.runs.values()],
                "reload_interval": self.board.reload_seconds,
                "loading": not self.board.loaded,
                "logdir": self._logdir,
                "damage": list(self.board.damage),
            },
        )

    def _report(self, request: wrappers.Request) -> wrappers.Response:
        return answer.json(request, payload.report(self._found(query.run(request.args))))

    def _tensors(self, request: wrappers.Request) -> wrappers.Response:
        return answer.json(request, payload.tensors(self._found(query.run(request.args)).run))

    def _tile(self, request: wrappers.Request) -> wrappers.Response:
        asked = query.tile(request.args)
        run = self._found(asked.run, asked.attempt).run
        count = len(run.kind(asked.kind))
        if asked.rows is None and count > query.MAX_ROWS:
            raise query.BadQuery(f"parameter rows: missing; with {count} rows it is required, at most {query.MAX_ROWS}")
        first, last = asked.rows or (0, count)
        rows = slice(min(first, count), min(last, count))
        tile = run.tile(asked.kind, asked.level, asked.tile, rows, asked.attempt)
        return answer.unchanging(request, payload.tile(tile, asked.level), answer.BINARY)

    def _series(self, request: wrappers.Request) -> wrappers.Response:
        asked = query.series(request.args)
        run = self._found(asked.run, asked.attempt).run
        info = self._tensor(asked.run, asked.tag)
        stat = asked.stat or ("value" if info.kind in SCALAR_KINDS else "norm")
        _check_stat(info, stat)
        first = run.first_step if asked.first is None else asked.first
        last = run.last_step if asked.last is None else asked.last
        binned = run.binned(info.tag, stat, first, max(first, last), asked.bins, asked.attempt)
        return answer.unchanging(request, payload.series(binned), answer.BINARY)

    def _cell(self, request: wrappers.Request) -> wrappers.Response:
        asked = query.cell(request.args)
        run = self._found(asked.run, asked.attempt).run
        info = self._tensor(asked.run, asked.tag)
        return answer.json(request, payload.cell(run.cell(info.tag, asked.step, asked.attempt), info.kind))

    # ------------------------------------------------------------ look-ups

    def _found(self, name: str, attempt: int | None = None) -> PostMortem:
        found = self.board.runs.get(name)
        if found is None:
            raise answer.NotFound(f"parameter run: there is no run {query.shown(name)}")
        if attempt is not None and all(attempt != known.attempt for known in found.run.attempts):
            raise answer.NotFound(f"parameter attempt: run {query.shown(name)} has no attempt {attempt}")
        return found

    def _tensor(self, run: str, tag: str) -> TensorInfo:
        info = self._found(run).run.by_tag(tag)
        if info is None:
            raise answer.NotFound(f"parameter tag: run {query.shown(run)} has no tensor {query.shown(tag)}")
        return info


def _check_stat(info: TensorInfo, stat: str) -> None:
    """A scalar has a value and nothing else; the ratio exists where there is a weight below it."""
    if (info.kind in SCALAR_KINDS) != (stat == "value"):
        allowed = "value" if info.kind in SCALAR_KINDS else ", ".join(s for s in STATS if s != "value")
        raise query.BadQuery(f"parameter stat: {stat} is not known of kind {info.kind}; allowed are {allowed}")
    if stat == "update_ratio" and info.kind not in UPDATE_RATIO_KINDS:
        raise query.BadQuery(
            f"parameter stat: update_ratio is not known of kind {info.kind}; allowed are tags of kind "
            f"{' and '.join(UPDATE_RATIO_KINDS)}"
        )
