"""The stages of a run as commands of their own: what
`scripts/connectors/<dataset_id>/{ingest,transform,validate,promote,backfill}.py` call.

Each stage drives the one engine as far as its name says and stops there: the run stays claimed, its
leases are free, the next stage goes on with it by its run id and without the network.
"""

import contextlib
import datetime as dt
import io
import json
import re
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import msgspec

from kfm.channel.generations import Channel
from kfm.cli.call import guard
from kfm.cli.flags import Parser
from kfm.cli.jobcall import store_of
from kfm.cli.terminal import Progress, say, sign
from kfm.evidence.journal import fold, payload_of
from kfm.evidence.projection import project
from kfm.evidence.receipts import pretty
from kfm.fetch.base import Fetched, FetchRequest
from kfm.fetch.url import FILE
from kfm.jobs.backfill_plan import Grid, cut, grid_of, plan_from
from kfm.jobs.backfill_windows import resume, start, work_here
from kfm.jobs.drive import run_target, stop_run
from kfm.jobs.promote_here import promote_run
from kfm.jobs.stepping import Stopped
from kfm.keys.key_folder import KeyFolder
from kfm.model import (
    INGEST,
    Asked,
    BackfillRow,
    Captured,
    Denied,
    Json,
    KfmError,
    LedgerRow,
    StageReceipt,
    SystemClock,
    UsageError,
    bounds,
    ids,
    masked,
    rfc3339,
)
from kfm.model.paths import (
    batches_path,
    capture_folder,
    dcat_path,
    part_folder,
    prov_path,
    raw_path,
    run_folder,
    stac_folder,
    version_path,
)
from kfm.model.window import seconds
from kfm.run.claim import check_switch
from kfm.run.work import MustSettle, Reached
from kfm.runners.mapped import MappedZone
from kfm.workspace import config
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import request_of, resumed_target, targets_of
from kfm.workspace.upstreams import checked_upstream
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.local import LocalZone

__all__ = ["FLAGS", "STAGES", "batches", "flags_table", "main", "parser_of"]

STAGES = {  # stage -> what it does
    "ingest": "Look at upstream and keep what it has in raw; stop there.",
    "transform": "Make the canonical table of a run's capture in work; stop there.",
    "validate": "Judge a run by every gate; leave the proposal and its validation report in work.",
    "promote": (
        "Make a validated run official: processed, catalogs, receipts. Approvals still apply."
    ),
    "backfill": (
        "Run a past window in batches, each a run of its own, promoted one after the other."
    ),
}
# what must be done for a stage to be done; a later one too, when an earlier attempt got that far
_UNTIL = {
    "ingest": frozenset({Reached.CHECK_INTENDED, Reached.DATASET_TAKEN}),
    "transform": frozenset({Reached.PART_DONE, Reached.DATASET_TAKEN}),
    "validate": frozenset[Reached](),
}
_WORDS: dict[str, str | dict[str, str]] = {
    "CLAIMED": {"ingest": "captured", "transform": "transformed"},
    "PROPOSED": "validated",
    "COMMITTED": "official",
    "NOOP": "unchanged",
}

Flag = tuple[str, Json]
# one row each: parser, --help and the table in scripts/connectors/README.md are made of them
FLAGS: tuple[Flag, ...] = (
    ("--dataset_id", {"metavar": "ID", "help": "the dataset; default: the name of the runner's folder. Recorded either way"}),
    ("--run_id", {"metavar": "ID", "help": "the run to go on with, or the id of a new one; default: the newest open run, or a generated id"}),
    ("--spec", {"metavar": "FILE", "type": Path, "help": "a governed run spec, YAML or JSON; the sha256 of its canonical form is recorded"}),
    ("--since", {"metavar": "TIME", "help": "start of the window, RFC 3339"}),
    ("--until", {"metavar": "TIME", "help": "end of the window, RFC 3339, exclusive"}),
    ("--config", {"metavar": "FILE", "type": Path, "help": "YAML or JSON with these flags as keys; a flag that is given wins"}),
    ("--raw_dir", {"metavar": "DIR", "type": Path, "help": "raw zone; any of the three makes a tree of its own, with catalog and ledger beside it"}),
    ("--work_dir", {"metavar": "DIR", "type": Path, "help": "work zone; default with another override: beside it"}),
    ("--processed_dir", {"metavar": "DIR", "type": Path, "help": "processed zone; default with another override: beside it"}),
    ("--emit_catalogs", {"action": "store_true", "help": "list DCAT, PROV and STAC in the receipt of promote; they are written in any case"}),
    ("--dry-run", {"action": "store_true", "help": "everything up to this stage in a throw-away copy; nothing outside work changes"}),
    ("--log_json", {"action": "store_true", "help": "every line on stdout and stderr is one JSON object"}),
    ("--upstream", {"choices": ("live", "replay", "sample"), "help": "where bytes come from; default: as the workspace has it"}),
    ("--wait", {"metavar": "60s", "help": "how long to wait for another run of the same dataset; default: 60s"}),
)  # fmt: skip
_BATCH: Flag = (
    "--batch",
    {
        "metavar": "30d",
        "help": "length of one batch, in days of the registry's time zone; default: 30d",
    },
)


