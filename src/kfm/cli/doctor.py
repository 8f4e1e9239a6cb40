"""Look for damage and leftovers. --fix mends what the evidence allows and sets the rest aside."""

import datetime as dt
import os
from collections.abc import Sequence

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.scheduler import Tables
from kfm.cli.terminal import sign, write
from kfm.connectors.child.process import held_here
from kfm.jobs.backfill_plan import grid_of, plan_from, resolved
from kfm.keys.key_folder import KeyFolder
from kfm.model import KfmError, UsageError
from kfm.model.clock import SystemClock
from kfm.policy.base import sources_of
from kfm.policy.subset import check
from kfm.upkeep.doctor import Advice, Finding, examine
from kfm.upkeep.reindex import datasets_with_evidence
from kfm.workspace.config import parse, planned, schedule_files
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.secrets import scan
from kfm.workspace.upstreams import is_live
from kfm.workspace.wiring import open_world

__all__ = ["ADVICE", "exit_code_of", "findings", "Examined", "examined"]

ADVICE = "contact.missing"  # said, but nothing is broken
_SOON = dt.timedelta(days=60)


def findings(workspace: Workspace, *, fix: bool = False) -> list[Finding]:
    """Everything that is wrong with a workspace, or was and is mended."""
    found: list[Finding] = []
    for name in workspace.registered():
        try:
            workspace.require(name)
        except KfmError as error:
            found.append(
                Finding(
                    code="registry.invalid",
                    where=f"data/registry/{name}",
                    what=error.happened,
                    remedy=error.remedy,
                )
            )
    if not any((workspace.path / "keys").glob("*.key")):
        found.append(
            Finding(
                code="keys.missing",
                where="keys",
                what="no signing key",
                remedy="Restore it, or run `kfm init` here.",
            )
        )
    else:
        try:
            KeyFolder(workspace.path / "keys").check()
        except KfmError as error:
            found.append(
                Finding(code="keys.damaged", where="keys", what=error.happened, remedy=error.remedy)
            )
    found += [*_out_of_date(workspace), *_rules(workspace)]
    found += [*_advice(workspace), *_unscheduled(workspace), *_bad_plans(workspace)]
    found += [
        Finding(
            code="disk.readonly",
            where=name,
            what="nothing can be written there",
            remedy="Mount it writable, or mend its rights: nothing runs, and nothing is served.",
        )
        for name in ("data", "ledger", "receipts")
        if (at := workspace.path / name).is_dir() and not os.access(at, os.W_OK)
    ]
    try:
        with open_world(workspace) as world:
            names = sorted({*workspace.registered(), *datasets_with_evidence(world)})
            said = {(each.code, each.where) for each in found}
            more = examine(world, names, fix=fix)
            return found + [each for each in more if (each.code, each.where) not in said]
    except KfmError as error:
        code = "store.unreachable" if error.retryable else "store.unusable"
        found.append(Finding(code=code, where="ledger", what=error.happened, remedy=error.remedy))
        return found


def _ends(workspace: Workspace) -> dt.datetime | None:
    """Until when the root says who may sign; None: it does not say."""
    try:
        trust = KeyFolder(workspace.path / "keys").trust()
    except KfmError:
        return None  # said with the keys
    return trust.expires if trust is not None and trust.document is not None else None


def _out_of_date(workspace: Workspace) -> list[Finding]:
    """A root that counts no longer: nothing becomes official under it."""
    ends = _ends(workspace)
    if ends is None or ends > SystemClock().now():
        return []
    what = f"it expired on {ends.date()}, so nothing can become official"
    return [
        Finding(code="root.expired", where="keys/root", what=what, remedy="Run `kfm keys renew`.")
    ]


def _soon_out_of_date(workspace: Workspace) -> list[Advice]:
    ends, now = _ends(workspace), SystemClock().now()
    if ends is None or not now < ends < now + _SOON:
        return []
    what = f"it expires on {ends.date()}; from then on nothing can become official"
    return [Advice(code="root.ends", where="keys/root", what=what, remedy="Run `kfm keys renew`.")]


def _rules(workspace: Workspace) -> list[Finding]:
    """Rules without which nothing is decided, so nothing is published or handed out."""
    rules = sources_of(workspace.path / "policy")
    if not rules:
        what = "there are no rules, so nothing is published or handed out"
        remedy = "`kfm init` writes those that a workspace starts with."
        return [Finding(code="policy.missing", where="policy", what=what, remedy=remedy)]
    if workspace.config.policy != "embedded":
        return []  # others may understand more
    return [
        Finding(
            code="policy.invalid",
            where=f"policy/{place.file}:{place.line}",
            what=place.message,
            remedy="Mend it; `kfm policy check` lists every place, and nothing is decided till then.",
        )
        for place in check(rules)
    ]


def _bad_plans(workspace: Workspace) -> list[Finding]:
    """Backfill plans that could not be started."""
    found: list[tuple[str, KfmError]] = []
    for path in schedule_files(workspace.path, "backfills"):
        try:
            plan = plan_from(parse(path.read_bytes(), path.name), path.name)
            grid_of(resolved(plan, workspace.require(plan.dataset)))
        except OSError as error:
            told = UsageError(f"It cannot be read: {error.strerror}.", remedy="Mend or remove it.")
            found.append((path.name, told))
        except KfmError as error:
            found.append((path.name, error))
    return [
        Finding(
            code="backfill.invalid", where=f"backfills/{name}", what=e.happened, remedy=e.remedy
        )
        for name, e in found
    ]


