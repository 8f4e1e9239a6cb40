"""Make a connector that works, try it, and check that connectors keep their contract."""

import os
import shutil
import tempfile
from pathlib import Path

import msgspec

from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import again
from kfm.cli.dataset import missing_said
from kfm.cli.terminal import show, sign, write
from kfm.connectors.base import plain
from kfm.connectors.child.process import kept_warm
from kfm.gates.mandatory import check_licence
from kfm.model import Json, UsageError, check_dataset_id
from kfm.testing import RULES, Finding, Tried, check_connector, try_connector, write_golden
from kfm.workspace.config import new_entry
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.new_connector import Asked, draw

__all__ = ["Checked", "New", "Trial", "checked", "new", "tried"]

SYNTHETIC = (  # made up; what a new connector is tried on until its author brings something better
    "site_id,name,observed_at,value,latitude,longitude\n"
    "S1,Sample one,2026-01-01T00:00:00Z,1.5,38.5,-98.3\n"
    "S2,Sample two,2026-01-02T00:00:00Z,0,37.9,-97.1\n"
    "S3,Sample three,2026-01-03T00:00:00Z,,39.2,-99.8\n"
    "S4,Sample four,2026-01-04T00:00:00Z,12.25,37.1,-95.6\n"
)


# ---- try -----------------------------------------------------------------------------------------
class Trial(Tried, Answer, frozen=True, kw_only=True):
    """What a connector makes of the first rows."""

    @property
    def code(self) -> int:
        return 1 if self.problem else 0

    def tell(self, call: Call) -> None:
        write(f"{self.dataset_id}, tried on {self.of}: {', '.join(self.inputs)}")
        write(f"columns there  {', '.join(self.columns) or 'none'}")
        _tell_rows("before", [_line(row) for row in self.before] or ["nothing"])
        _tell_rows("after", [_line(row) for row in self.after] or ["nothing"])
        _tell_rows("left out", [f"{left.reason}: {_line(left.row)}" for left in self.left])
        _tell_rows("set aside", [f"{left.reason}: {_line(left.row)}" for left in self.aside])
        _tell_rows("printed", self.printed.splitlines())
        if self.counts is not None:
            dropped = "".join(
                f", {n} left out: {rule.removeprefix('connector ')}"
                for rule, n in self.counts["dropped"].items()
            )
            write(
                f"\n{self.counts['read']} read, {self.counts['written']} written,"
                f" {self.counts['quarantined']} set aside{dropped}"
            )
        for warning in self.warnings:
            write(f"warning: {warning}")
        if self.problem:
            write(f"\n{sign('REJECTED')} {self.problem}\n  {self.remedy}")
            for line in self.stack:
                write(f"    {line}")


def _tell_rows(title: str, lines: list[str]) -> None:
    if lines:
        write(f"\n{title}")
    for line in lines:
        show(f"  {line}", data=True)


def _line(row: Json) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in row.items())


def _short(value: object) -> str:
    text = plain(repr(value))
    return text if len(text) <= 60 else f"{text[:59]}…"


def tried(call: Call, dataset: str, rows: int) -> Trial:
    return answering(Trial, try_connector(open_workspace(call.workspace).path, dataset, rows))


