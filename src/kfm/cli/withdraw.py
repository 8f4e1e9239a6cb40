"""Withdraw a whole dataset, a partition, records or an area. It stops being served, and never comes
back by itself.
"""

import os
from collections.abc import Callable

import msgspec

from kfm.access.boundary import located
from kfm.acts import inbox
from kfm.acts.withdraw import lift, withdraw_rule, withdraw_whole
from kfm.cli.answer import Answer, Call
from kfm.cli.approve import signer_of
from kfm.cli.call import again, heed_clock, offer
from kfm.cli.terminal import agreed, say, write
from kfm.connectors.base import CaptureRefused
from kfm.diff.base import Change, Diff
from kfm.diff.text import text
from kfm.evidence.intended_acts import Act, meant
from kfm.model import Denied, GenerationPredicate, IntegrityError, Json, UsageError, canonical
from kfm.upkeep.erase import backups_of, finish_erasure, left_in_inbox, plan_again, unfinished
from kfm.upkeep.judge_official import check_version, may_show
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Lifted", "NotWithdrawn", "Previewed", "Withdrawn", "withdrawn"]

WAIT_S = 60.0  # for a run that is at work; later the next tick does it
_UNNEEDED = "remove it, or bring one without what was erased; until then `kfm verify` names it"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be withdrawn, and how."""

    dataset: str
    partition: str | None
    record: tuple[str, ...]
    area: str | None
    reason: str
    authority: str
    erase: bool
    inbox: bool
    limit: int


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the files that people brought."""

    destroyed: list[str]
    left: list[str]
    needed_by: dict[str, str]  # those that another dataset comes from, too


class Withdrawn(Answer, frozen=True, kw_only=True):
    """What was withdrawn, and what is left of it."""

    status: str
    dataset_id: str
    generation: int
    version_id: str | None
    erased: bool
    erased_files: int
    backups: dict[str, str]  # that may still hold those bytes
    inbox: Inbox

    def tell(self, call: Call) -> None:
        now = (
            f"{self.version_id[:9]}… is official now"
            if self.version_id
            else "nothing is official now"
        )
        gone = f"; {self.erased_files} files destroyed" if self.erased else ""
        write(f"Withdrawn from {self.dataset_id} by generation {self.generation}; {now}{gone}")
        for path in self.inbox.destroyed:
            write(f"  Destroyed, for it was the source: {path}")
        for path in self.inbox.left:
            other = self.inbox.needed_by.get(path)
            why = f"{other} comes from it, too" if other else _UNNEEDED
            write(f"  The source is left as it was brought: {path} ({why}).")
        for folder, state in self.backups.items():
            write(
                f"  A backup made before it may still hold those bytes: {folder} ({state}). Destroy"
                " it; a restore of a marked one erases again."
            )
        if not self.erased:
            undo = f"withdraw {self.dataset_id} --undo {self.generation} --reason … --key NAME"
            say(f"It can be undone: {again(call, undo)}")


class NotWithdrawn(Answer, frozen=True, kw_only=True):
    """A person was asked, and said no."""

    status: str
    dataset_id: str

    @property
    def code(self) -> int:
        return 1

    def tell(self, call: Call) -> None:
        say("Nothing was withdrawn.")


class Lifted(Answer, frozen=True, kw_only=True):
    """A withdrawal that was undone."""

    status: str
    dataset_id: str
    generation: int
    version_id: str | None
    by: str
    lifted: int

    def tell(self, call: Call) -> None:
        left = f"{self.version_id[:9]}… is official" if self.version_id else "nothing is official"
        write(
            f"{self.by} lifted generation {self.lifted} of {self.dataset_id} by generation"
            f" {self.generation}; {left}"
        )
        write(f"\nNext  {again(call, f'run {self.dataset_id}')}")


def withdrawn(
    call: Call,
    dataset: str,
    partition: str | None,
    record: list[str],
    area: str | None,
    reason: str,
    authority: str,
    erase: bool,
    inbox: bool,
    dry_run: bool,
    limit: int,
    yes: bool,
    undo: int | None,
    key: str | None,
    clock_ok: bool,
) -> "Withdrawn | Previewed | NotWithdrawn | Lifted":
    wanted = Wanted(
        dataset=dataset,
        partition=partition,
        record=tuple(record),
        area=area,
        reason=reason.strip(),
        authority=authority.strip(),
        erase=erase,
        inbox=inbox,
        limit=limit,
    )
    if undo is not None:
        return _undone(call, wanted, undo, key, clock_ok)
    _check(wanted, dry_run)
    rule = _rule(wanted)
    workspace = open_workspace(call.workspace)
    workspace.require(dataset)
    if dry_run or not (yes or _ordered(workspace, wanted, rule)):
        found = _preview(workspace, wanted, rule)
        if dry_run:
            return found
        if not call.json:
            found.tell(call)
        if not agreed(f"Withdraw {'and destroy ' if erase else ''}this from {dataset}?"):
            return NotWithdrawn(status="not_withdrawn", dataset_id=dataset)
    return _withdraw(call, workspace, wanted, rule, clock_ok)


