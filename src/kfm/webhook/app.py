"""The one page, `POST /hooks/<source_id>`: a request is judged, kept, and answered when it is on the
disk. How it came here is for `wire.py` to know.
"""

import time
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

import msgspec

from kfm.model import Json, KfmError
from kfm.webhook.batches import Batches
from kfm.webhook.document import Refused
from kfm.webhook.failures import Failure
from kfm.webhook.keep import Kept
from kfm.webhook.receive import Heard, Request, judge, rfc3339_ns, trace_in
from kfm.webhook.sources import Table
from kfm.webhook.verify import Headers

__all__ = ["TOO_LARGE", "Asked", "Receiver", "Reply"]

_PREFIX = "/hooks/"
TOO_LARGE = Refused(413, "body.too_large", said="The body is too large.")
# all that a stranger learns; who has signed is told more
_REFUSED = Refused(403, "refused", said="This request is not accepted.")
_LATER = Refused(503, "later", said="It could not be kept. Send it again.")
_TOO_MANY = Refused(429, "too_many", said="This source has told enough for now. Send it again.")
_NO_PAGE = Refused(404, "no_such_page", said="POST /hooks/<source_id>")
_NO_METHOD = Refused(405, "method", said="POST /hooks/<source_id>")


class Asked(NamedTuple):
    """A request, and its body or why there is none."""

    method: str
    path: str
    headers: Headers
    body: bytes | Refused
    remote: str = ""


class Reply(NamedTuple):
    """What is said to it, in JSON."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


Say = Callable[[Reply], None]


class Receiver:
    """Answers requests. `table` gives the sources of now, `epoch_ns` when the store began."""

    def __init__(
        self,
        table: Callable[[], Table],
        epoch_ns: int,
        keep: Batches[Heard, Kept],
        refuse: Batches[Failure, None],
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._table, self._epoch_ns, self._now_ns = table, epoch_ns, now_ns
        self._keep, self._refuse = keep, refuse

    @property
    def most_bytes(self) -> int:
        """Of a body; nothing larger is read, whoever it is for."""
        return self._table().most_bytes

    def answer(self, asked: Asked, say: Say) -> None:
        """`say` is called once, now or later, in the loop this is called in."""
        source_id = asked.path[len(_PREFIX) :]
        if not asked.path.startswith(_PREFIX) or "/" in source_id:
            say(_no(_NO_PAGE))
        elif asked.method != "POST":
            say(_no(_NO_METHOD, (b"allow", b"POST")))
        else:
            self._hook(asked, source_id, say)

    def _hook(self, asked: Asked, source_id: str, say: Say) -> None:
        table, body = self._table(), asked.body
        if not isinstance(body, Refused) and len(body) > table.most_bytes:
            body = TOO_LARGE
        request = Request(
            source_id, asked.headers, b"" if isinstance(body, Refused) else body, self._now_ns()
        )
        found = body if isinstance(body, Refused) else judge(request, table, self._epoch_ns)

        def refuse(why: Refused, known: bool) -> None:
            """Write down why, then say no: to a stranger always in the same words."""
            more = ((b"retry-after", b"60"),) if why.status == 429 else ()
            reply = _no(why if why.said else _REFUSED, *more)
            self._refuse.ask(_failure(asked, request, why, known), lambda _: say(reply))

        def kept(what: Kept | Exception) -> None:
            if isinstance(what, KfmError | OSError):
                say(_no(_LATER, (b"retry-after", b"5")))
            elif isinstance(what, Exception):
                raise what
            elif what.event_id:
                said = b'{"status":"accepted","event_id":"%b"}' % what.event_id.encode()
                say(Reply(202, said))
            else:
                refuse(_TOO_MANY, True)

        if isinstance(found, Refused):
            refuse(found, source_id in table.sources)
        else:
            self._keep.ask(found, kept)


def _failure(asked: Asked, request: Request, why: Refused, known: bool) -> Failure:
    return Failure(
        at=rfc3339_ns(request.now_ns),
        source_id=request.source_id[:64],
        known=known,
        status=why.status,
        code=why.code,
        field=why.field,
        body_bytes=len(request.body),
        body_digest=f"sha256:{sha256(request.body).hexdigest()}" if request.body else "",
        remote=asked.remote,
        correlation_id=trace_in(request.headers).correlation_id,
    )


def _no(why: Refused, *headers: tuple[bytes, bytes]) -> Reply:
    told: Json = {"error": why.code, "said": why.said}
    if why.field:
        told["field"] = why.field
    return Reply(why.status, msgspec.json.encode(told), headers)
