"""Be told that something changed: receive signed requests, try one, see what came and what was
refused.
"""

import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import again, login
from kfm.cli.jobcall import settings_of, store_of
from kfm.cli.scheduler import Tables
from kfm.cli.terminal import say, show, sign, table, when
from kfm.cli.until_stopped import answer_until_stopped
from kfm.diff.base import plain
from kfm.jobs.schedule.cadence import Timetable
from kfm.model import Event, EventRow, Trace, UsageError
from kfm.store.base import Store, Tx
from kfm.webhook.failures import Failure, read_failures
from kfm.webhook.fan_out import fan_out, keep_telling
from kfm.webhook.keep import Started, restart
from kfm.webhook.send import deliver, made_body, signed_headers
from kfm.webhook.serve import Listening, listening, parse_address
from kfm.webhook.shapes import is_github_event
from kfm.webhook.sources import Source, Sources, find_source, read_sources
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from kfm.zones.durable import create_durably

__all__ = [
    "Deliveries", "Delivery", "Keys", "Replayed", "Sent", "Signature", "deliveries", "keys", "newest", "receiving", "replayed", "sent", "serve",
    "shown", "signature",
]  # fmt: skip

_WHY = {
    "source.unknown": "there is no such source",
    "key.missing": "none of its keys is there",
    "signature.missing": "it has no signature",
    "signature.repeated": "it has two signatures",
    "signature.malformed": "its signature has another form",
    "signature.mismatch": "no key of the source signed it",
    "time.outside": "it was not sent within five minutes",
    "time.before_epoch": "it was sent before the store was rebuilt",
    "body.too_large": "its body is too large",
    "body.malformed": "its body is no JSON object",
    "source.mismatch": "it was signed for another source",
    "field.missing": "a field is missing",
    "field.malformed": "a field is wrong",
    "too_many": "its source told more in a minute than it may",
}


# ---- serving -------------------------------------------------------------------------------------
def serve(call: Call, listen: str) -> None:
    """Receive until it is stopped."""
    workspace = open_workspace(call.workspace)
    with open_world(workspace) as world, receiving(workspace, world, listen) as (found, sources):
        if not sources.table.sources:
            say(
                "Nobody may tell us anything yet: pipelines/orchestration/webhooks has no source."
                " docs/webhooks.md has four lines to begin with."
            )
        answer_until_stopped(found.serve, found.stop, "kfm-webhook")
        if found.fenced:
            raise found.fenced[0]


@contextmanager
def receiving(
    workspace: Workspace, world: World, listen: str = ""
) -> Iterator[tuple[Listening, Sources]]:
    """A receiver of this workspace, which has said where it listens."""
    address = parse_address(listen or workspace.config.webhooks.listen)
    sources = Sources(workspace, _tables(world.toolchain_digest), open_workspace)
    for problem in sources.table.problems:
        say(f"  {sign('FAILED', sys.stderr)} {problem.source_id}: {problem.what} {problem.remedy}")
    with (
        listening(world.store, sources, workspace.ledger, address, fan_out(world)) as found,
        _telling(world),
    ):
        many = len(sources.table.sources)
        say(
            f"{sign('RUNNING', sys.stderr)} {many} {'source' if many == 1 else 'sources'} of"
            f" webhooks at {found.address.url}/hooks/<source_id>"
        )
        if not found.address.here_only:
            say(
                f"  {sign('LATE', sys.stderr)} Others reach it without TLS: put something in front"
                " that speaks it."
            )
        yield found, sources


@contextmanager
def _telling(world: World) -> Iterator[None]:
    """Meanwhile those who want to know of events are told."""
    ended = threading.Event()
    thread = threading.Thread(target=keep_telling, args=(world, ended), name="kfm-webhook-tell")
    if world.receivers.of_events():
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.is_alive():
            thread.join()


def _tables(toolchain: Callable[[], str]) -> Callable[[Workspace], list[Timetable]]:
    return lambda workspace: Tables(workspace, toolchain)()


def _source(workspace: Workspace, source_id: str) -> Source:
    return find_source(read_sources(workspace, ()), source_id)


# ---- trying --------------------------------------------------------------------------------------
class Signature(Answer, frozen=True, kw_only=True):
    """The headers that sign a body."""

    source_id: str
    headers: dict[str, str]

    def tell(self, call: Call) -> None:
        for name, value in self.headers.items():
            print(f"{name}: {value}")