def parser_of(stage: str) -> Parser:
    """The parser of one stage."""
    parser = Parser(prog=f"{stage}.py", description=STAGES[stage])
    # each batch is a run of its own
    batch = [flag for flag in (*FLAGS, _BATCH) if flag[0] != "--run_id"]
    for name, more in batch if stage == "backfill" else FLAGS:
        action = parser.add_argument(name, "--" + name[2:].replace("_", "-"), **more)
        action.option_strings = [name]  # both spellings are taken, the documented one is shown
    return parser


def flags_table() -> str:
    """The documented table of flags."""
    rows = [
        f"| `{name}` |"
        f" {more['help']}{' (' + ', '.join(more['choices']) + ')' if 'choices' in more else ''} |"
        for name, more in FLAGS
    ]
    return (
        "\n".join(
            [
                "| flag | meaning |",
                "|---|---|",
                *rows,
                f"| `{_BATCH[0]}` | backfill only: {_BATCH[1]['help']} |",
            ]
        )
        + "\n"
    )


def main(stage: str, file: str, argv: Sequence[str] | None = None) -> int:
    """Run one stage for the runner at `file`."""
    given = list(sys.argv[1:] if argv is None else argv)
    with _json_lines() if {"--log_json", "--log-json"} & set(given) else contextlib.nullcontext():
        return guard(lambda: _stage(stage, Path(file).absolute(), parser_of(stage).parse(given)))


# ---- the call ------------------------------------------------------------------------------------
class _Elsewhere(Workspace, frozen=True):
    """Registry, connectors and policy of a workspace; zones, catalog, ledger, receipts and keys in
    a tree of their own.

    With a key of its own: what is made here is nothing that the workspace has signed.
    """

    base: Path = Path()
    places: Mapping[str, Path] = msgspec.field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.base

    @property
    def server(self) -> None:
        return None

    @property
    def lines_file(self) -> None:
        return None

    @property
    def store_file(self) -> Path:
        return self.base / "ledger" / "idempotency.sqlite"

    @property
    def keys(self) -> Path:
        return self.base / "keys"

    def zones(self) -> tuple[LocalZone, LocalZone]:
        return MappedZone(self.base, self.places), LocalZone(self.base)


@dataclass(frozen=True)
class _Call:
    """One call of a runner, with everything it left out filled in."""

    stage: str
    args: Namespace
    workspace: Workspace
    dataset_id: str
    said_by: str
    run_id: str | None
    win: str
    zones: dict[str, str]
    began: str

    @property
    def wait_s(self) -> float:
        return float(seconds(self.args.wait or "60s"))

    @property
    def upstream(self) -> str:
        """A dry run of a later stage starts from what an earlier one captured."""
        later = (
            self.args.dry_run
            and self.stage != "ingest"
            and not self.workspace.require(self.dataset_id).source.url.startswith(FILE)
        )
        return str(
            self.args.upstream or ("replay" if later else checked_upstream(self.workspace, None))
        )

    def command(self, stage: str, run_id: str = "") -> str:
        """The call of another stage that goes on with this one."""
        zones = "".join(f" --{zone}_dir {shlex.quote(place)}" for zone, place in self.zones.items())
        return (
            f"python scripts/connectors/{self.dataset_id}/{stage}.py"
            + (f" --run_id {run_id}" if run_id else "")
            + zones
        )


