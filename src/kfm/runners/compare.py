"""Does the choice of a runner change a byte? The very command lines of its rendered files are called,
each runner in a copy of its own fed from the last capture, and what they left is compared.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from kfm.cli.scheduler import Tables
from kfm.drill import passes
from kfm.drill.compare import look
from kfm.drill.copies import Bench, bench
from kfm.jobs.schedule.scheduler import pause
from kfm.model import INGEST, Json, Request, SystemClock, UsageError, canonical, ids
from kfm.runners.lines import Line, Values
from kfm.runners.table import RUNNERS
from kfm.store.sqlite import SqliteStore
from kfm.workspace.folder import Workspace, open_workspace

__all__ = ["BY_HAND", "Left", "compare"]

BY_HAND = "by hand"
_PATIENCE_S = 600.0
_ENDED = (0, 3, 7)  # done, denied, waits for people: what it is, is compared
_STOPPED = (0, 128 + signal.SIGTERM)


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What a runner left, without what differs in every run: ids, times, signatures, and who asked."""

    runner: str
    lines: int  # that were called
    state: str = ""
    generations: int = 0
    version_id: str = ""
    artifacts: str = ""  # of captures and versions, as one digest
    receipts: str = ""
    problem: str = ""

    @property
    def same(self) -> tuple[str | int, ...]:
        """What must be equal."""
        return (self.state, self.generations, self.version_id, self.artifacts, self.receipts)


def compare(workspace: Workspace, dataset_id: str, chosen: Sequence[str] = ()) -> Iterator[Left]:
    """What each runner left, beside a run by hand; those that are rendered here, or `chosen` ones."""
    files = {name: _files(workspace, name) for name in chosen or RUNNERS}
    missing = [name for name in chosen if not files[name]]
    if missing or not any(files.values()):
        name = (missing or ["github"])[0]
        raise UsageError(
            f"{missing[0]} is not rendered here." if missing else "No runner is rendered here.",
            expected="the files of a runner in this workspace",
            remedy=f"`kfm runner render {name}` writes them.",
        )
    with bench(workspace, dataset_id) as where:
        copy = where.copy("by-hand")
        ended = passes.run(copy, dataset_id)
        yield _left(where, copy, BY_HAND, 1, "" if ended.code in _ENDED else ended.said)
        programs = _programs(where.folder)
        for name in files:
            copy = where.copy(name)
            values = Values(
                dataset=dataset_id, window=_window(copy), output=where.folder / f"{name}.out"
            )
            lines = RUNNERS[name].lines(files[name], values)
            if lines:
                problem = _called(where, copy, lines, programs)
                yield _left(where, copy, name, len(lines), problem)