def signature(call: Call, source: str, file: Path) -> Signature:
    found = _source(open_workspace(call.workspace), source)
    return Signature(source_id=source, headers=signed_headers(found, _bytes_of(file)))


def _bytes_of(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{file.name} cannot be read: {error.strerror}.",
            expected="the file that holds the body, or - for standard input",
            remedy="Check the path.",
        ) from error


class Sent(Answer, frozen=True, kw_only=True):
    """What a receiver answered."""

    source_id: str
    to: str
    status: int
    event_id: str | None
    said: str

    def tell(self, call: Call) -> None:
        if self.event_id:
            show(f"{sign('COMMITTED')} {self.status} accepted as {self.event_id}")
            say(f"  {again(call, f'webhook show {self.event_id}')}")
        else:
            show(f"{sign('REJECTED')} {self.status} {self.said}")
            say(f"  {again(call, f'webhook list --source {self.source_id}')} says why")

    @property
    def code(self) -> int:
        return 0 if self.status == 202 else 3 if self.status == 403 else 1


def sent(
    call: Call,
    source: str,
    file: Path | None,
    to: str,
    trigger: str,
    event_type: str,
    event: str,
    settings: list[str],
) -> Sent:
    workspace = open_workspace(call.workspace)
    found = _source(workspace, source)
    if file is None and found.told.kind != "kfm":
        named = " --event NAME" if found.told.kind == "github" else ""
        raise UsageError(
            f"{source} speaks the words of {found.told.kind}.",
            expected="a file with a body of that kind",
            remedy=f"`kfm webhook send {source} FILE{named}`",
        )
    named_event = _event_header(source, found.told.kind, event)
    body = (
        _bytes_of(file)
        if file is not None
        else made_body(source, trigger, event_type, dict(settings_of(settings)))
    )
    where = to or parse_address(workspace.config.webhooks.listen).url
    answer = deliver(where, source, body, {**signed_headers(found, body), **named_event})
    event_id = answer.told.get("event_id")
    return Sent(
        source_id=source,
        to=where,
        status=answer.status,
        event_id=event_id if isinstance(event_id, str) else None,
        said=str(answer.told.get("said", "")),
    )


def _event_header(source: str, kind: str, event: str) -> dict[str, str]:
    """The header in which GitHub names an event; nobody else has one."""
    if kind != "github" and event:
        raise UsageError(
            f"{source} speaks the words of {kind}, which name no event beside the body.",
            expected="--event with a source of kind github",
            remedy="Leave --event out; for kfm's own form --type says what happened.",
        )
    if kind != "github":
        return {}
    if not is_github_event(event):
        raise UsageError(
            f"{event!r} is no event of GitHub's."
            if event
            else f"{source} is not told which event.",
            expected="--event with a name that GitHub has, such as push or release",
            remedy=f"`kfm webhook send {source} FILE --event push`",
        )
    return {"X-GitHub-Event": event}


# ---- looking -------------------------------------------------------------------------------------
class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A job that an event put, and how it stands now."""

    dataset_id: str
    job_id: str
    state: str  # queued, running, ended, or forgotten
    outcome: str


class Delivery(Answer, frozen=True, kw_only=True):
    """An event that was accepted."""

    event_id: str
    source_id: str
    received_at: str
    key: str
    body_digest: str
    started: list[Asked]
    note: str
    event: Event

    def tell(self, call: Call) -> None:
        show(f"{sign('COMMITTED')} {self.event_id}  {self.source_id}  {when(self.received_at)}")
        show(
            f"  {plain(self.event.trigger)}, {plain(self.event.event_type)}, sent {self.event.sent_at}"
        )
        show(f"  signed with {self.key}, body {self.body_digest}")
        for job in self.started:
            show(f"  started {job.dataset_id}: {job.state} {job.outcome}".rstrip())
            say(f"    {again(call, f'jobs show {job.job_id}')}")
        if self.note:
            show(f"  started nothing: {self.note}")
        show(f"  trace {self.event.trace.traceparent}")
        for name, value in self.event.metadata.items():
            show(f"  {name}: {msgspec.json.encode(value).decode()}")


class Turned(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was refused."""

    at: str
    source_id: str
    known: bool
    status: int
    code: str
    field: str
    why: str
    body_bytes: int
    body_digest: str
    remote: str
    correlation_id: str