def _check(wanted: Wanted, dry_run: bool) -> None:
    if not wanted.reason and not dry_run:
        raise UsageError(
            "A withdrawal needs a reason.",
            expected='--reason "…"',
            remedy="Say why; it is signed into the channel.",
        )
    if wanted.erase and not wanted.authority:
        raise UsageError(
            "An erasure needs an authority.",
            expected="--authority NAME",
            remedy="Say who ordered it; that is what stays.",
        )
    if wanted.inbox and not wanted.erase:
        raise UsageError(
            "--inbox goes with --erase.",
            expected="--erase --inbox",
            remedy="Leave it out: a withdrawal destroys no file.",
        )


def _withdraw(
    call: Call, workspace: Workspace, wanted: Wanted, rule: Json | None, clock_ok: bool
) -> Withdrawn:
    name, erase = wanted.dataset, wanted.erase
    with open_world(workspace) as world:
        heed_clock(world, clock_ok, name)
        begun = _begun(world, wanted, rule) if erase else None
        brought = world.store.read(lambda tx: inbox.brought(world, tx, name)) if erase else []
        made = begun.predicate if begun is not None else _made(world, wanted, rule)
        gone = (finish_erasure(world, name, WAIT_S) or 0) if erase else 0
        backups = backups_of(world, name, made.generation) if erase else {}
        left = left_in_inbox(world, name) if erase else {}
        destroyed = [path for path in brought if inbox.written(world.root, path) is None]
        offer(call.workspace, world, name)
    return Withdrawn(
        status="withdrawn",
        dataset_id=name,
        generation=made.generation,
        version_id=made.version_id,
        erased=erase,
        erased_files=gone,
        backups=backups,
        inbox=Inbox(
            destroyed=destroyed,
            left=sorted(left),
            needed_by={path: needed for path, (_, needed) in left.items() if needed},
        ),
    )


def _ordered(workspace: Workspace, wanted: Wanted, rule: Json | None) -> bool:
    """Whether this very erasure was begun and killed: it goes on without being shown, for half of
    it may be gone. Any other is asked for.
    """
    if not wanted.erase:
        return False
    with open_world(workspace) as world:
        made = unfinished(world, wanted.dataset)
        return made is not None and _is_same(world, wanted, rule, made)


def _is_same(world: World, wanted: Wanted, rule: Json | None, made: GenerationPredicate) -> bool:
    """Whether an erasure that was begun is the one that is asked for now."""
    if rule is None:
        content = "*" if wanted.partition is None else wanted.partition
        return any(told.get("content") == content for told in made.suppress)
    if world.vaults is None:
        return False
    commitment = world.vaults.commit(wanted.dataset, canonical.dumps(rule).decode())
    return any(told.get("commitment") == commitment for told in made.suppress)


def _made(
    world: World,
    wanted: Wanted,
    rule: Json | None,
    heard: Callable[[int], None] | None = None,
) -> GenerationPredicate:
    said: Json = {"authority": wanted.authority} if wanted.authority else {}
    if wanted.erase:
        said |= {"erased": True, "date": world.clock.now().date().isoformat()}
    if rule is None:
        return withdraw_whole(world, wanted.dataset, wanted.partition, wanted.reason, **said)
    try:
        return withdraw_rule(
            world,
            wanted.dataset,
            rule,
            wanted.reason,
            may_show,
            heard,
            sources=wanted.inbox,
            **said,
        )
    except CaptureRefused as error:
        if not error.code.startswith("suppress."):
            raise
        raise UsageError(
            error.happened,
            expected="what the columns of the table can say",
            remedy=(f"`kfm show {wanted.dataset}` lists the columns; nothing was withdrawn."),
        ) from error


# ---- what it would do ----------------------------------------------------------------------------
class Previewed(Answer, frozen=True, kw_only=True):
    """What a withdrawal would take out of what everybody can read."""

    status: str
    dataset_id: str
    version_id: str | None  # what would be left
    rows: int | None
    removed: int | None
    changed: int | None
    samples: list[Change]
    not_shown: str  # why there are no rows
    records: int | None  # that the rule names; what is shown may be groups of them
    inbox: list[str]  # files that people brought and that go, too
    difference: str  # in words

    def tell(self, call: Call) -> None:
        if self.records is not None:
            write(f"{self.records:,} record{' fits' if self.records == 1 else 's fit'}.")
        if self.rows is None:
            write(f"The rows are not shown: {self.not_shown}")
        else:
            write(
                f"{self.removed:,} of {self.rows:,} rows of {self.dataset_id} go, {self.changed:,}"
                " change; nothing was withdrawn yet.\n"
            )
            print(self.difference, end="")
        for path in self.inbox:
            write(f"\n{path} goes, too: it is the source.")
        left = f"{self.version_id[:9]}…" if self.version_id else "Nothing"
        write(f"\n{left} would be official")