def _files(workspace: Workspace, name: str) -> dict[str, str]:
    folder = workspace.path / RUNNERS[name].folder
    return {
        str(path.relative_to(workspace.path)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _window(copy: Path) -> str:
    return str(json.loads((copy / "replay.json").read_bytes())["window"])


def _programs(folder: Path) -> Path:
    """`kfm` and `python` as a machine of a runner has them: the ones that run now."""
    place = folder / "programs"
    place.mkdir()
    for name, words in {"python": [], "kfm": ["-m", "kfm"]}.items():
        line = shlex.join([sys.executable, *words])
        (place / name).write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        (place / name).chmod(0o755)
    return place


# ---- calling -------------------------------------------------------------------------------------
def _called(where: Bench, copy: Path, lines: Sequence[Line], programs: Path) -> str:
    """Call every line in its order, with one job in the queue; what went wrong, in words."""
    _ask(where, copy, first=True)
    for number, line in enumerate(lines):
        if number and line.stays:
            _ask(where, copy)
        wrong = _call(where, copy, line, programs)
        if wrong:
            return f"{line.file}, {line.name}: {wrong}"
    return ""


def _ask(where: Bench, copy: Path, *, first: bool = False) -> None:
    """Put the job that a clock, an event or a person would put; no clock asks for more."""
    workspace = open_workspace(copy)
    store = SqliteStore(copy / where.store_file, SystemClock())
    request = Request(job_type=INGEST, dataset_id=where.dataset_id, win=_window(copy))
    try:
        for table in Tables(workspace)() if first else ():
            store.transaction(lambda tx: pause(tx, table, "nothing but what is compared"))
        store.transaction(lambda tx: tx.jobs.submit(request))
    finally:
        store.close()


def _call(where: Bench, copy: Path, line: Line, programs: Path) -> str:
    variables = {
        **passes.environment(),
        **line.environment,
        "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "KFM_WORKSPACE": str(copy),
    }
    out = copy.with_name(f"{copy.name}.said")
    with out.open("wb") as said, out.with_suffix(".err").open("wb") as talk:
        process = subprocess.Popen(
            line.words, cwd=copy, env=variables, stdin=subprocess.DEVNULL, stdout=said, stderr=talk, start_new_session=True
        )  # fmt: skip
    try:
        if line.stays:
            _stop(where, copy, process)
        code = process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return "it did not end"
    finally:
        left = passes.ended_group(process, copy)
    if code not in (_STOPPED if line.stays else _ENDED):
        return f"exit {code}: {out.with_suffix('.err').read_text(errors='replace').strip()[-300:]}"
    return left or _not_found(where, line, out)


def _stop(where: Bench, copy: Path, process: "subprocess.Popen[bytes]") -> None:
    """Let what stays do its job, then ask it to end."""
    store = SqliteStore(copy / where.store_file, SystemClock())
    until = time.monotonic() + _PATIENCE_S
    try:
        while process.poll() is None and time.monotonic() < until:
            waiting = store.read(lambda tx: tx.jobs.waiting(where.dataset_id))
            if not [job for job in waiting if job.job_type == INGEST]:
                break
            time.sleep(0.02)
    finally:
        store.close()
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)


def _not_found(where: Bench, line: Line, out: Path) -> str:
    """Whether a line that finds datasets found this one."""
    if not line.finds:
        return ""
    path, _, mark = line.finds.partition(":")
    text = (out if path == "stdout" else Path(path)).read_text().rpartition(mark or "\0")[2]
    try:
        found = msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError:
        found = [text[:100]]
    return "" if where.dataset_id in found else f"it found {found}"


# ---- looking -------------------------------------------------------------------------------------
def _left(where: Bench, copy: Path, runner: str, lines: int, problem: str) -> Left:
    """What lies in the copy now."""
    seen = look(copy, where)
    ended = [(state, version) for _, state, version in seen.rows if state != "NOOP"]
    state, version_id = ended[0] if ended else ("", "")
    return Left(
        runner=runner,
        lines=lines,
        state=" ".join(state for state, _ in ended) or state,
        generations=len(seen.generations),
        version_id=version_id,
        artifacts=ids.digest(canonical.dumps(seen.files)),
        receipts=_receipts(copy),
        problem=problem or ", ".join((*seen.bad_sums, *seen.leftovers)),
    )


def _receipts(copy: Path) -> str:
    """The receipts of runs that did something, as one digest, without what is of one run alone."""
    told = [json.loads(p.read_bytes()) for p in (copy / "receipts" / INGEST).rglob("*.json")]
    kept = [_of_all(each) for each in told if each["status"] != "skipped"]
    return ids.digest(canonical.dumps(sorted(kept, key=lambda each: str(each["run_key"]))))


_OWN = (
    "run_id",
    "job_id",
    "started_at",
    "finished_at",
    "reason",
    "request_reason",
    "correlation_id",
)


def _of_all(receipt: Json) -> Json:
    """What a receipt says whoever asked for the run, and on whatever machine."""
    found = {key: value for key, value in receipt.items() if key not in _OWN}
    made = {k: v for k, v in found["provenance"].items() if k in ("transforms", "policy_decisions")}
    tools = dict(found["provenance"]["tool_versions"])
    tools.pop("worker_image", None)
    promotion = dict(found.get("promotion") or {})
    promotion.pop("lease", None)
    if promotion.get("policy"):
        promotion["policy"] = {**promotion["policy"], "decision_id": ""}
    return {**found, "provenance": {**made, "tool_versions": tools}, "promotion": promotion}
