"""One request and its answer, to a host that is named and nobody else, by the rules of every fetch."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from kfm.extras.github.base import Lost, Said
from kfm.fetch.base import UpstreamRefused
from kfm.fetch.connect import Dialer
from kfm.fetch.credentials import check_value
from kfm.fetch.retry import Pace, Transient
from kfm.fetch.url import Target, parse_url
from kfm.fetch.wire import Head, Wire, read_body, read_head
from kfm.model import Denied, UpstreamUnavailable

__all__ = ["Carrier"]

_MOST = 64 << 20  # bytes of an answer
_PIECE = 1 << 20
_REMEDY = "Check `github.api` in kfm.yml; for tests a workspace may set `allow_loopback`."


class Carrier:
    """Sends requests over HTTP/1.1, one connection each; plain HTTP to loopback alone."""

    def __init__(self, dialer: Dialer, user_agent: str, *, read_timeout: float = 60.0) -> None:
        self._dialer, self._user_agent, self._read_timeout = dialer, user_agent, read_timeout

    def send(
        self,
        method: str,
        url: str,
        hosts: tuple[str, ...],
        headers: Mapping[str, str],
        body: bytes | Path = b"",
    ) -> Said:
        """What was answered, whatever its status. Raises `Lost` when nothing was, `Denied` for a
        host that is not among `hosts`; a name that begins with a dot stands for all below it.
        """
        target = _allowed(url, hosts)
        size = len(body) if isinstance(body, bytes) else body.stat().st_size
        pace = Pace(
            deadline_s=120.0 + size / 100_000,
            window_s=60.0,
            least_rate=1.0,
            monotonic=time.monotonic,
        )
        wire = self._dialed(target, pace)
        try:
            wire.send(self._head(method, target, headers, size))
            for piece in _pieces(body):
                wire.send(piece)
            head = read_head(wire)
            return Said(head.status, dict(head.fields), _whole(wire, head, method))
        except Transient as trouble:
            raise Lost(trouble.reason, sent=True) from trouble
        except UpstreamUnavailable as error:
            raise Lost(error.happened.rstrip("."), sent=True) from error
        finally:
            wire.close()

    def _dialed(self, target: Target, pace: Pace) -> Wire:
        try:
            return Wire(self._dialer.dial(target, pace), pace, self._read_timeout)
        except Transient as trouble:
            raise Lost(trouble.reason, sent=False) from trouble
        except (Denied, UpstreamRefused) as error:
            raise type(error)(error.happened, expected=error.expected, remedy=_REMEDY) from error

    def _head(self, method: str, target: Target, headers: Mapping[str, str], size: int) -> bytes:
        lines = [
            f"{method} {target.path}{'' if target.query is None else '?' + target.query} HTTP/1.1",
            f"Host: {target.authority}",
            "Connection: close",
            "Accept-Encoding: identity",
            f"User-Agent: {self._user_agent}",
        ]
        lines += [f"Content-Length: {size}"] if size or method in ("POST", "PUT", "PATCH") else []
        for name, value in headers.items():
            check_value(name, value)
            lines.append(f"{name}: {value}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _allowed(url: str, hosts: tuple[str, ...]) -> Target:
    target = parse_url(url)
    named = target.host in hosts or any(
        each.startswith(".") and target.host.endswith(each) for each in hosts
    )
    if not named:
        raise Denied(
            f"GitHub leads to {target.host}, which is not allowed.",
            expected=f"one of {', '.join(hosts)}",
            remedy="Do not trust this answer; look at what answers there.",
        )
    if target.scheme == "http" and target.host not in ("127.0.0.1", "::1"):
        raise Denied(
            f"{target.host} is to be asked without encryption.",
            expected="https: a token does not travel in the open",
            remedy=_REMEDY,
        )
    return target


def _pieces(body: bytes | Path) -> Iterator[bytes]:
    if isinstance(body, bytes):
        if body:
            yield body
        return
    with body.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _whole(wire: Wire, head: Head, method: str) -> bytes:
    if head.status in (204, 304) or method == "HEAD":
        return b""
    found = bytearray()
    for piece in read_body(wire, head):
        found += piece
        if len(found) > _MOST:
            raise Transient("the answer is endless")
    return bytes(found)
