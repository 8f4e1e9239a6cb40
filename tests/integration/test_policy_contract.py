"""What every evaluator promises: an answer to each question, and a denial whenever anything goes
wrong.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfm.model import canonical, ids
from kfm.model.errors import UsageError
from kfm.policy import subset
from kfm.policy.base import Decision, Evaluator, policy_digest, sources_of
from kfm.policy.embedded import Embedded, rego_eval
from kfm.policy.opa import OpaBinary, OpaServer
from tests.given.rules import started_rules
from tests.given.verbs import until

Make = Callable[..., Any]
OPEN = (
    "deny contains d if { some d in input.deny }\nallow if { input.ok == true; count(deny) == 0 }\n"
)
DENIAL = {"code": "c", "message": "m", "remedy": "r"}
# Some hundred million steps, and no memory to speak of.
LOOP = "slow if { some a in numbers.range(1, 20000); some b in numbers.range(1, 20000); a == b + 100000 }\n"


def rules(body: str, default: str = "default allow := false\n") -> dict[str, bytes]:
    return {"a.rego": f"package kfm.a\n{default}{body}".encode()}


@pytest.fixture(scope="module", autouse=True)
def own_children() -> Iterator[None]:
    with started_rules():
        yield


@pytest.fixture(params=["embedded", "opa", "server"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes evaluators of one kind and closes them."""
    with contextlib.ExitStack() as stack:

        def of(sources: dict[str, bytes], seconds: float = 20.0) -> Evaluator:
            evaluator: Evaluator
            if request.param == "embedded":
                evaluator = Embedded(sources, seconds=seconds)
            elif request.param == "opa":
                evaluator = OpaBinary(
                    request.getfixturevalue("opa_binary"), sources, seconds=seconds
                )
            else:
                evaluator = OpaServer(
                    request.getfixturevalue("opa_server"), sources, seconds=seconds
                )
            stack.callback(evaluator.close)
            return evaluator

        of.kind = request.param  # type: ignore[attr-defined]
        yield of


def patient(evaluator: Any, seconds: float = 60.0) -> None:
    """From now on it waits so long; what answers is not measured."""
    if isinstance(evaluator, OpaServer):
        evaluator._wire.timeout = seconds
    else:
        evaluator._seconds = seconds


def refused(decision: Decision, code: str) -> str:
    """The message of the one denial, which must be of `code`."""
    assert not decision.allow
    assert [denial["code"] for denial in decision.deny] == [code], decision.deny
    assert all(decision.deny[0].values())
    return decision.deny[0]["message"]


def test_a_decision_says_what_was_asked_of_which_rules(make: Make) -> None:
    sources = rules(OPEN)
    decision = make(sources).decide("kfm.a", {"ok": True, "deny": []})
    assert decision.allow and decision.deny == ()
    assert decision.engine == make.kind  # type: ignore[attr-defined]
    assert decision.policy_digest == policy_digest(sources)
    assert decision.input_digest == ids.digest(canonical.dumps({"ok": True, "deny": []}))
    assert str(uuid.UUID(decision.decision_id)) == decision.decision_id


def test_denials_come_whole_and_in_order(make: Make) -> None:
    denials = [{**DENIAL, "code": code} for code in ("z", "a", "m")]
    decision = make(rules(OPEN)).decide("kfm.a", {"ok": True, "deny": denials})
    assert not decision.allow
    assert list(decision.deny) == sorted(denials, key=lambda d: d["code"])


def test_one_evaluator_answers_many_questions_and_remembers_none(make: Make) -> None:
    evaluator = make(rules(OPEN))
    answers = [
        evaluator.decide("kfm.a", {"ok": ok, "deny": [] if ok else [DENIAL]}).allow
        for ok in (True, False, True, False)
    ]
    assert answers == [True, False, True, False]


