"""What CI asks of a change before it may be merged: one question to a job, each answered by the
engine itself.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from kfm.cli.policy import PACKAGES
from kfm.model import UsageError
from kfm.model.paths import run_path
from kfm.model.receipt import Receipt, RunManifest, RunRecord, ValidationReport
from kfm.policy.base import Trouble, is_test, sources_of
from kfm.policy.embedded import Embedded, run_tests
from kfm.policy.subset import check as strange
from kfm.runners.contents import excluded
from kfm.runners.owners import uncovered
from kfm.runners.preview import Preview, called, preview
from kfm.runners.render import marked, state_of
from kfm.runners.settings import settings_of
from kfm.runners.stages import flags_table
from kfm.runners.table import RUNNERS
from kfm.upkeep.documents import problems as wrong_documents
from kfm.workspace.folder import Workspace

__all__ = ["CHECKS", "Checked", "asked", "bad_receipts", "damage", "denials"]

_SHIPPED = Path(__file__).parents[1] / "template" / "policy"
_RECORDS: dict[str, type[msgspec.Struct]] = {  # of every run that became official
    "run_record.json": RunRecord,
    "run_manifest.json": RunManifest,
    "validation_report.json": ValidationReport,
}


class Checked(msgspec.Struct, frozen=True):
    """What one question found."""

    looked_at: str
    problems: tuple[str, ...] = ()


def asked(workspace: Workspace, name: str, base: str) -> Checked:
    return CHECKS[name](workspace, base)


# ---- in a preview --------------------------------------------------------------------------------
def _gates(workspace: Workspace, base: str) -> Checked:
    with preview(workspace, base) as found:
        return Checked(_named(found), tuple(_refused(found)))


def _refused(found: Preview) -> Iterator[str]:
    """What a gate denied, or what did not work; what waits for people is not wrong."""
    for run in found.runs:
        if run["exit_code"] not in (0, 7):
            codes = ", ".join(reason["code"] for reason in run.get("reasons") or ())
            yield f"{run['dataset_id']}: {codes or run['reason']}"


def _receipts(workspace: Workspace, base: str) -> Checked:
    with preview(workspace, base) as found:
        return Checked(_named(found), tuple(bad_receipts(found)))


def bad_receipts(found: Preview) -> Iterator[str]:
    place = found.workspace
    for run in found.runs:
        run_id, dataset_id = run["run_id"], run["dataset_id"]
        if not run_id:
            yield f"{dataset_id}: there was no run: {run['reason']}"
            continue
        named = {
            place.data / run_path(dataset_id, run_id, file): kind for file, kind in _RECORDS.items()
        }
        receipts = sorted((place.path / "receipts").rglob(f"{run_id}.json"))
        if not receipts:
            yield f"{dataset_id}: the run {run_id} left no receipt"
        for path, kind in (dict.fromkeys(receipts, Receipt) | named).items():
            if path.is_file():
                yield from _unfit(path, kind, place.path)
            elif run["state"] == "COMMITTED":
                yield f"{dataset_id}: {path.name} is missing"


def _unfit(path: Path, kind: type[msgspec.Struct], root: Path) -> Iterator[str]:
    try:
        msgspec.json.decode(path.read_bytes(), type=kind)
    except msgspec.DecodeError as error:
        yield f"{path.relative_to(root)}: {error}"


def _catalogs(workspace: Workspace, base: str) -> Checked:
    with preview(workspace, base) as found:
        return Checked(_named(found), tuple(denials(found, "schema", "graph")))


def denials(found: Preview, *gates: str) -> Iterator[str]:
    only = [word for gate in gates for word in ("--only", gate)]
    for name in sorted({run["dataset_id"] for run in found.runs if run["run_id"]}):
        said = called(found.workspace.path, "kfm", "gates", name, *only, "--json")
        verdicts = json.loads(said.stdout).get("verdicts", ())
        yield from (
            f"{name}: {reason['code']}: {reason['message']}"
            for verdict in verdicts
            for reason in verdict.get("reasons", ())
        )
        if not verdicts:
            yield f"{name}: {said.stderr.strip() or said.stdout.strip()}"


def _checksums(workspace: Workspace, base: str) -> Checked:
    with preview(workspace, base) as found:
        if not found.runs:
            return Checked(_named(found))
        return Checked(_named(found), tuple(damage(found)))


def damage(found: Preview) -> list[str]:
    """What `kfm verify` finds."""
    said = called(found.workspace.path, "kfm", "verify", "--json")
    told = json.loads(said.stdout)
    wrong = [f"{p['where']}: {p['what']}" for p in told.get("problems", ())]
    return wrong if wrong or not said.returncode else [str(told.get("happened", told))]


def _workers(workspace: Workspace, base: str) -> Checked:
    """A worker takes what changed from the queue, and nothing is left there; among the workers
    lies nothing but code and its tests.
    """
    with preview(workspace, base, run=False) as found:
        folder, said = found.workspace.path, [*excluded(workspace.path)]
        for name in found.datasets:
            uri = f"kfm://dataset/{name}"
            called(folder, "kfm", "jobs", "put", "ingest.pull_source", "--dataset", uri)
        called(folder, "workers", "run", "--concurrency=4", "--until-idle")
        for job in json.loads(called(folder, "kfm", "jobs", "list", "--json").stdout)["jobs"]:
            if job["state"] != "ended" or job["outcome"] not in ("succeeded", "skipped"):
                said.append(
                    f"{job['job_type']} {job['dataset_id']}: {job['error'] or job['state']}"
                )
    return Checked(_named(found), tuple(said))


def _named(found: Preview) -> str:
    return ", ".join(found.datasets) or "no dataset changes"


# ---- without one ---------------------------------------------------------------------------------
def _policy(workspace: Workspace, base: str) -> Checked:
    """The rules keep to the subset, pass their own tests and those kfm brings, and deny whatever
    says nothing.
    """
    rules = sources_of(workspace.path / "policy")
    problems = [str(finding) for finding in strange(rules)] if rules else ["there are no rules"]
    deciding = {name: text for name, text in rules.items() if not is_test(name)}
    brought = {name: text for name, text in sources_of(_SHIPPED).items() if is_test(name)}
    for tests in (rules, {**deciding, **brought}) if not problems else ():
        problems += _failed(tests)
    if not problems:
        with closing(Embedded(deciding)) as evaluator:
            problems = [
                f"{package} allows what says nothing"
                for package in PACKAGES.values()
                if evaluator.decide(package, {}).allow
            ]
    return Checked(f"{len(rules)} files of policy/", tuple(problems))


def _failed(rules: dict[str, bytes]) -> list[str]:
    try:
        found = run_tests(rules)
    except Trouble as trouble:
        return [f"the rules cannot be loaded: {trouble}"]
    failed = [f"{test.name} fails {test.message}".strip() for test in found if not test.passed]
    return failed if found else ["no test: that is no proof"]


def _documents(workspace: Workspace, base: str) -> Checked:
    root = workspace.path
    problems = [*wrong_documents(root), *_stale(root), *_drifted(workspace)]
    return Checked("links, heads, generated pages and rendered runners", tuple(problems))


def _stale(root: Path) -> Iterator[str]:
    """Generated pages of a workspace that say something else than the program."""
    page = root / "scripts" / "connectors" / "README.md"
    if page.is_file() and flags_table() not in page.read_text():
        yield "scripts/connectors/README.md: its table of flags is not that of this kfm"


def _drifted(workspace: Workspace) -> Iterator[str]:
    """Rendered files that say something else than kfm.yml and the registry."""
    settings = settings_of(workspace)
    for name, runner in RUNNERS.items():
        try:
            files = marked(name, runner.files(settings))
        except UsageError:  # kfm.yml says too little: it was rendered with flags, or never
            continue
        states = [state_of(workspace.path, path, content) for path, content in files.items()]
        if any(file.state != "missing" for file in states):
            yield from (
                f"{file.path}: {file.state}; `kfm runner render {name}`"
                for file in states
                if file.state != "current"
            )


def _owners(workspace: Workspace, base: str) -> Checked:
    return Checked("CODEOWNERS", tuple(uncovered(workspace.path)))


CHECKS: dict[str, Callable[[Workspace, str], Checked]] = {
    "gates": _gates,
    "receipts": _receipts,
    "catalogs": _catalogs,
    "checksums": _checksums,
    "policy": _policy,
    "documents": _documents,
    "owners": _owners,
    "workers": _workers,
}
