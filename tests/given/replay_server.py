"""A loopback HTTP server that answers from a folder with REPLAY.json, for tests that want the real
fetcher.

`with ReplayServer(folder) as server:` then `HttpFetcher(reroute=server.address)`, or for the
command line
`KFM_REROUTE=server.where` in a workspace with `allow_loopback: true`. Names stay those of the
recorded hosts.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kfm.fetch.offline import LAST_MODIFIED, Recordings

__all__ = ["Answer", "Asked", "ReplayServer"]


@dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    url: str  # as https, whatever the registered scheme was
    headers: dict[str, str]
    body: str


@dataclass(frozen=True)
class Answer:
    """What is said instead of a recording."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class ReplayServer:
    """`asked` lists every request; `instead` may answer one itself, or return None to let the
    recording speak.
    """

    def __init__(
        self,
        folder: Path | None = None,
        instead: Callable[[Asked], Answer | None] = lambda asked: None,
    ) -> None:
        self._recordings = Recordings.of(folder) if folder is not None else Recordings(Path(), ())
        self.instead = instead
        self.asked: list[Asked] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(length).decode()
                asked = Asked(self.command, f"https://{headers['host']}{self.path}", headers, body)
                outer.asked.append(asked)
                answer = outer.instead(asked) or outer.recorded(asked)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.status != 304:
                    self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_POST = do_GET

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._server.server_port

    @property
    def where(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def recorded(self, asked: Asked) -> Answer:
        """The recorded answer, with a strong ETag from its digest; 404 when there is none."""
        entry = self._recordings.find(asked.url, asked.body)
        if entry is None:
            return Answer(404)
        path, digest = self._recordings.whole(entry)
        headers = {"Content-Type": entry.content_type or "application/octet-stream"}
        if entry.status == 200 and not asked.body:
            headers |= {"ETag": f'"{digest[:32]}"', "Last-Modified": LAST_MODIFIED}
            if asked.headers.get("if-none-match") == headers["ETag"]:
                return Answer(304, b"", headers)
        return Answer(entry.status, path.read_bytes(), headers)

    def __enter__(self) -> "ReplayServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
