"""Ports for servers that open theirs late."""

import contextlib
import random
import socket
from pathlib import Path

__all__ = ["free_port"]

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """One that nobody listens at, below those the system itself gives to whoever asks for any: a
    server that takes seconds to start is not overtaken.
    """
    first = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32_768
    while True:
        port = random.SystemRandom().randrange(max(1_024, first - 12_000), first)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
