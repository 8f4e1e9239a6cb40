"""Lines that were written are sent on to a collector, by a process of its own: no run waits for it.

`python -m kfm.telemetry.send FOLDER ADDRESS SERVICE` sends what no one has sent and ends within
half a minute; ADDRESS may be env:NAME, so that no list of processes shows a secret. What could not
be sent stays in its file and goes with the next; what a collector refuses for good is counted and
passed over.
"""

import contextlib
import sys
import time
from pathlib import Path

import msgspec

from kfm.fetch.post import posted
from kfm.model import KfmError, RunTelemetry, masked
from kfm.store.address import stated_address
from kfm.telemetry.otlp import requests
from kfm.telemetry.unsent import Sent, files, keep_sent, sending_alone, sent_so_far

__all__ = ["send"]

_BATCH = 200  # lines of one request
_SECONDS, _PATIENCE = 30.0, 5.0  # for all of it, for one answer


def send(folder: Path, address: str, service: str) -> Sent:
    """Send what is there, oldest first, until all is sent, the collector fails, or time is up."""
    until = time.monotonic() + _SECONDS
    with sending_alone(folder) as alone:
        state = sent_so_far(folder)
        if not alone:
            return state
        for file in files(folder):
            while time.monotonic() < until:
                lines, offset = _next(file, state.offsets.get(file.name, 0))
                if offset == state.offsets.get(file.name, 0):
                    break
                state, going = _sent(state, lines, address, service)
                if going:
                    offsets = {**state.offsets, file.name: offset}
                    state = msgspec.structs.replace(state, offsets=offsets)
                keep_sent(folder, state)
                if not going:
                    return state
        return state


def _next(file: Path, offset: int) -> tuple[list[RunTelemetry], int]:
    """Whole lines from `offset` on, and where they end. One that is no such line is passed over."""
    lines: list[RunTelemetry] = []
    with file.open("rb") as opened:
        opened.seek(offset)
        for _ in range(_BATCH):
            raw = opened.readline()
            if not raw.endswith(b"\n"):  # it is being written
                break
            offset += len(raw)
            with contextlib.suppress(msgspec.MsgspecError):
                lines.append(msgspec.json.decode(raw, type=RunTelemetry))
    return lines, offset


def _sent(state: Sent, lines: list[RunTelemetry], address: str, service: str) -> tuple[Sent, bool]:
    """What is known after these were sent; False: they are to be sent again."""
    if not lines:
        return state, True
    refused, why = 0, ""
    try:
        for path, body in requests(lines, service).items():
            answer = posted(
                f"{address.rstrip('/')}{path}",
                msgspec.json.encode(body),
                headers={"Content-Type": "application/json"},
                seconds=_PATIENCE,
            )
            not_taken, said = _not_taken(answer.body)
            refused, why = max(refused, min(not_taken, len(lines))), said or why
    except KfmError as error:
        told = masked(error.happened)
        if error.retryable:
            return msgspec.structs.replace(state, failed=state.failed + 1, error=told), False
        refused, why = len(lines), told
    return (
        msgspec.structs.replace(
            state,
            sent=state.sent + len(lines) - refused,
            refused=state.refused + refused,
            error=why,
        ),
        True,
    )


class _Partial(msgspec.Struct, frozen=True, rename="camel"):
    """What a collector says of a request that it took in part: how much of it not, and why."""

    rejected_log_records: int | str = 0
    rejected_spans: int | str = 0
    rejected_data_points: int | str = 0
    error_message: str = ""


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    partial_success: _Partial = _Partial()


def _not_taken(answer: bytes) -> tuple[int, str]:
    """Of how many the collector says that it will never take them, and why."""
    with contextlib.suppress(msgspec.MsgspecError, ValueError):
        told = msgspec.json.decode(answer or b"{}", type=_Response).partial_success
        counts = (told.rejected_log_records, told.rejected_spans, told.rejected_data_points)
        return max(map(int, counts)), masked(told.error_message)[:200]
    return 0, ""


if __name__ == "__main__":
    send(Path(sys.argv[1]), stated_address(sys.argv[2]), sys.argv[3])