def _preview(workspace: Workspace, wanted: Wanted, rule: Json | None) -> Previewed:
    """The withdrawal done in a world where nothing stays, and the difference it makes."""
    counted: list[int] = []
    with open_world(workspace, dry_run=wanted.dataset, asks=True) as world:
        old, diff, why = None, None, ""
        try:
            old = located(world, wanted.dataset)
        except (Denied, IntegrityError) as error:
            why = error.happened
        # its bytes stay: nothing finishes it
        made = _made(world, wanted, rule, heard=counted.append)
        try:
            from kfm.diff.tables import diff_files  # with an extra: pyarrow

            if old is not None:
                new = located(world, wanted.dataset).files if made.version_id is not None else {}
                names = (old.label, "what is left")
                diff = diff_files(
                    old.files,
                    new,
                    old.business_key,
                    limit=wanted.limit,
                    dataset_id=wanted.dataset,
                    labels=names,
                )
        except (ImportError, Denied, IntegrityError) as error:
            why = getattr(error, "happened", f"{error} What reads Parquet is not installed.")
        brought = [path for act in meant(world.data, wanted.dataset) for path in act.inbox or ()]
    return Previewed(
        status="dry_run",
        dataset_id=wanted.dataset,
        version_id=made.version_id,
        rows=diff.rows_a if diff is not None else None,
        removed=diff.removed if diff is not None else None,
        changed=diff.changed if diff is not None else None,
        samples=list(diff.samples) if diff is not None else [],
        not_shown=why,
        records=counted[-1] if counted else None,
        inbox=brought,
        difference=_words(diff),
    )


def _words(diff: Diff | None) -> str:
    ascii = bool(os.environ.get("KFM_ASCII"))
    return "" if diff is None else text(diff, width=None, ascii=ascii)


# ---- back again ----------------------------------------------------------------------------------
def _undone(call: Call, wanted: Wanted, number: int, key: str | None, clock_ok: bool) -> Lifted:
    if not wanted.reason:
        raise UsageError(
            "Undoing a withdrawal needs a reason.",
            expected='--reason "…"',
            remedy="Say why; you sign it.",
        )
    part = wanted.record or wanted.area or wanted.partition is not None
    if part or wanted.erase or wanted.inbox:
        raise UsageError(
            "--undo stands alone.",
            expected="--undo N --reason … --key NAME",
            remedy="Leave the rest out.",
        )
    workspace, name = open_workspace(call.workspace), wanted.dataset
    workspace.require(name)
    with open_world(workspace) as world:
        heed_clock(world, clock_ok, name)
        world.store.transaction(lambda tx: world.channel(name).head(tx))
        signer = signer_of(world, workspace, key)
        made = lift(
            world,
            name,
            number,
            signer,
            wanted.reason,
            lambda found: check_version(world, name, found, number),
        )
        offer(call.workspace, world, name)
    return Lifted(
        status="lifted",
        dataset_id=name,
        generation=made.generation,
        version_id=made.version_id,
        by=signer.name,
        lifted=number,
    )


def _begun(world: World, wanted: Wanted, rule: Json | None) -> Act | None:
    """The same erasure, when it was killed before it was finished; another one that was is finished
    first.
    """
    act = plan_again(world, wanted.dataset)
    if act is None or _is_same(world, wanted, rule, act.predicate):
        return act
    finish_erasure(world, wanted.dataset, WAIT_S)
    return None


def _rule(wanted: Wanted) -> Json | None:
    if wanted.partition is not None and not wanted.partition.strip():
        raise UsageError(
            "--partition names none.",
            expected="--partition NAME",
            remedy="Leave it out to withdraw the whole dataset.",
        )
    if sum(map(bool, (wanted.record, wanted.area, wanted.partition is not None))) > 1:
        raise UsageError(
            "--record, --area and --partition exclude one another.",
            expected="one of them",
            remedy="Withdraw in two steps.",
        )
    if wanted.record:
        pairs = [r.partition("=") for r in wanted.record]
        if not all(sep and name for name, sep, _ in pairs):
            raise UsageError(
                "--record is not COLUMN=VALUE.",
                expected="--record site_no=14RC301",
                remedy="Name the column and the value of the records that go.",
            )
        named = [name for name, _, _ in pairs]
        if twice := sorted({name for name in named if named.count(name) > 1}):
            raise UsageError(
                f"--record names {twice[0]} twice, and no record has both values.",
                expected="each column once: all that are named must fit",
                remedy="Withdraw one after the other.",
            )
        return {"records": {name: value for name, _, value in pairs}}
    if wanted.area:
        try:
            west, south, east, north = (float(x) for x in wanted.area.split(","))
        except ValueError as error:
            raise UsageError(
                "--area is not four numbers.",
                expected="W,S,E,N in degrees",
                remedy="Write west, south, east, north: --area -98.6,38,-98,38.6.",
            ) from error
        if not (-180 <= west < east <= 180 and -90 <= south < north <= 90):
            raise UsageError(
                "--area is not a box.",
                expected="W < E and S < N, in degrees",
                remedy="Write west, south, east, north: --area -98.6,38,-98,38.6.",
            )
        return {"area": [west, south, east, north]}
    return None