def test_several_threads_may_ask(make: Make) -> None:
    evaluator, wrong = make(rules(OPEN)), []

    def ask(number: int) -> None:
        decision = evaluator.decide(
            "kfm.a", {"ok": True, "deny": [{**DENIAL, "code": str(number)}]}
        )
        if [denial["code"] for denial in decision.deny] != [str(number)]:
            wrong.append(decision)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_tests_of_rules_take_no_part(make: Make) -> None:
    sneaky = {"a_test.rego": b"package kfm.a\nallow := true\n"}
    evaluator = make(rules(OPEN) | sneaky)
    assert not evaluator.decide("kfm.a", {"deny": [DENIAL]}).allow
    assert evaluator.decide("kfm.a", {"ok": True, "deny": []}).policy_digest == policy_digest(
        rules(OPEN)
    )


def test_functions_of_other_files_are_found_in_any_order(make: Make) -> None:
    sources = {
        "a.rego": b"package kfm.a\ndefault allow := false\nallow if data.kfm.b.fine(input.x)\ndeny contains {} if false\n",
        "b.rego": b"package kfm.b\nfine(x) if x == 1\n",
    }
    assert make(sources).decide("kfm.a", {"x": 1}).allow


def test_no_rules_is_a_denial(make: Make) -> None:
    refused(make({}).decide("kfm.a", {}), "policy.missing")


def test_rules_outside_the_subset_are_not_asked(make: Make) -> None:
    message = refused(
        make(rules('allow if http.send({"url": "x"})\ndeny := set()\n')).decide("kfm.a", {}),
        "policy.subset",
    )
    assert "a.rego:3: http.send" in message


def test_a_syntax_error_is_a_denial_that_names_the_file(make: Make) -> None:
    evaluator = make(rules("allow if {\n"))
    assert "rego" in refused(evaluator.decide("kfm.a", {}), "policy.syntax")
    # and again: nothing half-loaded answers
    refused(evaluator.decide("kfm.a", {}), "policy.syntax")


@pytest.mark.parametrize(
    "package", ["kfm.nowhere", "kfm", "", "main", "kfm.a.allow }", "data.kfm.a", "kfm.a; true"]
)
def test_an_undefined_package_is_a_denial(make: Make, package: str) -> None:
    refused(make(rules(OPEN)).decide(package, {"ok": True, "deny": []}), "policy.undefined")


def test_a_package_without_denials_is_undefined(make: Make) -> None:
    refused(make(rules("allow if input.ok\n")).decide("kfm.a", {"ok": True}), "policy.undefined")


@pytest.mark.parametrize(
    ("default", "body"),
    [
        ("", 'yes := "yes"\nallowed := yes\ndeny := set()\n'),
        ("default allow := false\n", 'allow := "yes" if true\ndeny := set()\n'),
        ("default allow := false\n", "allow := 1 if true\ndeny := set()\n"),
        ("default allow := false\n", "allow if true\ndeny := 0\n"),
        ("default allow := false\n", "allow if true\ndeny := null\n"),
        ("default allow := false\n", 'deny := {"because"}\n'),
        ("default allow := false\n", 'deny := {{"code": "c", "message": "m"}}\n'),
        ("default allow := false\n", 'deny := {{"code": "c", "message": "m", "remedy": 1}}\n'),
        (
            "default allow := false\n",
            'deny := {{"code": "c", "message": "m", "remedy": "r", "more": "x"}}\n',
        ),
        (
            "default allow := false\n",
            'allow if true\ndeny := {{"code": "c", "message": "m", "remedy": "r"}}\n',
        ),
        ("default allow := false\n", "deny := set()\n"),
    ],
)
def test_an_answer_of_another_shape_is_a_denial(make: Make, default: str, body: str) -> None:
    refused(
        make(rules(body, default)).decide("kfm.a", {}),
        "policy.shape" if default else "policy.undefined",
    )