def _called(stage: str, file: Path, args: Namespace) -> _Call:
    said = _fill_from_config(args) if args.config else set()
    own = file.parent.name
    if args.dataset_id and args.dataset_id != own:
        raise UsageError(
            f"This runner is that of {own}, not of {args.dataset_id}.",
            expected=f"--dataset_id {own}, or none",
            remedy="Use the other runner.",
        )
    if bool(args.since) != bool(args.until):
        raise UsageError(
            "--since and --until go together.", expected="both", remedy="Add the other one."
        )
    if stage == "backfill" and not args.since:
        raise UsageError(
            "A backfill needs a window.",
            expected="--since TIME --until TIME",
            remedy="Name the past it is about.",
        )
    workspace = open_workspace(config.find_workspace(file.parent))
    workspace.require(own)
    zones = {
        zone: str(place)
        for zone in ("raw", "work", "processed")
        if (place := getattr(args, f"{zone}_dir"))
    }
    return _Call(
        stage=stage,
        args=args,
        workspace=_elsewhere(workspace, zones, own) if zones else workspace,
        dataset_id=own,
        said_by="folder" if not args.dataset_id else "config" if "dataset_id" in said else "flag",
        run_id=_run_id(getattr(args, "run_id", None)),
        win=bounds(args.since, args.until) if args.since else "",
        zones=zones,
        began=rfc3339(SystemClock().now()),
    )


def _fill_from_config(args: Namespace) -> set[str]:
    """Take from the configuration file what no flag says; returns the keys taken."""
    if not args.config.is_file():
        raise UsageError(
            f"{args.config.name} does not exist.",
            expected="a configuration file",
            remedy="Check the path.",
        )
    given = config.parse(args.config.read_bytes(), args.config.name)
    known = {
        name.lstrip("-").replace("-", "_"): more
        for name, more in (*FLAGS, _BATCH)
        if hasattr(args, name.lstrip("-").replace("-", "_"))
    }
    taken = set()
    for key, value in given.items() if isinstance(given, dict) else [("the whole file", None)]:
        more = known.get(str(key).replace("-", "_"))
        switch = more is not None and more.get("action") == "store_true"
        fits = isinstance(value, bool if switch else str) and value in (more or {}).get(
            "choices", (value,)
        )
        if more is None or key == "config" or not fits:
            raise UsageError(
                f"{args.config.name}: {key} is not usable.",
                expected=f"one of {', '.join(sorted(known))}, with a value it takes",
                remedy="Mend that line of the file; scripts/connectors/README.md lists them.",
            )
        name = key.replace("-", "_")
        if not getattr(args, name):
            setattr(args, name, more["type"](value) if "type" in more else value)
            taken.add(name)
    return taken


def _run_id(text: str | None) -> str | None:
    """`run_2026-02-16T00:00:00Z` as it can be a file name everywhere: without the prefix, which
    files add, and without colons.
    """
    return ids.check_id(text.removeprefix("run_").replace(":", ""), "run id") if text else None


def _elsewhere(workspace: Workspace, zones: Mapping[str, str], dataset_id: str) -> Workspace:
    given = {zone: Path(place).absolute() for zone, place in zones.items()}
    base = next(given[zone] for zone in ("processed", "work", "raw") if zone in given).parent
    places = {zone: given.get(zone, base / zone) for zone in ("raw", "work", "processed")}
    if any(p.resolve().is_relative_to(workspace.data.resolve()) for p in (base, *places.values())):
        raise UsageError(
            "The zones named lie inside the workspace's own.",
            expected="folders outside its data/",
            remedy="Leave the flags out, or name others.",
        )
    if len({*places.values(), base / "catalog", base / "ledger", base / "keys"}) < 6:
        raise UsageError(
            "Two zones would share a folder.", expected="one folder each", remedy="Name another."
        )
    if base.resolve() == workspace.path.resolve():
        raise UsageError(
            "The tree would share ledger and keys with the workspace.",
            expected="a folder of its own",
            remedy="Name another.",
        )
    _refuse_withdrawn(workspace, dataset_id)
    # nor does it know what is switched off
    file = None if workspace.server else workspace.lines_file or workspace.store_file
    if file is None or file.exists():
        with store_of(workspace) as store:
            store.read(lambda tx: check_switch(tx, dataset_id, INGEST))
    found = _Elsewhere(workspace.path, workspace.config, base, places)
    if not any(found.keys.glob("*.key")):
        KeyFolder(found.keys).new()
    return found


