"""One connection: files go from the disk to the network without passing through this process, and who
is slow on purpose, or takes nothing, is let go.
"""

import asyncio
import functools
import os
from contextlib import suppress

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from kfm.reader.sendable import SENDS_FILES, Sendable

__all__ = ["PATIENCE", "Connection"]

PATIENCE = 15.0  # seconds until a question has arrived, from its first byte on
_STANDSTILL = 60.0  # seconds in which somebody takes nothing of an answer
_LONGEST_HEAD = 64 << 10  # bytes of an address and its headers
_PIECE = 1 << 20
_LOOK = 16 << 20  # so many bytes, and it is looked whether the file is still the same


class Connection(HttpToolsProtocol):
    """A connection of uvicorn that also sends files, and has an end to its patience."""

    _timer: asyncio.TimerHandle | None = None
    _standstill: asyncio.TimerHandle | None = None
    _in_head, _head = True, 0  # whether the head of a question still comes, and how much came

    # ---- patience --------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._head += len(data)
        super().data_received(data)
        if self._in_head and self._head > _LONGEST_HEAD and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")
        self._watch()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._head = True, 0

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._standstill):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._standstill is None:
            self._standstill = self.loop.call_later(_STANDSTILL, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._standstill is not None:
            self._standstill.cancel()
            self._standstill = None

    def timeout_keep_alive_handler(self) -> None:
        """What is left of an answer may wait for ever for somebody to take it."""
        super().timeout_keep_alive_handler()
        self._standstill = self.loop.call_later(_STANDSTILL, self.transport.abort)

    def _watch(self) -> None:
        """A question arrives whole within some seconds; bytes that trickle in do not prolong it."""
        arrives = self.cycle is None or self.cycle.response_complete or self.cycle.more_body
        if arrives and self._timer is None:
            self._timer = self.loop.call_later(PATIENCE, self.transport.abort)
        elif not arrives and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ---- files -----------------------------------------------------------------------------------
    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        if self.scheme == "http" and hasattr(os, "sendfile"):
            cycle = self.cycle  # of this question: another may come in before it is answered
            send = functools.partial(self._send, cycle)
            self.scope["extensions"] = {SENDS_FILES: {"send": send}}

    async def _send(self, cycle: RequestResponseCycle, part: Sendable) -> int:
        """Send a part of a file behind the headers; how much of it went out. Who gets less than was
        announced sees that: the connection ends there.
        """
        own = os.dup(self.transport.get_extra_info("socket").fileno())
        at, looked = part.first, part.first - _LOOK
        try:
            await self._emptied()
            while at < part.end and not cycle.disconnected:
                if at - looked >= _LOOK:
                    looked = at
                    if not part.is_same():
                        break
                sent = await self._some(own, part.descriptor, at, min(_PIECE, part.end - at))
                if not sent:
                    break
                at += sent
                cycle.expected_content_length -= sent
        except (OSError, TimeoutError):
            pass  # they went away, or take nothing
        finally:
            os.close(own)
            if at < part.end or not part.is_same():
                await self._ended(cycle)
        return at - part.first

    async def _some(self, own: int, descriptor: int, at: int, size: int) -> int:
        if not _is_near(descriptor, at + size - 1):
            # a disk is waited for elsewhere, others are answered meanwhile
            await self.loop.run_in_executor(None, os.pread, descriptor, size, at)
        while True:
            try:
                sent = os.sendfile(own, descriptor, at, size)
            except BlockingIOError:
                await self._writable(own)
                continue
            await asyncio.sleep(0)  # others want to be answered, too
            return sent

    async def _writable(self, own: int) -> None:
        waits: asyncio.Future[None] = self.loop.create_future()
        self.loop.add_writer(own, _come, waits)
        try:
            await asyncio.wait_for(waits, _STANDSTILL)
        finally:
            self.loop.remove_writer(own)

    async def _emptied(self) -> None:
        """Until the headers went out."""
        pause = 0.0
        while self.transport.get_write_buffer_size() and not self.transport.is_closing():
            await asyncio.sleep(pause)
            pause = min(0.05, pause + 0.001)

    async def _ended(self, cycle: RequestResponseCycle) -> None:
        self.transport.abort()
        while not cycle.disconnected:
            await asyncio.sleep(0)


def _come(waits: "asyncio.Future[None]") -> None:
    if not waits.done():
        waits.set_result(None)


def _is_near(descriptor: int, at: int) -> bool:
    """Whether a byte is in memory; where nobody can tell, it is taken for that."""
    with suppress(OSError, AttributeError):
        try:
            os.preadv(descriptor, [bytearray(1)], at, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
    return True