def test_a_builtin_that_fails_is_a_denial_not_a_rule_passed_over(make: Make) -> None:
    """By default OPA leaves a failing rule out, and it may be the one that denies."""
    body = 'allow if true\ndeny contains {"code": "c", "message": "m", "remedy": "r"} if count(input.x) > 1\n'
    evaluator = make(rules(body))
    refused(evaluator.decide("kfm.a", {"x": 5}), "policy.error")
    assert evaluator.decide("kfm.a", {"x": [5]}).allow


@pytest.mark.parametrize(
    "document",
    [{"x": float("nan")}, {"x": 2**60}, {"x": "\ud800"}, {"x": object()}, {1: "x"}, None],
)
def test_a_question_that_json_cannot_carry_is_a_denial(make: Make, document: Any) -> None:
    decision = make(rules("allow if true\ndeny := set()\n")).decide("kfm.a", document)
    refused(decision, "policy.error")
    assert decision.input_digest == ""


def test_a_rule_without_end_is_a_denial_and_the_next_question_is_answered(make: Make) -> None:
    evaluator = make(rules(OPEN + LOOP + "allow if { input.loop == true; slow }\n"), seconds=2.0)
    refused(evaluator.decide("kfm.a", {"loop": True, "deny": []}), "policy.timeout")
    patient(evaluator)
    assert evaluator.decide("kfm.a", {"ok": True, "deny": []}).allow


def test_closing_may_be_repeated(make: Make) -> None:
    evaluator = make(rules(OPEN))
    evaluator.decide("kfm.a", {"ok": True})
    evaluator.close()
    evaluator.close()


# ---- the embedded evaluator's child


@pytest.fixture
def embedded() -> Iterator[Embedded]:
    evaluator = Embedded(rules(OPEN), seconds=20)
    assert evaluator.decide("kfm.a", {"ok": True, "deny": []}).allow
    yield evaluator
    evaluator.close()


def pid_of(evaluator: Embedded) -> int:
    assert evaluator.child is not None
    return evaluator.child.pid


def test_the_child_is_kept_between_questions_and_gone_after(embedded: Embedded) -> None:
    pid = pid_of(embedded)
    embedded.decide("kfm.a", {"deny": [DENIAL]})
    assert pid_of(embedded) == pid
    embedded.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_killed_child_is_replaced(embedded: Embedded) -> None:
    pid = pid_of(embedded)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert embedded.decide("kfm.a", {"ok": True, "deny": []}).allow
    assert pid_of(embedded) != pid


def test_a_child_killed_over_a_question_denies_it(embedded: Embedded) -> None:
    pid = pid_of(embedded)
    os.kill(pid, signal.SIGSTOP)

    def kill() -> None:
        assert embedded.child is not None
        asked = bytearray(4)
        while not any(asked):  # until the question waits for the child
            fcntl.ioctl(embedded.child._in, termios.FIONREAD, asked)
        os.kill(pid, signal.SIGKILL)

    threading.Thread(target=kill).start()
    assert "killed" in refused(embedded.decide("kfm.a", {"ok": True, "deny": []}), "policy.error")
    assert embedded.decide("kfm.a", {"ok": True, "deny": []}).allow


def test_a_child_that_does_not_even_read_is_timed_out() -> None:
    evaluator = Embedded(rules(OPEN), seconds=60)
    assert evaluator.decide("kfm.a", {"ok": True, "deny": []}).allow
    os.kill(pid_of(evaluator), signal.SIGSTOP)
    patient(evaluator, 0.5)
    # larger than any pipe
    refused(
        evaluator.decide("kfm.a", {"ok": True, "deny": [], "more": "x" * 1_000_000}),
        "policy.timeout",
    )
    patient(evaluator)
    assert evaluator.decide("kfm.a", {"ok": True, "deny": []}).allow
    evaluator.close()


