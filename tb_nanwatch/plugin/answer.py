"""Responses as TensorBoard wants them, and what becomes of a request that cannot be served."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from tensorboard.backend import http_util
from werkzeug import wrappers

from tb_nanwatch.diagnose.strict import dumps
from tb_nanwatch.plugin.query import BadQuery

logger = logging.getLogger(__name__)

BINARY: Final = "application/octet-stream"
App = Callable[..., Any]


class NotFound(Exception):  # a 404, not a fault of ours
    """A run, tensor or file that is not there."""


class _NotModified(wrappers.Response):
    """A 304 that keeps its Content-Type, without which TensorBoard's security validator warns at every request."""

    def get_wsgi_headers(self, environ: Any) -> Any:
        headers = super().get_wsgi_headers(environ)
        headers["Content-Type"] = self.content_type or BINARY
        return headers


def route(serve: Callable[[wrappers.Request], wrappers.Response]) -> App:
    """A WSGI application from a function of a request; every failure becomes a plain text that says what is wrong."""

    @wraps(serve)
    def guarded(request: wrappers.Request) -> wrappers.Response:
        if request.method not in ("GET", "HEAD"):
            refused = text(request, f"{request.method[:20]} is not allowed here; allowed is GET", 405)
            refused.headers["Allow"] = "GET, HEAD"
            return refused
        try:
            return serve(request)
        except BadQuery as error:
            return text(request, str(error), 400)
        except NotFound as error:
            return text(request, str(error), 404)
        except Exception:  # a file may vanish or change between two reads; the next scan sets it right
            logger.exception("NaN Watch could not answer %s", request.path)
            return text(request, "this could not be read just now; the server's log says why. Ask again", 503)

    return wrappers.Request.application(guarded)


def text(request: wrappers.Request, message: str, code: int) -> wrappers.Response:
    """A plain-text answer."""
    return http_util.Respond(request, message + "\n", "text/plain", code=code)


def json(request: wrappers.Request, value: Any) -> wrappers.Response:
    """Strict JSON."""
    return http_util.Respond(request, dumps(value), "application/json")


def unchanging(request: wrappers.Request, body: bytes, content_type: str, expires: int = 0) -> wrappers.Response:
    """A body with an ETag of its content; a 304 without one where the browser has it already."""
    etag = hashlib.blake2b(body, digest_size=16).hexdigest()
    if etag in request.if_none_match:
        response = _NotModified(status=304, content_type=content_type)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-cache, must-revalidate"
    else:
        response = http_util.Respond(request, body, content_type, expires=expires)
    response.set_etag(etag)
    return response