def _refuse_withdrawn(workspace: Workspace, dataset_id: str) -> None:
    """Another tree does not know what was withdrawn here, so it could show it again."""
    zone, root = workspace.zones()
    with contextlib.closing(zone), contextlib.closing(root):
        channel, number = Channel(zone, KeyFolder(workspace.keys), dataset_id), 1
        while (found := channel.predicate(number)) is not None:
            if found.kind == "withdraw":
                raise Denied(
                    f"Generation {number} of {dataset_id} withdrew content, and another tree would"
                    " not keep it out.",
                    expected="a dataset nothing was withdrawn of",
                    remedy="Leave the folders out: the workspace itself keeps it out.",
                )
            number += 1


# ---- the stages ----------------------------------------------------------------------------------
Done = tuple[Outcome, str, Json]  # how it went, the spec hash, what else the receipt says


def _stage(stage: str, file: Path, args: Namespace) -> int:
    call = None
    try:
        call = _called(stage, file, args)
        return _backfill(call) if stage == "backfill" else _run(call)
    except KfmError as error:
        if not args.log_json:
            raise
        _say_json(
            {
                "event": "stage.failed",
                "level": "error",
                "stage": stage,
                "happened": error.happened,
                "expected": error.expected,
                "remedy": error.remedy,
                "exit_code": error.exit_code,
            }
        )
        return error.exit_code


def _run(call: _Call) -> int:
    code = 0
    with _world(call) as world:
        for outcome, spec_hash, more in (
            _dry(world, call) if call.args.dry_run else _real(world, call)
        ):
            code = max(code, _told(world, call, outcome, spec_hash, more))
    return code


@contextlib.contextmanager
def _world(call: _Call) -> Iterator[World]:
    shown = Progress(verbose=False, as_json=False)
    dry = call.dataset_id if call.args.dry_run else None
    with open_world(
        call.workspace,
        upstream=call.upstream,
        dry_run=dry,
        echo=_say_json if call.args.log_json else shown,
    ) as world:
        world.propose_only = call.stage in _UNTIL
        if call.run_id and dry is None:
            world.new_run_id = lambda: str(call.run_id)
        yield world
    shown.clear()


def _dry(world: World, call: _Call) -> Iterator[Done]:
    """Everything up to this stage, in a world that is thrown away."""
    for target in _targets(call):
        if call.stage == "promote":
            outcome = run_target(world, target, wait_s=call.wait_s)
        else:
            outcome = _stopped(world, target, call)
        yield outcome, target.spec_hash, {"spec_file_hash": target.spec_file_hash}


def _targets(call: _Call) -> list[Target]:
    return targets_of(
        call.workspace,
        call.dataset_id,
        win=call.win,
        trigger=f"runner:{call.stage}",
        spec_file=call.args.spec,
    )


def _real(world: World, call: _Call) -> Iterator[Done]:
    wanted = call.run_id
    known = world.store.read(lambda tx: tx.runs.get(wanted)) if wanted else None
    if call.stage == "ingest" and known is None:
        _check_unused(world, call)
        targets = _targets(call)
        if call.run_id and len(targets) > 1:
            raise UsageError(
                f"{call.dataset_id} has {len(targets)} partitions, each a run of its own.",
                expected="no --run_id",
                remedy="Leave it out.",
            )
        for target in targets:
            yield _ingested(world, call, target)
        return
    rows = [known] if known is not None else [] if call.run_id else _newest(world, call)
    if not rows or rows[0].dataset_id != call.dataset_id:
        missing = f"run {call.run_id}" if call.run_id else "open run"
        raise UsageError(
            f"{call.dataset_id} has no {missing} to go on with.",
            expected="a run that was ingested",
            remedy=call.command("ingest"),
        )
    for row in rows:
        asked = request_of(world, row)
        _check_spec(call, row, asked)
        yield (
            _go_on(world, call, row, asked),
            row.spec_hash,
            {"spec_file_hash": (asked.spec_file_hash or None) if asked is not None else None},
        )


def _check_unused(world: World, call: _Call) -> None:
    """A run that was a NOOP has its id too, though no row in the ledger."""
    if call.run_id and any(
        n.run_id == call.run_id for n in world.store.read(lambda tx: tx.looks.noops(None, -1))
    ):
        raise UsageError(
            f"Run {call.run_id} has ended: nothing was new then.",
            expected="an id that no run has",
            remedy="Leave --run_id out, or choose another.",
        )


