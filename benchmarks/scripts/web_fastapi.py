"""A receiver of webhooks as one would write it: FastAPI, pydantic, one SQLite writer. `MODE` is
`commit` (a transaction for each request) or `group` (one for all that wait), `DB` the file.
"""

import asyncio
import hmac
import os
import queue
import sqlite3
import threading

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

KEY = b"k" * 32


class Source(BaseModel):
    uri: str
    sha256: str
    bytes: int


class Metadata(BaseModel):
    n: int
    sources: list[Source]
    note: str


class Integrity(BaseModel):
    version: str


class Event(BaseModel):
    source_id: str
    trigger: str
    event_type: str
    sent_at: str
    metadata: Metadata
    integrity: Integrity


class Writer(threading.Thread):
    """Answers a request once its row is on the disk."""

    def __init__(self, path: str, group: bool) -> None:
        super().__init__(daemon=True)
        self.path, self.group = path, group
        self.queue: queue.SimpleQueue = queue.SimpleQueue()
        self.start()

    def submit(self, row: tuple) -> asyncio.Future:
        future = asyncio.get_running_loop().create_future()
        self.queue.put((row, future))
        return future

    def run(self) -> None:
        db = sqlite3.connect(self.path, isolation_level=None)
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = full")
        db.execute("create table if not exists ev (id integer primary key, s text, t text, b blob)")
        while True:
            batch = [self.queue.get()]
            while self.group and len(batch) < 512:
                try:
                    batch.append(self.queue.get_nowait())
                except queue.Empty:
                    break
            db.execute("begin immediate")
            db.executemany("insert into ev (s, t, b) values (?, ?, ?)", [row for row, _ in batch])
            db.execute("commit")
            futures = [future for _, future in batch]
            futures[0].get_loop().call_soon_threadsafe(done, futures)


def done(futures: list) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


writer = Writer(os.environ["DB"], os.environ["MODE"] == "group")
app = FastAPI()


@app.post("/hooks/s", status_code=202)
async def hook(request: Request) -> dict:
    body = await request.body()
    wanted = "sha256=" + hmac.digest(KEY, body, "sha256").hex()
    if not hmac.compare_digest(wanted, request.headers.get("x-kfm-signature", "")):
        raise HTTPException(403)
    event = Event.model_validate_json(body)
    await writer.submit((event.source_id, event.trigger, body))
    return {"status": "accepted"}