class Deliveries(Answer, frozen=True, kw_only=True):
    """What came, newest first: accepted, and refused with the reason."""

    accepted: list[Delivery]
    refused: list[Turned]

    def tell(self, call: Call) -> None:
        rows = [(d.received_at, _accepted(d)) for d in self.accepted]
        rows += [(t.at, _turned(t)) for t in self.refused]
        lines = [line for _, line in sorted(rows, key=lambda r: r[0], reverse=True)]
        for text in table(("", "when", "source", "what", "then"), lines) if lines else ():
            show(text)
        if not lines:
            say("Nothing has come. `kfm webhook send SOURCE` tries the way here.")


def _accepted(d: Delivery) -> tuple[str, str, str, str, str]:
    then = "; ".join(f"{j.dataset_id} {j.outcome or j.state}" for j in d.started) or d.note
    return (sign("COMMITTED"), when(d.received_at), d.source_id, plain(d.event.trigger)[:60], f"{d.event_id[:16]}  {then}")  # fmt: skip


def _turned(t: Turned) -> tuple[str, str, str, str, str]:
    what = f"{t.code}{f' {t.field}' if t.field else ''}"
    return (sign("REJECTED"), when(t.at), t.source_id or "?", what, f"{t.status}  {t.why}")


def newest(call: Call, source: str, refused: bool, limit: int) -> Deliveries:
    """The newest of all that came, accepted and refused counted together."""
    found = deliveries(call, source, refused, limit)
    came = sorted([d.received_at for d in found.accepted] + [t.at for t in found.refused])
    first = came[-limit] if len(came) > limit else ""
    accepted = [d for d in found.accepted if d.received_at >= first]
    # of one moment, what was accepted stays
    turned = [t for t in found.refused if t.at >= first][: limit - len(accepted)]
    return Deliveries(accepted=accepted, refused=turned)


def deliveries(call: Call, source: str, refused: bool, limit: int) -> Deliveries:
    """What was accepted and what was refused, the newest of each."""
    workspace = open_workspace(call.workspace)
    turned = [f for f in read_failures(workspace.ledger) if not source or f.source_id == source]
    with store_of(workspace) as store:
        found = store.read(lambda tx: _listed(tx, source or None, 0 if refused else limit))
    return Deliveries(accepted=found, refused=[_told(f) for f in islice(turned[::-1], limit)])


def _listed(tx: Tx, source: str | None, limit: int) -> list[Delivery]:
    return [_delivery(tx, row) for row in tx.events.listing(source, limit)] if limit else []


def _told(failure: Failure) -> Turned:
    return Turned(
        at=failure.at,
        source_id=failure.source_id,
        known=failure.known,
        status=failure.status,
        code=failure.code,
        field=failure.field,
        why=_WHY.get(failure.code, "its form is wrong"),
        body_bytes=failure.body_bytes,
        body_digest=failure.body_digest,
        remote=failure.remote,
        correlation_id=failure.correlation_id,
    )


def _delivery(tx: Tx, row: EventRow) -> Delivery:
    started = msgspec.json.decode(row.started, type=Started)
    return Delivery(
        event_id=row.event_id,
        source_id=row.source_id,
        received_at=row.received_at,
        key=row.key_id,
        body_digest=row.body_digest,
        started=[_asked(tx, *one) for one in started],
        note=row.note,
        event=msgspec.json.decode(row.event, type=Event),
    )


def _asked(tx: Tx, dataset_id: str, job_id: str, generation: int) -> Asked:
    """How the job stands; one that was put again since has done what this event asked for."""
    job = tx.jobs.of(job_id)
    if job is None:
        return Asked(dataset_id=dataset_id, job_id=job_id, state="forgotten", outcome="")
    if job.generation > generation:
        return Asked(dataset_id=dataset_id, job_id=job_id, state="ended", outcome="done since")
    return Asked(dataset_id=dataset_id, job_id=job_id, state=job.state, outcome=job.outcome)


def shown(call: Call, event: str) -> Delivery:
    with store_of(open_workspace(call.workspace)) as store:
        row = _event(store, event)
        return store.read(lambda tx: _delivery(tx, row))


def _event(store: Store, start: str) -> EventRow:
    found = store.read(lambda tx: tx.events.like(start)) if start else []
    if len(found) == 1:
        return found[0]
    raise UsageError(
        f"{start!r} names {'more than one event' if found else 'no event'}.",
        expected="the id of an event that was accepted, or its beginning",
        remedy="`kfm webhook list` shows them; of what was refused only the digest was kept.",
    )


