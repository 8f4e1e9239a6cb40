"""Upstream is treated well, told who asks, and hears our credentials; nobody else ever does."""

import base64
import datetime as dt
import hashlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kfm import __version__
from kfm.model import masking
from tests.given.replay_server import Answer, Asked, ReplayServer
from tests.given.verbs import Said, for_recordings

Kfm = Callable[..., Said]
HOST = "data.agency.example"
CSV = b"id,name\n1,Ada\n2,Bo\n"
TOKEN = "Tok3n-For-Tests-9f8e7d"  # kfm: not a secret
ENTRY = """dataset_id: {name}
title: {name}
licence: CC0-1.0
sensitivity: public
policy_label: public
source:
  url: https://{host}/{name}.csv{query}
  format: csv
{more}business_key: [id]
"""


@pytest.fixture(autouse=True)
def no_secrets_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_known", set())
    monkeypatch.setattr(masking, "_pattern", None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ReplayServer]:
    """Plays every live host: one table, with its ETag."""

    def table(asked: Asked) -> Answer:
        fresh = asked.headers.get("if-none-match") == '"v1"'
        return Answer(304 if fresh else 200, b"" if fresh else CSV, {"ETag": '"v1"'})

    with ReplayServer(instead=table) as found:
        monkeypatch.setenv("KFM_REROUTE", found.where)
        yield found


def register(ws: Path, name: str = "people", query: str = "", more: str = "") -> None:
    (ws / "data" / "registry" / f"{name}.yml").write_text(
        ENTRY.format(name=name, host=HOST, query=query, more=more)
    )


def configure(ws: Path, text: str) -> None:
    with (ws / "kfm.yml").open("a") as file:
        file.write(text)


def waits(ws: Path) -> list[str]:
    lines = [
        json.loads(line)
        for file in (ws / "data" / "work").rglob("run.jsonl")
        for line in file.read_text().splitlines()
    ]
    return [wait["reason"] for line in lines for wait in line.get("waits", [])]


def test_a_host_is_asked_no_faster_than_its_limit_and_each_wait_has_a_reason(
    kfm: Kfm, ws: Path, server: ReplayServer
) -> None:
    configure(ws, f"polite: {{hosts: {{{HOST}: {{per_second: 0.5}}}}}}\n")
    register(ws, more=f"  urls: [https://{HOST}/more.csv]\n")
    server.instead = lambda asked: Answer(
        200, CSV if "people" in asked.url else CSV.replace(b"1,", b"3,").replace(b"2,", b"4,")
    )
    assert kfm("run", "people").code == 0
    assert waits(ws) == ["polite: host allows 0.5 requests a second"]
    assert len(json.loads((ws / "ledger" / "hosts" / f"{HOST}.json").read_text())["starts"]) == 1


def test_what_a_host_asks_of_one_process_the_next_one_heeds(
    kfm: Kfm, ws: Path, server: ReplayServer
) -> None:
    configure(ws, f"polite: {{hosts: {{{HOST}: {{}}}}}}\n")
    register(ws)
    server.instead = lambda asked: Answer(503, headers={"Retry-After": "300"})
    for _ in range(2):
        said = kfm("run", "people")
        assert said.code == 4
        assert "http 503, asked to wait 300 s" in said.err + said.out
    assert len(server.asked) == 1


def test_hosts_that_are_played_here_are_not_limited_unless_named(
    kfm: Kfm, ws: Path, server: ReplayServer
) -> None:
    register(ws)
    assert kfm("run", "people").code == 0
    assert not (ws / "ledger" / "hosts").exists()


@pytest.mark.parametrize(
    ("contact", "agent"),
    [
        ("", ""),
        ("data@agency.example", " (+data@agency.example)"),
        ("https://agency.example/kfm", None),
    ],
)
def test_upstream_is_told_who_asks(
    contact: str, agent: str | None, kfm: Kfm, ws: Path, server: ReplayServer
) -> None:
    if contact:
        configure(ws, f"contact: {contact}\n")
    register(ws)
    assert kfm("run", "people").code == 0
    assert server.asked[0].headers["user-agent"] == f"kfm/{__version__}" + (
        f" (+{contact})" if agent is None else agent
    )


@pytest.mark.parametrize("contact", ["me", "a@b c", "a@b)", "'a@b\\nX: y'"])
def test_a_contact_is_a_mail_or_an_address(contact: str, kfm: Kfm, ws: Path) -> None:
    configure(ws, f"contact: {contact}\n")
    assert kfm("status").code == 2


def test_requests_are_rerouted_only_where_this_machine_may_play_upstream(
    kfm: Kfm, ws: Path, server: ReplayServer
) -> None:
    (ws / "kfm.yml").write_text(
        (ws / "kfm.yml").read_text().replace("allow_loopback: true", "allow_loopback: false")
    )
    register(ws)
    said = kfm("run", "people")
    assert said.code == 2
    assert "KFM_REROUTE" in said.err + said.out
    assert server.asked == []


# Recordings


