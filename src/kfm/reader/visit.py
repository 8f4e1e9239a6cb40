"""One request from its first byte to its last: what is refused at the gate, what every answer
carries, and the line of the log.
"""

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import MutableMapping
from contextvars import ContextVar
from hashlib import sha256
from typing import NamedTuple, cast

from litestar.types import HTTPResponseStartEvent, HTTPScope, Message, Send

from kfm.grants.session import is_secret
from kfm.model import Clock, ids, rfc3339
from kfm.reader.door import Asking
from kfm.reader.html_pages import HtmlPages
from kfm.reader.limits import Limits, client_of
from kfm.reader.log import Logs, RequestLine, log_request
from kfm.reader.measure import Measures
from kfm.reader.oidc import Issuers
from kfm.reader.open_workspace import Kept
from kfm.reader.sendable import SENDS_FILES, Sendable, SendFile
from kfm.reader.viewer import Claim

__all__ = ["BEAT_NS", "Standing", "Visit", "has", "until_beat"]

_HOST = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253})|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
)
_TRACE = re.compile(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_IN_NO_ADDRESS = re.compile(r"[\x00-\x1f\x7f\\]")
BEAT_NS = 25_000_000  # several times what it takes to find that something is hidden
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
_ALWAYS = {
    b"x-content-type-options": b"nosniff",
    # others learn nothing; with no-referrer a browser would not even tell us that a form is ours
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=(), payment=()",
    b"x-frame-options": b"DENY",
}
_ONLY_TLS = {b"strict-transport-security": b"max-age=31536000"}
# who works at this machine says so by the name of the machine, and through nothing in between
_HERE = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")
_BETWEEN = (b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip")
_SESSION, _BEFORE = "kfm_session", "kfm_before"  # cookies: who was let in, who is about to be
_NOW: ContextVar["Visit"] = ContextVar("visit")
# never twice, or two readers of one request understand two things
_ONCE = {
    b"host", b"authorization", b"content-length", b"content-type", b"range", b"if-range", b"cookie",
    b"origin", b"sec-fetch-site",
}  # fmt: skip


class Standing(NamedTuple):
    """What all visits share."""

    kept: Kept
    html: HtmlPages
    logs: Logs
    clock: Clock
    measures: Measures
    address: str  # as others know the reader; empty: as each calls it
    limits: Limits
    issuers: Issuers
    here: bool = False  # who asks on this machine runs it
    secret: str = ""  # of this process: what forms are known by that nobody signed in for
    client_header: bytes = b""

    @property
    def is_tls(self) -> bool:
        return self.address.startswith("https://")


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
        self.at = at
        self.cookies = _cookies(headers.get(b"cookie", ""))
        self.given: list[bytes] = []  # cookies that the answer gives
        self.is_theirs = False  # the answer holds what is for one viewer alone
        self.wait_s = 0.0  # how long to wait, where too much was asked
        self._asks = (self._claim(headers), at.address or _address(scope, headers))
        self.begin()
        came = headers.get(at.client_header, "") if at.client_header else ""
        self.client = client_of(came or (scope.get("client") or ("",))[0])
        self.html, self.logs, self.clock = at.html, at.logs, at.clock
        self.measures = at.measures
        self.problem = ""
        self.answer, self.bytes_out = 0, 0
        extension = (scope.get("extensions") or {}).get(SENDS_FILES) or {}
        self.send_file = cast(SendFile | None, extension.get("send"))
        self._started = time.monotonic_ns()

    def begin(self) -> None:
        """Ask, as if nothing was asked before."""
        self.asking = Asking(self.at.kept, *self._asks, self.at.issuers)

    @classmethod
    def now(cls) -> "Visit":
        """The one that is being answered here."""
        return _NOW.get()

    # ---- who asks --------------------------------------------------------------------------------
    def _claim(self, headers: MutableMapping[bytes, str]) -> Claim:
        # another site cannot ask in somebody's name
        own = headers.get(b"sec-fetch-site", "none") in ("none", "same-origin")
        host = headers.get(b"host", "")
        own &= headers.get(b"origin", f"http://{host}") in (f"http://{host}", f"https://{host}")
        direct = not any(name in headers for name in _BETWEEN)
        here = self.at.here and own and direct and _HERE.fullmatch(headers.get(b"host", ""))
        session = self.cookies.get(self._named(_SESSION), "")
        return Claim(headers.get(b"authorization"), session, bool(here))

    @property
    def csrf(self) -> str:
        """What a form of ours shows that it is; only who has the cookie, or works here, is told."""
        how = self.asking.viewer.how
        secret = self.asking.claim.session if how == "session" else ""
        secret = self.at.secret if how == "here" else secret
        secret = secret or self.cookies.get(self._named(_BEFORE), "")
        if not is_secret(secret):
            return ""
        return hmac.new(secret.encode(), b"a form of kfm", sha256).hexdigest()

    def expect(self) -> None:
        """Know whoever asks again, so that the form that is shown now is theirs."""
        self.is_theirs = True
        if not self.csrf:
            secret = secrets.token_urlsafe(32)
            self.cookies[self._named(_BEFORE)] = secret
            self._give(_BEFORE, secret, 3600)

    def let_in(self, secret: str, seconds: int) -> None:
        """A session begins."""
        self._give(_SESSION, secret, seconds)
        self._give(_BEFORE, "", 0)

    def let_out(self) -> None:
        """A session has ended."""
        self._give(_SESSION, "", 0)

    def _named(self, name: str) -> str:
        return f"__Host-{name}" if self.at.is_tls else name

    def _give(self, name: str, value: str, seconds: int) -> None:
        only = "; Secure" if self.at.is_tls else ""
        line = f"{self._named(name)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict"
        self.given.append((line + only).encode())

    def wants_page(self) -> bool:
        """Whether whoever asks would rather have HTML than JSON."""
        accept = self.headers.get(b"accept", "")
        if self.as_json or "html" not in accept.lower():
            return False
        said = _qualities(accept)
        return said.get("text/html", 0.0) > said.get("application/json", 0.0)

    def entered(self, scope: HTTPScope) -> str:
        """What is wrong with the request before anybody reads it; empty: it may go on."""
        _NOW.set(self)
        names = [name for name, _ in scope["headers"]]
        if len(self.headers) < len(names) and any(names.count(name) > 1 for name in _ONCE):
            return "A header stands there twice."
        if b"host" in self.headers and not _HOST.fullmatch(self.headers[b"host"]):
            return "The host is no name."
        if b"host" not in self.headers and scope.get("http_version") == "1.1":
            return "The host is missing."
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > _LONGEST:
            return "The address is too long."
        if _IN_NO_ADDRESS.search(self.path):
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
                if first[0]["status"] == 404 or self.asking.is_at_beat:
                    await self._beat()
                await send(self._begun(first.pop(), message))
            if message["type"] == "http.response.body":
                body = b"" if self.is_head or self.answer == 304 else message.get("body", b"")
                self.bytes_out += len(body)
                message = {**message, "body": body}
            await send(message)

        return told

    async def _beat(self) -> None:
        """What is hidden takes longer to find than what is not there: both are told when the next
        beat has come.
        """
        await asyncio.sleep(until_beat(time.monotonic_ns() - self._started) / 1e9)

    async def sent(self, part: Sendable, send: Send) -> None:
        """Send a part of a file, where the connection can; `send` has the headers already."""
        assert self.send_file is not None
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        self.bytes_out += await self.send_file(part)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _begun(self, start: HTTPResponseStartEvent, then: Message) -> HTTPResponseStartEvent:
        headers = dict(start["headers"])
        self.answer = start["status"]
        if then["type"] == "http.response.body" and not then["more_body"]:
            self._tagged(headers, then["body"])
        # a script that works beside a page is bound by its own policy
        page = headers.get(b"content-type", b"").startswith((b"text/html", b"text/javascript"))
        others = b"content-disposition" in headers  # bytes of strangers, whatever they say they are
        headers |= _ALWAYS
        headers[b"content-security-policy"] = _PAGE if page and not others else _OTHERS
        cache = "private, no-store" if self.is_theirs else self.asking.cache_control
        headers.setdefault(b"cache-control", cache.encode())
        if self.at.is_tls:
            headers |= _ONLY_TLS
        headers[b"vary"] = b"accept, authorization, cookie"
        headers[b"kfm-request"] = self.request_id.encode()
        cookies = [(b"set-cookie", line) for line in self.given]
        return {**start, "status": self.answer, "headers": [*headers.items(), *cookies]}

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
            self.logs,
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


def until_beat(took_ns: int) -> int:
    """How long something that took so long waits for the next beat."""
    return -took_ns % BEAT_NS


def has(stated: str | None, tag: str, *, strong: bool = False) -> bool:
    """Whether `If-None-Match` names a tag; `strong`: `If-Match`, for which a weak one is none."""
    if stated is None:
        return False
    names = [name.strip().removeprefix("" if strong else "W/") for name in stated.split(",")]
    return "*" in names or tag in names


def _cookies(text: str) -> dict[str, str]:
    """Cookies by name; one that is there twice is nobody's."""
    found: dict[str, str] = {}
    if not text:
        return found
    twice = set()
    for each in text.split(";")[:64]:
        name, _, value = each.strip().partition("=")
        twice |= {name} & found.keys()
        found[name] = value
    return {name: value for name, value in found.items() if name not in twice}


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
