"""HTTP/1.1, no more of it than a receiver needs: httptools reads a request, its answer goes out in
its turn, and whoever is too slow or says too much is cut off.
"""

import asyncio
import socket
from collections import deque
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import httptools

from kfm.webhook.app import TOO_LARGE, Asked, Receiver, Reply
from kfm.webhook.document import Refused

__all__ = ["Server"]

_PATIENCE_S = 10.0  # for the rest of a request, and for those at work when it is to end
_IDLE_S = 15.0  # between two requests of a connection
_LOOK_S = 0.1
_MOST_HEAD = 64 << 10  # bytes before a body
_SLOW = Refused(408, "body.slow", said="The body did not arrive.")
_CUT_OFF = Refused(400, "body.cut_off", said="The body did not arrive.")
_LINES = {
    s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\ncontent-type: application/json\r\n".encode()
    for s in HTTPStatus
}
_BAD = b'{"error":"malformed","said":"This is no HTTP request."}'


class Wire(asyncio.Protocol):
    """One connection: one request after the other, answered in their order."""

    _transport: asyncio.Transport

    def __init__(self, receiver: Receiver, there: "set[Wire]") -> None:
        self._receiver, self._there = receiver, there
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._remote = ""
        self._since = self._loop.time()  # when the request began, or the last one was answered
        self._waiting: deque[tuple[Asked, bool]] = deque()  # and whether more may follow it
        self._open = False  # a request is being read,
        self._told = False  # its head is there,
        self._refused = False  # and it was refused before its end
        self._busy = False  # one is being answered
        self._going = False
        self._stays = True  # after the one that is being answered
        self._ending = False
        self._full = False  # nobody reads the answers
        self._head = 0
        self._url, self._path, self._method = b"", "", ""
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._size = 0
        self._expects = False

    # ---- a connection ----------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._remote = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self._there.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._there.discard(self)
        if self._open and self._told and not self._refused:
            self._receiver.answer(self._asked(_CUT_OFF), lambda reply: None)

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._bad(400)
            return
        if not self._told and self._head > _MOST_HEAD:
            self._bad(431)
            return
        self._go_on()

    def eof_received(self) -> bool:
        """Who asks no more may still hear the answers."""
        self.end()
        return self._busy or bool(self._waiting)

    def pause_writing(self) -> None:
        self._full = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        self._go_on()

    # ---- what httptools reads --------------------------------------------------------------------
    def on_message_begin(self) -> None:
        self._url, self._headers, self._body, self._size = b"", [], [], 0
        self._expects = self._refused = self._told = False
        self._open, self._since = True, self._loop.time()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-length":
            self._size = int(value[:20]) if value.isdigit() else 0
        elif name == b"expect":
            self._expects = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._path = _path(self._url)
        self._told = True
        self._method = self._parser.get_method().decode("ascii")
        if self._size > self._receiver.most_bytes:
            self._refuse(TOO_LARGE)
        elif self._expects and not self._busy:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._size = 0

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._refused:
            return
        if self._size > self._receiver.most_bytes:
            self._refuse(TOO_LARGE)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        self._open, self._head = False, 0
        if not self._refused:
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._waiting.append((self._asked(body), self._parser.should_keep_alive()))

    def _refuse(self, why: Refused) -> None:
        """Answer before its end; what else comes of it is passed over."""
        self._refused = True
        self._waiting.append((self._asked(why), self._parser.should_keep_alive()))
        self._body.clear()

    def _asked(self, body: bytes | Refused) -> Asked:
        return Asked(self._method, self._path, self._headers, body, self._remote)

    # ---- answers ---------------------------------------------------------------------------------
    def _go_on(self) -> None:
        """Answer what waits, one after the other; meanwhile no more is read."""
        self._going = True
        while self._waiting and not self._busy and not self._transport.is_closing():
            asked, self._stays = self._waiting.popleft()
            self._busy = True
            self._receiver.answer(asked, self._said)
        self._going = False
        if self._transport.is_closing():
            return
        if self._waiting:
            self._transport.pause_reading()
        elif not self._full:
            self._transport.resume_reading()

    def _said(self, reply: Reply) -> None:
        self._busy = False
        if self._transport.is_closing():
            return
        self._write(reply.status, reply.body, reply.headers)
        if not self._stays or (self._ending and not self._waiting):
            self._transport.close()
        elif not self._going and (self._waiting or self._full):
            self._go_on()
        if not self._open:
            self._since = self._loop.time()

    def _write(
        self, status: int, body: bytes, headers: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        more = b"".join(b"%b: %b\r\n" % header for header in headers)
        line = _LINES[status]
        self._transport.write(b"%b%bcontent-length: %d\r\n\r\n%b" % (line, more, len(body), body))

    def _bad(self, status: int) -> None:
        self._open = False
        if not self._busy:
            self._write(status, _BAD, ((b"connection", b"close"),))
        self._transport.close()

    # ---- endings ---------------------------------------------------------------------------------
    def look(self, now: float) -> None:
        """Cut off who is too slow."""
        if self._busy or self._waiting:
            return
        if self._open and now - self._since > _PATIENCE_S:
            if not self._told or self._refused:
                self._transport.close()
                return
            self._refuse(_SLOW)
            self._waiting[-1] = (self._waiting[-1][0], False)
            self._go_on()
        elif not self._open and now - self._since > _IDLE_S:
            self._transport.close()

    def end(self) -> None:
        """Close when what was asked is answered."""
        self._ending = True
        if not (self._busy or self._waiting or self._open):
            self._transport.close()

    def cut(self) -> None:
        self._transport.abort()


def _path(url: bytes) -> str:
    path = url.partition(b"?")[0]
    if not path.startswith(b"/"):  # an absolute address, or none at all
        path = httptools.parse_url(url).path or b""
    named = path.decode("latin-1")
    return unquote(named) if "%" in named else named


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # there is none for this machine
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class Server:
    """Everybody who is connected."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._there: set[Wire] = set()
        self.should_exit = False  # may be set in any thread

    def run(self, sock: socket.socket) -> None:
        """Serve until it is to end, then answer what was asked."""
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(self._serve(sock))

    async def _serve(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        make = loop.create_unix_server if sock.family == socket.AF_UNIX else loop.create_server
        server = await make(lambda: Wire(self._receiver, self._there), sock=sock, backlog=1024)
        while not self.should_exit:
            await asyncio.sleep(_LOOK_S)
            for wire in [*self._there]:
                wire.look(loop.time())
        server.close()
        for wire in [*self._there]:
            wire.end()
        until = loop.time() + _PATIENCE_S
        while self._there and loop.time() < until:
            await asyncio.sleep(_LOOK_S / 10)
        for wire in [*self._there]:
            wire.cut()
