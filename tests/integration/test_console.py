"""Who runs things over a network: who is let in, what is known for a form of ours, what is written
down of it.
"""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from httpx import Response
from litestar.testing import TestClient

from kfm.cli.init import make_workspace
from kfm.grants.session import session_of
from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.browsing import served
from tests.given.console import AT, BROWSER, csrf, held, sent, signed_in, token
from tests.given.reading import called, entry, reader

CSV = b"id,kind\n" + b"".join(b"t%d,oak\n" % n for n in range(9))
ROLES = ("reader", "engineer", "steward", "admin")
HERE = "http://127.0.0.1:8788"


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("console") / "ws"
    make_workspace(folder, sample=False, allow_loopback=True)
    with Upstream() as up:
        up.files["/trees.csv"] = CSV
        entry(folder, "trees", up.url)
        called(folder, "run", "trees")
        yield folder


@pytest.fixture
def client(ws: Path) -> "Iterator[TestClient[ReaderApp]]":
    """The console, over a network."""
    with reader(ws, html_pages(console=True), AT, address=AT, limited=True) as found:
        yield found


@pytest.fixture
def here(ws: Path) -> "Iterator[TestClient[ReaderApp]]":
    """The console, for who works at this machine."""
    with reader(ws, html_pages(console=True), HERE, here=True) as found:
        yield found


