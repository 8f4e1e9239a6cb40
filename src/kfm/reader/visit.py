"""One request from its first byte to its last: what is refused at the gate, what every answer
carries, and the line of the log.
"""

import re
import time
from collections.abc import MutableMapping
from contextvars import ContextVar
from hashlib import sha256
from typing import NamedTuple

from litestar.types import HTTPResponseStartEvent, HTTPScope, Message, Send

from kfm.model import Clock, ids, rfc3339
from kfm.reader.door import Asking
from kfm.reader.hung import Hung
from kfm.reader.kept import Kept
from kfm.reader.log import RequestLine, log_request
from kfm.reader.measure import Measures
from kfm.zones.base import Zone

__all__ = ["Standing", "Visit", "has"]

_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253})|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
)
_TRACE = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_LONGEST = 8192  # of an address with its question
# what a browser may do with a page of ours, and with everything else: nothing
_PAGE = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src"
    b" 'self'; connect-src 'self'; worker-src 'self' blob:; manifest-src 'self'; form-action 'self';"
    b" base-uri 'none'; frame-ancestors 'none'"
)
_OTHERS = (
    b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=()"),
    (b"x-frame-options", b"DENY"),
)
_NOW: ContextVar["Visit"] = ContextVar("visit")
# never twice, or two readers of one request understand two things
_ONCE = {b"host", b"authorization", b"content-length", b"content-type", b"range", b"if-range"}


class Standing(NamedTuple):
    """What all visits share."""

    kept: Kept
    hung: Hung
    root: Zone  # of the workspace: its log lies there
    clock: Clock
    measures: Measures
    address: str  # as others know the reader; empty: as each calls it


