"""What people type wrong, and what lies broken: every command answers with what happened, what was
expected and what to do.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.access.references import proposal_number
from kfm.cli import call
from kfm.diff.tables import diff_files
from kfm.model.errors import UsageError
from kfm.run.update import update
from kfm.samples.upstream import SampleUpstream
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said, tree

Kfm = Callable[..., Said]
QUAKES, GAUGES = "ks_earthquakes", "ks_stream_gauges"
BIG = "9" * 23


def told(said: Said, code: int) -> bool:
    """A three-part message with this exit code, and nothing of Python."""
    parts = "  expected " in said.err and "  next " in said.err and "\nexit " not in said.err
    return said.code == code and parts and "Traceback" not in said.err


def propose(kfm: Kfm, ws: Path, name: str = QUAKES) -> int:
    """A proposal that waits for one person; returns its number."""
    with (ws / "data" / "registry" / f"{name}.yml").open("a") as file:
        file.write("approvals: 1\n")
    said = kfm("run", name, "--json")
    assert said.code == 7, said
    return int(said.json["runs"][0]["proposal"])


@pytest.fixture
def steward(kfm: Kfm) -> str:
    assert kfm("keys", "new", "--name", "R. Stone", "--role", "approver").code == 0
    return "R. Stone"


# ---- numbers -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "abc",
        "",
        "²",
        "٣",
        "1²",
        BIG,
        "proposal/",
        "proposal/x",
        "proposal/²",
        f"proposal/{BIG}",
        " 1",
        "1.0",
        "0x1",
    ],
)
def test_what_is_no_number_of_a_proposal_is_said_so(kfm: Kfm, text: str) -> None:
    with pytest.raises(UsageError):
        proposal_number(text)
    assert (
        told(kfm("approve", text), 2)
        and told(kfm("reject", text, "--reason", "no"), 2)
        and told(kfm("review", text), 2)
    )
    assert told(kfm("gates", text), 2) and told(kfm("promote", text), 2)
    assert told(kfm("diff", text or "proposal/"), 2)


def test_the_number_of_a_proposal(kfm: Kfm) -> None:
    assert (
        proposal_number("7") == proposal_number("proposal/7") == 7
        and proposal_number("999999999") == 999_999_999
    )
    for command in (
        ("approve", "999999999"),
        ("review", "proposal/0"),
        ("promote", "12"),
        ("diff", "proposal/12"),
    ):
        said = kfm(*command)
        assert told(said, 2) and "There is no proposal" in said.err


@pytest.mark.parametrize("which", ["²", BIG, "٣", "9", "", "v12", "-1"])
def test_what_is_no_generation_is_said_so(kfm: Kfm, which: str, tmp_path: Path) -> None:
    assert kfm("run", QUAKES).code == 0
    wrong = f"{QUAKES}@{which or 'x'}"
    assert (
        told(kfm("cite", wrong), 2)
        and told(kfm("diff", wrong), 2)
        and told(kfm("get", wrong, "-o", str(tmp_path)), 2)
    )
    assert told(kfm("gates", wrong), 2) and told(
        kfm("rollback", QUAKES, f"--to={which or 'x'}", "--reason", "r"), 2
    )


def test_a_name_that_is_no_dataset_is_said_so(kfm: Kfm, tmp_path: Path) -> None:
    for wrong in ("", "../x", "/etc", "Ω"):
        for command in ("cite", "diff", "gates", "get", "promote"):
            assert told(kfm(command, wrong), 2), (command, wrong)
        assert told(kfm("bundle", wrong, "-o", str(tmp_path / "b.zip")), 2)


def test_a_full_address_is_a_reference_everywhere(kfm: Kfm, tmp_path: Path) -> None:
    assert kfm("run", QUAKES).code == 0
    address = f"kfm://dataset/{QUAKES}@1"
    for command in (
        ("cite", address),
        ("gates", address),
        ("diff", address),
        ("get", address, "-o", str(tmp_path)),
    ):
        assert kfm(*command).code == 0, command
    assert kfm("bundle", address, "-o", str(tmp_path / "b.zip")).code == 0


def test_both_spellings_of_a_proposal_answer_in_json(kfm: Kfm, ws: Path, steward: str) -> None:
    first, second = propose(kfm, ws), propose(kfm, ws, GAUGES)
    said = kfm("approve", f"proposal/{first}", "--key", steward, "--json")
    assert said.code == 0 and said.json["proposal"] == first and said.json["approvals"] == 1
    said = kfm("reject", f"proposal/{second}", "--reason", "not yet", "--key", steward, "--json")
    assert said.code == 0 and said.json["proposal"] == second
    assert kfm("promote", f"proposal/{first}").code == 0


# ---- arguments -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("to", "purpose", "expires"),
    [
        ("A. Reader", "study", "0001-01-01T00:00:00+23:00"),
        ("A. Reader", "study", "9999-12-31T23:59:59-23:00"),
        ("A. Reader", "study", "2001-01-01"),
        ("A. Reader", "study", "soon"),
        ("A. Reader", " ", "2999-01-01"),
        ("", "study", "2999-01-01"),
        (" ", "study", "2999-01-01"),
    ],
)
def test_a_grant_names_a_person_a_purpose_and_a_day_to_come(
    kfm: Kfm, ws: Path, steward: str, to: str, purpose: str, expires: str
) -> None:
    assert told(kfm("grant", QUAKES, "--to", to, "--purpose", purpose, "--expires", expires), 2)
    assert not (ws / "grants").exists()
    assert (
        kfm(
            "grant",
            QUAKES,
            "--to",
            "A. Reader",
            "--key",
            steward,
            "--purpose",
            "study",
            "--expires",
            "2999-01-01",
        ).code
        == 0
    )
    assert kfm("grant", QUAKES, "--json").json["grants"][0]["state"] == "valid"
    said = kfm("grant")
    assert said.code == 0 and QUAKES in said.out and "1 grant\n" in said.out, said.out


@pytest.mark.parametrize("years", ["nan", "inf", "1e9", "-1", "0", "50.1"])
def test_a_root_is_renewed_for_a_span_that_makes_sense(kfm: Kfm, ws: Path, years: str) -> None:
    before = tree(ws / "keys")
    assert told(kfm("keys", "renew", "--years", years), 2)
    assert tree(ws / "keys") == before
    assert kfm("keys", "renew", "--years", "50").code == 0


def test_files_that_are_not_there(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    missing = str(tmp_path / "no" / "f")
    assert told(kfm("policy", "eval", "--input", missing), 2) and told(
        kfm("policy", "eval", "--input", str(tmp_path)), 2
    )
    assert told(kfm("keys", "restore", missing), 2) and told(
        kfm("keys", "backup", "-o", missing), 2
    )
    assert told(kfm("rebuild", missing), 2)
    assert not (tmp_path / "no").exists(), "a mistyped folder is not made"


@pytest.mark.parametrize("name", ["odd_test.rego", "odd.rego"])
def test_rules_that_are_no_text(kfm: Kfm, ws: Path, name: str) -> None:
    assert kfm("policy", "test").code == 0
    (ws / "policy" / name).write_bytes(b"\xff\xfe")
    said = kfm("policy", "test")
    assert told(said, 2) and name in said.err


def test_force_needs_a_reason_in_every_command(kfm: Kfm) -> None:
    assert told(kfm("propose", QUAKES, "--force"), 2) and told(
        kfm("propose", QUAKES, "--force", "--reason", " "), 2
    )
    assert kfm("propose", QUAKES, "--force", "--reason", "look again").code in (0, 7)


def test_a_dataset_command_says_what_is_missing(kfm: Kfm) -> None:
    said = kfm("dataset", "rename", QUAKES)
    assert told(said, 2) and "NEW is missing" in said.err
    for action in ("rename", "retire"):
        said = kfm("dataset", action)
        assert told(said, 2) and "ID" in said.err


def test_wrong_arguments_answer_in_json_too(kfm: Kfm) -> None:
    said = kfm("review", "--nonsense", "--json")
    assert said.code == 2 and said.json["exit_code"] == 2


# ---- the last resort -----------------------------------------------------------------------------
def broken(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("kfm.cli.review.open_workspace", fail)


def test_an_error_nobody_foresaw_is_still_a_message(
    kfm: Kfm, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, RuntimeError("no idea at /home/somebody/ws/data/x.parquet"))
    said = kfm("review")
    assert told(
        said, 1
    ) and "Something went wrong that should not: RuntimeError: no idea at x.parquet." in " ".join(
        said.err.split()
    )
    assert "somebody" not in said.err
    said = kfm("review", "--json")
    assert (
        said.code == 1
        and said.json["exit_code"] == 1
        and said.json["remedy"]
        and "Traceback" not in said.err
    )
    assert "Traceback" in kfm("review", "--verbose").err


@pytest.mark.parametrize(
    "error",
    [
        OSError("cannot open '/home/somebody/ws/f'"),
        OSError(5, "Input/output error", "/home/somebody/ws/f"),
        OSError(9, "Bad file", 7),
    ],
)
def test_a_refusal_of_the_system_does_not_tell_where_things_lie(
    kfm: Kfm, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    broken(monkeypatch, error)
    said = kfm("review")
    assert (
        told(said, 1)
        and "The system refused" in said.err
        and "somebody" not in said.err
        and "home" not in said.err
    )


def test_addresses_are_left_as_they_are() -> None:
    assert (
        call._without_folders("see https://example.org/a/b or /tmp/a/b, not and/or")
        == "see https://example.org/a/b or b, not and/or"
    )


# ---- proposals that cannot be read ---------------------------------------------------------------
def test_one_unreadable_proposal_hides_no_other(kfm: Kfm, ws: Path) -> None:
    first, second = propose(kfm, ws), propose(kfm, ws, GAUGES)
    (path,) = (ws / "data" / "work" / QUAKES).rglob("proposal.json")
    path.unlink()
    rows = kfm("review", "--json").json["proposals"]
    assert [(r["proposal"], bool(r["problem"])) for r in rows] == [
        (first, True),
        (second, False),
    ] and rows[1]["needed"] == 1
    said = kfm("review")
    assert said.code == 0 and "missing" in said.out and GAUGES in said.out and "2 wait" in said.out
    path.write_bytes(b"[]")
    assert kfm("review").code == 0
    (ws / "data" / "registry" / f"{GAUGES}.yml").write_text("dataset_id: [")
    rows = kfm("review", "--json")
    assert rows.code == 0 and all(r["problem"] for r in rows.json["proposals"])


def test_a_first_proposal_is_compared_with_nothing(kfm: Kfm, ws: Path) -> None:
    number = propose(kfm, ws)
    whole = kfm("diff", f"proposal/{number}", "--json")
    assert whole.code == 0 and (whole.json["a"], whole.json["b"]) == (
        "nothing",
        f"proposal/{number}",
    )
    rows = whole.json["rows_b"]
    assert (
        whole.json["added"],
        whole.json["removed"],
        whole.json["changed"],
        whole.json["rows_a"],
    ) == (rows, 0, 0, 0) and rows > 0
    assert whole.json["samples"][0]["key"]["event_id"] and "POINT" in str(
        whole.json["samples"][0]["cells"]
    )
    assert kfm("diff", QUAKES, f"proposal/{number}", "--json").json == whole.json
    back = kfm("diff", f"proposal/{number}", QUAKES, "--json").json
    assert (back["b"], back["removed"], back["added"]) == ("nothing", rows, 0)
    assert (
        f"diff proposal/{number} --limit all"
        in kfm("diff", f"proposal/{number}", "--limit", "1").err
    )
    for form in ("text", "html"):
        assert "nothing" in kfm("diff", f"proposal/{number}", "--format", form).out
    assert told(kfm("diff", GAUGES, f"proposal/{number}"), 2), "another dataset"
    assert told(kfm("diff", QUAKES), 2), "nothing is official"


def test_no_files_are_a_table_without_rows() -> None:
    found = diff_files({}, {}, ("id",))
    assert found.same and not found.reencoded and (found.rows_a, found.rows_b) == (0, 0)


# ---- promote -------------------------------------------------------------------------------------
def test_what_is_not_official_afterwards_is_not_exit_0(
    kfm: Kfm, ws: Path, steward: str, sample: SampleUpstream
) -> None:
    number = propose(kfm, ws)
    said = kfm("promote", str(number), "--json")
    assert said.code == said.json["exit_code"] == 7 and said.json["state"] == "PROPOSED"
    assert kfm("approve", str(number), "--key", steward).code == 0
    said = kfm("promote", str(number), "--json")
    assert said.code == said.json["exit_code"] == 0 and said.json["state"] == "COMMITTED"
    assert told(kfm("promote", str(number)), 3), "it has ended"


@pytest.mark.parametrize("lost", ["candidate.json", "ks_earthquakes.parquet"])
def test_an_earlier_proposal_that_is_lost_does_not_stop_promote(
    kfm: Kfm, ws: Path, steward: str, sample: SampleUpstream, lost: str
) -> None:
    first = propose(kfm, ws)
    assert kfm("approve", str(first), "--key", steward).code == 0
    sample.control(QUAKES, revision=1)
    second = kfm("propose", QUAKES, "--json").json["runs"][0]["proposal"]
    assert second and second != first
    whole = kfm("promote", str(second), "--json")
    (said,) = [r for r in whole.json["reasons"] if r["code"] == "approval.other"]
    assert whole.code == 7 and "rows added" in said["message"]
    data = json.loads(
        next(
            p
            for p in (ws / "data" / "work" / QUAKES).rglob("candidate.json")
            if f'"proposal":{first}' in p.read_text()
        ).read_text()
    )
    path = ws / "data" / data["artifacts"][f"{QUAKES}.parquet"]["from"]
    if lost == "candidate.json":
        path = next(
            p
            for p in (ws / "data" / "work" / QUAKES).rglob(lost)
            if f'"proposal":{first}' in p.read_text()
        )
    path.unlink()
    again = kfm("promote", str(second), "--json")
    (said,) = [r for r in again.json["reasons"] if r["code"] == "approval.other"]
    assert again.code == 7 and said["message"].endswith("not this one.")


# ---- resume --------------------------------------------------------------------------------------
def test_resume_leaves_to_people_what_waits_for_people(kfm: Kfm, ws: Path) -> None:
    number = propose(kfm, ws)
    said = kfm("resume")
    assert (
        said.code == 0
        and "Nothing to resume." in said.out
        and "1 wait for a person" in said.out
        and "review" in said.out
    )
    assert kfm("resume", "--json").json == {"runs": [], "waiting": 1, "acts": []}
    assert [r["proposal"] for r in kfm("review", "--json").json["proposals"]] == [number]


def test_one_run_that_cannot_be_resumed_does_not_stop_the_others(kfm: Kfm, ws: Path) -> None:
    workspace = open_workspace(ws)
    for name in (QUAKES, GAUGES):
        with open_world(workspace) as world:
            world.store.transaction(lambda tx: tx.jobs.put(name, "", ""))
            steps = update(world, targets_of(workspace, name)[0])
            while next(steps) != "part DONE":
                pass
            world.store.abandon()  # killed here
    with (ws / "data" / "registry" / f"{QUAKES}.yml").open("a") as file:
        file.write("custodian: Another\n")
    said = kfm("resume", "--json")
    runs = {r["dataset_id"]: (r["state"], r["exit_code"]) for r in said.json["runs"]}
    assert (
        runs == {QUAKES: ("FAILED", 2), GAUGES: ("COMMITTED", 0)}
        and said.code == 2
        and said.json["runs"][0]["remedy"]
    )
    said = kfm("resume")
    assert said.code == 2 and "another registry entry" in said.out


# ---- rebuild and simulate ------------------------------------------------------------------------
@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b"\xff", b'{"spec": 7}'])
def test_a_damaged_run_record_is_damage(kfm: Kfm, ws: Path, damage: bytes) -> None:
    assert kfm("run", QUAKES).code == 0
    receipt = str(next((ws / "receipts").rglob("*.json")))
    assert kfm("rebuild", receipt).code == 0
    (path,) = (ws / "data" / "work").rglob("run_record.json")
    path.chmod(0o644)
    path.write_bytes(damage)
    assert told(kfm("rebuild", receipt), 6)


def test_simulate_needs_something_official_and_whole(kfm: Kfm, ws: Path) -> None:
    rules = str(ws / "policy")
    said = kfm("policy", "simulate", "--policy", rules)
    assert told(said, 2) and "Nothing is official" in said.err
    assert kfm("run", QUAKES).code == 0
    assert kfm("policy", "simulate", "--policy", rules, "--json").json["official"] == 1
    (path,) = (ws / "data" / "processed" / QUAKES).rglob("version.json")
    path.unlink()
    said = kfm("policy", "simulate", "--policy", rules)
    assert told(said, 6) and QUAKES in said.err


# ---- withdrawals ---------------------------------------------------------------------------------
def test_a_withdrawal_that_names_nothing_is_refused(kfm: Kfm, ws: Path) -> None:
    assert kfm("run", QUAKES).code == 0
    before = tree(ws / "data" / "catalog" / "channels")
    for wrong in (
        ("--partition", ""),
        ("--partition", " "),
        ("--record", "nocol=1"),
        ("--area", "-98,38,-99,39"),
        ("--area", "nan,1,2,3"),
    ):
        assert told(kfm("withdraw", "--yes", QUAKES, *wrong, "--reason", "r"), 2), wrong
    assert tree(ws / "data" / "catalog" / "channels") == before


def test_a_box_may_begin_west_of_greenwich(kfm: Kfm, ws: Path) -> None:
    assert kfm("run", QUAKES).code == 0
    assert (
        kfm(
            "withdraw", "--yes", QUAKES, "--area", "-98.6,38,-98,38.6", "--reason", "asked for"
        ).code
        == 0
    )
    assert told(
        kfm("withdraw", "--yes", QUAKES, "--area", "-180,-90,-179,-89", "--reason", "asked for"), 2
    ), "no record is there"


def table(ws: Path, up: Upstream, *rows: str) -> None:
    up.files["/t.csv"] = ("id,kind\n" + "".join(f"{r}\n" for r in rows)).encode()
    (ws / "data" / "registry" / "ks_t.yml").write_text(
        "dataset_id: ks_t\ntitle: T\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
        f"source: {{url: '{up.url}/t.csv', format: csv}}\nbusiness_key: [id]\n"
    )


@pytest.mark.parametrize("rule", [("--record", "id=t2"), ()], ids=["a record", "all of it"])
def test_what_was_withdrawn_is_not_handed_out(
    kfm: Kfm, ws: Path, up: Upstream, tmp_path: Path, rule: tuple[str, ...]
) -> None:
    table(ws, up, "t1,a", "t2,b")
    assert kfm("run", "ks_t").code == 0
    table(ws, up, "t1,a", "t2,b", "t3,c")
    number = kfm("run", "ks_t", "--json").json["runs"][0]["generation"]
    assert number == 2
    versions = [p.name for p in (ws / "data" / "processed" / "ks_t").iterdir()]
    assert kfm("withdraw", "--yes", "ks_t", *rule, "--reason", "asked for").code == 0
    out = tmp_path / "out"
    for which in ("1", "2", *(v[:12] for v in versions)):
        ref = f"ks_t@{which}"
        said = kfm("get", ref, "-o", str(out))
        assert told(said, 3) and "Generation 3 withdrew it." in said.err
        assert told(kfm("bundle", ref, "-o", str(tmp_path / "b.zip")), 3) and told(
            kfm("diff", ref, "ks_t@3" if rule else ref), 3
        )
        assert told(kfm("rollback", "ks_t", "--to", which, "--reason", "back"), 3)
    assert not out.exists() and not (tmp_path / "b.zip").exists()
    assert kfm("get", "ks_t", "-o", str(out)).code == (0 if rule else 3)


def test_a_proposal_from_before_a_withdrawal_is_not_shown(
    kfm: Kfm, ws: Path, up: Upstream, steward: str
) -> None:
    table(ws, up, "t1,a", "t2,b")
    assert kfm("run", "ks_t").code == 0
    table(ws, up, "t1,a", "t2,b", "t3,c")
    number = kfm("propose", "ks_t", "--json").json["runs"][0]["proposal"]
    assert kfm("diff", f"proposal/{number}").code == 0
    assert kfm("withdraw", "--yes", "ks_t", "--record", "id=t2", "--reason", "asked for").code == 0
    said = kfm("diff", f"proposal/{number}")
    assert told(said, 3) and "Generation 2 withdrew it." in said.err
    assert told(kfm("diff", "ks_t", f"proposal/{number}"), 3)
    after = kfm("propose", "ks_t", "--json").json["runs"][0]["proposal"]
    assert after != number and kfm("diff", f"proposal/{after}", "--json").json["added"] == 1, (
        "made on what is left"
    )
