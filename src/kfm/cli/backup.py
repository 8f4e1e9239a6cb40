"""Back a workspace up while its runs go on, check a backup, or make a workspace from one."""

import shlex
import shutil
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from kfm.cli.answer import Answer, Call
from kfm.cli.call import again
from kfm.cli.doctor import ADVICE, exit_code_of, findings
from kfm.cli.du import human
from kfm.cli.run import tell
from kfm.cli.terminal import program, sign, write
from kfm.jobs.drive import run_target
from kfm.model import Generation, KfmError, UsageError, is_assembly
from kfm.upkeep.doctor import Finding
from kfm.workspace.backup import Manifest, check_backup, make_backup, plain_sources, restore_backup
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome

__all__ = ["Backup", "Restoration", "checked", "made", "restored"]


class Backup(Answer, frozen=True, kw_only=True):
    """A backup as it was made, or as it was found."""

    status: Literal["backed_up", "whole"]
    path: str
    files: int
    bytes: int
    epoch: int
    keys: bool
    made_at: str
    left_out: dict[str, str]
    plain: dict[str, str] | UnsetType = UNSET  # files that are inside as people brought them

    def tell(self, call: Call) -> None:
        inside = "private keys inside" if self.keys else "without private keys"
        write(
            f"{sign('PASS')} {self.path}  {self.files:,} files, {human(self.bytes)}, {inside}, of"
            f" {self.made_at[:19]}Z"
        )
        for name, why in self.left_out.items():
            write(f"  {sign('SUPERSEDED')} {name} is a link and not inside: {why}.")
        for name, why in (self.plain or {}).items():
            write(f"  {sign('SUPERSEDED')} {name} is inside as it was brought: {why}.")
        folder = shlex.quote(self.path)
        if self.status == "whole":
            write(f"\nNext  {program()} backup restore {folder} -w NEW")
            return
        if not self.keys:
            write(
                "  Keys are not inside: keep them elsewhere (`kfm keys`), or add --with-keys. What"
                " is sealed cannot be read without them."
            )
        write(f"\nNext  {program()} backup check {folder}")


def made(call: Call, folder: Path, with_keys: bool, link: bool) -> Backup:
    workspace = open_workspace(call.workspace)
    found = make_backup(workspace, folder, link=link, with_keys=with_keys)
    return _told(folder, found, "backed_up", dict(plain_sources(workspace, found)))


def checked(call: Call, folder: Path) -> Backup:
    return _told(folder, check_backup(folder), "whole", UNSET)


def _told(
    folder: Path,
    found: Manifest,
    status: Literal["backed_up", "whole"],
    plain: dict[str, str] | UnsetType,
) -> Backup:
    return Backup(
        status=status,
        path=str(folder),
        files=len(found.files),
        bytes=found.size,
        epoch=found.epoch,
        keys=found.keys,
        made_at=found.made_at,
        left_out=dict(found.left_out or {}),
        plain=plain,
    )


class Restoration(Answer, frozen=True, kw_only=True):
    """A workspace made from a backup, and what doctor and a dry run find in it."""

    status: Literal["restored", "restored_with_findings"]
    path: str
    files: int
    erased: list[str]  # datasets from which something was erased since
    epoch: int
    reindexed: bool
    reindex_needed: bool
    needs: Literal["keys", "store", ""]  # what the backup could not bring
    findings: list[Finding]
    interrupted: list[str]
    dry_run: Outcome | None

    @property
    def code(self) -> int:
        tried = self.dry_run
        return max(
            exit_code_of(self.findings),
            0 if tried is None or tried.exit_code == 7 else tried.exit_code,
        )

    def tell(self, call: Call) -> None:
        write(f"{sign('PASS')} {self.path}  {self.files:,} files, store epoch {self.epoch}")
        if self.needs == "keys":
            write(
                "  The backup has no private keys: bring them back before the next run (`kfm keys"
                " restore FILE`, or the files into keys/)."
            )
        if self.needs == "store":
            write(
                "  The store was on a server; this copy has a file of its own, and the server was"
                " not touched."
            )
        if self.reindex_needed:
            write(
                "  A run ended while the backup was made: with the keys in place, `kfm reindex`"
                " brings the store up to the evidence."
            )
        for run in self.interrupted:
            write(
                f"  {run[0].upper()}{run[1:]} was at work when the backup was made: `kfm resume`"
                " goes on with it."
            )
        for f in self.findings:
            write(f"  {sign('FAILED')} doctor: {f.code}  {f.where}: {f.what}\n      {f.remedy}")
        if self.dry_run is not None:
            tell(self.dry_run, 0.0, dry_run=True)
        elif self.needs != "keys":
            write("  Nothing was official that a dry run could have tried.")
        if self.code:
            write(
                f"{sign('FAILED')} restored, with findings: see above before anything relies on it."
            )
        elif self.dry_run is not None:
            write(
                f"{sign('PASS')} doctor found nothing, and a dry run of {self.dry_run.dataset_id}"
                " went through."
            )
        write(f"\nNext  {again(call, 'doctor' if self.code else 'status')}")


