"""One folder on loopback, with strong validators and 304: the upstream both sides ask."""

import contextlib
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["serve"]


class _Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news."""


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The base address of a server for the files in `folder`."""
    etags = {p.name: f'"{_digest(p)[:32]}"' for p in folder.iterdir() if p.is_file()}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, body: bool) -> None:
            name = self.path.lstrip("/").partition("?")[0]
            etag = etags.get(name)
            if etag is None:
                self.send_error(404)
                return
            if self.headers.get("If-None-Match") == etag:
                self.send_response(304)
                self.send_header("ETag", etag)
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("ETag", etag)
            self.send_header(
                "Content-Type", "application/geo+json" if name.endswith("json") else "text/csv"
            )
            self.send_header("Content-Length", str((folder / name).stat().st_size))
            self.end_headers()
            if body:
                with (
                    (folder / name).open("rb") as file,
                    contextlib.suppress(BrokenPipeError, ConnectionResetError),
                ):
                    self.wfile.flush()
                    self.connection.sendfile(file)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = _Quiet(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
