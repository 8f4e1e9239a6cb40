"""Whether it answers: for those who watch."""

from collections.abc import Callable
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.handlers import HTTPRouteHandler

from kfm.model import Json, KfmError, rfc3339
from kfm.reader.door import Asking
from kfm.reader.log import DecisionLine, NotWritten, log_decision
from kfm.reader.openapi import as_page, described
from kfm.reader.route import reads
from kfm.reader.visit import Visit

__all__ = ["ROUTES", "Health"]


_OPENAPI = "application/vnd.oai.openapi+json;version=3.1"


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """It answers, and its store does."""

    status: str
    store: str


@reads("/health")
def health(asking: Asking) -> Health:
    """Whether the reader and its store answer, and what is handed out can be written down."""
    asking.world.store.read(lambda tx: tx.index.meta("epoch"))
    visit = Visit.now()
    if not visit.logs.hands_out:
        _try_again(visit)
    return Health(status="ok", store="ok")


def _try_again(visit: Visit) -> None:
    """Write down that this was asked: nobody else may ask for anything while this says no."""
    line = DecisionLine(
        timestamp=rfc3339(visit.clock.now()),
        job_id=visit.request_id,
        address=visit.path,
        reader=None,
        answer=200,
        dataset_ids=(),
        decision_ids=(),
        policy_digest="",
    )
    try:
        log_decision(visit.logs, line)
    except (KfmError, OSError) as error:
        raise NotWritten from error


@reads("/metrics", media="text/plain")
def metrics(asking: Asking) -> Response[str]:
    """Counts of requests as Prometheus text."""
    visit = Visit.now()
    told = visit.measures.text(visit.html.hides)
    return Response(told, media_type="text/plain; version=0.0.4")


@get("/openapi.json", include_in_schema=False)
async def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Every address here, as OpenAPI has it."""
    told = _told(request.app, "json", lambda told: msgspec.json.encode(told))
    return Response(told, media_type=_OPENAPI)


@get("/openapi.html", include_in_schema=False)
async def openapi_page(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The same for people, whatever they prefer."""
    told = _told(request.app, "html", lambda told: as_page(told).encode())
    return Response(told, media_type="text/html")


def _told(app: Litestar, form: str, written: Callable[[Json], bytes]) -> bytes:
    """What an application answers is settled when it is made, and written down once."""
    name = f"openapi.{form}"
    if name not in app.state:
        app.state[name] = written(described(app, Visit.now().html))
    found: bytes = app.state[name]
    return found


ROUTES: tuple[HTTPRouteHandler, ...] = (health, metrics, openapi, openapi_page)