def restored(call: Call, folder: Path) -> Restoration:
    if call.workspace is None:
        raise UsageError(
            "A restore names one backup and a new workspace.",
            expected="kfm backup restore DIR -w NEW",
            remedy="Add -w NEW.",
        )
    done = restore_backup(folder, call.workspace)
    workspace = open_workspace(call.workspace)
    # told below
    found = [
        f
        for f in findings(workspace)
        if f.code != ADVICE and not (done.needs == "keys" and f.where == "keys")
    ]
    tried = None if done.needs == "keys" or done.reindex_needed else _dry_run(workspace)
    # a backup stops no run, and a restore goes on with it
    answer = Restoration(
        status="restored",
        path=str(call.workspace),
        **msgspec.structs.asdict(done),
        findings=[f for f in found if f.code != "run.interrupted"],
        interrupted=[f.where for f in found if f.code == "run.interrupted"],
        dry_run=tried,
    )
    if not answer.code:
        return answer
    return msgspec.structs.replace(answer, status="restored_with_findings")


def _dry_run(workspace: Workspace) -> Outcome | None:
    """The dataset with the smallest official capture once more, from that capture, in a throw-away
    copy; None: nothing is official.
    """
    with open_world(workspace) as world:
        rows = [
            r
            for r in world.store.read(lambda tx: tx.runs.recent(None, 1000))
            if r.state == "COMMITTED" and not is_assembly(r)
        ]
        held = {
            name: world.store.read(lambda tx: tx.index.last_generation(name))
            for name in {r.dataset_id for r in rows}
        }
    entries = {name: workspace.readable(name) for name in held}
    kept = {
        name
        for name, entry in entries.items()
        if entry is not None and entry.retired is None and not _withdrawn(held[name])
    }
    newest = {r.dataset_id: r for r in reversed(rows) if r.dataset_id in kept}
    # not erased
    newest = {
        name: row
        for name, row in newest.items()
        if all(s.get("digest") for s in msgspec.json.decode(row.source_metadata))
    }
    if not newest:
        return None
    row = min(
        newest.values(),
        key=lambda r: (
            sum(s.get("size") or 0 for s in msgspec.json.decode(r.source_metadata)),
            r.dataset_id,
        ),
    )
    try:
        target = next(
            t
            for t in targets_of(workspace, row.dataset_id, win=row.win, trigger="restore")
            if t.partition == row.partition
        )
        with open_world(workspace, upstream="replay", dry_run=row.dataset_id) as dry:
            found = run_target(
                dry, target, forced=True, reason="does the restored workspace work?", wait_s=0.0
            )
    except (KfmError, StopIteration) as error:
        happened = (
            error.happened
            if isinstance(error, KfmError)
            else f"Partition {row.partition} is not registered any more."
        )
        code = error.exit_code if isinstance(error, KfmError) else 1
        return Outcome(
            dataset_id=row.dataset_id,
            run_id="",
            state="FAILED",
            reason=happened,
            exit_code=code,
            dry_run=True,
        )
    # what is restored stays as it was
    shutil.rmtree(
        workspace.data / "work" / row.dataset_id / "runs" / found.run_id, ignore_errors=True
    )
    return msgspec.structs.replace(found, dry_run=True)


def _withdrawn(head: Generation | None) -> bool:
    return head is None or head.version_id is None
