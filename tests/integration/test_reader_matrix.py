"""Every label, every role, every address of the reader: what each answers, and that none is
missing here.
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from kfm.access.boundary import Allowed, Asked, data_of, decide
from kfm.access.boundary import Reader as Boundary
from kfm.cli.init import make_workspace
from kfm.evidence.version_records import read_facts
from kfm.grants.token import Token, new_token
from kfm.judge.candidate import official_candidate
from kfm.model import Denied, ids
from kfm.pages.routes import html_pages
from kfm.reader.app import ReaderApp, make_app
from kfm.reader.serve import reading
from kfm.reader.visit import BEAT_NS, until_beat
from kfm.testing import Upstream
from kfm.webhook.serve import Address
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.console import AT, BROWSER
from tests.given.reading import ROLES, STATES, answers, mark, published, reader
from tests.given.verbs import SHARED, caller

# what needs no version: it shows nothing of one
PLAIN = {
    "/", "/health", "/metrics", "/openapi.json", "/openapi.html", "/stac/conformance", "/stac/queryables",
}  # fmt: skip
# what is made of everything that may be seen
LISTS = {
    "/datasets", "/dcat", "/feed", "/search", "/stac", "/stac/children", "/stac/collections", "/stac/search",
}  # fmt: skip
VERSION = "/datasets/{dataset_id}/versions/{which}"
# what is asked about one dataset: the question behind it, by address
ONE: dict[str, str] = {
    "/datasets/{dataset_id}": "",
    "/datasets/{dataset_id}/versions": "",
    "/datasets/{dataset_id}/feed": "",
    "/datasets/{dataset_id}/ask": "",
    "/datasets/{dataset_id}/rows": "?limit=3",
    VERSION: "",
    f"{VERSION}/files/{{name}}": "",
    f"{VERSION}/proofs/{{name}}": "",
    f"{VERSION}/rows": "?form=csv",
    f"{VERSION}/cite": "?form=ris",
    f"{VERSION}/dcat": "",
    f"{VERSION}/prov": "",
    f"{VERSION}/openlineage": "",
    f"{VERSION}/lineage": "",
    f"{VERSION}/diff": "?limit=5",
    f"{VERSION}/story": "",
    f"{VERSION}/ask": "?q=may+I+use+it",
    f"{VERSION}/blame": "?key=period=x",
    f"{VERSION}/tiles": "",
    "/evidence/{asked}": "",
    "/stac/collections/{dataset_id}": "",
    "/stac/collections/{dataset_id}/queryables": "",
    "/stac/collections/{dataset_id}/items": "",
    "/stac/collections/{dataset_id}/items/{item_id}": "",
}
FORMS: tuple[dict[str, str], ...] = ({}, {"range": "bytes=0-3"}, {"if-none-match": "*"})


@pytest.fixture(scope="module")
def ws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace with a dataset in every state."""
    folder = tmp_path_factory.mktemp("matrix") / "ws"
    make_workspace(folder, sample=False, allow_loopback=True)
    with Upstream() as up:
        published(folder, up)
        yield folder


@pytest.fixture(scope="module")
def client(ws: Path) -> "Iterator[TestClient[ReaderApp]]":
    with reader(ws) as found:
        yield found


def addresses(app: ReaderApp) -> set[tuple[str, str]]:
    """(method, address) of everything that answers."""
    return {
        (method, route.path_format)
        for route in app.routes
        if not route.path_format.startswith("/openapi/") and route.path_format != "/openapi"
        for method in getattr(route, "route_handler_map", {})
        if method != "OPTIONS"
    }


def test_every_address_is_in_the_matrix(ws: Path) -> None:
    app = make_app(open_workspace(ws))
    known = {("GET", path) for path in PLAIN | LISTS | ONE.keys()} | {("POST", "/stac/search")}
    assert addresses(app) == known, "a new address: say here who gets what from it"
    app.close()


