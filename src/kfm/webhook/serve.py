"""A receiver that listens: where, its threads, and files that are read again while it runs."""

import contextlib
import importlib.util
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kfm.model import Fenced, KfmError, MissingExtra, UsageError
from kfm.store.base import Store
from kfm.webhook.app import Receiver
from kfm.webhook.batches import Batches
from kfm.webhook.document import moment_ns
from kfm.webhook.failures import Failures
from kfm.webhook.keep import Also, Keeper, Kept
from kfm.webhook.receive import Heard
from kfm.webhook.sources import Sources

__all__ = ["Address", "Listening", "listening", "parse_address"]

_LOOK_S = 1.0  # between two looks at the files
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ADDRESS = re.compile(r"(?:(?P<host>[A-Za-z0-9.-]+)|\[(?P<six>[0-9A-Fa-f:.]+)\])?:(?P<port>[0-9]+)")


class Address(NamedTuple):
    """Where to listen: a host and a port, or a socket in a file."""

    host: str
    port: int
    file: str = ""

    @property
    def here_only(self) -> bool:
        """Whether nobody on another machine gets there."""
        return bool(self.file) or self.host in _LOOPBACK

    @property
    def url(self) -> str:
        if self.file:
            return f"unix:{self.file}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """HOST:PORT, :PORT on this machine alone, or unix:PATH."""
    if text.startswith("unix:") and len(text) > 5:
        return Address("", 0, text.removeprefix("unix:"))
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise UsageError(
            f"{text!r} is no address to listen at.",
            expected="HOST:PORT, such as 127.0.0.1:8787, or unix:PATH",
            remedy="Correct --listen, or `webhooks: {listen: …}` in kfm.yml.",
        )
    return Address(found["host"] or found["six"] or "127.0.0.1", int(found["port"]))


class Listening(NamedTuple):
    """A receiver at work."""

    address: Address
    serve: Callable[[], None]  # until it is told to stop, or its store is no more
    stop: Callable[[], None]
    fenced: list[Fenced]  # that its store was rebuilt: it keeps nothing any more, and has stopped


@contextlib.contextmanager
def listening(
    store: Store,
    sources: Sources,
    ledger: Path,
    address: Address,
    also: Also = lambda tx, heard: None,
) -> Iterator[Listening]:
    """A receiver whose socket is open; nothing is lost between this and `serve`."""
    _must_have_httptools()
    from kfm.webhook.wire import Server

    opened = _socket(address)
    keeper, fenced = Keeper(store, also), list[Fenced]()

    def stop() -> None:
        server.should_exit = True

    def keep(batch: Sequence[Heard]) -> Sequence[Kept]:
        try:
            return keeper.keep(batch)
        except Fenced as error:
            fenced.append(error)
            stop()
            raise

    keeping = Batches(keep, thread="kfm-webhook-keep")
    refusing = Batches(Failures(ledger).write)
    ended = threading.Event()
    looker = threading.Thread(target=_look, args=(sources, ended), daemon=True)
    looker.start()
    server = Server(Receiver(lambda: sources.table, _epoch_ns(store), keeping, refusing))
    at = address if address.file else Address(address.host, opened.getsockname()[1])
    try:
        yield Listening(at, lambda: server.run(opened), stop, fenced)
    finally:
        ended.set()
        opened.close()
        keeping.close()
        if address.file:
            Path(address.file).unlink(missing_ok=True)


def _must_have_httptools() -> None:
    if importlib.util.find_spec("httptools") is None:
        raise MissingExtra(
            "Webhooks are read by httptools, which is not installed.",
            expected="the extra `api`",
            remedy="pip install 'kfm[api]'",
        )


def _socket(address: Address) -> socket.socket:
    try:
        if address.file:
            return _in_file(address.file)
        return socket.create_server(
            (address.host, address.port),
            family=socket.AF_INET6 if ":" in address.host else socket.AF_INET,
            backlog=1024,
        )
    except OSError as error:
        raise UsageError(
            f"Nobody can listen at {address.url}: {error.strerror or error}.",
            expected="an address that is free",
            remedy="Name another one with --listen, or `webhooks: {listen: …}` in kfm.yml.",
        ) from error


def _in_file(path: str) -> socket.socket:
    """A socket that only its owner and group reach; one that nobody listens at any more gives way."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
        found.connect(path)
        found.close()
        raise OSError(0, "another receiver listens there")
    found.close()
    Path(path).unlink(missing_ok=True)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o117)
    try:
        found.bind(path)
    finally:
        os.umask(before)
    found.listen(1024)
    return found


def _look(sources: Sources, ended: threading.Event) -> None:
    while not ended.wait(_LOOK_S):
        with contextlib.suppress(KfmError, OSError, ValueError):  # until it can be read again
            sources.refresh()


def _epoch_ns(store: Store) -> int:
    told = store.read(lambda tx: tx.index.meta("epoch_at"))
    return (moment_ns(told) or 0) if told else 0
