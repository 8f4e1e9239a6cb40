"""What is published is read over HTTP, as far as each may: decided anew for every request."""

import asyncio
import errno
import hashlib
import json
import operator
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from kfm.access import boundary
from kfm.cli.init import make_workspace
from kfm.model import JobLine, UsageError
from kfm.pages import addresses
from kfm.pages.routes import html_pages
from kfm.reader import route
from kfm.reader.app import ReaderApp
from kfm.reader.html_pages import HtmlPages, Shown
from kfm.reader.log import Logs, RequestLine
from kfm.reader.serve import reading
from kfm.testing import Upstream
from kfm.webhook.serve import Address
from kfm.workspace.folder import open_workspace
from tests.given.reading import called, entry, reader
from tests.given.verbs import caller, until

CSV = b"id,kind,y,x\n" + b"".join(b"t%d,oak,38.%d,-98.1\n" % (n, n) for n in range(9))


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace with one public dataset, and one that was never run."""
    ws = tmp_path_factory.mktemp("reader") / "ws"
    make_workspace(ws, sample=False, allow_loopback=True)
    with Upstream() as up:
        up.files["/trees.csv"] = CSV
        entry(ws, "trees", up.url)
        entry(ws, "shrubs", up.url)
        called(ws, "run", "trees")
        yield ws


@pytest.fixture
def client(trees: Path) -> "Iterator[TestClient[ReaderApp]]":
    with reader(trees) as found:
        yield found


def lines(ws: Path, name: str) -> list[dict[str, object]]:
    file = next((ws / "ledger" / "logs").glob(f"{name}-*.jsonl"))
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_only_what_is_published_is_listed(client: "TestClient[ReaderApp]") -> None:
    assert [d["dataset_id"] for d in client.get("/datasets").json()["datasets"]] == ["trees"]
    assert client.get("/datasets/trees").json()["rows"] == 9
    never_run, unknown = client.get("/datasets/shrubs"), client.get("/datasets/bushes")
    assert (never_run.status_code, never_run.content) == (404, unknown.content)


def test_a_label_that_was_tightened_acts_on_the_next_read(
    trees: Path, client: "TestClient[ReaderApp]"
) -> None:
    entry_of = trees / "data" / "registry" / "trees.yml"
    before, tag = entry_of.read_text(), client.get("/datasets/trees").headers["etag"]
    known = {"if-none-match": tag}
    assert client.get("/datasets/trees", headers=known).status_code == 304
    entry_of.write_text(before.replace("sensitivity: public", "sensitivity: restricted"))
    try:
        refused = client.get("/datasets/trees", headers=known)
        assert refused.status_code == 451 and "rows" not in refused.json()
        assert client.get("/datasets").json() == {"datasets": []}
    finally:
        entry_of.write_text(before)
    assert client.get("/datasets/trees", headers=known).status_code == 304


def test_rules_that_were_changed_act_on_the_next_read(
    trees: Path, client: "TestClient[ReaderApp]"
) -> None:
    mine = trees / "policy" / "mine.rego"
    no = '{"code": "mine.no", "message": "Not for you.", "remedy": "Ask."}'
    assert client.get("/datasets/trees").status_code == 200
    mine.write_text(f"package kfm.serve\n\ndeny contains {no} if true\n")
    try:
        assert client.get("/datasets/trees").status_code == 451
    finally:
        mine.unlink()
    assert client.get("/datasets/trees").status_code == 200


@pytest.mark.parametrize(
    ("file", "change", "answer"),
    [
        ("data/registry/trees.yml", ("sensitivity: public", "sensitivity: restricted"), 451),
        ("data/registry/trees.yml", ("CC0-1.0", "NOASSERTION"), 451),
        ("data/registry/trees.yml", ("dataset_id", "no_key_of_an_entry"), 404),
        ("data/catalog/channels/trees/00000001.json", ("payload", "payroll"), 503),
        ("data/catalog/approvals/trees/*.json", ("trees", "shrub"), 451),
        ("data/processed/trees/*/version.json", ("artifacts", "artefacts"), 503),
        ("keys/root/0001.json", ("payload", "payroll"), 503),
    ],
)
def test_what_was_decided_before_counts_until_anything_of_it_changed(
    trees: Path,
    client: "TestClient[ReaderApp]",
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    change: tuple[str, str],
    answer: int,
) -> None:
    decided: list[object] = []
    real = boundary.decide
    monkeypatch.setattr(boundary, "decide", lambda *a: decided.append(a) or real(*a))

    def is_remembered() -> bool:
        decided.clear()
        assert client.get("/datasets/trees").status_code == 200
        return not decided

    until(is_remembered)  # once every file is older than a tick of its clock
    ids = [client.get("/datasets/trees").headers["kfm-decision"] for _ in range(2)]
    assert ids[0] != ids[1] and not decided
    changed = next(trees.glob(file))
    before, times = changed.read_bytes(), changed.stat()
    changed.chmod(0o644)
    changed.write_bytes(before.replace(*(each.encode() for each in change)))
    os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
    try:
        assert client.get("/datasets/trees").status_code == answer
    finally:
        changed.write_bytes(before)
    assert client.get("/datasets/trees").status_code == 200


def test_an_answer_names_its_decision_and_the_log_has_it(
    trees: Path, client: "TestClient[ReaderApp]"
) -> None:
    answer = client.get("/datasets/trees")
    logged = lines(trees, "decisions")[-1]
    assert answer.headers["kfm-decision"] in logged["decision_ids"]  # type: ignore[operator]
    assert logged["job_id"] == answer.headers["kfm-request"] and logged["answer"] == 200
    assert answer.headers["cache-control"] == "no-cache"


def test_a_request_is_logged_with_the_fields_of_a_job(
    trees: Path, client: "TestClient[ReaderApp]"
) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    client.get("/datasets/trees", headers={"traceparent": trace})
    line = lines(trees, "reader")[-1]
    assert set(JobLine.__struct_fields__) <= set(RequestLine.__struct_fields__)
    told = {"job_type": "GET /datasets/{dataset_id}", "dataset_ids": ["trees"], "answer": 200}
    told |= {"service": "reader", "status": "succeeded", "policy_label": "public"}
    assert told.items() <= line.items() and line["correlation_id"] == trace[3:35]


def test_a_page_hangs_on_an_address_and_its_twin_stays_json(trees: Path) -> None:
    def page(shown: Shown) -> str:
        return f"<!doctype html><title>{shown.found.title}</title>"  # type: ignore[attr-defined]

    browser = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    with reader(trees, HtmlPages(pages={"dataset": page})) as client:
        shown = client.get("/datasets/trees", headers=browser)
        assert shown.text == "<!doctype html><title>Trees of trees</title>"
        assert "script-src 'self'" in shown.headers["content-security-policy"]
        assert client.get("/datasets/trees.json", headers=browser).json()["rows"] == 9
        assert client.get("/datasets/trees", headers={"accept": "*/*"}).json()["rows"] == 9
        assert client.get("/datasets", headers=browser).json()["datasets"]


@pytest.mark.parametrize(
    "path",
    ["/datasets/..%2fregistry", "/%2e%2e/kfm.yml", "/datasets/trees%00", "/a\\b", "/" + "a" * 9000],
)
def test_an_address_that_leads_elsewhere_is_refused(
    client: "TestClient[ReaderApp]", path: str
) -> None:
    assert client.get(path).status_code in (400, 404)


@pytest.mark.parametrize("token", ["Bearer kfm_nobody", "Basic eDp5", "Bearer", "Bearer \xe9"])
def test_a_token_that_stands_for_nobody_is_refused(
    client: "TestClient[ReaderApp]", token: str
) -> None:
    answer = client.get("/datasets", headers={"authorization": token.encode("latin-1")})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(client: "TestClient[ReaderApp]", method: str) -> None:
    answer = client.request(method, "/datasets/trees")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    if method != "POST":
        answer = client.request(method, "/stac/search")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


def test_a_head_has_the_headers_of_a_get_and_no_body(client: "TestClient[ReaderApp]") -> None:
    head, whole = client.head("/datasets/trees"), client.get("/datasets/trees")
    assert head.content == b"" and head.headers["etag"] == whole.headers["etag"]
    assert head.headers["content-length"] == str(len(whole.content))


def test_what_is_at_hand_is_told_without_a_thread_and_decided_all_the_same(
    trees: Path, client: "TestClient[ReaderApp]", monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, sync_to_thread = list[str](), route.sync_to_thread

    async def counted(work: Any, *given: Any) -> Any:
        threads.append(work.__name__)
        return await sync_to_thread(work, *given)

    monkeypatch.setattr(route, "sync_to_thread", counted)
    at, asked = "/datasets/trees/rows", {"columns": "id", "limit": "2"}

    def page(**more: str) -> Any:
        return client.get(at, params=asked | more)

    until(lambda: not (threads.clear() or page().status_code != 200 or threads))
    before = len(lines(trees, "decisions"))
    answers = [page(), page(token="1"), page()]
    assert not threads and [row["id"] for row in answers[1].json()["rows"]] == ["t1", "t2"]
    ids = [answer.headers["kfm-decision"] for answer in answers]
    written = lines(trees, "decisions")[before:]
    assert [line["decision_ids"] for line in written] == [[each] for each in ids]
    assert len(set(ids)) == 3
    for more in ({"limit": "201"}, {"form": "csv"}, {"filter": "id = 't1'"}, {"sort": "id"}):
        answer = page(**more)
        assert answer.status_code == 200 and threads.pop(), more
        assert "," not in answer.headers["kfm-decision"], "it was asked for once"
    before = len(lines(trees, "decisions"))
    entry_of = trees / "data" / "registry" / "trees.yml"
    text = entry_of.read_text()
    entry_of.write_text(text.replace("sensitivity: public", "sensitivity: restricted"))
    try:
        assert page().status_code == 451 and threads, "it had to be decided anew"
    finally:
        entry_of.write_text(text)
    (told,) = lines(trees, "decisions")[before:]
    assert told["answer"] == 451, "what was begun before the thread is no answer"


# ---- versions, files, rows -----------------------------------------------------------------------
def test_a_version_leads_to_everything_that_proves_it(client: "TestClient[ReaderApp]") -> None:
    made = client.get("/datasets/trees/versions").json()["generations"]
    assert [(g["generation"], g["kind"], g["official"]) for g in made] == [(1, "promote", True)]
    version = client.get(f"/datasets/trees/versions/{made[0]['version_id']}").json()
    proofs = {p["name"]: p for p in version["proofs"]}
    assert proofs.keys() >= {"generation", "attestation", "checksums", "prov", "receipt", "dcat"}
    assert proofs["generation"]["keyids"] and proofs["attestation"]["keyids"]
    for each in (*version["proofs"], *version["files"]):
        raw = client.get(each["address"]).content
        assert f"sha256:{hashlib.sha256(raw).hexdigest()}" == each["digest"], each["address"]


def test_a_part_of_a_file_is_had_after_the_decision(
    trees: Path, client: "TestClient[ReaderApp]"
) -> None:
    path = "/datasets/trees/versions/latest/files/trees.parquet"
    whole = client.get(path)
    tag = whole.headers["etag"]
    part = client.get(path, headers={"range": "bytes=4-9"})
    assert (part.status_code, part.content) == (206, whole.content[4:10])
    assert part.headers["content-range"] == f"bytes 4-9/{len(whole.content)}"
    assert client.get(path, headers={"range": "bytes=-3"}).content == whole.content[-3:]
    assert client.get(path, headers={"range": "bytes=0-0", "if-range": tag}).status_code == 206
    assert client.get(path, headers={"range": "bytes=0-0", "if-range": '"x"'}).status_code == 200
    assert client.get(path, headers={"range": "bytes=999999-"}).status_code == 416
    assert client.get(path, headers={"if-none-match": tag}).status_code == 304
    assert client.get(path, headers={"if-match": '"x"'}).status_code == 412
    assert client.get(path, headers={"if-match": tag}).status_code == 200
    assert client.get(path, headers={"if-match": f"W/{tag}"}).status_code == 412, "it is strong"
    head = client.head(path)
    assert head.content == b"" and head.headers["content-length"] == str(len(whole.content))
    every = client.get(path, headers={"range": "bytes=0-"})
    assert (every.status_code, every.content) == (206, whole.content)
    for said in (whole, part, head, every):
        assert said.headers["content-type"] == "application/vnd.apache.parquet"
    mine = trees / "policy" / "mine.rego"
    mine.write_text(
        "package kfm.serve\n\n"
        'deny contains {"code": "mine.no", "message": "No.", "remedy": "Ask."} if true\n'
    )
    try:
        for asked in ({"range": "bytes=0-0"}, {"if-none-match": tag}, {}):
            assert client.get(path, headers=asked).status_code == 451, asked
    finally:
        mine.unlink()


@pytest.mark.parametrize("said", ["ftp://a.example", "a.example", "https://a.example/?q=1", "x"])
def test_what_a_reader_is_known_as_is_the_address_of_a_site(trees: Path, said: str) -> None:
    with (
        pytest.raises(UsageError, match="no address of a site"),
        reading(open_workspace(trees), Address("127.0.0.1", 0), said),
    ):
        pass


def test_a_file_goes_over_a_socket_byte_for_byte_until_it_is_damaged(trees: Path) -> None:
    """Where the connection sends it from the disk; the log says how much went out."""
    file = next((trees / "data" / "processed" / "trees").glob("*/trees.parquet"))
    raw = file.read_bytes()
    with reading(open_workspace(trees), Address("127.0.0.1", 0)) as served:
        thread = threading.Thread(target=served.serve, daemon=True)
        thread.start()
        try:
            at = f"{served.address.url}/datasets/trees/versions/latest/files/trees.parquet"
            for asked, expected in (({}, raw), ({"range": "bytes=4-9"}, raw[4:10])):
                with urllib.request.urlopen(urllib.request.Request(at, headers=asked)) as answer:
                    assert answer.read() == expected
                wanted = answer.headers["kfm-request"]
                told = until(lambda: [x for x in lines(trees, "reader") if x["job_id"] == wanted])
                assert told[0]["bytes_out"] == len(expected)
            file.chmod(0o644)
            file.write_bytes(raw[:-1] + b"?")
            with pytest.raises(urllib.error.HTTPError, match="503"):
                urllib.request.urlopen(at)
        finally:
            file.write_bytes(raw)
            served.stop()
            thread.join(60)


def test_bytes_that_are_damaged_are_not_handed_out(
    trees: Path, client: "TestClient[ReaderApp]"
) -> None:
    path = "/datasets/trees/versions/latest/files/trees.parquet"
    file = next((trees / "data" / "processed" / "trees").glob("*/trees.parquet"))
    before = file.read_bytes()
    assert client.get(path).status_code == 200
    file.chmod(0o644)
    file.write_bytes(before[:-20] + bytes([before[-20] ^ 1]) + before[-19:])
    try:
        for each in (path, "/datasets/trees/rows"):
            answer = client.get(each)
            assert (answer.status_code, answer.json()["error"]) == (503, "damaged")
    finally:
        file.write_bytes(before)
    assert client.get(path).content == before


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("rows?form=xml", "form is json, csv or geojson."),
        ("rows?limit=abc", "limit is a whole number."),
        ("versions/1/cite?form=z", "form is json, text, bibtex, csl or ris."),
    ],
)
def test_a_word_that_cannot_be_is_told_what_it_may_be(
    client: "TestClient[ReaderApp]", asked: str, said: str
) -> None:
    answer = client.get(f"/datasets/trees/{asked}")
    assert (answer.status_code, answer.json()["said"]) == (400, said)


def test_a_file_is_told_as_what_it_is_sent_as(client: "TestClient[ReaderApp]") -> None:
    files = client.get("/datasets/trees").json()["files"]
    sent = [client.get(each["address"]).headers["content-type"] for each in files]
    assert files and [each["media_type"] for each in files] == sent


def test_a_first_version_is_compared_with_nothing(client: "TestClient[ReaderApp]") -> None:
    told = client.get("/datasets/trees/versions/1/diff").json()
    assert (told["a"], told["rows_a"], told["equal"]) == ("nothing", 0, 0)
    assert told["added"] == told["rows_b"] > 0


def test_a_moment_is_compared_with_moments_alone(tmp_path: Path) -> None:
    """A bare number is no moment: nobody knows since when and in what it counts."""
    make_workspace(tmp_path, sample=False, allow_loopback=True)
    with Upstream() as up:
        up.files["/seen.csv"] = b"id,at\n1,2025-03-01T00:00:00Z\n2,2025-03-31T00:00:00Z\n"
        entry(tmp_path, "seen", up.url).write_text(
            "dataset_id: seen\ntitle: Seen\nlicence: CC0-1.0\nsensitivity: public\n"
            f"policy_label: public\nsource: {{url: '{up.url}/seen.csv', format: csv}}\n"
            "business_key: [id]\nschema: [{name: id, type: string}, {name: at, type: timestamp}]\n"
        )
        called(tmp_path, "run", "seen")
    with reader(tmp_path) as client:
        for said, found in (
            ("at > TIMESTAMP('2025-03-15T00:00:00Z')", 1),
            ("at > DATE('2025-03-15')", 1),
            ("at > 1742000000", None),
            ("at > 1.5", None),
            ("at in (1742000000)", None),
        ):
            answer = client.get("/datasets/seen/rows", params={"filter": said})
            if found is None:
                assert answer.status_code == 400 and "timestamp" in answer.json()["said"], said
                assert "write DATE('" in answer.json()["said"], said
            else:
                assert len(answer.json()["rows"]) == found, said
        refused = client.get("/datasets/seen/rows", params={"filter": "id = DATE('2025-03-15')"})
        assert "DATE('2025-03-15') is not." in refused.json()["said"]


NUMBERS = [None, -5, 0, 4, 5, 16777010, 16777600, 2**53 + 1, 2**63 - 1]
DECIMALS = [-1e300, -5.5, -5.0, 0.0, 4.5, 16777210.0, 16777600.0, 16777216.5, 1e9, 1e300]


def test_whole_numbers_and_days_are_compared_as_what_they_are(tmp_path: Path) -> None:
    make_workspace(tmp_path, sample=False, allow_loopback=True)
    with Upstream() as up:
        lines = [
            f"{at},{'' if n is None else n},1970-01-0{at % 2 + 1}" for at, n in enumerate(NUMBERS)
        ]
        up.files["/many.csv"] = "\n".join(["id,n,day", *lines, ""]).encode()
        entry(tmp_path, "many", up.url).write_text(
            "dataset_id: many\ntitle: Many\nlicence: CC0-1.0\nsensitivity: public\n"
            f"policy_label: public\nsource: {{url: '{up.url}/many.csv', format: csv}}\n"
            "business_key: [id]\nschema: [{name: id, type: string},"
            " {name: n, type: integer}, {name: day, type: date}]\n"
        )
        called(tmp_path, "run", "many")
    there = [n for n in NUMBERS if n is not None]
    compared = {"=": operator.eq, "<>": operator.ne, "<": operator.lt}
    compared |= {">": operator.gt, "<=": operator.le, ">=": operator.ge}
    with reader(tmp_path) as client:

        def found(said: str) -> list[int]:
            answer = client.get("/datasets/many/rows", params={"filter": said, "columns": "n"})
            assert answer.status_code == 200, (said, answer.text)
            return [row["n"] for row in answer.json()["rows"]]

        for value in DECIMALS:
            for op, holds in compared.items():
                assert found(f"n {op} {value:.1f}") == [n for n in there if holds(n, value)], op
                no = [n for n in there if not holds(n, value)]
                assert found(f"not n {op} {value:.1f}") == no, "of no value nobody can tell"
        assert found("n between 1.5 and 16777100.5") == [4, 5, 16777010]
        assert found("n in (4.5, 5.0, 0)") == [0, 5]
        assert len(found("day = DATE('1970-01-01')")) == 5
        refused = client.get(
            "/datasets/many/rows", params={"filter": "day < TIMESTAMP('1970-01-01T12:00:00Z')"}
        )
        assert refused.status_code == 400 and "write DATE('" in refused.json()["said"]


def test_where_nothing_can_be_written_down_nothing_is_handed_out_and_that_is_said(
    trees: Path,
    client: "TestClient[ReaderApp]",
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert client.get("/health").status_code == 200

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    whole = Logs._append

    def broken(*which: str) -> Callable[..., None]:
        def append(logs: Logs, name: str, path: str, line: bytes) -> None:
            (full if name in which else whole)(logs, name, path, line)

        return append

    for which in (("decisions", "reader", "audit"), ("decisions",)):
        with monkeypatch.context() as patched:
            patched.setattr(Logs, "_append", broken(*which))
            for _ in range(2):
                answer = client.get("/datasets/trees/rows")
                assert (answer.status_code, answer.json()["error"]) == (503, "log")
                assert client.get("/health").status_code == 503, "whatever else can be written"
        said = capsys.readouterr().err
        assert said.count("The log of decisions cannot be written: No space left") == 1, "once"
        # whoever watches sends nobody here before this says so
        assert client.get("/health").status_code == 200
        assert client.get("/datasets/trees/rows").status_code == 200
    with monkeypatch.context() as patched:
        patched.setattr(Logs, "_append", broken("reader"))
        assert client.get("/datasets/trees/rows").status_code == 200
        assert client.get("/health").status_code == 200
    assert "Requests are answered" in capsys.readouterr().err


def test_rows_are_filtered_sorted_and_paged(client: "TestClient[ReaderApp]") -> None:
    asked = {"filter": "y >= 38.3 and not id = 't4'", "sort": "-y", "columns": "id,y", "limit": "2"}
    found, page = [], client.get("/datasets/trees/rows", params=asked).json()
    while True:
        found += [row["id"] for row in page["rows"]]
        if page["next"] is None:
            break
        page = client.get(page["next"]).json()
    assert found == ["t8", "t7", "t6", "t5", "t3"]
    page = client.get("/datasets/trees/rows", params={"limit": "4", "token": "6"}).json()
    assert [row["id"] for row in page["rows"]] == ["t6", "t7", "t8"] and page["total"] == 9
    table = client.get("/datasets/trees/rows", params={"form": "csv", "limit": "1"}).text
    assert table.splitlines()[:2] == ['"id","kind","y","x"', '"t0","oak",38.0,-98.1']


@pytest.mark.parametrize(
    "asked",
    [
        {"filter": "1=1"},
        {"filter": "id = 't1'; drop table x"},
        {"filter": "id = 't1' or 1=1 --"},
        {"filter": "nothing = 1"},
        {"filter": "y = 'a'"},
        {"filter": "(" * 5000},
        {"filter": "not " * 500 + "id = 'a'"},
        {"filter": "id in ()"},
        {"filter": "s_intersects(geometry, bbox(1,2,3,4))"},
        {"filter": "y > 1e400"},
        {"filter": "y > ٣"},
        {"fliter": "y > 38.3"},
        {"filter": ["y > 38.3", "y > 38.5"]},
        {"which": "1"},
        {"dataset_id": "hedges"},
        {"asking": "x"},
        {"sort": "nothing"},
        {"columns": "id,../../etc"},
        {"limit": "0"},
        {"limit": "1000000"},
        {"limit": "x"},
        {"token": "-1"},
        {"token": "999999999999999999999"},
        {"form": "xlsx"},
        {"form": "geojson"},
    ],
)
def test_a_hostile_question_is_refused_and_not_a_fault(
    client: "TestClient[ReaderApp]", asked: dict[str, str]
) -> None:
    assert client.get("/datasets/trees/rows", params=asked).status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        [("host", "a"), ("host", "b")],
        [("host", "a b/../c")],
        [("range", "bytes=0-1"), ("range", "bytes=2-3")],
        [("authorization", "Bearer a"), ("authorization", "Bearer b")],
    ],
)
def test_a_header_that_two_could_read_two_ways_is_refused(
    client: "TestClient[ReaderApp]", headers: list[tuple[str, str]]
) -> None:
    assert answered(client.app, headers) == 400


def test_who_leaves_midway_is_no_fault_of_ours(client: "TestClient[ReaderApp]") -> None:
    came = iter(({"type": "http.request", "body": b"{", "more_body": True},))
    headers = [("host", "testserver.local"), ("content-type", "application/json")]
    headers.append(("content-length", "500"))
    over = {"type": "http.disconnect"}
    found = answered(client.app, headers, "POST", "/stac/search", lambda: next(came, over))
    assert found == 400


_WHOLE = {"type": "http.request", "body": b"", "more_body": False}


def answered(
    app: ReaderApp,
    headers: list[tuple[str, str]],
    method: str = "GET",
    path: str = "/datasets",
    came: Callable[[], Any] = lambda: _WHOLE,
) -> int:
    """What is answered to a request whose headers are sent as they are."""
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(),
        "query_string": b"", "scheme": "http", "server": ("a", 80), "http_version": "1.1",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Any:
        return came()

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return int(sent[0]["status"])


def test_links_do_not_believe_what_a_proxy_would_say(client: "TestClient[ReaderApp]") -> None:
    forged = {"x-forwarded-host": "evil.example", "x-forwarded-proto": "https"}
    text = client.get("/datasets/trees", headers=forged).text
    assert "evil.example" not in text and "http://testserver.local/datasets/trees" in text


def test_a_question_that_is_too_large_is_refused(client: "TestClient[ReaderApp]") -> None:
    huge = b'{"ids": ["' + b"a" * (2 << 20) + b'"]}'
    answer = client.post("/stac/search", content=huge, headers={"content-type": "application/json"})
    assert answer.status_code == 413
    for body in (
        b"{",
        b"[" * 90_000,
        b"[]",
        b'{"bbox": "x"}',
        b'{"filter": {"op": "and"}}',
        b'{"limit": -1}',
    ):
        answer = client.post("/stac/search", content=body)
        assert answer.status_code == 400, body


def test_every_address_is_described(client: "TestClient[ReaderApp]") -> None:
    told = client.get("/openapi.json").json()
    assert told["openapi"].startswith("3.1")
    assert {"/datasets", "/datasets/{dataset_id}/rows", "/stac/search"} <= told["paths"].keys()


def test_what_was_asked_is_counted_without_names(client: "TestClient[ReaderApp]") -> None:
    client.get("/datasets/trees")
    text = client.get("/metrics").text
    assert 'route="GET /datasets/{dataset_id}",answer="200"} ' in text and "trees" not in text


def test_a_citation_is_had_in_the_forms_of_reference_managers(
    client: "TestClient[ReaderApp]",
) -> None:
    path = "/datasets/trees/versions/latest/cite"
    whole = client.get(path).json()
    assert client.get(path, params={"form": "bibtex"}).text.startswith("@misc{trees_v")
    assert client.get(path, params={"form": "ris"}).text.startswith("TY  - DATA\nTI  - Trees")
    assert client.get(path, params={"form": "csl"}).json() == [whole["csl"]]
    version = client.get("/datasets/trees").json()["version_id"]
    assert version in whole["text"] and client.get(whole["evidence"]).status_code == 200


def test_a_value_of_a_key_may_hold_a_comma(client: "TestClient[ReaderApp]") -> None:
    at = "/datasets/trees/versions/latest/blame"
    both = client.get(at, params={"key": "id=t1,kind=oak"}).json()
    assert (both["key"], both["there"]) == ({"id": "t1", "kind": "oak"}, True)
    other = client.get(at, params={"key": r"id=t1\, kind=elm,kind=a\\b"}).json()
    assert (other["key"], other["there"]) == ({"id": "t1, kind=elm", "kind": r"a\b"}, False)
    assert client.get(addresses.row("trees", 1, other["key"])).json()["key"] == other["key"]
    twice = client.get(at, params={"key": "id=t1,id=t2"})
    assert twice.status_code == 400 and "twice" in twice.json()["said"]
    assert "key is missing" in client.get(at).json()["said"]


def test_who_listens_is_heard_from_outside(trees: Path) -> None:
    """The command itself: it says where it is, answers, and ends when it is told to."""
    command = [sys.executable, "-m", "kfm", "-w", str(trees), "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            said = next(line for line in server.stderr if "http://127.0.0.1:" in line)
            url = said[said.index("http://") :].split("/datasets")[0]
            with urllib.request.urlopen(f"{url}/datasets/trees", timeout=60) as answer:
                assert json.load(answer)["rows"] == 9
        finally:
            server.terminate()
        assert server.wait(60) in (0, 143)


def test_looser_labels_open_nothing_until_people_agreed_to_a_version_under_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ws = tmp_path / "ws"
    make_workspace(ws, sample=False, allow_loopback=True)
    kfm = caller(ws, capsys)
    strict, shown = "care_label: Restricted / By Request\n", "release: {show: [id, kind]}\n"
    with Upstream() as up, reader(ws) as client:
        up.files["/byreq.csv"] = CSV
        at = entry(ws, "byreq", up.url, f"custodian: The Office\n{shown}{strict}")
        called(ws, "keys", "new", "--role", "steward", "--name", "Stew", "--for", "The Office")
        called(ws, "grant", "give", "byreq", "--to", "County", "--purpose", "publish",
               "--expires", "2099-01-01", "--key", "Stew")  # fmt: skip
        called(ws, "run", "byreq")
        assert client.get("/datasets/byreq").status_code == 404
        at.write_text(at.read_text().replace(strict, ""))
        for path in ("", "/rows", "/versions/1/files/byreq.csv", "/versions/1/proofs/prov"):
            assert client.get(f"/datasets/byreq{path}").status_code == 404, path
        assert client.get("/datasets").json() == {"datasets": []}
        refused = kfm("get", "byreq", "-o", str(tmp_path / "no"))
        assert refused.code == 3 and "nobody has agreed to that yet" in refused.err
        assert kfm("run", "byreq", "--force", "--reason", "open now").code == 7
        called(ws, "approve", "2", "--key", "Stew")
        called(ws, "promote", "2")
        answer = client.get("/datasets/byreq/rows")
        assert answer.status_code == 200 and answer.headers["cache-control"] == "no-cache"
        assert client.get("/datasets/byreq/versions/1/rows").status_code == 200


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/datasets/trees/versions/1/blame?key=", 400),
        ("/datasets/trees/versions/1/blame?key=,,", 400),
        ("/datasets/trees@1", 404),
        ("/datasets/trees@1/rows", 404),
        ("/datasets/trees@/feed", 404),
        ("/stac/collections/trees@", 404),
        (f"/stac/search?collections={'a' * 256}", 200),
        ("/stac/search?collections=trees@1", 200),
        ("/datasets/trees/versions/1/diff", 200),
    ],
)
def test_a_name_that_is_none_is_no_fault(trees: Path, path: str, answer: int) -> None:
    """As JSON and as a page."""
    with reader(trees, html_pages()) as client:
        for headers in ({}, {"accept": "text/html"}):
            said = client.get(path, headers=headers)
            assert said.status_code == answer, (path, headers, said.text[:300])
            if "collections=" in path:
                assert said.json()["features"] == []


def test_a_search_without_a_body_is_told_so(client: "TestClient[ReaderApp]") -> None:
    said = client.post("/stac/search")
    assert (said.status_code, said.json()["said"]) == (400, "Nothing was sent with the question.")


@pytest.mark.parametrize("instead", ["nothing", "a folder", "a pipe"])
def test_a_file_that_is_gone_is_damage(trees: Path, instead: str) -> None:
    table = next((trees / "data" / "processed" / "trees").glob("v*/trees.parquet"))
    aside = table.parent.parent / "aside.parquet"
    table.rename(aside)
    try:
        if instead == "a folder":
            table.mkdir()
        elif instead == "a pipe":
            os.mkfifo(table)
        with reader(trees, html_pages()) as client:
            for path in ("rows", "versions/1/files/trees.parquet", "versions/1/diff", "card.svg"):
                said = client.get(f"/datasets/trees/{path}")
                assert said.status_code == 503 and '"damaged"' in said.text, path
    finally:
        if instead == "a folder":
            table.rmdir()
        table.unlink(missing_ok=True)
        aside.rename(table)
