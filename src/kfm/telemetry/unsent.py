"""What of the lines that were written a collector has, and the process that sends it the rest. A run
loads this, and nothing that can send.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from kfm.telemetry.background import start_beside
from kfm.telemetry.runs import NAME
from kfm.zones.durable import replace_durably

__all__ = ["Sent", "files", "keep_sent", "send_beside", "sending_alone", "sent_so_far", "unsent"]

_DAYS = 7  # files that are looked at; older ones are left
_STATE, _LOCK = f"{NAME}.sent.json", f"{NAME}.sent.lock"


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """`ledger/logs/telemetry.sent.json`: how far each file was sent, and what became of it."""

    offsets: dict[str, int] = {}
    sent: int = 0
    refused: int = 0  # lines that the collector will never take
    failed: int = 0  # times that it did not answer
    error: str = ""  # of the last time it did not


def sent_so_far(folder: Path) -> Sent:
    try:
        return msgspec.json.decode((folder / _STATE).read_bytes(), type=Sent)
    except (OSError, msgspec.MsgspecError):
        return Sent()


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{NAME}-????-??-??.jsonl"))[-_DAYS:]


def unsent(folder: Path) -> int:
    """Bytes of lines that no collector has."""
    state = sent_so_far(folder)
    with contextlib.suppress(OSError):
        return sum(max(0, f.stat().st_size - state.offsets.get(f.name, 0)) for f in files(folder))
    return 0


@contextlib.contextmanager
def sending_alone(folder: Path) -> Iterator[bool]:
    """Whether nobody else sends from here; they have it while this lasts."""
    fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(fd)


def keep_sent(folder: Path, state: Sent) -> None:
    replace_durably(folder / _STATE, msgspec.json.encode(state) + b"\n")


def send_beside(folder: Path, address: str, service: str) -> None:
    """Start a process that sends, and do not wait for it; none while another sends, for it would
    only find that out: who sends goes on to what was added meanwhile.
    """
    if not unsent(folder):
        return
    with sending_alone(folder) as alone:
        pass
    if alone:
        start_beside(["kfm.telemetry.send", str(folder), address, service])
