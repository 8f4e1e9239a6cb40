"""A way to a server that can be cut: forwards a loopback port to a Unix socket until it is told not
to.
"""

import contextlib
import socket
import threading
from pathlib import Path
from types import TracebackType

__all__ = ["Proxy"]


class Proxy:
    """Each direction of each connection is a thread. What a cut stopped is never delivered
    afterwards.
    """

    def __init__(self, target: Path) -> None:
        self._target = str(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open = threading.Event()
        self._open.set()
        self._refusing = False
        self._mutex = threading.Lock()
        self._sockets: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._drop()
        self._open.set()

    def cut(self, *, silent: bool) -> None:
        """Forward nothing more. Silent: connections stay, and nobody answers; else they are closed,
        and new ones refused.
        """
        self._open.clear()
        self._refusing = not silent
        if not silent:
            self._drop()

    def mend(self) -> None:
        """Connections of before are closed, new ones are forwarded."""
        self._drop()
        self._refusing = False
        self._open.set()

    def _drop(self) -> None:
        with self._mutex:
            old, self._sockets = self._sockets, set()
        for end in old:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed: the end
            while True:
                near, _ = self._listener.accept()
                if self._refusing:
                    near.close()
                    continue
                self._join(near)

    def _join(self, near: socket.socket) -> None:
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(self._target)
        except OSError:
            near.close()
            far.close()
            return
        with self._mutex:
            self._sockets |= {near, far}
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):  # dropped, or an end went away
            while data := source.recv(1 << 16):
                self._open.wait()
                # a dropped connection has been closed meanwhile: what was held back goes nowhere
                sink.sendall(data)
        with self._mutex:
            self._sockets -= {source, sink}
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