def _ingested(world: World, call: _Call, target: Target) -> Done:
    """A new run, or the open one over the same input; which must then be the one that was asked
    for.
    """
    outcome = _stopped(world, target, call)
    row: LedgerRow | None = world.store.read(lambda tx: tx.runs.get(outcome.run_id))
    asked = request_of(world, row) if row is not None else None
    if row is not None and call.run_id not in (None, row.run_id):
        raise UsageError(
            f"Run {row.run_id} is open over the same input.",
            expected=f"--run_id {row.run_id}, or none",
            remedy=call.command("validate", row.run_id) + " goes on with it.",
        )
    if row is not None:
        _check_spec(call, row, asked)
    return (
        outcome,
        target.spec_hash,
        {
            "spec_file_hash": (asked.spec_file_hash or None)
            if asked is not None
            else target.spec_file_hash
        },
    )


def _newest(world: World, call: _Call) -> list[LedgerRow]:
    """The newest open run of each partition that this stage can do something with."""
    wanted = "PROPOSED" if call.stage == "promote" else "CLAIMED"
    rows: list[LedgerRow] = world.store.read(lambda tx: tx.runs.open_runs(call.dataset_id))
    fitting = [r for r in rows if not call.win or r.win == call.win]
    fitting = [r for r in fitting if r.state == wanted] or fitting
    return list({r.partition: r for r in sorted(fitting, key=lambda r: r.timestamp)}.values())


def _check_spec(call: _Call, row: LedgerRow, asked: Asked | None) -> None:
    spec = call.args.spec
    if (
        spec is not None
        and asked is not None
        and ids.spec_hash(config.parse(spec.read_bytes(), spec.name)) != asked.spec_file_hash
    ):
        raise UsageError(
            f"Run {row.run_id} was not asked for with {spec.name} as it is now.",
            expected="the spec it was ingested with",
            remedy="Ingest again with this one.",
        )


def _go_on(world: World, call: _Call, row: LedgerRow, asked: Asked | None) -> Outcome:
    """One run, from where it stands to the end of this stage; a stage that is done already says
    so.
    """
    if row.state == "PROPOSED" and call.stage == "promote":
        return promote_run(world, row, call.wait_s)
    if row.state != "CLAIMED":
        return _outcome(row, exit_code={"REJECTED": 3, "FAILED": 1}.get(row.state, 0))
    if call.stage == "promote":
        raise UsageError(
            f"Run {row.run_id} is not validated.",
            expected="a proposal",
            remedy=call.command("validate", row.run_id),
        )
    # Done, and told so: to do it again would say the same in the log of the run.
    if _kept(world, _receipt_path(call, row.run_id)) is not None:
        return _outcome(row)
    target = resumed_target(call.workspace, row, asked)
    return _stopped(msgspec.structs.replace(world, fetcher=_Offline()), target, call, row)


def _stopped(world: World, target: Target, call: _Call, row: LedgerRow | None = None) -> Outcome:
    """Drive the engine to the end of this stage and no further."""
    try:
        found = stop_run(world, target, _UNTIL[call.stage], wait_s=call.wait_s, replay=row)
    except _UpstreamNeeded:
        raise Denied(
            "What is official has changed since this run was ingested.",
            expected="the version it began with",
            remedy=call.command("ingest"),
        ) from None
    except Stopped as stopped:
        interrupted = stopped.at.run_id if isinstance(stopped.at, MustSettle) else ""
        raise Denied(
            f"Run {interrupted} was interrupted while it was being promoted.",
            expected="it to be finished first",
            remedy=call.command("promote", interrupted),
        ) from None
    # a proposal is all that validate is asked for; whether people must approve it is promote's
    # question
    if found is not None:
        return msgspec.structs.replace(found, exit_code=0) if found.state == "PROPOSED" else found
    rows: list[LedgerRow] = world.store.read(
        lambda tx: tx.runs.open_runs(target.dataset_id, target.partition)
    )
    return _outcome(next(r for r in rows if r.win == target.win and r.state == "CLAIMED"))


