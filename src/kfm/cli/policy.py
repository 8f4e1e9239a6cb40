"""Test, check, ask and try out the rules in policy/.

kfm policy test | check                                  the *_test.rego rules; whether the files keep to the kfm subset
kfm policy eval [--input FILE] [--package PACKAGE]       one decision on a JSON document: exit 0 allowed, 3 denied
kfm policy simulate --policy DIR                         what other rules would do to everything that is official now
"""

import sys
from argparse import Namespace
from contextlib import closing
from pathlib import Path

import msgspec

from kfm.cli.call import Parser, emit
from kfm.evidence.status import dataset_status
from kfm.model import Denied, IntegrityError, Json, KfmError, UsageError, canonical
from kfm.policy.base import Decision, Trouble, sources_of
from kfm.policy.embedded import Embedded, run_tests
from kfm.policy.subset import check, scan
from kfm.upkeep.judge_official import policy_input
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["configure", "main"]

_UNREADABLE = ("subset.character", "subset.depth", "subset.package", "subset.size")
_PACKAGES = {"promote": "kfm.promotion", "read": "kfm.serve", "redact": "kfm.redaction"}


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=("test", "check", "eval", "simulate"))
    parser.add_argument(
        "--policy", type=Path, metavar="DIR", help="the rules; default: policy/ of the workspace"
    )
    parser.add_argument(
        "--input", default="-", metavar="FILE", help="eval: the JSON document; default: stdin"
    )
    parser.add_argument(
        "--package", help="eval: who is asked; default: the one that judges the document's action"
    )


def main(args: Namespace) -> int:
    actions = {"test": _test, "check": _check, "eval": _eval, "simulate": _simulate}
    return actions[args.action](args)


def _rules(args: Namespace) -> dict[str, bytes]:
    folder: Path = args.policy or open_workspace(args.workspace).path / "policy"
    found = sources_of(folder)
    if not found:
        raise UsageError(
            f"There are no rules in {folder.name}/.",
            expected="*.rego files",
            remedy="`kfm init` writes those to start with.",
        )
    return found


def _test(args: Namespace) -> int:
    rules = _rules(args)
    unreadable = [finding for finding in scan(rules) if finding.code in _UNREADABLE]
    if unreadable:
        raise UsageError(
            f"The rules cannot be read: {unreadable[0]}",
            expected="Rego",
            remedy="`kfm policy check` lists all of it.",
        )
    try:
        tests = run_tests(rules)
    except Trouble as trouble:
        raise UsageError(
            "The rules cannot be loaded.",
            expected="Rego",
            remedy=f"`kfm policy check` says where: {trouble}",
        ) from trouble
    failed = [test for test in tests if not test.passed]
    if args.json:
        emit({"tests": [test._asdict() for test in tests], "failed": len(failed)})
    else:
        for test in tests:
            print(
                f"  {'pass' if test.passed else 'FAIL'} "
                f" {test.name}{f'  ({test.message})' if test.message else ''}"
            )
        print(f"{len(tests)} tests, {len(failed)} failed")
    return 1 if failed or not tests else 0  # no test is no proof


def _check(args: Namespace) -> int:
    rules = _rules(args)
    findings = check(rules)
    if args.json:
        emit({"findings": msgspec.to_builtins(findings)})
    else:
        for finding in findings:
            print(f"  {finding}")
        print(f"{len(rules)} files checked, {len(findings)} findings")
    return 2 if findings else 0


def _eval(args: Namespace) -> int:
    try:
        document = canonical.loads(
            sys.stdin.buffer.read() if args.input == "-" else Path(args.input).read_bytes()
        )
    except OSError as error:
        name = Path(args.input).name
        raise UsageError(
            f"{name} cannot be read: {error.strerror}.",
            expected="a JSON document",
            remedy="Check the path.",
        ) from error
    if not isinstance(document, dict):
        raise UsageError(
            "The document is not an object.",
            expected="one JSON object",
            remedy="`kfm policy eval --help` says how to ask.",
        )
    with closing(Embedded(_rules(args))) as evaluator:
        decision = evaluator.decide(args.package or _package(document), document)
    if args.json:
        emit(msgspec.to_builtins(decision))
    else:
        print(
            f"{'allowed' if decision.allow else 'denied'}  decision {decision.decision_id}  policy"
            f" {decision.policy_digest[:19]}…"
        )
        for denial in decision.deny:
            print(f"  {denial['code']}: {denial['message']}\n      {denial['remedy']}")
    return 0 if decision.allow else Denied.exit_code


def _package(document: Json) -> str:
    return _PACKAGES.get(str(document.get("action")), "kfm.promotion")


def _simulate(args: Namespace) -> int:
    if args.policy is None:
        raise UsageError(
            "No other rules are named.",
            expected="kfm policy simulate --policy DIR",
            remedy="Copy policy/ and change it.",
        )
    workspace = open_workspace(args.workspace)
    now, then = Embedded(sources_of(workspace.path / "policy")), Embedded(_rules(args))
    rows = []
    with closing(now), closing(then), open_world(workspace) as world:
        for name in workspace.registered():
            document = _official_input(world, name)
            if document is not None:
                package = _package(document)
                rows.append((name, now.decide(package, document), then.decide(package, document)))
    if not rows:
        raise UsageError(
            "Nothing is official here.",
            expected="an official version to judge",
            remedy="`kfm run DATASET` makes one.",
        )
    changed = [row for row in rows if (row[1].allow, row[1].deny) != (row[2].allow, row[2].deny)]
    if args.json:
        emit(
            {
                "official": len(rows),
                "changed": [
                    {"dataset_id": n, "now": _short(a), "then": _short(b)} for n, a, b in changed
                ],
            }
        )
        return 0
    for name, before, after in changed:
        print(f"  {name:<24} {_word(before)} -> {_word(after)}")
    print(f"{len(rows)} official, {len(changed)} would change")
    return 0


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


def _short(decision: Decision) -> Json:
    return {
        "allow": decision.allow,
        "deny": list(decision.deny),
        "policy_digest": decision.policy_digest,
    }


def _word(decision: Decision) -> str:
    return (
        "allowed"
        if decision.allow
        else "denied (" + ", ".join(sorted({d["code"] for d in decision.deny})) + ")"
    )