class Replayed(Answer, frozen=True, kw_only=True):
    """An event that asked once more."""

    event_id: str
    jobs: list[str]

    def tell(self, call: Call) -> None:
        show(f"{sign('COMMITTED')} {self.event_id} asked again: {', '.join(self.jobs) or 'paused'}")


def replayed(call: Call, event: str) -> Replayed:
    """Ask for what an event asked for, whatever `only` said of it."""
    workspace = open_workspace(call.workspace)
    tables = Tables(workspace)()
    with store_of(workspace) as store:
        row = _event(store, event)
        source = find_source(read_sources(workspace, tables), row.source_id)
        told = msgspec.json.decode(row.event, type=Event).trace
        trace = Trace(correlation_id=told.correlation_id, traceparent=told.traceparent)
        jobs = store.transaction(lambda tx: restart(tx, row, source.tables, login(), trace))
    return Replayed(event_id=row.event_id, jobs=[job.job_id for job in jobs])


# ---- keys ----------------------------------------------------------------------------------------
class KeyAt(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a source: where it is, and when it was last used."""

    reference: str
    there: bool
    events: int
    last_at: str


class SourceKeys(msgspec.Struct, frozen=True, kw_only=True):
    """A source, and what it is believed by."""

    source_id: str
    kind: str
    signature: str
    datasets: list[str]
    keys: list[KeyAt]
    problems: list[str]


class Keys(Answer, frozen=True, kw_only=True):
    """Every source and its keys; no key is ever shown."""

    sources: list[SourceKeys]
    made: str | None

    def tell(self, call: Call) -> None:
        for source in self.sources:
            show(
                f"{source.source_id}  {source.kind}, signed as {source.signature}, starts"
                f" {', '.join(source.datasets) or 'nothing'}"
            )
            for key in source.keys:
                used = f"{key.events} events, last {when(key.last_at)}" if key.events else "unused"
                show(f"  {sign('PASS' if key.there else 'FAILED')} {key.reference:<32} {used}")
            for problem in source.problems:
                show(f"  {sign('FAILED')} {problem}")
        if self.made is not None:
            show(f"{sign('COMMITTED')} a new key is in {self.made}, readable by you alone.")
            say(
                "  Say `credentials: {NAME: file:PATH}` in kfm.yml, add `credential:NAME` to `keys`"
                " of the source, give the sender the same, then take the old one out."
            )
        elif not self.sources:
            say("No source is there. docs/webhooks.md has four lines to begin with.")

    @property
    def code(self) -> int:
        return 1 if any(s.problems for s in self.sources) else 0


def keys(call: Call, source: str, new: Path | None) -> Keys:
    workspace = open_workspace(call.workspace)
    found = read_sources(workspace, ())
    if source and source not in {p.source_id for p in found.problems}:
        find_source(found, source)
    names = sorted({*found.sources, *(p.source_id for p in found.problems)})
    with store_of(workspace) as store:
        rows = [
            _keys_of(store, name, found.sources.get(name), [
                f"{p.what} {p.remedy}" for p in found.problems if p.source_id == name
            ])
            for name in names
            if not source or name == source
        ]  # fmt: skip
    if new is not None:
        _make_key(new)
    return Keys(sources=rows, made=str(new) if new is not None else None)


def _keys_of(store: Store, name: str, source: Source | None, problems: list[str]) -> SourceKeys:
    if source is None:
        return SourceKeys(
            source_id=name, kind="?", signature="?", datasets=[], keys=[], problems=problems
        )
    used = store.read(lambda tx: tx.events.keys(name))
    there = {key.id for key in source.keys}
    return SourceKeys(
        source_id=name,
        kind=source.told.kind,
        signature=source.scheme,
        datasets=list(source.told.datasets),
        keys=[
            KeyAt(reference=r, there=r in there, events=used.get(r, (0, ""))[0], last_at=used.get(r, (0, ""))[1])
            for r in source.told.keys
        ],
        problems=problems,
    )  # fmt: skip


def _make_key(path: Path) -> None:
    """A key of 32 random bytes, in the spelling that all three forms take."""
    import base64

    text = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    try:
        create_durably(path, f"{text}\n".encode(), 0o600)
    except FileExistsError as error:
        raise UsageError(
            f"{path.name} is there already.",
            expected="a new file",
            remedy="Name another one: a key that is in use is not overwritten.",
        ) from error
