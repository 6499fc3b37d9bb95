"""The entry point that TensorBoard imports. Light on purpose: an import error here would end TensorBoard itself."""

from __future__ import annotations

import logging
from typing import Any

from tensorboard.plugins import base_plugin

logger = logging.getLogger(__name__)


class NanWatchLoader(base_plugin.TBLoader):
    """Makes the plugin, or says in one log line why there is none; TensorBoard runs on either way."""

    def load(self, context: Any) -> Any:
        """The plugin for a TBContext, or None."""
        try:
            from tb_nanwatch.plugin.plugin import NanWatchPlugin

            return NanWatchPlugin(context)
        except Exception as error:  # whatever it is, the other plugins must still come up
            logger.warning("The NaN Watch tab is not available: %s: %s", type(error).__name__, error)
            return None
