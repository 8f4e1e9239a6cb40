"""What the pages of runs tell; for operators, who see every run."""

from collections.abc import Mapping

import msgspec

from kfm.cli.answer import Call
from kfm.cli.explain import Explained, explained
from kfm.cli.runs import runs as listed
from kfm.cli.wal import find_run
from kfm.console.live import under_way
from kfm.evidence.run_files import read_run_file, run_journal, started_at
from kfm.model import Json, KfmError, LedgerRow, NoopRow, UsageError, WalRecord, rfc3339
from kfm.model.schedule import without_emitter
from kfm.pages import addresses
from kfm.pages.gather.asks import Asks
from kfm.pages.parts import Message
from kfm.pages.runs import SHOWN, LogLine, Phase, Record, RunLine, RunPage, RunsPage, Step
from kfm.pages.words import when
from kfm.reader.door import BadQuestion, Hidden, whole_number

__all__ = ["run_page", "runs_page"]

_LIMIT = 200
_LINES = 500
_BLANK: tuple[object, ...] = (None, "", [], {})
_LEFT_OUT = ("run_id", "ts", "level", "event", "stage", "dataset_id")


def runs_page(asks: Asks, dataset_id: str, with_noops: bool) -> RunsPage:
    call = Call(asks.workspace.path, True, False)
    try:
        rows = listed(call, dataset_id or None, with_noops, _LIMIT).runs
    except UsageError as nothing:  # there is no such dataset
        raise Hidden from nothing
    query = f"?dataset={dataset_id}" if dataset_id else ""
    command = " ".join(filter(None, ("kfm runs", dataset_id, "--all" if with_noops else "")))
    return RunsPage(
        address=f"/runs{query}",
        title="Runs",
        command=command,
        runs=tuple(map(_line, rows)),
        pages=asks.pages_of(row["dataset_id"] for row in rows),
        dataset_id=dataset_id,
        with_noops=with_noops,
        limit=_LIMIT,
    )


def _line(row: Json) -> RunLine:
    return RunLine(
        run_id=row["run_id"],
        dataset_id=row["dataset_id"],
        state=row["state"],
        at=row["timestamp"],
        partition=row["partition"],
        window=row["win"],
        version_id=row.get("version_id"),
        trigger=without_emitter(row.get("trigger_type") or ""),
        took_ms=row.get("latency_ms"),
        why=row["reason"],
    )


# ---- one -----------------------------------------------------------------------------------------
def run_page(asks: Asks, run_id: str, query: Mapping[str, str] | None = None) -> RunPage:
    try:
        row = find_run(asks.world, run_id)
    except KfmError:
        return _noop_page(asks, run_id)
    world, private = asks.world, asks.world.is_withheld(row.dataset_id)
    records = list(run_journal(world, row))
    steps, asked = _steps(records), query or {}
    first_step = _from(asked, "step", len(steps), under_way(row))
    first_record = _from(asked, "record", len(records), under_way(row))
    told = explained(Call(asks.workspace.path, True, False), [row.run_id])
    entry = asks.workspace.readable(row.dataset_id)
    title = entry.title if entry is not None else row.dataset_id
    return RunPage(
        address=addresses.run(row.run_id),
        title=f"{title}, run of {when(rfc3339(started_at(row.run_id)))}",
        command=f"kfm explain {row.run_id}",
        run_id=row.run_id,
        dataset_id=row.dataset_id,
        dataset_title=title,
        dataset_page=asks.page_of(row.dataset_id),
        state=row.state,
        trigger=_by(row.trigger_type),
        partition=row.partition,
        window=row.win,
        attempt=row.attempt,
        began=rfc3339(started_at(row.run_id)),
        ended=row.ended_at,
        sentence=_sentence(row, told),
        why=_why(asks, row),
        next=(told.next or "").splitlines()[0].strip() if told.next else "",
        steps=tuple(steps[first_step : first_step + SHOWN]),
        steps_total=len(steps),
        steps_done=sum(step.status == "DONE" for step in steps),
        first_step=first_step,
        phases=tuple(_phases(steps)) if len(steps) > SHOWN else (),
        records=tuple(_record(r, private) for r in records[first_record : first_record + SHOWN]),
        records_total=len(records),
        log=tuple(_log(asks, row.dataset_id, row.run_id)),
        read=_read(row, private),
        written=_written(row),
        rows_read=None if private else row.rows_read,
        rows_written=None if private else row.rows_written,
        open=under_way(row),
        last_seq=records[-1].seq if records else -1,
    )


def _by(trigger: str) -> str:
    kind = without_emitter(trigger)
    return {"manual": "hand", "schedule": "its schedule", "event": "a webhook"}.get(kind, kind)


def _sentence(row: LedgerRow, told: Explained) -> str:
    if row.ended_at is None:
        waits = "It waits for a person." if row.state == "PROPOSED" else "It is at work."
        return f"{waits} It may be killed at any moment: it goes on where it was."
    base = row.pinned if row.pinned is not None else row.base_generation
    on = f" It worked on generation {base}." if base else " Nothing was official before it."
    said = {
        "COMMITTED": f"It made generation {row.intent} official.",
        "REJECTED": "What it made may not be published, and is kept.",
        "FAILED": "It failed; what was official before is official still.",
        "SUPERSEDED": f"Something newer overtook it: {row.reason}.",
        "STAGED": "It made a part, which waits to be put together with others.",
    }.get(row.state, told.what)
    return said + on


