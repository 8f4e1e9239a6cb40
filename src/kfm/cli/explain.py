"""Say why something ran, was skipped, denied or is stale; rebuilt from journal, ledger and
receipts, without running anything.
"""

import re

import msgspec
from msgspec import UNSET, UnsetType

from kfm.access.denied import denial_reasons
from kfm.access.references import dataset_of, proposal_number
from kfm.access.status import DatasetStatus, dataset_status
from kfm.channel.generations import last_act
from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import sign, write
from kfm.cli.wal import find_run
from kfm.evidence.append_times import appended_at
from kfm.evidence.proposal import run_of
from kfm.evidence.run_files import read_run_file, run_journal
from kfm.keys.trust import unwrap
from kfm.model import UNCHANGED, Generation, Json, LedgerRow, UsageError
from kfm.model.paths import quarantine_path
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Explained", "explained"]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a journal, as it is told."""

    ts: str
    phase: str
    step: str
    status: str


class Explained(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """Why something is as it is, what it follows from, and what to do next."""

    what: str
    facts: dict[str, object]
    why: list[str] | UnsetType = UNSET
    timeline: list[Step] | UnsetType = UNSET
    next: str | None
    exit_code: int | UnsetType = UNSET

    @property
    def code(self) -> int:
        return self.exit_code or 0

    def tell(self, call: Call) -> None:
        write(f"{sign('REJECTED') + ' ' if self.exit_code == 3 else ''}{self.what}\n")
        for name, value in self.facts.items():
            if value not in (None, ""):
                write(f"  {name:<11} {value}")
        for reason in self.why or ():
            write(f"  {'why':<11} {reason}")
        for row in self.timeline or ():
            write(f"  {row.ts[11:23]}  {row.phase:<8} {row.step:<10} {row.status}")
        if self.next:
            write(f"\nNext\n  {self.next}")


_KINDS = ("run", "skip", "deny", "stale")


def explained(call: Call, words: list[str]) -> Explained:
    kind = words[0] if words[0] in _KINDS and len(words) > 1 else ""
    text = words[1] if kind else words[0]
    workspace = open_workspace(call.workspace)
    if re.fullmatch(r"(kfm://dataset/)?[a-z]\w*(@\w+)?", text) and not re.fullmatch(
        r"[0-9a-f]+", text
    ):
        workspace.require(dataset_of(text))  # a typing mistake gets the nearest name
    with open_world(workspace) as world:
        return _explain(world, workspace.registered(), kind, text)


def _explain(world: World, names: list[str], kind: str, text: str) -> Explained:
    dataset_id, _, which = text.removeprefix("kfm://dataset/").partition("@")
    if text.startswith("proposal/"):
        return _run(world, run_of(world, proposal_number(text)))
    if dataset_id not in names:
        return _run(world, find_run(world, text))
    head: Generation = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    status = dataset_status(world, dataset_id)
    if kind == "skip":
        return _skip(world, dataset_id)
    if kind == "stale":
        return _stale(status)
    rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.recent(dataset_id, 1000))
    if which or not kind:
        found = _of(world, head, rows, status, which)
        if found is not None:
            return found
    kind = kind or {"denied": "deny"}.get(status.state, "run")
    if not rows and not which:
        return _stale(status)
    wanted = [r for r in rows if r.state == "REJECTED"] if kind == "deny" else rows
    if which.startswith("v"):
        wanted = [r for r in wanted if (r.version_id or "").startswith(which)]
    if kind == "run" and not which:
        wanted = [r for r in wanted if r.run_id == status.last_run_id] or wanted
    if not wanted or (which and not which.startswith("v")):
        raise UsageError(
            f"{text} has no {'denied ' if kind == 'deny' else ''}run.",
            expected="a run to explain",
            remedy=f"`kfm runs {dataset_id}` lists them.",
        )
    return _deny(world, wanted[0]) if wanted[0].state == "REJECTED" else _run(world, wanted[0])


def _stale(status: DatasetStatus) -> Explained:
    return Explained(
        what=f"{status.dataset_id} is {'fresh' if status.fresh else 'not fresh'}.",
        facts=msgspec.to_builtins(status),
        next=status.next,
    )


