"""The application: every address of the reader, and what each request passes on its way in and out.

Pages plug in by name: `html_pages.py` says how.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from litestar import Litestar, Request, Response
from litestar.concurrency import sync_to_thread
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.response.base import ASGIResponse
from litestar.types import ControllerRouterHandler, Receive, Scope, Send

from kfm.model import SystemClock
from kfm.reader import (
    about,
    ask,
    datasets,
    evidence,
    feeds,
    files,
    find,
    health,
    rows,
    stac,
    versions,
)
from kfm.reader.html_pages import NO_PAGES, HtmlPages
from kfm.reader.limits import Limits
from kfm.reader.log import Logs
from kfm.reader.measure import Measures
from kfm.reader.oidc import Issuers
from kfm.reader.open_workspace import Kept
from kfm.reader.route import Problem, later, nothing, problem, refusal, why
from kfm.reader.settings import settings_of
from kfm.reader.visit import Standing, Visit
from kfm.workspace.folder import Workspace
from kfm.zones.base import Zone

__all__ = ["ROUTES", "ReaderApp", "make_app"]

MOST_BYTES = 1 << 20  # of a question
MOST_SECONDS = 10.0  # that a question may take to come: told before the connection is let go
ROUTES: tuple[ControllerRouterHandler, ...] = tuple(
    route
    for room in (health, datasets, versions, feeds, files, rows, stac, about, ask, evidence, find)
    for route in room.ROUTES
)
_MISSING = re.compile(r"Missing required query parameter '([\w-]+)'")
# no route knows TRACE: what may be done at an address is told to nobody
_ASKED_AS = {"HEAD": "GET", "OPTIONS": "TRACE"}


class ReaderApp(Litestar):
    """The routes, and around all of them the visit: what is refused at the gate, what every answer
    carries, the line of the log.
    """

    standing: Standing
    root: Zone  # of the workspace: its logs lie there

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:  # type: ignore[override]
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        visit = Visit(scope, self.standing)
        told = visit.sending(send)
        try:
            wrong = visit.entered(scope)
            no = Problem(status=400, error="request", said=wrong) if wrong else later(visit)
            if no is not None:
                await problem(visit, no).to_asgi_response(None, Request(scope))(
                    scope, receive, told
                )
                return
            visit.twin(scope)
            # a copy: who sends the answer has to know it for that of a HEAD
            scope = {**scope, "method": _ASKED_AS.get(visit.method, visit.method)}
            await super().__call__(
                scope, _in_time(receive) if visit.method == "POST" else receive, told
            )
        finally:
            visit.left(str(scope.get("path_template") or "?"))

    def close(self) -> None:
        """Let go of the workspace."""
        self.standing.kept.close()
        self.standing.logs.close()
        self.root.close()


def make_app(
    workspace: Workspace,
    html: HtmlPages = NO_PAGES,
    *,
    address: str = "",
    here: bool = False,
    limited: bool = False,
) -> ReaderApp:
    """The reader of a workspace. `address` is how others know it, where it differs from how they
    call it. `here`: nobody on another machine gets there, and who asks runs it. `limited`: strangers
    may ask only so often.
    """
    settings = settings_of(workspace)
    app = ReaderApp(
        route_handlers=[*ROUTES, *html.routes],
        exception_handlers={HTTPException: _refused, Exception: _fault},
        openapi_config=OpenAPIConfig(
            title="kfm reader", version="1", path="/openapi", render_plugins=[JsonRenderPlugin()]
        ),
        logging_config=None,
        request_max_body_size=MOST_BYTES,
        debug=False,
    )
    data, app.root = workspace.zones()
    data.close()
    app.standing = Standing(
        Kept(workspace.path),
        html,
        Logs(app.root),
        SystemClock(),
        Measures(),
        address.rstrip("/"),
        Limits(settings.requests_per_minute if limited else 0, settings.failed_logins_per_minute),
        Issuers(),
        here,
        secrets.token_urlsafe(32),
        settings.client_header.lower().encode(),
    )
    return app


def _in_time(receive: Receive) -> Receive:
    """What a request brings, as long as it comes in time: who sends a byte now and then would hold
    a connection for ever.
    """
    ends = time.monotonic() + MOST_SECONDS
    whole = False

    async def received() -> Any:
        nonlocal whole
        if whole:  # all is there; what comes now is that they went away
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), max(0.0, ends - time.monotonic()))
        except TimeoutError:
            raise HTTPException(status_code=408, detail="too slow") from None
        if message["type"] == "http.disconnect":  # who left midway: no fault of ours
            raise HTTPException(status_code=400, detail="it was not sent to its end")
        whole = not message.get("more_body", False)
        return message

    return received


def _refused(request: Request[Any, Any, Any], error: HTTPException) -> Response[Any]:
    """What no route answers."""
    status, visit = error.status_code, Visit.now()
    if status == 404 or visit.html.hides(visit.path):
        return _Nothing(b"", status_code=status)
    if status != 405:
        return problem(visit, refusal(status, _which(request, error)))
    known = request.app.route_handler_method_map.get(request.scope["path"], {"GET": None})
    allowed = sorted({*known, *(["HEAD"] if "GET" in known else [])} - {"OPTIONS"})
    answer = problem(visit, refusal(status, f"This is asked by {' or '.join(allowed)}."))
    answer.headers["allow"] = ", ".join(allowed)
    return answer


def _which(request: Request[Any, Any, Any], error: HTTPException) -> str:
    """What of a question is wrong, where Litestar knows; its other words are for programmers."""
    if missing := _MISSING.match(error.detail):
        return f"{missing[1]} is missing."
    wrong = error.extra if isinstance(error.extra, list) else ()
    if any(each.get("message") == "'data'" for each in wrong):
        return "Nothing was sent with the question."
    handler = request.scope.get("route_handler")
    hints = getattr(getattr(handler, "fn", None), "__annotations__", {})
    return " ".join(
        f"{each['key']}{_expected(hints.get(each['key']), each['message'])}."
        for each in wrong
        if "key" in each
    )


def _expected(hint: object, message: str) -> str:
    """What a word of a question may be, where its type tells."""
    if "Expected `int`" in message:
        return " is a whole number"
    if known := list(_literals(hint)):
        return f" is {', '.join(known[:-1])} or {known[-1]}" if known[1:] else f" is {known[0]}"
    return f": {message}"


def _literals(hint: object) -> Iterator[str]:
    """The words that a type allows."""
    for part in get_args(hint):
        if get_origin(hint) is Literal:
            yield str(part)
        else:
            yield from _literals(part)


class _Nothing(Response[bytes]):
    """Where there is nothing. What is shown of who asks is looked at as where something is hidden:
    the two are told apart by nothing.
    """

    def to_asgi_response(self, *given: Any, **more: Any) -> ASGIResponse:
        return _Looked(self.status_code or 404)


class _Looked(ASGIResponse):
    def __init__(self, status: int) -> None:
        self.visit, self.status = Visit.now(), status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await sync_to_thread(nothing, self.visit, self.status)
        await answer.to_asgi_response(None, Request(scope))(scope, receive, send)


def _fault(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    visit = Visit.now()
    return problem(visit, why(visit, error))