@pytest.mark.parametrize("path", sorted(ONE))
def test_one_dataset_is_shown_to_whom_it_may_be(
    client: "TestClient[ReaderApp]", ws: Path, path: str
) -> None:
    for role, headers in ROLES(ws).items():
        for name in STATES:
            expected = answers(name, role)
            asked = _filled(path, name, ws)
            for form in FORMS:
                answer = client.get(asked + ONE[path], headers=headers | form)
                where = (role, name, asked, form, answer.text[:300])
                if expected == 200:
                    assert answer.status_code in _fine(path, name, form), where
                else:
                    assert answer.status_code == expected, where
                    assert mark(name) not in answer.text and "etag" not in answer.headers, where
                if answer.status_code < 400 and (name != "open" or headers):
                    assert answer.headers["cache-control"] == "private, no-store", where


@pytest.mark.parametrize("path", sorted(LISTS))
def test_a_list_holds_what_may_be_seen_and_nothing_else(
    client: "TestClient[ReaderApp]", ws: Path, path: str
) -> None:
    for role, headers in ROLES(ws).items():
        answer = client.get(path, headers=headers)
        assert answer.status_code == 200
        for name in STATES:
            if answers(name, role) != 200:
                assert f'"{name}"' not in answer.text and mark(name) not in answer.text
    seen = client.get(path, headers=ROLES(ws)["granted"]).text
    assert mark("closed") in seen or path == "/search"