class Visit:
    """A request and its answer, as they pass."""

    def __init__(self, scope: HTTPScope, at: "Standing") -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        self.request_id = ids.new_run_id()
        self.method: str = scope["method"]
        self.is_head = self.method == "HEAD"
        self.headers = headers
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.as_json = False  # the `.json` twin was asked for
        self.asking = Asking(
            at.kept, headers.get(b"authorization"), at.address or _address(scope, headers)
        )
        self.hung, self.root, self.clock = at.hung, at.root, at.clock
        self.measures = at.measures
        self.problem = ""
        self.answer, self.bytes_out = 0, 0
        self._started = time.monotonic_ns()

    @classmethod
    def now(cls) -> "Visit":
        """The one that is being answered here."""
        return _NOW.get()

    def wants_page(self) -> bool:
        """Whether whoever asks would rather have HTML than JSON."""
        if self.as_json:
            return False
        said = _qualities(self.headers.get(b"accept", ""))
        return said.get("text/html", 0.0) > said.get("application/json", 0.0)

    def entered(self, scope: HTTPScope) -> str:
        """What is wrong with the request before anybody reads it; empty: it may go on."""
        _NOW.set(self)
        names = [name for name, _ in scope["headers"]]
        if any(names.count(name) > 1 for name in _ONCE):
            return "A header stands there twice."
        if b"host" in self.headers and not _HOST.fullmatch(self.headers[b"host"]):
            return "The host is no name."
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _LONGEST:
            return "The address is too long."
        if any(ord(c) < 32 or ord(c) == 127 for c in self.path) or "\\" in self.path:
            return "The address holds characters that no address has."
        if {"..", "."} & set(self.path.split("/")):
            return "The address leads out of itself."
        return ""

    def twin(self, scope: HTTPScope) -> None:
        """`/datasets/x.json` is `/datasets/x` as JSON; files keep their names."""
        path = self.path
        if path.endswith(".json") and "/files/" not in path and path != "/openapi.json":
            self.as_json, self.path = True, path.removesuffix(".json")
            scope["path"], scope["raw_path"] = self.path, self.path.encode()

    # ---- the answer ------------------------------------------------------------------------------
    def sending(self, send: Send) -> Send:
        """`send`, with what every answer has. A whole document gets a tag, and is not sent to who
        has it.
        """
        first: list[HTTPResponseStartEvent] = []

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                first.append(message)
                return
            if first:
                await send(self._begun(first.pop(), message))
            if message["type"] == "http.response.body":
                body = b"" if self.is_head or self.answer == 304 else message.get("body", b"")
                self.bytes_out += len(body)
                message = {**message, "body": body}
            await send(message)

        return told

    def _begun(self, start: HTTPResponseStartEvent, then: Message) -> HTTPResponseStartEvent:
        headers = dict(start["headers"])
        self.answer = start["status"]
        if then["type"] == "http.response.body" and not then["more_body"]:
            self._tagged(headers, then["body"])
        # a script that works beside a page is bound by its own policy
        page = headers.get(b"content-type", b"").startswith((b"text/html", b"text/javascript"))
        others = b"content-disposition" in headers  # bytes of strangers, whatever they say they are
        headers |= dict(_ALWAYS)
        headers[b"content-security-policy"] = _PAGE if page and not others else _OTHERS
        headers.setdefault(b"cache-control", self.asking.cache_control.encode())
        headers[b"vary"] = b"accept, authorization"
        headers[b"kfm-request"] = self.request_id.encode()
        return {**start, "status": self.answer, "headers": list(headers.items())}

    def _tagged(self, headers: dict[bytes, bytes], body: bytes) -> None:
        """A whole document is known by its bytes; who has them is told so."""
        if self.answer != 200:
            return
        own = headers.get(b"etag", b"").decode("latin-1")
        tag = own or f'"{sha256(body).hexdigest()[:40]}"'
        headers[b"etag"] = tag.encode("latin-1")
        if has(self.headers.get(b"if-none-match"), tag):
            self.answer = 304
            headers.pop(b"content-length", None)

    def left(self, template: str) -> None:
        """The line of the log."""
        asking, took = self.asking, time.monotonic_ns() - self._started
        self.measures.add(f"{self.method} {template}", self.answer, took / 1e9, self.bytes_out)
        traced = _TRACE.fullmatch(self.headers.get(b"traceparent", ""))
        log_request(
            self.root,
            RequestLine(
                timestamp=rfc3339(self.clock.now()),
                service="reader",
                job_type=f"{self.method} {template}",
                job_id=self.request_id,
                run_id="",
                correlation_id=traced[1] if traced else self.request_id,
                dataset_ids=tuple(asking.dataset_ids),
                zone_in=asking.zone,
                zone_out="",
                policy_label=asking.label,
                status="failed" if self.answer >= 500 or not self.answer else "succeeded",
                duration_ms=took // 1_000_000,
                error={"message": self.problem} if self.problem else None,
                answer=self.answer,
                bytes_out=self.bytes_out,
                reader=asking.viewer.reader.name,
                decision_ids=tuple(asking.decision_ids),
            ),
        )


def has(stated: str | None, tag: str) -> bool:
    """Whether `If-None-Match` names a tag."""
    if stated is None:
        return False
    names = [name.strip().removeprefix("W/") for name in stated.split(",")]
    return "*" in names or tag in names


def _qualities(accept: str) -> dict[str, float]:
    """What is wanted how much; `*/*` is no wish."""
    found = {}
    for each in accept.split(",")[:32]:
        name, *rest = (part.strip().lower() for part in each.split(";"))
        stated = next((part[2:] for part in rest if part.startswith("q=")), "1")
        if re.fullmatch(r"[01](\.[0-9]{1,3})?", stated):
            found[name] = float(stated)
    return found


def _address(scope: HTTPScope, headers: MutableMapping[bytes, str]) -> str:
    host = headers.get(b"host", "")
    if not _HOST.fullmatch(host):
        host, port = scope.get("server") or ("localhost", None)
        host = f"{host}:{port}" if port else host
    return f"{scope['scheme']}://{host}"
