"""The plugin's routes without a TensorBoard around them."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from werkzeug.test import Client, TestResponse

from tb_nanwatch.plugin.plugin import NanWatchPlugin

PREFIX = "/data/plugin/nanwatch"


class Server:
    """The plugin behind routes as TensorBoard dispatches them, without TensorBoard."""

    def __init__(self, logdir: Path, reload_interval: float = 0) -> None:
        flags = argparse.Namespace(logdir=str(logdir), logdir_spec="", reload_interval=reload_interval)
        self.plugin = NanWatchPlugin(SimpleNamespace(logdir=str(logdir), flags=flags))
        if not reload_interval:
            self.plugin.board.stop()  # waits for the one scan
        self.client = Client(self._dispatch)

    def _dispatch(self, environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"].removeprefix(PREFIX)
        apps = self.plugin.get_plugin_apps()
        return apps.get(path, apps["/static/*"])(environ, start_response)

    def get(self, route: str, method: str = "GET", headers: dict[str, str] | None = None, **args: Any) -> TestResponse:
        return self.client.open(PREFIX + route, method=method, query_string=args, headers=headers)