def test_a_search_by_body_counts_what_may_be_seen(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    counts = {
        role: client.post("/stac/search", json={}, headers=headers).json()["numberMatched"]
        for role, headers in ROLES(ws).items()
    }
    assert counts.pop("granted") == 3 and set(counts.values()) == {2}


@pytest.mark.parametrize("path", sorted(PLAIN))
def test_what_shows_no_version_names_no_dataset(client: "TestClient[ReaderApp]", path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    assert not [name for name in STATES if mark(name) in answer.text]


def test_what_is_hidden_looks_like_what_is_not_there(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    """Not a byte differs, and no header but the name of the request."""
    stranger = ROLES(ws)["stranger"]
    for path in ONE:
        hidden = client.get(_filled(path, "closed", ws) + ONE[path], headers=stranger)
        absent = client.get(_filled(path, "nowhere", ws) + ONE[path], headers=stranger)
        assert (hidden.status_code, hidden.content) == (404, absent.content), path
        assert _stable(hidden.headers) == _stable(absent.headers), path


def test_that_something_is_damaged_is_told_to_who_may_know_that_it_is_there(
    client: "TestClient[ReaderApp]", ws: Path
) -> None:
    """To everybody else it is not there, whole or not; the log knows."""
    log = ws / "ledger" / "logs"
    for name in ("open", "cells", "closed"):
        listed = next((ws / "data" / "processed" / name).glob("v*/checksums.sha256"))
        kept = listed.read_bytes()
        listed.chmod(0o644)
        listed.write_bytes(kept + b" \n")
        try:
            for role, headers in ROLES(ws).items():
                for path in ONE:
                    answer = client.get(_filled(path, name, ws) + ONE[path], headers=headers)
                    told = 503 if answers(name, role) == 200 else 404
                    assert answer.status_code == told, (name, role, path, answer.text)
                    if told == 404:
                        absent = client.get(
                            _filled(path, "nowhere", ws) + ONE[path], headers=headers
                        )
                        assert answer.content == absent.content, (role, path)
        finally:
            listed.write_bytes(kept)
        lines = b"".join(file.read_bytes() for file in log.glob("decisions-*.jsonl"))
        assert b'"dataset_ids":["%s"]' % name.encode() in lines and b'"damaged"' in lines


# ---- the pages, and what can be done on them -----------------------------------------------------
# what pages add for everybody, beside those of the addresses above
CARDS = {"/datasets/{dataset_id}/card.svg", f"{VERSION}/card.svg"}
PAGES = CARDS | {"/about", "/lineage/{what}", "/login", f"{VERSION}/places", "/static/{name}"}
# what shows how things are run: for an engineer, and for who may more
CONSOLE = {
    "/home", "/decisions/{dataset_id}", "/runs", "/runs/{run_id}", "/runs/{run_id}/events",
    "/proposals",
    "/proposals/{number}", "/proposals/{number}/preview", "/proposals/{number}/preview/rows",
    "/proposals/{number}/preview/files/{name}", "/proposals/{number}/preview/diff", "/quarantine", "/quarantine/{run_id}", "/backfills",
    "/backfills/{backfill_id}", "/queue", "/schedules", "/policy",
    "/webhooks", "/slo",
}  # fmt: skip
# what can be done: for whom; empty: for everybody
ACTS = {
    "/login": "",
    "/logout": "",
    "/datasets/{dataset_id}/run": "engineer",
    "/queue/{job_id}/retry": "engineer",
    "/queue/{job_id}/cancel": "engineer",
    "/quarantine/{run_id}/replay": "engineer",
    "/quarantine/{run_id}/fix": "steward",
    "/quarantine/{run_id}/accept": "steward",
    "/proposals/{number}/word": "steward",
}
WORD = "/proposals/{number}/word"  # what would be signed: for who reviews
BOUNDARY = "/boundary"  # what would be let out, to whom: for who operates
RANKS = ("anybody", "stranger", "granted", "engineer", "steward", "admin")
OPERATES = RANKS.index("engineer")


@pytest.fixture(scope="module")
def console(ws: Path) -> "Iterator[TestClient[ReaderApp]]":
    with reader(ws, html_pages(console=True), AT, address=AT) as found:
        yield found


def test_every_page_and_every_act_is_in_the_matrix(ws: Path) -> None:
    plain, shown = make_app(open_workspace(ws)), make_app(open_workspace(ws), html_pages())
    full = make_app(open_workspace(ws), html_pages(console=True))
    signing = {("POST", "/login"), ("POST", "/logout")}
    everybody = {("GET", path) for path in PAGES} | signing
    assert addresses(shown) - addresses(plain) == everybody, "say here who gets what from it"
    operators = {("GET", path) for path in {*CONSOLE, WORD, BOUNDARY}} | {
        ("POST", path) for path in {*ACTS, BOUNDARY}
    }
    assert addresses(full) - addresses(plain) == everybody | operators
    for app in (plain, shown, full):
        app.close()


@pytest.mark.parametrize("path", sorted(CONSOLE))
def test_how_things_are_run_is_shown_to_roles_alone(
    console: "TestClient[ReaderApp]", ws: Path, path: str
) -> None:
    """Of every dataset, whatever its label; who may not see it cannot tell it from nothing."""
    with open_world(open_workspace(ws)) as world:
        runs = {name: world.store.read(lambda tx: tx.runs.recent(name, 1)) for name in STATES}
    for who, headers in ROLES(ws).items():
        for name in STATES:
            run = runs[name][0].run_id if runs[name] else "none"
            asked = path.format(dataset_id=name, run_id=run, number=1, backfill_id=name, name="x")
            answer = console.get(asked, headers=headers)
            hidden = RANKS.index(who) < OPERATES
            where = (who, asked, answer.text[:300])
            if hidden:
                assert answer.content == console.get("/nowhere", headers=headers).content, where
            else:  # what is not there is not there for anybody
                assert answer.status_code == (200 if "{" not in path else answer.status_code), where
                assert answer.status_code in (200, 404), where
            assert "Hidden Mound" not in answer.text, where


def test_the_boundary_answers_over_http_as_it_does_in_process(
    console: "TestClient[ReaderApp]", ws: Path
) -> None:
    """For every label and reader, and only to who operates; the log has the decision."""
    people = {"anybody": "", "stranger": "B. Other", "granted": "A. Reader"}
    for who, headers in ROLES(ws).items():
        for name in STATES:
            for reads, person in people.items():
                answer = console.get(
                    BOUNDARY, params={"ref": name, "reader": person}, headers=headers
                )
                where = (who, name, person, answer.text[:300])
                if RANKS.index(who) < OPERATES:
                    assert answer.status_code == 404 and name not in answer.text, where
                    continue
                if name == "unlicensed":  # nothing was ever official
                    assert answer.status_code == 404, where
                    continue
                told = answer.json()
                with open_world(open_workspace(ws)) as world:
                    try:
                        data_of(world, name, Boundary(person or None))
                        allowed = True
                    except Denied:
                        allowed = False
                assert told["allowed"] == allowed == (answers(name, reads) == 200), where
                assert not allowed or (told["decision_ids"] and told["policy_digest"]), where
                assert allowed or (told["code"] and told["said"]), where
                assert mark(name) not in answer.text, where
    assert console.get(BOUNDARY, headers=ROLES(ws)["admin"]).status_code == 400
    for who, headers in ROLES(ws).items():  # tests/integration/jobs/test_remote_worker.py: the rest
        for body in (b"", b"{", b'{"package": "kfm.serve", "document": {}}', b"[" * 9000):
            status = console.post(BOUNDARY, content=body, headers=headers).status_code
            assert status == (404 if RANKS.index(who) < OPERATES else 400), (who, body[:9])
    odd = {"ref": "../open", "reader": "x"}
    assert console.get(BOUNDARY, params=odd, headers=ROLES(ws)["admin"]).status_code == 404


def test_what_would_be_signed_is_told_to_who_reviews(
    console: "TestClient[ReaderApp]", ws: Path
) -> None:
    for who, headers in ROLES(ws).items():
        asked = WORD.format(number=99)
        answer = console.get(asked, params={"verdict": "maybe"}, headers=headers)
        reviews = RANKS.index(who) >= RANKS.index("steward")
        assert answer.status_code == (400 if reviews else 404), who


@pytest.mark.parametrize("path", sorted(PAGES | {p for p in ONE if "/files/" not in p}))
def test_a_page_shows_no_more_than_its_address(
    console: "TestClient[ReaderApp]", ws: Path, path: str
) -> None:
    """As HTML, to every role."""
    for who, headers in ROLES(ws).items():
        for name in STATES:
            asked = _filled(path, name, ws).replace("{what}", name).replace("{name}", "kfm.css")
            answer = console.get(asked + ONE.get(path, ""), headers={**headers, **BROWSER})
            where = (who, name, asked, answer.status_code, answer.text[:300])
            if answers(name, who) != 200:
                assert mark(name) not in answer.text, where
                assert path in PAGES or answer.status_code == answers(name, who), where
            assert answer.status_code < 500, where


@pytest.mark.parametrize("path", sorted(ACTS))
def test_an_act_is_let_to_its_role_and_only_by_a_form_of_ours(
    console: "TestClient[ReaderApp]", ws: Path, path: str
) -> None:
    """Nothing is filled in, so nothing is done: what is told is who was let so far."""
    role = ACTS[path]
    for who, headers in ROLES(ws).items():
        asked = path.format(dataset_id="open", run_id="none", number=99, job_id="none")
        answer = console.post(asked, headers=headers, data={}, follow_redirects=False)
        where = (who, asked, answer.status_code, answer.text[:200])
        if role and RANKS.index(who) < OPERATES:
            assert answer.content == console.get("/nowhere", headers=headers).content, where
        elif role and RANKS.index(who) < RANKS.index(role):
            assert answer.status_code == 403 and "role" in answer.text, where
        elif who == "anybody":
            assert answer.status_code == 403 and "page sent the form" in answer.text, where
        else:
            assert answer.status_code in (200, 400, 404, 409), where
        foreign = {**headers, "origin": "https://evil.example"}
        other = console.post(asked, headers=foreign, data={}, follow_redirects=False)
        assert other.status_code in (403, 404), where


def _stable(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name != "kfm-request"}


def _filled(path: str, name: str, ws: Path) -> str:
    folder = ws / "data" / "processed" / name
    version = next((p.name for p in folder.glob("v*")), "v" + "0" * 32)
    filled = path.replace("{dataset_id}", name).replace("{which}", "latest")
    filled = filled.replace("{asked}", f"{name}@1").replace("{item_id}", version)
    return filled.replace("files/{name}", f"files/{name}.parquet").replace(
        "proofs/{name}", "proofs/generation"
    )


def _fine(path: str, name: str, form: dict[str, str]) -> set[int]:
    """What somebody who may read gets."""
    if path.endswith("/tiles") or (path.startswith("/stac") and name == "groups"):
        return {404}  # none were made; no place, no item
    if path.endswith("/blame"):
        return {200, 304, 400}  # a release that made groups has no key
    if "range" in form:
        return {206} if "/files/" in path else {200}
    return {304} if form else {200}


# ---- what a question about a dataset brings with it ----------------------------------------------
@pytest.mark.parametrize("name", ["open", "cells", "groups", "closed"])
def test_a_question_brings_its_evidence_and_keeps_what_is_withheld(
    client: "TestClient[ReaderApp]", ws: Path, name: str
) -> None:
    """Rows of what was released, and behind them catalog, receipt and digests that resolve."""
    granted = ROLES(ws)["granted"]
    page = client.get(f"/datasets/{name}/rows", headers=granted)
    shown = {"open": {"site_no", "name"}}.get(name, set())
    assert {"site_no", "name"} & set(page.json()["columns"]) == shown
    assert ("Hidden Mound" in page.text) == (name == "open") and mark(name) in page.text
    told = client.get(page.json()["evidence"], headers=granted).json()
    assert told["version_id"] == page.json()["version_id"]
    assert client.get(told["catalog"], headers=granted).json()["identifier"] == name
    proofs = {proof["name"]: proof for proof in told["proofs"]}
    assert proofs.keys() >= {"receipt", "generation", "attestation", "prov", "checksums"}
    for each in (*proofs.values(), *told["files"]):
        raw = client.get(each["address"], headers=granted)
        assert ids.digest(raw.content) == each["digest"]
        assert name == "open" or "Hidden Mound" not in raw.text
        back = client.get(f"/evidence/{each['digest']}", headers=granted).json()
        assert (back["dataset_id"], back["name"].removesuffix(".json")) == (name, each["name"])
    by_run = client.get(f"/evidence/{told['run_id']}", headers=granted).json()
    assert by_run["version_id"] == told["version_id"]
    hidden = client.get(f"/evidence/{told['version_digest']}", headers=ROLES(ws)["stranger"])
    assert hidden.status_code == (404 if name == "closed" else 200)


def test_what_is_hidden_is_told_at_the_same_beat_as_what_is_not_there(
    client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find that something is hidden takes longer, and nobody is to see by how much."""
    rests: list[float] = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr("kfm.reader.visit.asyncio.sleep", rest)
    for name in ("closed", "never_there"):
        for path in ("", "/rows", "/versions/1", "/versions/1/files/x", "/feed"):
            rests.clear()
            assert client.get(f"/datasets/{name}{path}").status_code == 404
            assert len(rests) == 1 and 0 <= rests[0] <= BEAT_NS / 1e9, (name, path)
    assert {took + until_beat(took) for took in (1, 3_000_000, BEAT_NS - 1)} == {BEAT_NS}
    rests.clear()
    assert client.get("/datasets/open").status_code == 200 and not rests


def test_nothing_of_raw_or_work_is_served(client: "TestClient[ReaderApp]", ws: Path) -> None:
    """Whatever an address calls it, and whoever asks; the rules themselves refuse the zone."""
    granted = ROLES(ws)["granted"]
    paths = [p for zone in ("raw", "work") for p in (ws / "data" / zone).rglob("*") if p.is_file()]
    assert len(paths) > 40
    for path in paths[::7]:
        inside = path.relative_to(ws / "data")
        for asked in (
            f"/{inside}",
            f"/data/{inside}",
            f"/datasets/open/versions/latest/files/{inside}",
            f"/datasets/open/versions/latest/files/..%2f..%2f..%2f{inside}",
            f"/datasets/open/versions/latest/files//{path}",
        ):
            answer = client.get(asked, headers=granted)
            assert answer.status_code in (400, 404), asked
    with open_world(open_workspace(ws)) as world:
        opened = data_of(world, "open")
        rows = world.store.read(lambda tx: tx.index.generations("open"))
        facts = read_facts(world.data, "open", opened.version_id)
        candidate = official_candidate("open", rows[-1], facts)
        for zone, fine in (("raw", False), ("work", False), ("processed", True)):
            asked_for = Asked("open", opened.version_id, candidate, zone, ["open/x"], False)  # type: ignore[arg-type]
            assert isinstance(decide(world, asked_for), Allowed) == fine, zone


def test_a_token_that_was_revoked_or_has_expired_stands_for_nobody(
    client: "TestClient[ReaderApp]", ws: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kfm = caller(ws, capsys)
    made = kfm("grant", "token", "A. Reader", "--expires", "2099-01-01", "--json").json
    held = {"authorization": f"Bearer {made['token']}"}
    assert client.get("/datasets/closed", headers=held).status_code == 200
    listed = kfm("grant", "tokens", "--json").json["tokens"]
    assert made["digest"] in [t["digest"] for t in listed]
    assert made["token"] not in "".join(p.read_text() for p in (ws / "keys" / "readers").iterdir())
    assert kfm("grant", "revoke", made["digest"][:8]).code == 0
    assert client.get("/datasets/closed", headers=held).status_code == 401
    with open_world(open_workspace(ws)) as world:
        late = "2001-01-01T00:00:00Z"
        old = new_token(world, Token(person="A. Reader", expires=late, made_at=late))
    held = {"authorization": f"Bearer {old}"}
    assert client.get("/datasets/closed", headers=held).status_code == 401


@pytest.mark.needs_shared
@pytest.mark.filterwarnings("ignore")  # theirs, not ours
def test_pystac_client_walks_searches_and_validates_what_is_served(ws: Path) -> None:
    """Over a socket, as anybody: what may be seen, and every record by the schemas it names."""
    import pystac_client
    from pystac.validation.stac_validator import JsonSchemaSTACValidator

    judge = JsonSchemaSTACValidator()
    if (listed := SHARED / "schemas" / "index.json").is_file():
        judge.schema_cache |= {
            url: json.loads((SHARED / "schemas" / path).read_text())
            for url, path in json.loads(listed.read_text()).items()
            if path.startswith("stac/")
        }
    with reading(open_workspace(ws), Address("127.0.0.1", 0)) as served:
        thread = threading.Thread(target=served.serve, daemon=True)
        thread.start()
        try:
            found = pystac_client.Client.open(f"{served.address.url}/stac")
            assert {c.id for c in found.get_collections()} == {"open", "cells"}
            pages = found.search(limit=1, bbox=[-103, 36, -94, 41], sortby="+id")
            items = {item.collection_id: item for item in pages.items()}
            assert items.keys() == {"open", "cells"}
            asked = found.search(method="GET", filter="title like '%Open'", filter_lang="cql2-text")
            assert [item.collection_id for item in asked.items()] == ["open"]
            for item in items.values() if judge.schema_cache else ():
                assert len(item.validate(judge)) == 1 + len(item.stac_extensions)
            for each in found.get_collections() if judge.schema_cache else ():
                assert each.validate(judge)
        finally:
            served.stop()
            thread.join(60)


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ("datetime=2001-01-01T00:00:00Z/2001-01-02T00:00:00Z", False),
        ("datetime=2001-01-01T00:00:00Z/..", True),
        ("datetime=1985-04-12T23:20:50,52Z", None),
        ("datetime=yesterday", None),
        ("bbox=0,0,1,1", False),
        ("bbox=-103,36,-94,41", True),
        ("bbox=-103,41,-94,36", None),
        ("bbox=a,b,c,d", None),
        ('intersects={"type":"Point","coordinates":[0,0]}', False),
        ("intersects=POINT(1 2)", None),
        ("collections=closed", False),
        ("ids=nobody", False),
        ("filter=collection = 'open' and not title is null", True),
        ("filter=created between TIMESTAMP('2001-01-01T00:00:00Z') and DATE('2099-01-01')", True),
        ("filter=version in ('v1', 'v2')", False),
        ("filter=s_intersects(geometry, bbox(-103,36,-94,41))", True),
        ("filter=this is no question", None),
        ("filter=title is null&filter-lang=zz", None),
        ("limit=-1", None),
        ("token=x", None),
    ],
)
def test_items_are_found_by_what_is_asked_and_a_wrong_question_is_refused(
    client: "TestClient[ReaderApp]", asked: str, fits: bool | None
) -> None:
    name, _, value = asked.partition("=")
    answer = client.get("/stac/search", params={name: value})
    assert answer.status_code == (400 if fits is None else 200), answer.text
    assert fits is None or bool(answer.json()["features"]) == fits
