"""`kfm.connect`: light to import, read without being run, and pages that end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from kfm import connect
from kfm.connect import Ask, Context, Field, Refused, bearer, column
from kfm.connectors.child.code import read_code, run_code
from kfm.connectors.operations import Acquire
from kfm.fetch.credentials import query_references, resolve_headers, resolve_query
from kfm.fetch.heads import next_link
from kfm.fetch.wire import Head
from kfm.model import Column, DatasetEntry, UsageError, masked
from kfm.model.dataset import Source
from kfm.workspace.connector_says import with_mapping, with_stated

BASE = "https://wells.example/api/wells"
HEAD = "from kfm.connect import Ask, Context, Row, bearer, column, query, source\n"
WELLS = HEAD + (
    'DEEPEST = 3000\nwells = source("my_wells", auth=bearer("wells_token"), records="results", columns=[\n'
    '    column("well_id", key=True), column("depth_ft", float, unit="ft", max=DEEPEST, at="Depth"),\n'
    '    column("drilled", "date", required=True)])\n'
)


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys; before = set(sys.modules); import kfm.connect; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {m for m in done if m.startswith("kfm")} == {"kfm", "kfm.connect"}
    assert not {m.partition(".")[0] for m in done} & {
        "pyarrow",
        "numpy",
        "sqlite3",
        "ssl",
    }
    assert len(done) < 90, len(done)


# ---- read without being run ----------------------------------------------------------------------
def read(code: str) -> Any:
    return read_code(code.encode(), "connector.py")


def test_what_a_source_states_is_read_from_the_text() -> None:
    found = read(
        WELLS
        + "raise SystemExit('this is never run')\n\n@wells.acquire\ndef pages(ask: Ask) -> None: ...\n"
        + "@wells.parse\ndef read(ctx, file): ...\n"
    )
    assert found.hooks == {"acquire", "parse"}
    assert found.source.columns == (
        Field(name="well_id", key=True),
        Field(name="depth_ft", type="number", unit="ft", max=3000, at="Depth"),
        Field(name="drilled", type="date", required=True),
    )
    assert (found.source.auth, found.source.records) == (bearer("wells_token"), "results")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("@wells.transfrom\ndef tidy(ctx, rows): ...\n", "Did you mean `@wells.transform`?"),
        (
            "@wells.transform\ndef a(ctx, rows): ...\n@wells.transform\ndef b(ctx, rows): ...\n",
            "transform has two functions",
        ),
        ("@wells.acquire\nasync def a(ask): ...\n", "asynchronous"),
        ('more = source("other")\n', "a second source()"),
    ],
)
def test_what_would_be_left_out_without_a_word_is_refused(code: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(WELLS + code)
    assert said in f"{refused.value.happened} {refused.value.remedy}"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("[column(n) for n in ('a', 'b')]", "is not written out"),
        ("[column('a'), column('a')]", "'a' is there twice"),
        ("[column('a', complex)]", "is not written out"),
        ("[column('a', 'text')]", "'text' is no type"),
        ("[column('a', depth=1)]", "unexpected keyword"),
    ],
)
def test_columns_that_cannot_be_read_are_refused_with_their_line(columns: str, said: str) -> None:
    with pytest.raises(UsageError, match="line 2") as refused:
        read(HEAD + f'src = source("d", columns={columns})\n')
    assert said in refused.value.happened


def test_a_function_named_parse_in_a_module_is_nobodys_hook() -> None:
    found = read("def parse(text): ...\n\ndef transform(ctx, rows):\n    return map(parse, rows)\n")
    assert found.hooks == {"transform"}


def test_code_that_states_something_else_when_it_runs_is_refused() -> None:
    import types

    code = HEAD + 'src = source("d", columns=[column("a")])\nsrc.columns = ()\n'
    module = types.ModuleType("connector")
    exec(code, module.__dict__)
    with pytest.raises(TypeError, match="something else when it runs"):
        run_code(module, read(code))


# ---- stated once ---------------------------------------------------------------------------------
def entry(**more: Any) -> DatasetEntry:
    return DatasetEntry(
        dataset_id="my_wells", title="Wells", source=Source(url=BASE, format="json"), **more
    )


def test_columns_are_said_once_and_the_registry_only_overrides() -> None:
    found = with_stated(entry(), WELLS.encode())
    assert [(c.name, c.type, c.nullable) for c in found.schema] == [
        ("well_id", "string", True),
        ("depth_ft", "number", True),
        ("drilled", "date", False),
    ]
    assert (found.business_key, found.source.records) == (("well_id",), "results")
    assert found.source.headers == {"Authorization": "Bearer credential:wells_token"}
    depth = Column(name="depth_ft", type="integer")
    other = with_stated(entry(schema=(depth,), business_key=("drilled",)), WELLS.encode())
    assert [c.type for c in other.schema] == ["string", "integer", "date"]
    assert other.business_key == ("drilled",)


def test_a_delimited_file_needs_no_mapping_for_columns_that_are_stated() -> None:
    found: Any = with_mapping(
        {"columns": [{"from": "W", "to": "well_id"}]}, WELLS.encode(), "my_wells"
    )
    assert [(c["from"], c["to"], c["type"]) for c in found["columns"]] == [
        ("W", "well_id", "string"),
        ("Depth", "depth_ft", "number"),
        ("drilled", "drilled", "date"),
    ]


def test_a_credential_is_named_and_its_value_goes_to_the_server_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WELLS", "user:pass-of-wells")
    table = {"w": "env:WELLS"}
    for auth, sent in (
        (connect.bearer("w"), "Bearer user:pass-of-wells"),
        (connect.basic("w"), "Basic dXNlcjpwYXNzLW9mLXdlbGxz"),
    ):
        assert resolve_headers(auth.headers, table) == {"Authorization": sent}
        assert masked(sent) == "***"
    assert resolve_headers(connect.header("X-Key", "w").headers, table) == {
        "X-Key": "user:pass-of-wells"
    }
    stated = HEAD + 'src = source("my_wells", auth=query("appid", "w"))\n'
    url = with_stated(entry(), stated.encode()).source.url
    asked = urlsplit(url).query
    assert url == f"{BASE}?appid=credential:w"
    assert resolve_query(asked, query_references(asked), table) == "appid=user%3Apass-of-wells"
    with pytest.raises(ValueError, match="never written"):
        connect.bearer("Bearer s3cret/value")


# ---- pages ---------------------------------------------------------------------------------------
class Pages:
    """Answers an `Ask` from `{query: document}`; what was asked for is in `asked`."""

    def __init__(self, folder: Path, answers: dict[str, Any], url: str = BASE) -> None:
        self.folder, self.answers, self.asked = folder, answers, list[str]()
        job = Acquire(dataset_id="d", urls=(url,), format="json", artifact="d.parquet")
        self.ask = Ask(job, self, lambda *_, **__: None)

    def __call__(self, message: dict[str, Any]) -> dict[str, Any]:
        query = urlsplit(message["url"]).query or message["body"]
        self.asked.append(query)
        answer = self.answers.get(query, self.answers.get("*"))
        path = self.folder / message["name"]
        path.write_bytes(answer if isinstance(answer, bytes) else json.dumps(answer).encode())
        link = answer.get("@link") if isinstance(answer, dict) else None
        return {"path": str(path)} | ({"next": link} if link else {})


def page(*rows: int, **more: Any) -> dict[str, Any]:
    return {"results": [{"id": n} for n in rows], **more}


@pytest.mark.parametrize(
    ("how", "answers", "asked"),
    [
        (
            {"next": "links[rel=next].href"},
            {
                "": page(1)
                | {"links": [{"rel": "self", "href": "x"}, {"rel": "next", "href": "?p=2"}]},
                "p=2": page(2) | {"links": []},
            },
            ["", "p=2"],
        ),
        (
            {"next": "meta.cursor", "token": "after"},
            {"": page(1, meta={"cursor": "a b"}), "after=a+b": page(2, meta={"cursor": None})},
            ["", "after=a+b"],
        ),
        (
            {"next": "cursor", "token": "cursor", "body": {"q": 1}},
            {'{"q":1}': page(1, cursor="z"), '{"q":1,"cursor":"z"}': page(2)},
            ['{"q":1}', '{"q":1,"cursor":"z"}'],
        ),
        (
            {"offset": "skip", "params": {"limit": 2}},
            {"limit=2&skip=0": page(1, 2), "limit=2&skip=2": page(3), "limit=2&skip=3": page()},
            ["limit=2&skip=0", "limit=2&skip=2", "limit=2&skip=3"],
        ),
        (
            {"number": "page", "total": "n"},
            {"page=1": page(1, n=2), "page=2": page(2, n=2)},
            ["page=1", "page=2"],
        ),
        ({"next": "Link"}, {"": page(1) | {"@link": f"{BASE}?c=9"}, "c=9": page(2)}, ["", "c=9"]),
    ],
    ids=["link", "cursor", "token in a body", "offset", "number", "header"],
)
def test_pages_are_followed_to_the_last(
    tmp_path: Path, how: dict[str, Any], answers: dict[str, Any], asked: list[str]
) -> None:
    pages = Pages(tmp_path, answers)
    assert len(pages.ask.pages(records="results", **how)) == len(asked)
    assert pages.asked == asked


@pytest.mark.parametrize(
    ("how", "answers", "code"),
    [
        ({"next": "next"}, {"*": page(1, next="?p=1")}, "paging.loop"),
        ({"next": "next"}, {"": page(1, next="?p=1"), "p=1": page(1, next="?p=2")}, "paging.loop"),
        (
            {"number": "page", "most": 2},
            {"page=1": page(1), "page=2": page(2), "*": page(3)},
            "paging.loop",
        ),
        (
            {"number": "page", "total": "n"},
            {"page=1": page(1, n=9), "*": page(n=9)},
            "paging.incomplete",
        ),
        ({"next": "cursor"}, {"*": page(1, cursor="abc")}, "paging.next"),
        ({"next": "next"}, {"*": b"<!DOCTYPE html><p>sorry"}, "html"),
        ({"next": "next"}, {"*": b"<wells/>"}, "json"),
        ({"next": "next"}, {"*": {"a": [], "b": []}}, "paging.records"),
    ],
)
def test_pages_that_do_not_end_well_are_refused(
    tmp_path: Path, how: dict[str, Any], answers: dict[str, Any], code: str
) -> None:
    with pytest.raises(Refused) as refused:
        Pages(tmp_path, answers).ask.pages(**how)
    assert refused.value.code == code
    assert ("error page" in refused.value.happened) == (code == "html")


def test_a_link_keeps_the_credential_on_its_own_server_alone(tmp_path: Path) -> None:
    here = Pages(tmp_path, {"*": page(1)}, f"{BASE}?api_key=credential:w&size=5")
    here.ask.get("/api/other?p=2", "a")
    here.ask.get("https://elsewhere.example/?p=2", "b")
    assert here.asked == ["p=2&api_key=credential:w", "p=2"]
    assert dict(parse_qsl(here.asked[0]))["api_key"] == "credential:w"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ('<https://a/?p=1>; rel="prev", </?p=3>; rel="next last"', "/?p=3"),
        ("<x>; title=next; rel=prev", ""),
        ("<?p=2>;rel=next", "?p=2"),
    ],
)
def test_the_next_page_is_found_in_a_link_header(header: str, found: str) -> None:
    assert next_link(Head(200, (("link", header),))) == found


def test_a_reason_is_a_rule_and_not_a_row(tmp_path: Path) -> None:
    job = Acquire(dataset_id="d", format="json", artifact="d.parquet")
    ctx = Context(job, tmp_path, lambda _: None)
    ctx.refuse({"a": 1}, "plugged")
    assert ctx.taken() == [("drop:connector plugged", {"a": 1}, "plugged")]
    with pytest.raises(ValueError, match="do not belong"):
        [ctx.refuse({"a": n}, f"well {n}") for n in range(60)]  # type: ignore[func-returns-value]


def test_types_are_those_of_python_or_of_the_registry() -> None:
    import datetime as dt

    assert [column("c", t).type for t in (str, int, float, bool, dt.datetime, dt.date, dict, "geometry")] == [
        "string", "integer", "number", "boolean", "timestamp", "date", "json", "geometry"
    ]  # fmt: skip