def test_a_machine_that_stands_still_for_a_moment_is_no_denial() -> None:
    evaluator = Embedded(rules(OPEN))
    assert evaluator.decide("kfm.a", {"ok": True, "deny": []}).allow
    os.kill(pid_of(evaluator), signal.SIGSTOP)
    threading.Timer(2.5, os.kill, (pid_of(evaluator), signal.SIGCONT)).start()
    assert evaluator.decide("kfm.a", {"ok": True, "deny": []}).allow
    evaluator.close()


def test_a_panic_of_the_engine_is_a_denial(monkeypatch: pytest.MonkeyPatch) -> None:
    # left out of the subset because of this
    monkeypatch.setattr(subset, "ALLOWED", subset.ALLOWED | {"strings.count"})
    evaluator = Embedded(rules(OPEN + 'allow if strings.count("aa", input.what) > 0\n'))
    assert evaluator.decide("kfm.a", {"ok": True, "deny": [], "what": "b"}).allow
    pid = pid_of(evaluator)
    assert "non-zero" in refused(
        evaluator.decide("kfm.a", {"deny": [], "what": ""}), "policy.error"
    )
    assert evaluator.decide("kfm.a", {"ok": True, "deny": [], "what": "b"}).allow
    assert pid_of(evaluator) != pid
    evaluator.close()


def test_a_file_that_crashes_the_engine_is_a_denial_and_a_finding() -> None:
    # as deep as the brackets that the subset refuses
    sources = rules(OPEN + "x := " + "-\n" * 15_000 + "1\n")
    evaluator = Embedded(sources)
    assert "crashed" in refused(evaluator.decide("kfm.a", {"ok": True, "deny": []}), "policy.error")
    evaluator.close()
    assert [(f.file, f.code) for f in subset.check(sources)] == [("a.rego", "subset.syntax")]


def test_a_rule_that_wants_all_memory_is_a_denial() -> None:
    evaluator = Embedded(
        rules(OPEN + "allow if count(numbers.range(1, input.n)) == 1\n"), seconds=60
    )
    refused(evaluator.decide("kfm.a", {"deny": [], "n": 200_000_000}), "policy.error")
    assert evaluator.decide("kfm.a", {"ok": True, "deny": [], "n": 2}).allow
    evaluator.close()


def test_the_child_sees_nothing_of_our_environment(
    monkeypatch: pytest.MonkeyPatch, embedded: Embedded
) -> None:
    monkeypatch.setenv("KFM_SECRET", "s3cret")
    embedded.close()
    embedded.decide("kfm.a", {"ok": True, "deny": []})
    if sys.platform == "linux":
        seen = Path(f"/proc/{pid_of(embedded)}/environ").read_bytes()
        assert b"LANG" in seen and b"s3cret" not in seen