def _of(
    world: World, head: Generation, rows: list[LedgerRow], status: DatasetStatus, which: str
) -> Explained | None:
    """What made the generation that is meant: an act of a person, or a run. None: no generation is
    meant.
    """
    if not which and status.state not in ("official", "withdrawn", "retired"):
        return None  # something newer than the head is to be explained
    made: list[Generation] = [
        g
        for g in world.store.read(lambda tx: tx.index.generations(head.dataset_id))
        if g.kind != "void" or which
    ]
    if which.isdigit():
        if not 1 <= int(which) <= head.generation:
            expected = f"1 to {head.generation}" if head.generation else "one that was published"
            raise UsageError(
                f"{head.dataset_id} has no generation {which}.",
                expected=expected,
                remedy=f"`kfm history {head.dataset_id}` lists them.",
            )
        made = [g for g in made if g.generation == int(which)]
    elif which:
        made = [g for g in made if (g.version_id or "").startswith(which)]
        made = [g for g in made if g.kind == "promote"] or made
    if not made:
        return None
    if made[-1].kind == "promote":
        row = next((r for r in rows if r.run_id == made[-1].run_id), None)
        return (
            None
            if row is None
            else _looked_since(world, row, _run(world, row))
            if not which
            else _run(world, row)
        )
    newest: Generation = world.store.read(lambda tx: last_act(tx, head))
    return _act(
        world, made[-1], official=made[-1].generation in (newest.generation, head.generation)
    )


def _looked_since(world: World, row: LedgerRow, told: Explained) -> Explained:
    """The same, with the newest look that found nothing to do."""
    noops = world.store.read(lambda tx: tx.looks.noops(row.dataset_id, 1))
    if not noops or noops[0].timestamp <= (row.ended_at or ""):
        return told
    why = "nothing had changed" if noops[0].code == UNCHANGED else noops[0].reason
    return msgspec.structs.replace(
        told,
        what=(
            f"{told.what} Looked at again at {noops[0].timestamp[:19]}Z: {why} (`kfm explain"
            f" skip {row.dataset_id}`)."
        ),
    )


_ACTS = {
    "withdraw": "withdrew",
    "rollback": "went back to",
    "void": "repeats what was official before it",
}


def _act(world: World, made: Generation, official: bool) -> Explained:
    """A generation that no run made: what a person did to the channel, and why."""
    told = world.channel(made.dataset_id).unverified(made.generation)
    what = _ACTS.get(made.kind, made.kind)
    if made.kind == "withdraw":
        what += f" {_withdrawn(told.suppress)}"
    elif told.lifts is not None:
        what = (
            f"undid the withdrawal of generation {told.lifts.generation}, signed by"
            f" {_person(told.lifts.act)}"
        )
    elif made.kind == "rollback":
        what += f" {made.version_id}"
    before = world.store.read(lambda tx: tx.index.generation(made.dataset_id, made.generation - 1))
    rule = told.suppress[0] if told.suppress else {}
    following = f"kfm get {made.dataset_id}" if made.version_id else f"kfm runs {made.dataset_id}"
    if made.kind == "rollback" and told.lifts is None:
        following = (
            f'kfm run {made.dataset_id} --force --reason "…"    brings back what it left, if every'
            " gate lets it"
        )
    return Explained(
        what=f"Generation {made.generation} of {made.dataset_id} {what}.",
        facts={
            "why": told.reason,
            "when": appended_at(world, made),
            "authority": rule.get("authority"),
            "erased": rule.get("date") if rule.get("erased") else None,
            "before": before.version_id if before is not None else None,
            "official": (
                (made.version_id or "nothing")
                if official
                else f"generation {made.generation} is not the newest"
            ),
        },
        next=following if official else f"kfm explain {made.dataset_id}",
    )


def _person(act: str) -> str:
    return str(unwrap(act.encode())["predicate"]["person"])


def _withdrawn(rules: list[Json]) -> str:
    rule = rules[0] if rules else {}
    if "commitment" in rule:
        return {"records": "records", "area": "the records of an area"}.get(
            rule.get("kind", ""), "records"
        ) + "; which ones is not told in public"
    return (
        "the whole dataset"
        if rule.get("content") == "*"
        else f"partition {rule['content']!r}"
        if rule.get("content")
        else "its content"
    )