def audit(ws: Path) -> list[dict[str, str]]:
    files = sorted((ws / "ledger" / "logs").glob("audit-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


# ---- who is let in -------------------------------------------------------------------------------
@pytest.mark.parametrize("role", [None, *ROLES])
def test_the_console_opens_for_a_role_and_looks_like_nothing_to_others(
    client: "TestClient[ReaderApp]", ws: Path, role: str | None
) -> None:
    headers = held(ws, role) if role else {}
    sees = role in ("engineer", "steward", "admin")
    unknown = client.get("/nothing", headers=headers)
    for path in ("/home", "/runs", "/queue", "/policy", "/proposals", "/quarantine"):
        answer = client.get(path, headers=headers)
        assert answer.status_code == (200 if sees else 404), path
        assert sees or answer.content == unknown.content
        assert client.get(f"{path}.json", headers=headers).status_code == answer.status_code
    assert client.get("/datasets/trees", headers=headers).status_code == 200


def test_who_works_at_this_machine_needs_no_token_and_a_stated_name_counts(
    here: "TestClient[ReaderApp]", ws: Path
) -> None:
    assert here.get("/queue").status_code == 200
    assert here.get("/queue", headers=held(ws, "reader")).status_code == 404
    for name in ("x-forwarded-for", "forwarded", "via", "x-real-ip"):
        assert here.get("/queue", headers={name: "203.0.113.9"}).status_code == 404


def test_no_name_makes_a_network_this_machine(client: "TestClient[ReaderApp]") -> None:
    for host in ("127.0.0.1", "localhost", "[::1]:8788"):
        assert client.get("/queue", headers={"host": host}).status_code == 404


def test_a_session_is_a_cookie_that_scripts_and_other_sites_do_not_get(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    secret = token(ws, "engineer")
    answer = sent(client, "/login", {"token": secret, "csrf": csrf(client)})
    assert (answer.status_code, answer.headers["location"]) == (303, "/?done=in")
    begun, forgotten = answer.headers.get_list("set-cookie")
    name, _, rest = begun.partition("=")
    value, *flags = rest.split("; ")
    assert name == "__Host-kfm_session" and len(value) == 43
    assert {"HttpOnly", "Secure", "SameSite=Strict", "Path=/"} <= set(flags)
    assert "Max-Age=43200" in flags or "Max-Age=43199" in flags
    assert "Domain" not in begun and "Max-Age=0" in forgotten
    shown = client.get("/queue", headers=BROWSER)
    assert shown.status_code == 200 and "E. Engineer" in shown.text
    assert (
        shown.headers["cache-control"] == "private, no-store" and "cookie" in shown.headers["vary"]
    )
    kept = "".join(p.read_text() for p in (ws / "keys").rglob("*.json"))
    assert secret not in kept and value not in kept
    logged = "".join(p.read_text() for p in (ws / "ledger" / "logs").iterdir())
    assert secret not in logged and value not in logged


def test_a_session_ends_when_its_token_is_revoked_or_somebody_signs_out(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    secret = token(ws, "engineer")
    form = signed_in(client, secret)
    assert client.get("/queue").status_code == 200
    cookie = client.cookies.get("__Host-kfm_session")
    out = sent(client, "/logout", {"csrf": form})
    assert out.status_code == 303 and "Max-Age=0" in out.headers["set-cookie"]
    again = {"cookie": f"__Host-kfm_session={cookie}"}
    assert client.get("/queue", headers=again).status_code == 404, "it is ended, not forgotten"
    signed_in(client, secret)
    assert client.get("/queue").status_code == 200
    for path in (ws / "keys" / "readers").glob("*.json"):
        path.unlink()
    lost = client.get("/queue")
    assert lost.status_code == 404 and "Max-Age=0" in lost.headers["set-cookie"]


def test_a_session_that_an_attacker_chose_is_never_the_one_that_begins(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    chosen = "a" * 43
    form = csrf(client)
    client.cookies.set("__Host-kfm_session", chosen)
    answer = sent(client, "/login", {"token": token(ws, "admin"), "csrf": form})
    assert answer.status_code == 303 and chosen not in answer.headers["set-cookie"]
    with open_world(open_workspace(ws)) as world:
        assert session_of(world, chosen) is None
    with reader(ws, html_pages(console=True), AT, address=AT) as other:
        other.cookies.set("__Host-kfm_session", chosen)
        assert other.get("/queue").status_code == 404


def test_who_signs_in_again_has_one_session_and_sixteen_at_most_are_kept(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    secret, folder = token(ws, "steward"), ws / "keys" / "readers" / "sessions"
    before = len(list(folder.glob("*"))) if folder.is_dir() else 0
    for _ in range(3):
        signed_in(client, secret)
    assert len(list(folder.glob("*"))) == before + 1
    for _ in range(20):
        client.cookies.clear()
        signed_in(client, secret)
    assert len(list(folder.glob("*"))) <= before + 17


# ---- guessing, and asking too much ---------------------------------------------------------------
def test_who_guesses_tokens_waits_and_who_has_one_does_not(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    good = held(ws, "engineer")
    assert client.get("/queue", headers=good).status_code == 200
    answers = [
        client.get("/datasets", headers={"authorization": f"Bearer kfm_{n:043}"}) for n in range(12)
    ]
    assert [a.status_code for a in answers[:10]] == [401] * 10
    assert answers[11].status_code == 429 and int(answers[11].headers["retry-after"]) >= 1
    form = {"token": f"kfm_{7:043}", "csrf": csrf(client)}
    tried = sent(client, "/login", form)
    assert tried.status_code == 429 and "retry-after" in tried.headers
    cookie = {"cookie": f"__Host-kfm_session={'b' * 43}"}
    assert client.get("/datasets", headers=cookie).status_code == 429
    assert client.get("/queue", headers=good).status_code == 200
    assert client.get("/datasets").status_code == 200, "who shows nothing guesses nothing"
    assert audit(ws)[-1]["decision"] == "refused" and audit(ws)[-1]["act"] == "login"


def test_who_asks_too_much_waits(ws: Path) -> None:
    config = ws / "kfm.yml"
    before = config.read_text()
    config.write_text(f"{before}\nserve: {{requests_per_minute: 60}}\n")
    try:
        with reader(ws, html_pages(console=True), AT, address=AT, limited=True) as client:
            answers = [client.get("/health") for _ in range(11)]
            good = client.get("/health", headers=held(ws, "reader"))
    finally:
        config.write_text(before)
    assert answers[9].status_code == 200 and answers[10].status_code == 429
    assert answers[10].headers["retry-after"] == "1" and answers[10].headers["x-frame-options"]
    assert good.status_code == 200, "a token is counted by itself"


# ---- forms of ours -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "wrong",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://data.example.org"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
)
def test_a_form_that_another_site_sends_is_refused(
    client: "TestClient[ReaderApp]", ws: Path, wrong: dict[str, str]
) -> None:
    form = signed_in(client, token(ws, "admin"))
    answer = sent(client, "/logout", {"csrf": form}, wrong)
    assert answer.status_code == 403 and "another site" in answer.text
    assert client.get("/queue").status_code == 200, "nobody was signed out"
    assert audit(ws)[-1]["decision"] == "refused"


def test_a_form_is_known_by_the_session_it_was_made_for(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    before = csrf(client)
    form = signed_in(client, token(ws, "admin"))
    with reader(ws, html_pages(console=True), AT, address=AT) as other:
        theirs = signed_in(other, token(ws, "admin"))
    for wrong in ("", before, theirs, form[:-1], "é" * 64):
        assert sent(client, "/logout", {"csrf": wrong}).status_code == 403
    nobody = client.post("/logout", data={"csrf": form}, follow_redirects=False)
    assert nobody.status_code == 403, "a browser says which page sent a form"
    assert sent(client, "/logout", {"csrf": form}).status_code == 303


def test_at_this_machine_a_form_is_known_by_the_process(
    here: "TestClient[ReaderApp]", ws: Path
) -> None:
    form = csrf(here)
    assert sent(here, "/logout", {"csrf": form}).status_code == 303
    assert sent(here, "/logout", {"csrf": "0" * 64}).status_code == 403
    assert (
        sent(here, "/logout", {"csrf": form}, {"origin": "http://127.0.0.1:9"}).status_code == 403
    )
    with reader(ws, html_pages(console=True), HERE, here=True) as other:
        assert sent(other, "/logout", {"csrf": form}).status_code == 403


@pytest.mark.parametrize("path", ["/login", "/queue", "/nothing", "/static/kfm.css", "/login.json"])
def test_every_answer_is_bound(client: "TestClient[ReaderApp]", path: str) -> None:
    for answer in (client.get(path, headers=BROWSER), client.post(path, headers=BROWSER)):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        told = {
            "x-content-type-options": "nosniff",
            "referrer-policy": "same-origin",
            "x-frame-options": "DENY",
            "strict-transport-security": "max-age=31536000",
        }
        assert told.items() <= dict(answer.headers).items() and answer.headers["permissions-policy"]


def test_a_body_that_is_too_large_or_no_form_is_refused(client: "TestClient[ReaderApp]") -> None:
    form = csrf(client)
    assert sent(client, "/login", {"token": "x" * (2 << 20), "csrf": form}).status_code == 413
    assert sent(client, "/login", {"token": "x" * 9000, "csrf": form}).status_code == 400
    torn = b'--x\r\nContent-Disposition: form-data; name="a"\r\n%s\r\n\xff\r\n--x--\r\n'
    for more in (b"", b"Content-Type: text/plain; charset=none\r\n"):
        parts = {"content-type": "multipart/form-data; boundary=x", **BROWSER}
        assert client.post("/login", content=torn % more, headers=parts).status_code == 400
    for kind in ("multipart/form-data", "multipart/form-data; boundary=" + "x" * 99, "text/plain"):
        answer = client.post(
            "/login", content=b"token=x", headers={"content-type": kind, **BROWSER}
        )
        assert 400 <= answer.status_code < 500, kind
    many = {f"n{n}": "x" for n in range(300)}
    assert sent(client, "/login", {**many, "csrf": form}).status_code in (400, 403)


def test_a_body_that_comes_too_slowly_is_not_waited_for(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kfm.reader.app.MOST_SECONDS", 0.05)
    with served(ws, console=True) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as wire:
            head = "POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900\r\n"
            wire.sendall(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\nt".encode())
            answer = wire.recv(4096)
    assert answer.startswith(b"HTTP/1.1 408") and b"frame-ancestors" in answer


def test_headers_without_an_end_are_refused(ws: Path) -> None:
    with served(ws, console=False) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as wire:
            wire.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * (70 << 10))
            assert wire.recv(4096).startswith(b"HTTP/1.1 400")
        with socket.create_connection((host, int(port)), timeout=60) as wire:
            for _ in range(3):  # each question is measured for itself
                asked = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * (40 << 10)
                wire.sendall(asked + b"\r\n\r\n")
                assert wire.recv(4096).startswith(b"HTTP/1.1 200")


# ---- what others can tell of it ------------------------------------------------------------------
def test_nobody_can_tell_that_there_is_a_console(client: "TestClient[ReaderApp]", ws: Path) -> None:
    """By another method, by the description of the API, or by the first page."""
    unknown = client.get("/nothing"), client.post("/nothing")
    for path in ("/queue", "/proposals/1", "/runs/x", "/boundary", "/datasets/trees/run", "/slo"):
        assert client.get(path).content == unknown[0].content, path
        assert client.post(path).content == unknown[1].content, path
        assert client.get(path).status_code == client.post(path).status_code == 404
    described = client.get("/openapi.json").json()["paths"]
    assert "/datasets" in described and "/login" in described
    assert not [
        p for p in described if p.split("/")[1] in ("queue", "proposals", "boundary", "runs")
    ]
    assert client.post("/datasets").status_code == 405
    for headers in ({}, held(ws, "reader")):
        first = client.get("/", headers={**headers, **BROWSER})
        assert first.status_code == 200 and "<h1>Datasets</h1>" in first.text


@pytest.mark.parametrize(
    "path",
    ["/queue", "/queue/", "/proposals//1", "/proposals/1/word", "/datasets/trees/run", "/runs/x/"],
)
def test_what_is_hidden_answers_as_what_is_not_there(
    client: "TestClient[ReaderApp]", path: str
) -> None:
    """Whatever is asked of it, and whatever is shown."""
    torn = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\xff\r\n--x--\r\n'
    parts = {"content-type": "multipart/form-data; boundary=x"}
    form = {"content-type": "application/x-www-form-urlencoded"}
    nobody = {"authorization": "Bearer kfm_" + "x" * 43}
    lost = {"cookie": "__Host-kfm_session=" + "x" * 43}
    asked = [
        *((method, {}, b"") for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE")),
        *(("GET", shown, b"") for shown in (nobody, lost)),
        *(("POST", nobody | kind, body) for kind, body in ((form, b"a=1"), (parts, torn))),
        *(("POST", parts, body) for body in (b"", torn)),
        ("POST", form, b"a=" + b"x" * (2 << 20)),
    ]
    for method, headers, body in asked:
        found, other = (
            client.request(method, at, headers=headers, content=body) for at in (path, "/nothing")
        )
        assert _told(found) == _told(other), (method, headers, body[:20])
        assert found.status_code in (401, 404)


def _told(answer: Response) -> tuple[int, bytes, dict[str, str]]:
    headers = {name: value for name, value in answer.headers.items() if name != "kfm-request"}
    return answer.status_code, answer.content, headers


def test_counts_do_not_tell_of_the_console(client: "TestClient[ReaderApp]", ws: Path) -> None:
    for headers in ({}, held(ws, "engineer")):
        client.get("/queue", headers=headers)
        client.get("/runs/x", headers=headers)
    counted = client.get("/metrics").text
    assert 'route="GET ?",answer="200"' in counted
    assert "/queue" not in counted and "/runs" not in counted


def test_runs_of_a_dataset_that_is_not_registered_are_not_there(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    headers = held(ws, "engineer")
    assert client.get("/runs?dataset=trees", headers=headers).status_code == 200
    assert client.get("/runs?dataset=nothing", headers=headers).status_code == 404


def test_a_head_leaves_the_connection_open(ws: Path) -> None:
    with served(ws, console=False) as url:
        wire = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        for path in ("/datasets", "/nothing", "/datasets/trees/versions/1/files/data.csv"):
            wire.request("HEAD", path)
            answer = wire.getresponse()
            assert not answer.read() and answer.getheader("connection") != "close"
            assert wire.sock is not None
            mine = wire.sock.getsockname()
            wire.request("GET", "/health")  # raises where the other side has gone
            assert wire.sock.getsockname() == mine
            assert wire.getresponse().read()
        wire.close()


def test_a_form_is_kept_by_no_cache(client: "TestClient[ReaderApp]") -> None:
    for _ in range(2):  # with and without the cookie that it is known by
        answer = client.get("/login", headers=BROWSER)
        assert answer.headers["cache-control"] == "private, no-store"