# ---- check ---------------------------------------------------------------------------------------
class OfOne(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one connector."""

    dataset_id: str
    findings: list[Finding]


class Checked(Answer, frozen=True, kw_only=True):
    """Whether connectors keep their contract."""

    connectors: list[OfOne]

    @property
    def code(self) -> int:
        return int(any(each.findings for each in self.connectors))

    def tell(self, call: Call) -> None:
        for each in self.connectors:
            broken = {f.rule for f in each.findings}
            write(
                f"  {sign('REJECTED' if broken else 'PASS')} {each.dataset_id:<24}"
                f" {len(RULES) - len(broken)} of {len(RULES)} rules kept"
            )
            for f in each.findings:
                write(f"      {f.rule}: {f.what}\n        {f.remedy}")


def checked(call: Call, dataset: list[str], golden: bool) -> Checked:
    workspace = open_workspace(call.workspace)
    folder = workspace.path / "scripts" / "connectors"
    names = dataset or sorted(
        p.name for p in folder.glob("*") if p.is_dir() and not p.name.startswith(("_", "."))
    )
    if not names:
        raise UsageError(
            "There is no connector here.",
            expected="scripts/connectors/<dataset_id>",
            remedy="`kfm connector new ID` makes one.",
        )
    for name in names:
        if golden or not (folder / name).is_dir():
            # registered without a connector is a finding, a name nobody knows is a mistake
            workspace.require(name)
    for name in names if golden else ():
        write_golden(workspace.path, name)
    return Checked(
        connectors=[
            OfOne(dataset_id=name, findings=check_connector(workspace.path, name)) for name in names
        ]
    )


# ---- new -----------------------------------------------------------------------------------------
class New(Answer, frozen=True, kw_only=True):
    """A connector that was made, and how it did."""

    status: str
    dataset_id: str
    files: list[str]
    missing: list[str]  # without which nothing is published
    findings: list[Finding]
    sensitivity: str
    cadence: str | None
    key: tuple[str, ...]
    hidden: bool  # not all of it may be shown
    untried: str  # what is wanted to try it; empty: it was tried

    @property
    def code(self) -> int:
        return 1 if self.findings else 0

    def tell(self, call: Call) -> None:
        name = self.dataset_id
        for path in self.files:
            write(f"  + {path}")
        for f in self.findings:
            write(f"  {sign('REJECTED')} {f.rule}: {f.what}\n      {f.remedy}")
        write(
            f"\n{name} is labelled {self.sensitivity}, looked at {self.cadence or 'by hand'};"
            f" it has {'the key ' + ', '.join(self.key) if self.key else 'no key'}: change"
            f" data/registry/{name}.yml or connector.py if that is wrong."
        )
        if self.missing:
            write(missing_said(self.missing))
        if self.hidden:
            write(
                "Not all of it may be shown: state a `release` there (docs/governance.md), and keep"
                " the file itself out of version control."
            )
        if self.untried:
            write(f"Nothing was tried: {self.untried}; `kfm connector check {name}` then tries it.")
        tries = "" if self.untried else f"{again(call, f'connector check {name}')}\n      "
        write(f"\nNext  {tries}{again(call, f'run {name}')}")


def new(
    call: Call,
    dataset: str,
    file: Path | None,
    url: str | None,
    kind: str | None,
    format: str | None,
    sensitivity: str,
    title: str | None,
    licence: str | None,
    policy_label: str | None,
    key: list[str],
    time_column: str | None,
    encoding: str | None,
    force: bool,
) -> New:
    workspace, name = open_workspace(call.workspace), check_dataset_id(dataset)
    if licence:
        check_licence(licence, "one such as CC-BY-4.0, or none until it is known")
    asked = Asked(
        file=file,
        url=url or "",
        kind=kind or "",
        format=format or "",
        sensitivity=sensitivity,
        title=title or "",
        licence=licence or "",
        policy_label=policy_label or "",
        key=tuple(key),
        time_column=time_column or "",
        encoding=encoding,
    )
    if url or file:
        return _write(workspace, name, asked, force)
    with tempfile.TemporaryDirectory(prefix="kfm-sample-") as aside:
        sample = Path(aside, "sample.csv")
        sample.write_text(SYNTHETIC)
        asked = msgspec.structs.replace(
            asked,
            file=sample,
            licence=asked.licence or "CC0-1.0",
            title=asked.title or f"{name.replace('_', ' ').capitalize()} (synthetic sample)",
        )
        return _write(workspace, name, asked, force)


def _write(workspace: Workspace, name: str, asked: Asked, force: bool) -> New:
    folder = workspace.path / "scripts" / "connectors" / name
    registered = workspace.entry(name) is not None
    if not force and (folder.exists() or registered):
        raise UsageError(
            f"{name} is there already.",
            expected="a new id",
            remedy=(
                f"`kfm connector new {name} --force` adds what is missing and overwrites nothing."
            ),
        )
    drawn = draw(name, asked)
    files = dict(drawn.files)
    if not registered:
        new_entry(drawn.entry)  # nothing is written that could not be run
        entry = msgspec.yaml.encode(drawn.entry, order=None)
        files[Path("data", "registry", f"{name}.yml")] = entry
    made = [
        str(path)
        for path, content in files.items()
        if _created(workspace.path / path, content, asked.hidden and path.parts[0] == "inbox")
    ]
    sampled = any(path.parent.name == "fixtures" for path in files)
    findings = _accept(workspace, name) if sampled else []
    now = workspace.require(name)
    columns = now.source.kind == "delimited" and not asked.file
    wanted = f"put a small made-up slice into scripts/connectors/{name}/fixtures/"
    return New(
        status="made",
        dataset_id=name,
        files=made,
        missing=[k for k in ("licence", "policy_label") if not getattr(now, k)],
        findings=findings,
        sensitivity=now.sensitivity or "",
        cadence=now.cadence,
        key=tuple(now.business_key),
        hidden=asked.hidden,
        untried=""
        if sampled
        else f"{wanted}{' and its columns into mapping.yml' if columns else ''}",
    )


def _created(path: Path, content: bytes | Path, hidden: bool) -> bool:
    """Write a file that is not there yet; what is not for everyone is only for its owner."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(
            path, "xb", opener=lambda p, flags: os.open(p, flags, 0o600 if hidden else 0o666)
        ) as file:
            if isinstance(content, Path):
                with content.open("rb") as given:
                    shutil.copyfileobj(given, file)
            else:
                file.write(content)
    except FileExistsError:
        return False
    return True


def _accept(workspace: Workspace, name: str) -> list[Finding]:
    golden = workspace.path / "scripts" / "connectors" / name / "fixtures" / "expected.json"
    with kept_warm(private=False, coded=True):
        if not golden.exists():
            try:
                write_golden(workspace.path, name)
            except Exception:  # the check says why, rule by rule
                pass
        return check_connector(workspace.path, name)
