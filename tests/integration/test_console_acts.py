"""What is done at the console is what the command line does: the same jobs, the same decisions, by
the rules of the same rooms; and it says who did it.
"""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from litestar.testing import TestClient

from kfm.console import act
from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from kfm.reader.log import AuditLine
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.zones.base import Zone
from tests.given.console import AT, BROWSER, csrf, held, sent, signed_in, to_decide, token
from tests.given.pages import ATTACK
from tests.given.reading import reader
from tests.given.verbs import Said, caller


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Path]:
    with to_decide(tmp_path / "ws") as folder:
        yield folder


@pytest.fixture
def client(ws: Path) -> "Iterator[TestClient[ReaderApp]]":
    with reader(ws, html_pages(console=True), AT, address=AT) as found:
        yield found


@pytest.fixture
def kfm(ws: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    return caller(ws, capsys)


def jobs(ws: Path, **which: str) -> list[Any]:
    with open_world(open_workspace(ws)) as world:
        found: list[Any] = world.store.read(lambda tx: tx.jobs.listing(limit=50, **which))
        return found


def audit(ws: Path) -> list[dict[str, str]]:
    file = next((ws / "ledger" / "logs").glob("audit-*.jsonl"))
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_is_done_is_told_where_its_last_line_cannot_be_written(
    client: "TestClient[ReaderApp]", ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is told to ask again would do it twice."""
    form, write = signed_in(client, token(ws, "engineer", "E. Dust")), act.log_audit

    def full(root: Zone, line: AuditLine) -> None:
        if line.decision != "allowed":
            raise OSError("no space is left")
        write(root, line)

    monkeypatch.setattr(act, "log_audit", full)
    answer = sent(client, "/datasets/wells/run", {"csrf": form})
    assert (answer.status_code, answer.headers["location"]) == (303, "/queue?done=asked")
    assert len(jobs(ws, state="queued")) == 1 and audit(ws)[-1]["decision"] == "allowed"


# ---- jobs ----------------------------------------------------------------------------------------
def test_a_run_that_is_asked_for_is_the_job_that_the_command_puts(
    client: "TestClient[ReaderApp]", ws: Path, kfm: Callable[..., Said]
) -> None:
    form = signed_in(client, token(ws, "engineer", "E. Dust"))
    answer = sent(client, "/datasets/wells/run", {"csrf": form})
    assert (answer.status_code, answer.headers["location"]) == (303, "/queue?done=asked")
    [mine] = jobs(ws, state="queued")
    said = kfm("jobs", "put", "ingest.pull_source", "--dataset", "wells", "--json").json["job"]
    assert [j.job_id for j in jobs(ws, state="queued")] == [mine.job_id] == [said["job_id"]]
    assert json.loads(mine.envelope)["requested_by"] == "user:E. Dust"
    assert [(line["act"], line["decision"], line["who"]) for line in audit(ws)[-2:]] == [
        ("ask for a run", "allowed", "E. Dust"),
        ("ask for a run", "done", "E. Dust"),
    ]
    assert audit(ws)[-1]["said"] == mine.job_id and audit(ws)[-1]["dataset_id"] == "wells"
    shown = client.get("/queue?done=asked", headers=BROWSER).text
    assert "The run is asked for" in shown and f"/queue/{mine.job_id}/cancel" in shown


def test_a_program_asks_by_its_token_and_is_told_what_was_done(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    answer = client.post("/datasets/wells/run", headers=held(ws, "engineer"))
    assert answer.status_code == 200 and answer.json()["done"] == "asked"
    assert answer.json()["what"] == jobs(ws)[0].job_id
    for path in ("/datasets/nowhere/run", "/datasets/..%2fwells/run", "/datasets/Wells/run"):
        refused = client.post(path, headers=held(ws, "engineer"))
        assert refused.status_code in (400, 404), path
    wrong = client.post("/datasets/wells/run", data={"partition": "x"}, headers=held(ws, "admin"))
    assert wrong.status_code == 400 and "no partition" in wrong.json()["said"]
    assert len(jobs(ws)) == 1


def test_a_job_is_cancelled_and_a_dead_one_retried(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    form = signed_in(client, token(ws, "engineer"))
    sent(client, "/datasets/wells/run", {"csrf": form})
    job_id = jobs(ws)[0].job_id
    assert sent(client, f"/queue/{job_id}/cancel", {"csrf": form}).status_code == 303
    assert jobs(ws)[0].outcome == "cancelled"
    with open_world(open_workspace(ws)) as world:  # as a worker leaves what failed too often
        world.store.transaction(lambda tx: tx.jobs.retry(job_id))
        row = world.store.read(lambda tx: tx.jobs.of(job_id))
        aside = msgspec.structs.replace(row, state="ended", outcome="dead", error=ATTACK)
        world.store.transaction(lambda tx: tx.jobs._keep(aside))
    shown = client.get("/queue", headers=BROWSER).text
    assert f"/queue/{job_id}/retry" in shown and "<img" not in shown
    assert sent(client, f"/queue/{job_id}/retry", {"csrf": form}).status_code == 303
    assert jobs(ws)[0].state == "queued"
    assert sent(client, "/queue/0/cancel", {"csrf": form}).status_code == 404
    assert sent(client, f"/queue/{'0' * 64}/cancel", {"csrf": form}).status_code == 400


# ---- a proposal ----------------------------------------------------------------------------------
@pytest.fixture
def proposed(ws: Path, kfm: Callable[..., Said]) -> int:
    kfm("run", "trees")
    found: int = kfm("review", "--json").json["proposals"][0]["proposal"]
    return found


Sign = Callable[..., str]


@pytest.fixture
def sign(
    client: "TestClient[ReaderApp]",
    ws: Path,
    tmp_path: Path,
    kfm: Callable[..., Said],
    proposed: int,
) -> Sign:
    """The statement of a proposal, signed where the key lies."""

    def signed(verdict: str, name: str = "S. Stone", reason: str = "looked", key: str = "") -> str:
        asked = {"verdict": verdict, "name": name, "reason": reason}
        answer = client.get(
            f"/proposals/{proposed}/word", params=asked, headers=held(ws, "steward")
        )
        assert answer.status_code == 200, answer.text
        file = tmp_path / "statement.json"
        file.write_bytes(answer.content)
        return kfm("keys", "sign", str(file), "--key", key or "S. Stone").out

    return signed


def state(ws: Path, number: int) -> Any:
    with open_world(open_workspace(ws)) as world:
        return world.store.read(lambda tx: tx.runs.recent("trees", 9))[0]


def test_an_approval_that_was_signed_elsewhere_counts_and_the_promotion_is_put(
    client: "TestClient[ReaderApp]",
    ws: Path,
    kfm: Callable[..., Said],
    proposed: int,
    sign: Sign,
) -> None:
    form = signed_in(client, token(ws, "steward", "S. Stone"))
    page = client.get(f"/proposals/{proposed}", headers=BROWSER).text
    assert 'type="file"' in page and "kfm keys sign" in page
    word = sign("approve")
    answer = sent(client, f"/proposals/{proposed}/word", {"csrf": form, "envelope": word})
    assert answer.headers["location"] == f"/proposals/{proposed}?done=enough", answer.text
    assert state(ws, proposed).promo == 1
    assert [j.job_type for j in jobs(ws, state="queued")] == ["promote"]
    kept = kfm("review", str(proposed), "--json").json["judgement"]["approvals"]
    assert [(a["name"], a["valid"], a["reason"]) for a in kept] == [("S. Stone", True, "looked")]
    again = sent(client, f"/proposals/{proposed}/word", {"csrf": form, "envelope": word})
    assert again.status_code == 409 and "already" in again.text
    assert kfm("promote", str(proposed)).code == 0
    assert kfm("verify").code == 0


def test_a_rejection_is_brought_as_a_file_and_ends_the_proposal(
    client: "TestClient[ReaderApp]", ws: Path, proposed: int, sign: Sign, kfm: Callable[..., Said]
) -> None:
    form = signed_in(client, token(ws, "steward"))
    word = sign("reject", reason=f"the east is missing {ATTACK}")
    file = {"file": ("signed.json", word, "application/json")}
    at = f"/proposals/{proposed}/word"
    answer = sent(client, at, {"csrf": form, "envelope": ""}, files=file)
    assert answer.headers["location"] == f"/proposals/{proposed}?done=rejected", answer.text
    row = state(ws, proposed)
    assert (row.state, row.promo) == ("REJECTED", 0) and "the east is missing" in row.reason
    for path in (f"/proposals/{proposed}", f"/runs/{row.run_id}", "/", "/decisions/trees"):
        shown = client.get(path, headers=BROWSER)
        assert "<img" not in shown.text and "pwned=1><script>" not in shown.text, path
    late = sent(client, at, {"csrf": form, "envelope": sign("approve")})
    assert late.status_code == 409 and "REJECTED" in late.text
    assert kfm("verify").code == 0


def test_a_word_counts_only_as_the_engine_would_count_it(
    client: "TestClient[ReaderApp]", ws: Path, kfm: Callable[..., Said], proposed: int, sign: Sign
) -> None:
    """By an enrolled key, of whom it names, on exactly this, unchanged."""
    form = signed_in(client, token(ws, "admin"))
    at = f"/proposals/{proposed}/word"

    def brought(word: str) -> tuple[int, str]:
        answer = sent(client, at, {"csrf": form, "envelope": word})
        return answer.status_code, answer.text

    good = json.loads(sign("approve"))
    payload = base64.b64decode(good["payload"])
    other = base64.b64encode(payload.replace(b'"looked"', b'"liked!"')).decode()
    assert brought(json.dumps({**good, "payload": other}))[0] == 400, "its signature does not fit"
    assert brought("{}")[0] == brought("no JSON")[0] == brought("")[0] == 400
    code, text = brought(sign("approve", name="Somebody Else"))
    assert code == 400 and "says that it is" in text
    stranger = ws.parent / "stranger.key"
    kfm("keys", "new", "--name", "Stranger", "--role", "approver", "--out", str(stranger))
    kfm("keys", "revoke", "Stranger", "--reason", "left")
    assert brought(sign("approve", name="Stranger", key=str(stranger)))[0] in (400, 409)
    builder = next((ws / "keys").glob("*.key"))
    assert brought(sign("approve", name="workspace", key=str(builder)))[0] in (400, 409)
    word = sign("approve")
    registered = ws / "data" / "registry" / "trees.yml"
    registered.write_text(registered.read_text().replace("Trees of trees", "Trees anew"))
    code, text = brought(word)
    assert code == 409 and "registry_digest" in text
    assert kfm("review", "--json").json["proposals"][0]["approvals"] == 0
    assert state(ws, proposed).state == "PROPOSED"


def test_the_statement_is_for_who_reviews_and_only_a_word_is_signed(
    client: "TestClient[ReaderApp]",
    ws: Path,
    kfm: Callable[..., Said],
    proposed: int,
    tmp_path: Path,
) -> None:
    at, fine = f"/proposals/{proposed}/word", {"verdict": "approve", "name": "S. Stone"}
    for role, status in (("reader", 404), ("engineer", 404), ("steward", 200), ("admin", 200)):
        assert client.get(at, params=fine, headers=held(ws, role)).status_code == status
    steward = held(ws, "steward")
    for wrong in (
        {**fine, "verdict": "maybe"},
        {**fine, "verdict": "reject"},
        {**fine, "name": ""},
        {**fine, "reason": "x" * 3000},
    ):
        assert client.get(at, params=wrong, headers=steward).status_code == 400, wrong
    for number in ("0", "99", "x", "1e3", "..", "-1"):
        answer = client.get(f"/proposals/{number}/word", params=fine, headers=steward)
        assert answer.status_code in (400, 404), number
    answer = client.get(at, params=fine, headers=steward)
    assert (
        answer.headers["content-disposition"]
        == f'attachment; filename="proposal-{proposed}-approve.json"'
    )
    file = tmp_path / "word.json"
    for more in ({"extra": 1}, {"predicateType": "kfm://predicate/root/v1"}):
        file.write_text(json.dumps({**answer.json(), **more}))
        assert kfm("keys", "sign", str(file), "--key", "S. Stone").code == 2
    file.write_bytes(answer.content)
    assert kfm("keys", "sign", str(file), "--key", "Nobody").code == 2
    assert (
        kfm("keys", "sign", str(file), "--key", "S. Stone", "--json").json["verdict"] == "approve"
    )


# ---- what was set aside --------------------------------------------------------------------------
@pytest.fixture
def aside(kfm: Callable[..., Said]) -> str:
    found: str = kfm("run", "wells", "--json").json["runs"][0]["run_id"]
    return found


def test_a_row_is_corrected_and_a_replay_asked_for(
    client: "TestClient[ReaderApp]", ws: Path, kfm: Callable[..., Said], aside: str
) -> None:
    form = signed_in(client, token(ws, "steward", "S. Stone"))
    at = f"/quarantine/{aside}"
    assert "Correct a row" in client.get(at, headers=BROWSER).text
    fix = {"csrf": form, "row": "1", "column": "depth_m", "value": "7.5", "reason": ATTACK}
    for wrong in (
        {"reason": ""},
        {"column": "nothing"},
        {"value": "deep"},
        {"row": "9"},
        {"row": "x"},
    ):
        answer = sent(client, f"{at}/fix", {**fix, **wrong})
        assert answer.status_code == 400 and "<img" not in answer.text, wrong
    assert sent(client, f"{at}/fix", fix).headers["location"] == f"{at}?done=decided"
    shown = client.get(at, headers=BROWSER).text
    assert "Ask for a replay" in shown and "<img" not in shown and "fix by S. Stone" in shown
    kept = kfm("quarantine", "show", aside, "--json").json["rows"][0]["decision"]
    assert (kept["verdict"], kept["by"], kept["sets"]) == ("fix", "S. Stone", {"depth_m": "7.5"})
    answer = sent(client, f"{at}/replay", {"csrf": form})
    assert answer.headers["location"] == "/queue?done=replay"
    assert [j.job_type for j in jobs(ws, state="queued")] == ["quarantine.replay"]
    assert kfm("worker", "run", "--until-idle").code == 0
    assert kfm("quarantine", "show", aside, "--json").json["state"] == "replayed"


def test_several_columns_of_a_row_are_corrected_in_one_act(
    client: "TestClient[ReaderApp]", ws: Path, kfm: Callable[..., Said], aside: str
) -> None:
    form, at = signed_in(client, token(ws, "steward", "S. Stone")), f"/quarantine/{aside}"
    shown = client.get(at, headers=BROWSER).text
    assert all(f'name="{name}"' in shown for name in ("column", "value", "column.2", "value.5"))
    fix = {"csrf": form, "row": "1", "column": "depth_m", "value": "7.5", "reason": "plate"}
    fix |= {"column.2": "id", "value.2": "w = 1", "column.3": "", "value.3": ""}
    for wrong in (
        {"column.4": "depth_m", "value.4": "8"},
        {"column.3": "id", "value.3": ""},
        {"value.4": "8"},
        {"column.4": "nothing", "value.4": "8"},
        {"column": "", "value": "7.5"},
    ):
        answer = sent(client, f"{at}/fix", {**fix, **wrong})
        assert answer.status_code == 400, wrong
    assert kfm("quarantine", "show", aside, "--json").json["rows"][0]["decision"] is None
    assert sent(client, f"{at}/fix", fix).headers["location"] == f"{at}?done=decided"
    kept = kfm("quarantine", "show", aside, "--json").json["rows"][0]["decision"]
    assert (kept["number"], kept["sets"]) == (1, {"depth_m": "7.5", "id": "w = 1"})
    emptied = {**fix, "value": ""}
    assert sent(client, f"{at}/fix", emptied).headers["location"] == f"{at}?done=decided"
    kept = kfm("quarantine", "show", aside, "--json").json["rows"][0]["decision"]
    assert kept["sets"] == {"depth_m": None, "id": "w = 1"}, "nothing means that there is no value"


def test_a_row_is_left_out(
    client: "TestClient[ReaderApp]", ws: Path, kfm: Callable[..., Said], aside: str
) -> None:
    form, at = signed_in(client, token(ws, "steward")), f"/quarantine/{aside}"
    answer = sent(client, f"{at}/accept", {"csrf": form, "row": "", "reason": "not ours"})
    assert answer.headers["location"] == f"{at}?done=decided"
    assert kfm("quarantine", "show", aside, "--json").json["state"] == "accepted"
    assert sent(client, f"{at}/accept", {"csrf": form, "reason": "again"}).status_code == 400
    for run in ("none", "..", aside[:8], "0" * 36):
        answer = sent(client, f"/quarantine/{run}/accept", {"csrf": form, "reason": "x"})
        assert answer.status_code in (400, 404), run


def test_an_engineer_asks_and_does_not_decide(
    client: "TestClient[ReaderApp]", ws: Path, aside: str
) -> None:
    form, at = signed_in(client, token(ws, "engineer")), f"/quarantine/{aside}"
    assert "Correct a row" not in client.get(at, headers=BROWSER).text
    answer = sent(client, f"{at}/accept", {"csrf": form, "reason": "mine"})
    assert answer.status_code == 403 and "steward" in answer.text
    assert audit(ws)[-1]["decision"] == "refused" and audit(ws)[-1]["role"] == "engineer"
    assert sent(client, f"{at}/replay", {"csrf": form}).status_code == 303


def test_what_cannot_be_written_down_is_not_done(
    client: "TestClient[ReaderApp]", ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(root: object, line: object) -> None:
        raise OSError(28, "No space left on device")

    form = csrf(client)
    monkeypatch.setattr("kfm.console.act.log_audit", full)
    answer = client.post("/datasets/wells/run", headers=held(ws, "admin"))
    assert answer.status_code == 503 and not jobs(ws)
    assert sent(client, "/login", {"token": token(ws, "admin"), "csrf": form}).status_code == 503