@pytest.mark.parametrize("by", ["environment", "kfm.yml"])
def test_replay_answers_from_recordings_and_says_when_there_is_none(
    by: str, kfm: Kfm, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ws / "recorded"
    ada = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [-98, 38]},
        "properties": {"id": 1, "name": "Ada"},
    }
    body = json.dumps({"type": "FeatureCollection", "features": [ada]}).encode()
    folder.mkdir()
    (folder / "people.csv").write_bytes(body)
    entry = {
        "method": "GET",
        "url": f"https://{HOST}/people.csv",
        "status": 200,
        "file": "people.csv",
        "content_type": "text/csv",
    }
    entry |= {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    (folder / "REPLAY.json").write_text(json.dumps({"entries": [entry]}))
    for_recordings(ws, "true" if by == "environment" else "recorded")
    if by == "environment":
        monkeypatch.setenv("KFM_REPLAY", str(folder))
    register(ws)
    known = ws / "data" / "registry" / "people.yml"
    known.write_text(known.read_text().replace("format: csv", "format: geojson"))
    register(ws, "places")
    assert kfm("run", "people", "--upstream", "replay").code == 0
    again = kfm("run", "people", "--upstream", "replay", "--json")
    assert (again.code, again.json["runs"][0]["state"]) == (0, "NOOP")
    listed = "sha256:" + hashlib.sha256((folder / "REPLAY.json").read_bytes()).hexdigest()
    shown = kfm("status", "people", "--json").json["datasets"][0]
    origin = f"replay:{listed}"
    assert shown["origin"] == [origin]
    made = ws / "data" / "processed" / "people" / shown["version_id"]
    dcat, stac, signed = (
        json.loads((made / f"{name}.json").read_bytes()) for name in ("dcat", "stac", "attestation")
    )
    assert dcat["kfm:origin"] == stac["properties"]["kfm:origin"] == [origin]
    built = json.loads(base64.b64decode(signed["payload"]))["predicate"]["buildDefinition"]
    assert [d["annotations"] for d in built["resolvedDependencies"]] == [{"origin": origin}]
    assert kfm("cite", "people", "--json").json["note"].endswith(f"origin {origin}")
    missing = kfm("run", "places", "--upstream", "replay")
    assert missing.code == 4
    assert f"https://{HOST}/places.csv" in (missing.err + missing.out).replace("\n  ", " ")
    (folder / "people.csv").write_bytes(body + b" ")
    assert kfm("run", "people", "--upstream", "replay").code == 6


def test_a_file_of_the_workspace_is_read_whatever_upstream_is_recorded(kfm: Kfm, ws: Path) -> None:
    (ws / "recorded").mkdir()
    (ws / "recorded" / "REPLAY.json").write_text('{"entries": []}')
    (ws / "inbox").mkdir()
    (ws / "inbox" / "own.csv").write_bytes(CSV)
    for_recordings(ws, "recorded")
    register(ws)
    entry = ws / "data" / "registry" / "people.yml"
    entry.write_text(
        entry.read_text().replace(f"https://{HOST}/people.csv", "file:///inbox/own.csv")
    )
    assert kfm("run", "people", "--upstream", "replay").code == 0


def test_where_nothing_is_recorded_a_file_is_replayed_from_its_capture_or_refused(
    kfm: Kfm, ws: Path
) -> None:
    (ws / "inbox").mkdir()
    (ws / "inbox" / "own.csv").write_bytes(CSV)
    register(ws)
    entry = ws / "data" / "registry" / "people.yml"
    entry.write_text(
        entry.read_text().replace(f"https://{HOST}/people.csv", "file:///inbox/own.csv")
    )
    said = kfm("run", "people", "--upstream", "replay")
    assert said.code == 4 and "There is no recording of file:///inbox/own.csv" in (
        said.err + said.out
    ).replace("\n  ", " ")
    assert kfm("run", "people").code == 0
    (ws / "inbox" / "own.csv").write_bytes(CSV + b"3,Cy\n")
    again = kfm("run", "people", "--upstream", "replay", "--json")
    assert (again.code, again.json["runs"][0]["state"]) == (0, "NOOP"), (
        "what the file holds now is no replay"
    )


# Secrets

BY_HEADER = "  headers: {Authorization: env:PLANTED}\n"


def echo(kind: str) -> Callable[[Asked], Answer]:
    """An upstream that says our token back in one of many ways."""
    low = TOKEN.lower()
    return lambda asked: {
        "body": Answer(200, CSV + f"3,{TOKEN}\n".encode()),
        "error": Answer(403, f"bad token {TOKEN}".encode(), {"WWW-Authenticate": TOKEN}),
        "problem": Answer(
            500, json.dumps({"detail": TOKEN}).encode(), {"Content-Type": f"application/{TOKEN}"}
        ),
        "redirect": Answer(
            302, b"", {"Location": f"https://{low}.evil.example/{TOKEN}?token={TOKEN}"}
        ),
        "headers": Answer(
            200,
            CSV,
            {
                "ETag": f'"{TOKEN}"',
                "Last-Modified": TOKEN,
                "Content-Type": f"text/{TOKEN}",
                "Set-Cookie": TOKEN,
            },
        ),
        "malformed": Answer(200, TOKEN.encode()[:8] + b'\n"', {"ETag": f'W/"{TOKEN}"'}),
    }[kind]


@pytest.mark.parametrize("way", ["header", "query"])
@pytest.mark.parametrize(
    ("kind", "code"),
    [("body", 1), ("error", 4), ("problem", 4), ("redirect", 3), ("headers", 0), ("malformed", 1)],
)
def test_a_token_upstream_says_back_is_written_and_printed_nowhere(
    kind: str,
    code: int,
    way: str,
    kfm: Kfm,
    ws: Path,
    server: ReplayServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLANTED", f"Bearer {TOKEN}" if way == "header" else TOKEN)
    register(
        ws,
        query="?api_key=env:PLANTED" if way == "query" else "",
        more=BY_HEADER if way == "header" else "",
    )
    server.instead = echo(kind)
    said = [
        kfm("run", "people", "--verbose"),
        kfm("run", "people", "--json"),
        kfm("runs"),
        kfm("status", "--json"),
        kfm("explain", "run", "people"),
    ]
    assert said[0].code == code, said[0].err
    assert TOKEN in (
        server.asked[0].headers.get("authorization", "") if way == "header" else server.asked[0].url
    )
    told = "".join(s.out + s.err for s in said)
    assert TOKEN.lower() not in told.lower().replace("\n", "").replace(" ", "")
    holding = [
        str(f)
        for f in ws.rglob("*")
        if f.is_file() and TOKEN.encode().lower() in f.read_bytes().lower()
    ]
    assert holding == []


def test_a_body_that_repeats_the_credential_changes_nothing_official(
    kfm: Kfm, ws: Path, server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", TOKEN)
    register(ws, more=BY_HEADER)
    assert kfm("run", "people").code == 0
    before = kfm("status", "--json").json["datasets"]
    server.instead = echo("body")
    said = kfm("run", "people", "--json")
    assert said.code == 1
    assert "repeats a credential" in json.dumps(said.json)
    after = kfm("status", "--json").json["datasets"]
    assert [d["version_id"] for d in after] == [d["version_id"] for d in before]


# Version control


def test_polling_leaves_nothing_to_commit(kfm: Kfm, ws: Path, server: ReplayServer) -> None:
    configure(ws, f"polite: {{hosts: {{{HOST}: {{}}}}}}\n")
    register(ws)

    def git(*args: str) -> str:
        who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.run(
            ["git", *who, *args], cwd=ws, capture_output=True, text=True, check=True
        ).stdout

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "registry")
    assert "data/registry/people.yml" in git("ls-files")
    for _ in range(2):
        assert kfm("run", "people").code == 0
    # restarted from its checkpoint
    assert len(server.asked) == 2 and server.asked[1].headers["if-none-match"] == '"v1"'
    assert (ws / "ledger" / "hosts" / f"{HOST}.json").is_file()
    assert git("status", "--porcelain") == ""


# Doctor


def test_doctor_names_inline_secrets_and_a_missing_contact(kfm: Kfm, ws: Path) -> None:
    assert kfm("doctor", "--json").json["findings"] == []
    register(ws, more="cadence: daily\n")
    said = kfm("doctor", "--json")
    assert (said.code, [f["code"] for f in said.json["findings"]]) == (0, ["contact.missing"])
    configure(ws, "contact: data@agency.example\n")
    assert kfm("doctor", "--json").json["findings"] == []
    folder = ws / "scripts" / "connectors" / "people"
    folder.mkdir(parents=True)
    (folder / "notes.py").write_text("API_KEY = '" + "q7Rt9ZpLw2Xv" + "Kd8sYb4Nm1Gh" + "'\n")
    said = kfm("doctor", "--json")
    assert (said.code, said.json["findings"][0]["code"], said.json["findings"][0]["where"]) == (
        1,
        "secret.inline",
        "scripts/connectors/people/notes.py:1",
    )
    assert "q7Rt9" not in said.out


# A time that upstream names


def test_an_answer_that_names_a_time_ends_the_run_at_once_and_puts_its_job_off(
    kfm: Kfm, ws: Path, server: ReplayServer
) -> None:
    register(ws)
    server.instead = lambda asked: Answer(503, headers={"Retry-After": "600"})
    before = time.time()
    said = kfm("run", "people")
    told = " ".join((said.err + said.out).split())
    (job,) = kfm("jobs", "list", "--dataset", "people", "--json").json["jobs"]
    until = dt.datetime.fromisoformat(job["not_before"])
    assert said.code == 4
    assert f"Try again after {until.strftime('%Y-%m-%dT%H:%M:%SZ')}" in told
    assert before + 590 < until.timestamp() < time.time() + 610
    assert (job["state"], job["outcome"], job["attempts"]) == ("queued", "deferred", 0)
    assert kfm("worker", "run", "--until-idle").code == 0
    assert len(server.asked) == 1
    assert job["not_before"] in kfm("status").out