def _outcome(row: LedgerRow, exit_code: int = 0) -> Outcome:
    return Outcome(
        dataset_id=row.dataset_id,
        run_id=row.run_id,
        state=row.state,
        reason=row.reason,
        exit_code=exit_code,
        version_id=row.version_id,
        generation=row.intent,
        rows_read=row.rows_read,
        rows_written=row.rows_written,
        partition=row.partition,
        window=row.win,
    )


class _UpstreamNeeded(Stopped):
    """Going on would mean to ask upstream."""


class _Offline:
    """Resuming asks nobody: who would have to ask leaves the run as it is."""

    def fetch(self, request: FetchRequest, into: Path) -> Fetched:
        raise _UpstreamNeeded


# ---- receipts ------------------------------------------------------------------------------------
def _told(world: World, call: _Call, outcome: Outcome, spec_hash: str, more: Json) -> int:
    """Write the receipt of a stage, say where it is and what comes next."""
    where = _receipt_path(call, outcome.run_id)
    receipt = _kept(world, where)
    if receipt is not None:
        outcome = msgspec.structs.replace(
            outcome, state=receipt.state, reason=receipt.reason, exit_code=receipt.exit_code
        )
    nxt = receipt.next if receipt is not None else _next(call, outcome)
    written = receipt is None
    receipt = receipt or StageReceipt(
        stage=call.stage,  # type: ignore[arg-type]
        dataset_id=call.dataset_id,
        dataset_id_from=call.said_by,  # type: ignore[arg-type]
        run_id=outcome.run_id,
        state=outcome.state,
        exit_code=outcome.exit_code,
        started_at=call.began,
        finished_at=rfc3339(world.clock.now()),
        spec_hash=spec_hash,
        partition=outcome.partition,
        reason=outcome.reason,
        window=outcome.window,
        upstream=call.upstream,
        version_id=outcome.version_id,
        generation=outcome.generation,
        files=() if call.args.dry_run else _files(world, call, outcome),
        zones=call.zones,
        next=nxt,
        dry_run=call.args.dry_run,
        **more,
    )
    if outcome.run_id and written:
        world.data.replace(where, pretty(receipt))
    shown = _shown(call, where) if outcome.run_id else ""
    if call.args.log_json:
        _say_json(
            {"event": "stage.done", "receipt": shown, **msgspec.to_builtins(receipt)}, sys.stdout
        )
        return outcome.exit_code
    word = _WORDS.get(outcome.state, outcome.state.lower())
    told = word[call.stage] if isinstance(word, dict) else word
    name = f"{call.dataset_id}{'/' + outcome.partition if outcome.partition else ''}"
    print(
        f"  {sign(outcome.state if outcome.state != 'CLAIMED' else 'PASS')} {call.stage:<9} {name} "
        f" run {outcome.run_id}  {told}  {outcome.reason}".rstrip()
    )
    for reason in outcome.reasons:
        print(f"      {reason['code']}: {reason['message']}\n        {reason['remedy']}")
    print(f"    receipt  {shown}" + (f"\n    next     {nxt}" if nxt else ""))
    if outcome.exit_code and outcome.remedy and not outcome.reasons:
        say(f"    {outcome.remedy}")
    return outcome.exit_code


def _receipt_path(call: _Call, run_id: str) -> str:
    folder = run_folder(call.dataset_id, run_id) + ("/artifacts" if call.args.dry_run else "")
    return f"{folder}/{call.stage}_receipt.json"


def _kept(world: World, where: str) -> StageReceipt | None:
    """The receipt of a stage that is done; None while it waits (for a lease, for people), and when
    it cannot be read.
    """
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        found = msgspec.json.decode(world.data.read(where), type=StageReceipt)
        return found if found.exit_code not in (5, 7) else None
    return None


def _shown(call: _Call, path: str) -> str:
    """Where a file of a zone lies, from the workspace's point of view."""
    zone, _, rest = path.partition("/")
    if isinstance(call.workspace, _Elsewhere):
        return str(call.workspace.places.get(zone, call.workspace.base / zone) / rest)
    return str((call.workspace.data / path).relative_to(call.workspace.path))


