"""Test, check, ask and try out the rules in policy/."""

import sys
from contextlib import closing
from pathlib import Path

import msgspec

from kfm.access.status import dataset_status
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.terminal import show, table, write
from kfm.model import Denied, IntegrityError, Json, KfmError, UsageError, canonical
from kfm.policy.base import Decision, Trouble, sources_of
from kfm.policy.embedded import Embedded, run_tests
from kfm.policy.subset import Finding, check, scan
from kfm.upkeep.judge_official import policy_input
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = [
    "PACKAGES",
    "Checked",
    "Decided",
    "Simulated",
    "Tests",
    "checked",
    "decided",
    "simulated",
    "tested",
]

_UNREADABLE = ("subset.character", "subset.depth", "subset.package", "subset.size")
PACKAGES = {"promote": "kfm.promotion", "read": "kfm.serve", "redact": "kfm.redaction"}


# ---- test ----------------------------------------------------------------------------------------
class Test(msgspec.Struct, frozen=True, kw_only=True):
    """How one test of rules ended."""

    name: str
    passed: bool
    message: str


class Tests(Answer, frozen=True, kw_only=True):
    """How the tests of the rules ended."""

    tests: list[Test]
    failed: int

    @property
    def code(self) -> int:
        return 1 if self.failed or not self.tests else 0  # no test is no proof

    def tell(self, call: Call) -> None:
        for test in self.tests:
            message = f"  ({test.message})" if test.message else ""
            write(f"  {'pass' if test.passed else 'FAIL'}  {test.name}{message}")
        write(f"{len(self.tests)} tests, {self.failed} failed")


def tested(call: Call, policy: Path | None) -> Tests:
    rules = _rules(call, policy)
    unreadable = [finding for finding in scan(rules) if finding.code in _UNREADABLE]
    if unreadable:
        raise UsageError(
            f"The rules cannot be read: {unreadable[0]}",
            expected="Rego",
            remedy="`kfm policy check` lists all of it.",
        )
    try:
        tests = [Test(**test._asdict()) for test in run_tests(rules)]
    except Trouble as trouble:
        raise UsageError(
            "The rules cannot be loaded.",
            expected="Rego",
            remedy=f"`kfm policy check` says where: {trouble}",
        ) from trouble
    return Tests(tests=tests, failed=sum(not test.passed for test in tests))


def _rules(call: Call, policy: Path | None) -> dict[str, bytes]:
    folder = policy or open_workspace(call.workspace).path / "policy"
    found = sources_of(folder)
    if not found:
        raise UsageError(
            f"There are no rules in {folder.name}/.",
            expected="*.rego files",
            remedy="`kfm init` writes those to start with.",
        )
    return found


# ---- check ---------------------------------------------------------------------------------------
class Checked(Answer, frozen=True, kw_only=True):
    """Where rules leave the subset that kfm understands."""

    files: int
    findings: list[Finding]

    @property
    def code(self) -> int:
        return UsageError.exit_code if self.findings else 0

    def tell(self, call: Call) -> None:
        for finding in self.findings:
            write(f"  {finding}")
        write(f"{self.files} files checked, {len(self.findings)} findings")


def checked(call: Call, policy: Path | None) -> Checked:
    rules = _rules(call, policy)
    return Checked(files=len(rules), findings=list(check(rules)))


# ---- eval ----------------------------------------------------------------------------------------
class Decided(Decision, Answer, frozen=True, kw_only=True):
    """One decision on a document."""

    @property
    def code(self) -> int:
        return 0 if self.allow else Denied.exit_code

    def tell(self, call: Call) -> None:
        write(
            f"{'allowed' if self.allow else 'denied'}  decision {self.decision_id}  policy"
            f" {self.policy_digest[:19]}…"
        )
        for denial in self.deny:
            write(f"  {denial['code']}: {denial['message']}\n      {denial['remedy']}")


def decided(call: Call, policy: Path | None, input: str, package: str | None) -> Decided:
    try:
        raw = sys.stdin.buffer.read() if input == "-" else Path(input).read_bytes()
    except OSError as error:
        raise UsageError(
            f"{Path(input).name} cannot be read: {error.strerror}.",
            expected="a JSON document",
            remedy="Check the path.",
        ) from error
    document = canonical.loads(raw)
    if not isinstance(document, dict):
        raise UsageError(
            "The document is not an object.",
            expected="one JSON object",
            remedy="`kfm policy eval --help` says how to ask.",
        )
    with closing(Embedded(_rules(call, policy))) as evaluator:
        return answering(Decided, evaluator.decide(package or _package(document), document))


def _package(document: Json) -> str:
    return PACKAGES.get(str(document.get("action")), "kfm.promotion")


# ---- simulate ------------------------------------------------------------------------------------
class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What rules say of a version."""

    allow: bool
    deny: list[dict[str, str]]
    policy_digest: str

    @property
    def word(self) -> str:
        codes = ", ".join(sorted({denial["code"] for denial in self.deny}))
        return "allowed" if self.allow else f"denied ({codes})"


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset of which other rules would say something else."""

    dataset_id: str
    now: Verdict
    then: Verdict


class Simulated(Answer, frozen=True, kw_only=True):
    """What other rules would do to everything that is official."""

    official: int
    changed: list[Changed]

    def tell(self, call: Call) -> None:
        cells = [(each.dataset_id, each.now.word, each.then.word) for each in self.changed]
        for line in table(("dataset", "now", "then"), cells) if cells else ():
            show(line)
        write(f"{self.official} official, {len(cells)} would change")


def simulated(call: Call, policy: Path) -> Simulated:
    workspace = open_workspace(call.workspace)
    now, then = Embedded(sources_of(workspace.path / "policy")), Embedded(_rules(call, policy))
    found = []
    with closing(now), closing(then), open_world(workspace) as world:
        for name in workspace.registered():
            document = _official_input(world, name)
            if document is not None:
                said = [_short(each.decide(_package(document), document)) for each in (now, then)]
                found.append(Changed(dataset_id=name, now=said[0], then=said[1]))
    if not found:
        raise UsageError(
            "Nothing is official here.",
            expected="an official version to judge",
            remedy="`kfm run DATASET` makes one.",
        )
    changed = [c for c in found if (c.now.allow, c.now.deny) != (c.then.allow, c.then.deny)]
    return Simulated(official=len(found), changed=changed)


def _official_input(world: World, name: str) -> Json | None:
    """What the engine would ask about the official version; None when there is none."""
    try:
        if dataset_status(world, name).version_id is None:
            return None
        return policy_input(world, name)
    except (KfmError, OSError) as error:
        why = (
            getattr(error, "happened", None)
            or f"{getattr(error, 'strerror', None) or 'it cannot be read'}."
        )
        raise IntegrityError(
            f"What is official of {name} cannot be judged: {why}",
            expected="an intact version",
            remedy="`kfm verify` names what is wrong.",
        ) from error


def _short(decision: Decision) -> Verdict:
    return Verdict(
        allow=decision.allow,
        deny=list(decision.deny),
        policy_digest=decision.policy_digest,
    )
