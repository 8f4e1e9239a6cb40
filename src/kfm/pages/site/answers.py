"""What the reader answers anybody, asked in this process."""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from kfm.model import KfmError
from kfm.reader.app import ReaderApp

__all__ = ["HERE", "Answer", "NotAnswered", "ask", "ask_into"]

HERE = "http://kfm.invalid"  # how the reader takes itself to be called; no copy holds it
_EVERYBODY = "no-cache"  # what the reader says of an answer that anybody may keep


class Answer(NamedTuple):
    """An answer that anybody may have and keep."""

    body: bytes
    kind: str


class NotAnswered(Exception):
    """Nobody in particular may have it, or not without what its label asks for."""

    def __init__(self, address: str, status: int) -> None:
        super().__init__(f"{address} is answered by {status}")
        self.status = status


class _Sink:
    """Where an answer goes: to memory, or to a file as it comes."""

    def __init__(self, file: Path | None) -> None:
        self.status, self.headers, self.body = 0, dict[bytes, bytes](), bytearray()
        self._file = file.open("wb") if file is not None else None
        self._asked, self._ended = False, asyncio.Event()

    async def receive(self) -> Any:
        """The question, which has no body; then who asked stays until it is answered."""
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._ended.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
            return
        if self._file is not None:
            self._file.write(message.get("body", b""))
        else:
            self.body += message.get("body", b"")
        if not message.get("more_body"):
            self._ended.set()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


async def ask(app: ReaderApp, address: str, *, page: bool = False) -> Answer:
    """What is answered at an address: its page, or what else it has. Raises `NotAnswered`."""
    sink = await _asked(app, address, "text/html" if page else "*/*", None)
    return Answer(bytes(sink.body), sink.headers[b"content-type"].decode("latin-1"))


async def ask_into(app: ReaderApp, address: str, file: Path) -> None:
    """The same, written to a file as it comes."""
    await _asked(app, address, "*/*", file)


async def _asked(app: ReaderApp, address: str, accept: str, file: Path | None) -> _Sink:
    path, _, query = address.partition("?")
    scope = {
        "type": "http", "method": "GET", "path": unquote(path), "raw_path": path.encode(),
        "query_string": query.encode(), "scheme": "http", "server": ("kfm.invalid", 80),
        "http_version": "1.1", "headers": [(b"host", b"kfm.invalid"), (b"accept", accept.encode())],
    }  # fmt: skip
    sink = _Sink(file)
    try:
        await app(scope, sink.receive, sink.send)
    finally:
        sink.close()
    # a label that asks for something asks it of who reads: a copy cannot
    status = sink.status
    if status == 200 and sink.headers.get(b"cache-control", b"").decode() != _EVERYBODY:
        status = 403
    if status >= 500:
        raise KfmError(
            f"{address} cannot be answered now.",
            expected="a workspace that can be read, whose log can be written",
            remedy="Run `kfm verify`, see that the disk takes more, then export again.",
        )
    if status != 200:
        raise NotAnswered(address, status)
    return sink