def _next(call: _Call, outcome: Outcome) -> str:
    if call.args.dry_run or outcome.exit_code not in (0, 7):
        return ""
    if outcome.state == "PROPOSED":
        number = (
            f"; `kfm review {outcome.proposal}` shows it"
            if call.stage == "promote" and outcome.proposal
            else ""
        )
        return call.command("promote", outcome.run_id) + number
    if outcome.state == "CLAIMED":
        has = (
            call.workspace.path / "scripts" / "connectors" / call.dataset_id / "transform.py"
        ).is_file()
        return call.command(
            "transform" if call.stage == "ingest" and has else "validate", outcome.run_id
        )
    return (
        f"kfm verify {call.dataset_id}" if outcome.state == "COMMITTED" and not call.zones else ""
    )


def _files(world: World, call: _Call, outcome: Outcome) -> tuple[str, ...]:
    """The evidence a stage left, as far as it is there."""
    name, run = call.dataset_id, run_folder(call.dataset_id, outcome.run_id)
    row: LedgerRow | None = world.store.read(lambda tx: tx.runs.get(outcome.run_id))
    wanted: list[str] = []
    if call.stage == "ingest" and row is not None:
        step = fold(world.store.read(lambda tx: tx.journals.get(row.wal_id))).get("capture")
        kept = step is not None and step.status != "FAILED"
        capture = (
            capture_folder(name, payload_of(step, world.veil(name), Captured).capture_id)
            if step is not None and kept
            else ""
        )
        wanted = [
            raw_path(name, "manifest.yml"),
            raw_path(name, "checksums.sha256"),
            *(world.data.names(capture) if capture else ()),
        ]
    elif call.stage == "transform" and row is not None and row.part:
        wanted = list(world.data.names(part_folder(name, row.part)))
    elif call.stage == "validate":
        wanted = [
            f"{run}/{file}.json" for file in ("run_record", "validation_report", "run_manifest")
        ]
    elif call.stage == "promote" and outcome.state == "COMMITTED":
        wanted = [
            f"{run}/run_manifest.json",
            version_path(name, outcome.version_id, "checksums.sha256"),
        ]
        wanted += _catalogs(world, call, outcome.run_id) if call.args.emit_catalogs else []
    return tuple(path for path in wanted if world.data.exists(path))


def _catalogs(world: World, call: _Call, run_id: str) -> list[str]:
    """DCAT, PROV, and STAC where it is spatial; rendered again when a crash left them out."""
    needed = [dcat_path(call.dataset_id), prov_path(call.dataset_id, run_id)]
    if not all(world.data.exists(path) for path in needed):
        project(world, call.dataset_id)
    return [*needed, *world.data.names(stac_folder(call.dataset_id))]


# ---- backfill ------------------------------------------------------------------------------------
def batches(since: str, until: str, length: str, zone: dt.tzinfo) -> list[str]:
    """The window in half-open pieces; whole days are days of `zone`, so that a change of clocks
    moves no border.
    """
    begin, end = (dt.datetime.fromisoformat(t) for t in bounds(since, until).split("/"))
    grid = cut(begin, end, length, zone)
    return [grid.at(n)[0] for n in range(grid.total)]


def _backfill(call: _Call) -> int:
    """Every batch that is not done, oldest first, each promoted by itself; stops at the first that
    does not become official.
    """
    entry, length = call.workspace.require(call.dataset_id), call.args.batch or "30d"
    since, until = call.win.split("/")
    plan = plan_from(
        {
            "dataset": call.dataset_id,
            "since": since,
            "until": until,
            "partitioning": {"window": length},
            "expected_runtime": "0",
            "pool": entry.pool,
            "acceptance": {"gates": "all"},
            "batch": 1,
            "assemble": "every 1",
            "stop_after": 1,
        },
        "the flags",
    )
    grid = grid_of(plan, entry)
    # refuses what has no window
    target = targets_of(call.workspace, call.dataset_id, win=grid.at(0)[0], canary=False)[0]
    say_or_json(
        call,
        f"{grid.windows} batches of {length}, one run each",
        batches=grid.windows,
        batch=length,
    )
    if call.args.dry_run:
        for number in range(0, grid.total, len(grid.partitions)):
            say_or_json(call, f"  {grid.at(number)[0]}", window=grid.at(number)[0])
        return 0
    with _world(call) as world:
        row, new = start(world, f"{call.dataset_id} runner", plan, target, "system", put=False)
        row = row if new else resume(world, row, "system", put=False)
        return _work_off(world, call, grid, row, target.spec_hash)


