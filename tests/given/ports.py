"""Ports for servers that open theirs late."""

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

__all__ = ["free_port"]

_file: list[int] = []
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """One that nobody listens at, below those the system itself gives to whoever asks for any, and
    that no other process of tests is given as long as this one lives: a server that takes seconds
    to start is not overtaken.
    """
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        port = random.SystemRandom().randrange(max(1_024, first - 12_000), first)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _ours(port)
            return port


def _ours(port: int) -> None:
    """Keep others away from a port until this process ends: one byte of a file for each."""
    if not _file:
        place = Path(tempfile.gettempdir()) / f"kfm-ports-{os.getuid()}"
        _file.append(os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    fcntl.lockf(_file[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