def test_a_child_whose_parent_was_killed_ends_even_in_the_middle_of_a_rule() -> None:
    script = (
        "import json, time\nfrom kfm.policy.process import Child\nchild = Child()\n"
        f"child.exchange({{'files': {{'a.rego': {'package kfm.a' + chr(10) + LOOP!r}}}, 'queries': []}}, 60)\n"
        "question = json.dumps({'queries': ['data.kfm.a.slow'], 'seconds': 0}).encode()\n"
        "child._send(memoryview(question + bytes([10])), time.monotonic() + 60)\n"
        "print(child.pid, flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    began = worked(child)
    until(lambda: worked(child) > began + 0.2)  # it is at the rule
    parent.kill()
    parent.wait()
    parent.stdout.close()
    os.kill(child, 0)  # it is still at it
    until(lambda: worked(child) < 0)


def worked(pid: int) -> float:
    """Seconds of computing; -1: it is gone, or waits only to be reaped."""
    try:
        state, *words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (ProcessLookupError, FileNotFoundError):
        return -1.0
    return -1.0 if state in "ZX" else (int(words[10]) + int(words[11])) / os.sysconf("SC_CLK_TCK")


def test_raw_evaluation_knows_no_subset() -> None:
    assert rego_eval(["package a\np := upper(input.x)"], None, {"x": "b"}, "data.a.p = x") == [
        {"x": "B"}
    ]
    assert rego_eval(["package a\np if false"], {}, None, "data.a.p = x") == []


# ---- the server


def listed(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/v1/policies", timeout=60) as answer:
        return sorted(policy["id"] for policy in json.load(answer)["result"])


def send(method: str, url: str, body: bytes = b"") -> None:
    with urllib.request.urlopen(
        urllib.request.Request(url, body or None, {"Content-Type": "text/plain"}, method=method),
        timeout=10,
    ) as answer:
        answer.read()


def test_a_server_that_forgot_or_changed_the_rules_is_told_again(opa_server: str) -> None:
    evaluator = OpaServer(opa_server, rules(OPEN), seconds=20)
    assert evaluator.decide("kfm.a", {"ok": True, "deny": []}).allow
    send("DELETE", f"{opa_server}/v1/policies/kfm/a.rego")
    assert evaluator.decide("kfm.a", {"ok": True, "deny": []}).allow
    send(
        "PUT",
        f"{opa_server}/v1/policies/kfm/a.rego",
        b"package kfm.a\nallow := true\ndeny := set()\n",
    )
    assert not evaluator.decide("kfm.a", {"ok": False, "deny": [DENIAL]}).allow
    assert listed(opa_server) == ["kfm/a.rego"]
    evaluator.close()


def test_a_server_with_rules_of_others_is_not_trusted(opa_server: str) -> None:
    evaluator = OpaServer(opa_server, rules(OPEN), seconds=20)
    send("PUT", f"{opa_server}/v1/policies/guest", b'package kfm.a\ndeny contains "x" if false\n')
    try:
        assert "guest" in refused(
            evaluator.decide("kfm.a", {"ok": True, "deny": []}), "policy.error"
        )
    finally:
        send("DELETE", f"{opa_server}/v1/policies/guest")
    assert evaluator.decide("kfm.a", {"ok": True, "deny": []}).allow
    evaluator.close()


def test_no_server_is_a_denial() -> None:
    refused(
        OpaServer("http://127.0.0.1:9", rules(OPEN)).decide("kfm.a", {"ok": True, "deny": []}),
        "policy.error",
    )


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:8181",
        "http://opa.example:8181",
        "http://10.0.0.1",
        "ftp://127.0.0.1",
        "x",
        "http://127.0.0.1/v1",
    ],
)
def test_a_server_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="on this machine"):
        OpaServer(url, rules(OPEN))


def test_a_missing_binary_is_a_denial(tmp_path: Path) -> None:
    evaluator = OpaBinary(tmp_path / "opa", rules(OPEN))
    refused(evaluator.decide("kfm.a", {"ok": True, "deny": []}), "policy.error")
    evaluator.close()


# ---- what the rules are


def test_sources_are_the_regular_rego_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.rego").write_bytes(b"b")
    (tmp_path / "a_test.rego").write_bytes(b"a")
    (tmp_path / "notes.md").write_bytes(b"n")
    (tmp_path / "c.rego").symlink_to(tmp_path / "notes.md")
    (tmp_path / "d.rego").mkdir()
    assert list(sources_of(tmp_path).items()) == [("a_test.rego", b"a"), ("b.rego", b"b")]
    assert sources_of(tmp_path / "nowhere") == {}


def test_the_digest_is_of_names_and_bytes_of_rules_but_not_of_tests() -> None:
    one = policy_digest({"a.rego": b"x", "b.rego": b"y"})
    assert one == policy_digest({"b.rego": b"y", "a.rego": b"x", "a_test.rego": b"z"})
    assert (
        len(
            {
                one,
                policy_digest({"a.rego": b"y", "b.rego": b"x"}),
                policy_digest({"a.rego": b"x"}),
                policy_digest({"a.rego": b"xy"}),
            }
        )
        == 4
    )
