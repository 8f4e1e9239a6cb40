"""A workspace that is told things: its sources, an application to tell, and signed requests."""

import asyncio
import contextlib
import datetime as dt
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kfm.cli.scheduler import Tables
from kfm.model.clock import SystemClock
from kfm.store.sqlite import SqliteStore
from kfm.webhook.app import Asked, Receiver, Reply
from kfm.webhook.batches import Batches
from kfm.webhook.failures import Failures, read_failures
from kfm.webhook.keep import Also, Keeper
from kfm.webhook.sources import Sources
from kfm.webhook.verify import Scheme, key_bytes, sign
from kfm.workspace.folder import open_workspace

__all__ = ["SECRET", "Told", "body_of", "source_file", "telling", "workspace_with"]

SECRET = "a-test-key-that-is-not-secret-0001"
ENTRY = """dataset_id: {0}
title: {0}
licence: CC-BY-4.0
sensitivity: public
policy_label: public
source: {{url: "https://example.org/{0}.csv", format: csv}}
"""


def workspace_with(folder: Path, *datasets: str) -> Path:
    """A workspace with datasets that nothing schedules."""
    (folder / "data" / "registry").mkdir(parents=True)
    (folder / "kfm.yml").write_text("format: 1\n")
    for name in datasets:
        (folder / "data" / "registry" / f"{name}.yml").write_text(ENTRY.format(name))
    return folder


def source_file(workspace: Path, source_id: str, **keys: Any) -> Path:
    """Somebody who may tell this workspace something."""
    path = workspace / "pipelines" / "orchestration" / "webhooks" / f"{source_id}.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"datasets": ["d"], "keys": ["env:KFM_TEST_HOOK"], **keys}))
    return path


def body_of(source_id: str = "s", **changes: Any) -> bytes:
    """A body of kfm's own form, sent now; None takes a field away."""
    told = {
        "source_id": source_id,
        "trigger": "etag-change",
        "event_type": "update",
        "sent_at": dt.datetime.now(dt.UTC).isoformat(),
        "metadata": {},
        "integrity": {"version": "v1"},
        **changes,
    }
    return msgspec.json.encode({name: value for name, value in told.items() if value is not None})


class Answered:
    """What the application said."""

    def __init__(self, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Told:
    """An application, called without a server, and what it left."""

    def __init__(
        self, workspace: Path, store: SqliteStore, app: Receiver, sources: Sources
    ) -> None:
        self.workspace, self.store, self.app, self.sources = workspace, store, app, sources

    def post(
        self,
        source_id: str,
        body: bytes,
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
        *,
        scheme: Scheme | None = "kfm",
        secret: str = SECRET,
        name: str = "msg_1",
        method: str = "POST",
        path: str = "",
    ) -> Answered:
        """One request, signed unless `scheme` is None."""
        return self.post_all([(source_id, body)], headers, scheme, secret, name, method, path)[0]

    def post_all(
        self,
        requests: list[tuple[str, bytes]],
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
        scheme: Scheme | None = "kfm",
        secret: str = SECRET,
        name: str = "msg_1",
        method: str = "POST",
        path: str = "",
    ) -> list[Answered]:
        """Requests at once, in one loop."""

        async def every() -> list[Answered]:
            return list(await asyncio.gather(*(self._one(s, b, *rest) for s, b in requests)))

        rest = (headers, scheme, secret, name, method, path)
        return asyncio.run(every())

    async def _one(
        self,
        source_id: str,
        body: bytes,
        headers: Any,
        scheme: Scheme | None,
        secret: str,
        name: str,
        method: str,
        path: str,
    ) -> Answered:
        given = list(headers.items() if isinstance(headers, dict) else headers or ())
        if scheme is not None:
            key = key_bytes(scheme, secret)
            given += sign(scheme, key, body, name=name, now=int(time.time())).items()
        told = [(n.lower().encode("latin-1"), v.encode("latin-1")) for n, v in given]
        said: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        asked = Asked(method, path or f"/hooks/{source_id}", told, body, "127.0.0.1")
        self.app.answer(asked, said.set_result)
        reply = await said
        return Answered(reply.status, dict(reply.headers), reply.body)

    def events(self) -> list[Any]:
        return self.store.read(lambda tx: tx.events.listing(limit=-1))

    def jobs(self) -> list[Any]:
        return self.store.read(lambda tx: tx.jobs.listing(limit=-1))

    def failures(self) -> list[Any]:
        return list(read_failures(self.workspace / "ledger"))


@contextlib.contextmanager
def telling(
    workspace: Path, epoch_ns: int = 0, also: Also = lambda tx, heard: None
) -> Iterator[Told]:
    """The application of a workspace, with its store."""
    store = SqliteStore(workspace / "ledger" / "idempotency.sqlite", SystemClock())
    sources = Sources(open_workspace(workspace), lambda found: Tables(found)(), open_workspace)
    keep = Batches(Keeper(store, also).keep, thread="keep")
    refuse = Batches(Failures(workspace / "ledger").write)
    try:
        yield Told(
            workspace, store, Receiver(lambda: sources.table, epoch_ns, keep, refuse), sources
        )
    finally:
        keep.close()
        store.close()