def _why(asks: Asks, row: LedgerRow) -> tuple[Message, ...]:
    if row.state == "REJECTED":
        call = Call(asks.workspace.path, True, False)
        told = explained(call, ["deny", f"{row.dataset_id}@{row.version_id}"])
        remedy = (told.next or "").splitlines()
        return (
            Message(
                happened="; ".join(told.why or [row.reason]), remedy=remedy[0] if remedy else ""
            ),
        )
    if row.state == "FAILED" and row.reason:
        return (Message(happened=row.reason, remedy=f"`kfm run {row.dataset_id}`"),)
    return ()


def _steps(records: list[WalRecord]) -> list[Step]:
    """Each step once: when it began, when it last ended, how often it was tried."""
    found: dict[str, list[WalRecord]] = {}
    for record in records:
        found.setdefault(record.step_id, []).append(record)
    return [
        Step(
            step_id=name,
            phase=of[0].phase,
            status=of[-1].status,
            began=of[0].ts,
            ended=of[-1].ts if of[-1].status in ("DONE", "FAILED") else None,
            tries=max(1, sum(r.status == "IN_PROGRESS" for r in of)),
        )
        for name, of in found.items()
    ]


def _from(query: Mapping[str, str], name: str, total: int, newest: bool) -> int:
    """Which is the first that is shown: what was asked for, else the newest of a run under way."""
    text = query.get(name, "")
    if not text:
        return max(0, total - SHOWN) if newest else 0
    asked = whole_number(text)
    if asked is None:
        raise BadQuestion(f"{name} is no number.", field=name)
    return max(0, min(asked, total - 1))


def _phases(steps: list[Step]) -> list[Phase]:
    """Steps summed, in the order in which phases began."""
    found: dict[str, list[Step]] = {}
    for step in steps:
        found.setdefault(step.phase, []).append(step)
    return [
        Phase(
            phase=name,
            steps=len(of),
            done=sum(s.status == "DONE" for s in of),
            failed=sum(s.status == "FAILED" for s in of),
            began=min(s.began for s in of),
            ended=max(s.ended or s.began for s in of),
        )
        for name, of in found.items()
    ]


def _record(record: WalRecord, private: bool) -> Record:
    """What lies behind private data is named by step and hash alone."""
    return Record(
        seq=record.seq,
        at=record.ts,
        phase=record.phase,
        step_id=record.step_id,
        status=record.status,
        payload="" if private else record.payload[:200],
        hash=record.hash,
    )


def _log(asks: Asks, dataset_id: str, run_id: str) -> list[LogLine]:
    raw = read_run_file(asks.world.data, dataset_id, run_id, "artifacts/run.jsonl") or b""
    found = []
    for line in raw.splitlines()[-_LINES:]:
        try:
            said: Json = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue  # cut short by a full disk
        rest = " ".join(
            f"{k}={v}" for k, v in said.items() if k not in _LEFT_OUT and v not in _BLANK
        )
        found.append(
            LogLine(
                at=str(said.get("ts", "")),
                level=str(said.get("level", "")),
                stage=str(said.get("stage", "")),
                event=str(said.get("event", "")),
                rest=rest,
            )
        )
    return found


def _read(row: LedgerRow, private: bool) -> dict[str, str]:
    sources: list[Json] = msgspec.json.decode(row.source_metadata)
    return {
        str(s["source_url"]): "fetched" if private else str(s.get("content_hash") or "fetched")
        for s in sources
    } | ({} if private else {"all of it together": f"sha256:{row.input_hash}"})


def _written(row: LedgerRow) -> dict[str, str]:
    if row.state not in ("COMMITTED", "STAGED", "PROPOSED", "REJECTED") or not row.version_id:
        return {}
    made = {"COMMITTED": "version", "PROPOSED": "candidate", "REJECTED": "candidate"}
    found = {made.get(row.state, "part"): row.version_id}
    if row.intent is not None and row.state == "COMMITTED":
        found["generation"] = str(row.intent)
    return found


# ---- a look that found nothing new ---------------------------------------------------------------
def _noop_page(asks: Asks, run_id: str) -> RunPage:
    rows: list[NoopRow] = asks.world.store.read(lambda tx: tx.looks.noops(None, 100_000))
    row = next((r for r in rows if r.run_id == run_id), None)
    if row is None:
        raise Hidden
    entry = asks.workspace.readable(row.dataset_id)
    title = entry.title if entry is not None else row.dataset_id
    return RunPage(
        address=addresses.run(run_id),
        title=f"{title}, check of {row.timestamp[:10]}",
        command=f"kfm explain skip {row.dataset_id}",
        run_id=run_id,
        dataset_id=row.dataset_id,
        dataset_title=title,
        dataset_page=asks.page_of(row.dataset_id),
        state="NOOP",
        trigger="a check",
        partition=row.partition,
        window=row.win,
        attempt=0,
        began=row.timestamp,
        ended=None,
        sentence=f"Nothing was to be done: {row.reason}. Nothing was fetched or written.",
        why=(),
        next=f"kfm explain skip {row.dataset_id}",
        steps=(),
        records=(),
        log=tuple(_log(asks, row.dataset_id, run_id)),
        read={},
        written={},
        rows_read=None,
        rows_written=None,
        open=False,
    )