def _work_off(world: World, call: _Call, grid: Grid, row: BackfillRow, spec_hash: str) -> int:
    path = batches_path(call.dataset_id, row.backfill_id)
    kept = (
        msgspec.json.decode(world.data.read(path)).get("batches", [])
        if world.data.exists(path)
        else []
    )
    done = {(b["window"], b["partition"]): b for b in kept if _is_done(b)}
    code, took, began = 0, 0.0, time.monotonic()

    def targets(name: str, *, win: str, trigger: str) -> list[Target]:
        return targets_of(
            call.workspace, name, win=win, trigger="runner:backfill", spec_file=call.args.spec
        )

    def told(n: int, outcome: Outcome) -> None:
        nonlocal code, took, began
        took, began, code = max(took, time.monotonic() - began), time.monotonic(), outcome.exit_code
        number, (piece, partition) = n // len(grid.partitions) + 1, grid.at(n)
        done[piece, partition] = {
            "window": piece,
            "partition": partition,
            "state": outcome.state,
            "run_id": outcome.run_id,
            "version_id": outcome.version_id,
            "reason": outcome.reason,
            "exit_code": code,
        }
        left = (
            f"; at most {took * (grid.windows - number):.0f} s left"
            if number < grid.windows and not code
            else ""
        )
        text = (
            f"  {sign(outcome.state)} {number}/{grid.windows}  {piece}  {outcome.state.lower()}"
            f" {outcome.reason}{left}"
        )
        say_or_json(call, text, **done[piece, partition])
        receipt = StageReceipt(
            stage="backfill",
            dataset_id=call.dataset_id,
            dataset_id_from=call.said_by,  # type: ignore[arg-type]
            run_id=outcome.run_id,
            state=outcome.state,
            exit_code=code,
            started_at=call.began,
            finished_at=rfc3339(world.clock.now()),
            spec_hash=spec_hash,
            window=call.win,
            upstream=call.upstream,
            spec_file_hash=_spec_file_hash(call),
            zones=call.zones,
            batches=tuple(done[k] for k in sorted(done)),
        )
        world.data.replace(path, pretty(receipt))
        if code:
            text = (
                f"{grid.windows - number} batches are left; the same command goes on."
                f" {outcome.remedy}"
            )
            say_or_json(call, text, summary=_shown(call, path), exit_code=code)

    row, _ = work_here(world, row.backfill_id, targets, told, call.wait_s)
    if not code:
        say_or_json(
            call,
            f"{len(done)} runs done. Summary {_shown(call, path)}",
            summary=_shown(call, path),
            exit_code=0,
        )
    return code


def _spec_file_hash(call: _Call) -> str | None:
    spec = call.args.spec
    return ids.spec_hash(config.parse(spec.read_bytes(), spec.name)) if spec is not None else None


def _is_done(batch: Json) -> bool:
    """Official, or nothing new; what was denied before or waits for people is neither."""
    return batch["state"] == "COMMITTED" or (
        batch["state"] == "NOOP" and batch.get("exit_code") == 0
    )


# ---- output --------------------------------------------------------------------------------------
def say_or_json(call: _Call, text: str, **facts: object) -> None:
    if call.args.log_json:
        _say_json(
            {"event": "backfill", "stage": "backfill", "dataset_id": call.dataset_id, **facts},
            sys.stdout,
        )
    else:
        print(text, flush=True)


def _say_json(event: Json, stream: TextIO | None = None) -> None:
    print(
        masked(json.dumps(event, ensure_ascii=False, default=str)),
        file=stream or sys.stderr,
        flush=True,
    )


class _JsonLines(io.TextIOBase):
    """Whatever is printed, line by line as JSON: our own objects as they are, any other text as a
    field.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._held = stream, ""

    def write(self, text: str) -> int:
        *lines, self._held = (self._held + text).split("\n")
        for line in lines:
            if line.strip():
                self._stream.write(
                    (line if _is_object(line) else json.dumps({"event": "output", "text": line}))
                    + "\n"
                )
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def end(self) -> None:
        if self._held:
            self.write("\n")
        self.flush()


def _is_object(line: str) -> bool:
    try:
        return bool(re.match(r"\{", line)) and isinstance(json.loads(line), dict)
    except ValueError:
        return False


@contextlib.contextmanager
def _json_lines() -> Iterator[None]:
    out, err = _JsonLines(sys.stdout), _JsonLines(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            yield
        finally:
            out.end()
            err.end()
