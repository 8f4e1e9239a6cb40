"""One question and its final answer: what is sent, to whom, and which redirects are followed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from urllib.parse import quote, urljoin

import msgspec

from kfm.fetch.base import FetchRequest, UpstreamRefused
from kfm.fetch.connect import Dialer, inner
from kfm.fetch.credentials import (
    Table,
    check_value,
    query_references,
    resolve_headers,
    resolve_query,
)
from kfm.fetch.heads import strong_etag
from kfm.fetch.retry import Pace
from kfm.fetch.url import DEFAULT_PORTS, Target, find_inline_secret, masked_url, parse_url
from kfm.fetch.wire import Head, Wire, read_head
from kfm.model import Denied, UpstreamUnavailable, UsageError

__all__ = ["Asking", "Condition", "Question", "gave_up", "usable_target"]

Condition = Sequence[tuple[str, str]]  # header fields such as If-None-Match
# holds a place with a host; is told what it answered
Turn = Callable[[Target], AbstractContextManager[Callable[[Head], None]]]

MAX_REDIRECTS = 5
_LOOPBACK = {"localhost", "127.0.0.1", "::1", "[::1]"}
_REDIRECTS = {301, 302, 303, 307, 308}
_REPEATING = {307, 308}  # RFC 9110, 15.4: only these ask for the same method and body again


class Asking(msgspec.Struct, frozen=True):
    """How questions are sent."""

    dialer: Dialer
    pace: Pace
    read_timeout: float
    user_agent: str
    turn: Turn
    credentials: Table


class Question:
    """A request that can be asked several times.

    Raises `UsageError` or `Denied` at once when it may not be asked at all.
    """

    def __init__(self, request: FetchRequest, asking: Asking) -> None:
        self.first = usable_target(request)
        self._registered = parse_url(request.made_from) if request.made_from else self.first
        self._request, self._asking = request, asking

    @contextmanager
    def ask(self, condition: Condition) -> Iterator[tuple[Wire, Head, Target]]:
        """Ask, and follow redirects, every one of them checked like the first request."""
        target, visited = self.first, {self.first}
        for _ in range(MAX_REDIRECTS + 1):
            with self._exchange(target, condition) as (wire, head):
                if head.status not in _REDIRECTS:
                    yield wire, head, target
                    return
            if self._request.body and head.status not in _REPEATING:
                raise UpstreamRefused(
                    f"{masked_url(self.first)} answers a POST with {head.status}, elsewhere and by"
                    " GET.",
                    expected="an answer, or a redirect that repeats the question (307, 308)",
                    remedy="Put the final address into `source.url`.",
                )
            target = self._redirected(target, head.get("location"))
            if target in visited:
                break
            visited.add(target)
        raise gave_up(
            self.first,
            "Its redirects never end.",
            "Open it in a browser and put the final address into `source.url`.",
        )

    @contextmanager
    def _exchange(self, target: Target, condition: Condition) -> Iterator[tuple[Wire, Head]]:
        message = self._message(target, condition)
        with self._asking.turn(target) as answered:
            wire = Wire(
                self._asking.dialer.dial(target, self._asking.pace),
                self._asking.pace,
                self._asking.read_timeout,
            )
            try:
                wire.send(message)
                head = read_head(wire)
                answered(head)
                yield wire, head
            finally:
                wire.close()

    def _message(self, target: Target, condition: Condition) -> bytes:
        body = self._request.body.encode()
        fields = {
            "user-agent": ("User-Agent", self._asking.user_agent),
            "accept": ("Accept", self._request.accept or "*/*"),
        }
        if body:
            fields["content-type"] = ("Content-Type", "application/json")
        if _same_place(self._registered, target):
            fields |= {
                name.lower(): (name, value)
                for name, value in resolve_headers(
                    self._request.headers, self._asking.credentials
                ).items()
            }
        query = target.query
        if query is not None and target == self.first and _same_place(self._registered, target):
            # Only what the registered address names: `?token=env:OTHER` in a redirect or a next
            # link would make us hand out any secret.
            query = resolve_query(
                query, query_references(self._registered.query or ""), self._asking.credentials
            )
        path = target.path + ("" if query is None else f"?{query}")
        lines = [
            f"{'POST' if body else 'GET'} {path} HTTP/1.1",
            f"Host: {target.authority}",
            "Connection: close",
            "Accept-Encoding: identity",
        ]
        lines += [f"Content-Length: {len(body)}"] if body else []
        lines += [f"{name}: {value}" for name, value in (*fields.values(), *condition)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def _redirected(self, target: Target, location: str | None) -> Target:
        if not location:
            raise gave_up(self.first, "Upstream redirects to nowhere.", "Check `source.url`.")
        # Locations arrive as latin-1 and may hold raw UTF-8 bytes; escaped they are what the server
        # meant.
        escaped = quote(location, safe="".join(map(chr, range(0x21, 0x7F))), encoding="latin-1")
        try:
            found = parse_url(urljoin(target.url, escaped))
        except (UsageError, ValueError) as error:
            raise _denied_redirect(
                "to something that is not a plain http or https address"
            ) from error
        if target.scheme == "https" and found.scheme == "http":
            raise _denied_redirect("from https to http")
        _check_host(found, self._request.hosts, answered=True)
        _check_port(found, self._request)
        return found


def gave_up(target: Target, why: str, remedy: str = "Try again later.") -> UpstreamUnavailable:
    """The error for a fetch that ends without an answer."""
    return UpstreamUnavailable(
        f"{masked_url(target)} could not be fetched. {why}",
        expected="a whole answer",
        remedy=remedy,
    )


def usable_target(request: FetchRequest) -> Target:
    """The request's target, after every check that needs no network."""
    # what upstream puts into a next link is its own: `token=` often names a page
    find_inline_secret(request.made_from or request.url)
    if request.accept:
        check_value("Accept", request.accept)
    target = parse_url(request.url)
    _check_host(target, request.hosts, answered=bool(request.made_from))
    _check_port(target, request)
    if request.etag is not None and strong_etag(request.etag) is None:
        raise UsageError(
            "The validator of the last version is not a strong ETag.",
            expected="a quoted tag without W/",
            remedy="Fetch without a condition; a weak tag proves nothing.",
        )
    return target