def _unscheduled(workspace: Workspace) -> list[Finding]:
    """Schedules that cannot be read, and datasets that nothing ever asks for."""
    found = [
        Finding(code="schedule.invalid", where=p.file, what=p.what, remedy=p.remedy)
        for p in Tables(workspace).problems
        if p.file.startswith("schedules/")
    ]
    entries = [
        e
        for name in workspace.registered()
        if (e := workspace.readable(name)) is not None and e.retired is None and e.cadence is None
    ]
    remedy = (
        "Add `cadence: daily` (or weekly, annual, static, real-time, a cron line) there, or a plan"
        " in pipelines/orchestration/backfills."
    )
    named = planned(workspace.path)
    for entry in entries:
        if entry.dataset_id not in named:
            where = f"data/registry/{entry.dataset_id}.yml"
            found.append(
                Finding(
                    code="schedule.missing",
                    where=where,
                    what="no cadence and no backfill plan",
                    remedy=remedy,
                )
            )
    return found


def _advice(workspace: Workspace) -> list[Finding]:
    """Secrets where references belong, and upstreams that are not told who asks."""
    read = [workspace.path / name for name in ("kfm.yml", "data/registry", "scripts", "src")]
    found = [
        Finding(
            code="secret.inline",
            where=f"{secret.path.relative_to(workspace.path)}:{secret.line}",
            what=f"it looks like a credential ({secret.rule})",
            remedy=(
                "Replace it, and name where it is: env:NAME, or credential:NAME of `credentials` in"
                " kfm.yml."
            ),
        )
        for secret in scan(path for path in read if path.exists())
    ]
    entries = [
        entry for name in workspace.registered() if (entry := workspace.readable(name)) is not None
    ]
    if not workspace.config.contact and any(is_live(entry.source.url) for entry in entries):
        remedy = "Add `contact: you@example.org` (or an address) to kfm.yml; upstreams ask for one."
        found.append(
            Finding(
                code=ADVICE,
                where="kfm.yml",
                what="no contact is named to upstream hosts",
                remedy=remedy,
            )
        )
    return found


def _beside(workspace: Workspace) -> list[Advice]:
    """A root key that whoever takes the builder's takes too."""
    try:
        keys = KeyFolder(workspace.path / "keys")
        here = (
            keys.root_keys()
            if keys.trust() is not None and any((workspace.path / "keys").glob("*.key"))
            else {}
        )
    except KfmError:
        return []  # said with the keys
    both = any("builder" in key.roles for key in here.values())
    what = "one key is both root and builder" if both else "the root key lies beside the builder's"
    remedy = "`kfm keys export-root FILE` moves it to a place of its own, say a stick in a safe."
    remedy = f"`kfm keys rotate` makes two of it; then {remedy}" if both else remedy
    return [
        Advice(
            code="root.beside",
            where=f"{file.relative_to(workspace.path)}",
            what=what,
            remedy=remedy,
        )
        for file in here
    ]


def _no_floor(workspace: Workspace) -> list[Advice]:
    """A root from before approvals were recorded: readers cannot tell a generation that hides them
    from an old one.
    """
    try:
        trust = KeyFolder(workspace.path / "keys").trust()
    except KfmError:
        return []  # said with the keys
    if trust is None or trust.floor_of("") is not None:
        return []
    what = "it does not say from which generation on approvals are recorded"
    return [
        Advice(
            code="root.floor",
            where="keys/root",
            what=what,
            remedy="`kfm keys renew` signs a root that does.",
        )
    ]


def exit_code_of(left: Sequence[Finding]) -> int:
    """The exit code that findings make: 6 for damage, 1 for others."""
    lost = ("store.unusable", "version.missing")
    damaged = any("damaged" in f.code or f.code in lost for f in left)
    return 6 if damaged else 1 if left else 0


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """What holds the code that reads and transforms data."""

    whole: bool
    landlock: int
    seccomp: bool
    why: str


class Examined(Answer, frozen=True, kw_only=True):
    """Damage and leftovers, and what is not broken and could be better."""

    findings: list[Finding]
    advice: list[Advice]
    isolation: Isolation

    @property
    def left(self) -> list[Finding]:
        """What is to be mended still."""
        return [f for f in self.findings if not f.fixed and f.code != ADVICE]

    @property
    def code(self) -> int:
        return exit_code_of(self.left)

    def tell(self, call: Call) -> None:
        for f in self.findings:
            state = "PASS" if f.fixed else "NOOP" if f.code == ADVICE else "FAILED"
            end = " (mended)" if f.fixed else f"\n      {f.remedy}"
            write(f"  {sign(state)} {f.code:<20} {f.where}: {f.what}{end}")
        for a in self.advice:
            write(f"  {sign('NOOP')} {a.code:<20} {a.where}: {a.what}\n      {a.remedy}")
        if self.isolation.whole:
            write(
                f"  {sign('PASS')} isolation: Landlock {self.isolation.landlock} and seccomp hold"
                " what reads and transforms data"
            )
        else:
            write(
                f"  {sign('NOOP')} isolation: {self.isolation.why}; shipped code runs with a"
                " warning, docs/connectors.md says what else may run"
            )
        mended = sum(f.fixed for f in self.findings)
        write(
            f"{len(self.left) + mended} findings, {mended} mended"
            if self.left or mended
            else f"{sign('PASS')} nothing to mend"
        )


def examined(call: Call, fix: bool) -> Examined:
    workspace, held = open_workspace(call.workspace), held_here()
    return Examined(
        findings=findings(workspace, fix=fix),
        advice=[*_soon_out_of_date(workspace), *_beside(workspace), *_no_floor(workspace)],
        isolation=Isolation(
            whole=held.whole, landlock=held.landlock, seccomp=held.seccomp, why=held.why
        ),
    )