def _skip(world: World, dataset_id: str) -> Explained:
    noops = world.store.read(lambda tx: tx.looks.noops(dataset_id, 1))
    if not noops:
        raise UsageError(
            f"{dataset_id} was never skipped.",
            expected="a NOOP",
            remedy=f"`kfm runs --all {dataset_id}` lists them.",
        )
    noop = noops[0]
    raw = read_run_file(world.data, dataset_id, noop.run_id, "artifacts/run.jsonl") or b""
    lines = [msgspec.json.decode(line) for line in raw.splitlines()]
    answered: Json = next((x for x in lines if x["event"] == "source.answered"), {})
    status, etag = answered.get("status"), answered.get("etag")
    return Explained(
        what=(
            f"{dataset_id} was not run at {noop.timestamp[:19]}Z because"
            f" {'nothing had changed' if noop.code == UNCHANGED else noop.reason}."
        ),
        facts={
            "answered": f"{'304 Not Modified' if status == 304 else status}, ETag {etag}",
            "run key": f"{noop.key} equals the head key" if status == 304 else noop.key,
            "names": noop.names,
            "run": noop.run_id,
        },
        next=f'kfm run {dataset_id} --force --reason "…"',
    )


def _deny(world: World, row: LedgerRow) -> Explained:
    reasons = denial_reasons(world, row)
    kept = (
        "the capture"
        if world.is_withheld(row.dataset_id)
        else f"the capture and {row.rows_written:,} rows"
    )
    entry = world.registry(row.dataset_id)
    who = (entry.custodian or ", ".join(entry.owners)) if entry is not None else ""
    return Explained(
        what=f"{row.dataset_id} may not be published.",
        facts={
            "run": row.run_id,
            "when": row.ended_at,
            "policy": world.policy_digest,
            "kept": f"{kept}, nothing lost",
            "who": f"{who or 'the steward of this dataset'}; there is no override",
        },
        why=[f"{r.code}: {r.message}" for r in reasons] or [row.reason],
        next="\n  ".join(
            [
                *dict.fromkeys(r.remedy for r in reasons),
                f"kfm gates {row.dataset_id}          judges again, no download",
                f"kfm run {row.dataset_id}            publishes it once it passes",
            ]
        ),
        exit_code=3,
    )


def _run(world: World, row: LedgerRow) -> Explained:
    records = run_journal(world, row)
    source = msgspec.json.decode(row.source_metadata)
    sealed = quarantine_path(row.dataset_id, row.run_id, "report.json.sealed")
    detail: Json = {}
    # the operator asks, on the restricted side
    if world.vaults is not None and world.data.exists(sealed):
        with world.data.scratch() as scratch:
            world.vaults.unseal(row.dataset_id, world.data.local(sealed), scratch / "report")
            report = msgspec.json.decode((scratch / "report").read_bytes())
        detail = {
            "happened": report["happened"],
            "expected": report["expected"],
            "capture": report["capture"],
        }
    return Explained(
        what=(
            f"Run {row.run_id} of {row.dataset_id} ended"
            f" {row.state}{': ' + row.reason if row.reason else ''}."
            if row.ended_at
            else f"Run {row.run_id} of {row.dataset_id} is {row.state}."
        ),
        facts={
            "trigger": row.trigger_type + (" (forced)" if row.forced else ""),
            "asked": ", ".join(s["source_url"] for s in source),
            "input": row.input_hash,
            "base": f"generation {row.pinned if row.pinned is not None else row.base_generation}",
            "rows": (
                None
                if world.is_withheld(row.dataset_id)
                else f"{row.rows_read:,} read, {row.rows_written:,} written"
            ),
            "version": row.version_id,
            **detail,
        },
        timeline=[Step(ts=r.ts, phase=r.phase, step=r.step_id, status=r.status) for r in records],
        next=_after(world, row, bool(records)),
    )


def _after(world: World, row: LedgerRow, journal: bool) -> str | None:
    """What to do about a run."""
    if row.state == "FAILED":
        aside = any(True for _ in world.data.names(quarantine_path(row.dataset_id, row.run_id)))
        return f"kfm quarantine show {row.run_id}" if aside else f"kfm run {row.dataset_id}"
    if row.ended_at is None and row.state == "PROPOSED" and not row.promo:
        number = world.store.read(lambda tx: tx.proposals.number(row.run_id))
        return f"kfm review {number}" if number else "kfm review"
    return "kfm resume" if row.ended_at is None else f"kfm wal {row.run_id}" if journal else None