def _check_host(target: Target, hosts: tuple[str, ...], *, answered: bool) -> None:
    """Refuse a host that is not listed; `answered`: upstream named it, not the registry."""
    if target.host in hosts or f"{target.host}:{target.port}" in hosts:
        return
    inside = inner(target.host) if answered else None
    # a workspace for tests
    tested = target.host in _LOOPBACK and any(host in _LOOPBACK for host in hosts)
    if inside is not None and not tested:  # to be named in the registry would not open it either
        raise Denied(
            f"The host {target.host} is not allowed for this dataset, and is {inside}.",
            expected=(
                f"one of {', '.join(hosts) or 'no hosts at all'}; never a machine of this network"
            ),
            remedy=(
                "Do not trust this answer: ask who keeps the source, and correct `source.url` if it"
                " has moved."
            ),
        )
    raise Denied(
        f"The host {target.host} is not allowed for this dataset.",
        expected=f"one of {', '.join(hosts) or 'no hosts at all'}",
        remedy="Add it to `source.hosts` in the registry if you trust it.",
    )


def _check_port(found: Target, request: FetchRequest) -> None:
    """Upstream may send us to another port of a host only where the registry lists it: beside a web
    server others may listen.
    """
    first = parse_url(request.made_from or request.url)
    known = (
        _same_place(first, found)
        if found.host == first.host
        else found.port == DEFAULT_PORTS[found.scheme]
    )
    if not known and f"{found.host}:{found.port}" not in request.hosts:
        raise Denied(
            f"Upstream leads to port {found.port} of {found.host}, which is not allowed for this"
            " dataset.",
            expected=(
                f"port {first.port}"
                if found.host == first.host
                else "the usual port of http or https"
            ),
            remedy=(
                f"Add {found.host}:{found.port} to `source.hosts` in the registry if you trust it."
            ),
        )


def _denied_redirect(where: str) -> Denied:
    return Denied(
        f"Upstream redirects {where}.",
        expected="a redirect to an allowed host, never from https to http",
        remedy="Check `source.url`; other hosts are allowed by name in `source.hosts`.",
    )


def _same_place(first: Target, now: Target) -> bool:
    """Whether credentials for `first` may go to `now`: the same server, or its step up from http to
    https.
    """
    if first.host != now.host:
        return False
    if (first.scheme, first.port) == (now.scheme, now.port):
        return True
    return (first.scheme, first.port, now.scheme, now.port) == (
        "http",
        DEFAULT_PORTS["http"],
        "https",
        DEFAULT_PORTS["https"],
    )
