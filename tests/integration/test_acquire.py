"""acquire: connector code asks for files in the child; the parent fetches, and keeps every byte
whatever comes of it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm.jobs.drive import stop_run
from kfm.run.look import look
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said

Kfm = Callable[..., Said]
PAGED = """
def acquire(ask):
    url, number = ask.urls[0], 1
    while url:
        page = ask.get(url, f"page-{number}")
        text = page.read_text()
        ask.log("page.read", size=len(text))
        url, number = ("{base}" + text.partition("next=")[2].split()[0]) if "next=" in text else None, number + 1


def transform(ctx, rows):
    for row in rows:
        if not str(row["id"]).startswith("next="):
            yield row
"""


@pytest.fixture
def connector(ws: Path, up: Upstream) -> Callable[..., None]:
    """Register `asked` with this connector."""

    def register(code: str, **source: Any) -> None:
        more = "".join(f"  {k}: {v}\n" for k, v in source.items())
        (ws / "data" / "registry" / "asked.yml").write_text(
            "dataset_id: asked\ntitle: Asked\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
            f"source:\n  url: {up.url}/1.csv\n  format: csv\n{more}business_key: [id]\nmax_quarantined: 0.5\n"
        )
        folder = ws / "scripts" / "connectors" / "asked"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "connector.py").write_text(code.replace("{base}", up.url))

    return register


def pages(up: Upstream) -> None:
    up.files["/1.csv"] = b"id,v\na,1\nnext=/2.csv ,0\n"
    up.files["/2.csv"] = b"id,v\nb,2\n"


def rows(ws: Path, said: Said) -> list[dict[str, Any]]:
    version = said.json["runs"][0]["version_id"]
    return list(
        pq.read_table(ws / "data" / "processed" / "asked" / version / "asked.parquet").to_pylist()
    )


def test_a_connector_follows_pages_and_every_page_is_kept(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None]
) -> None:
    pages(up)
    connector(PAGED)
    said = kfm("run", "asked", "--json")
    assert said.code == 0, said.err
    assert [r["id"] for r in rows(ws, said)] == ["a", "b"]
    capture = next((ws / "data" / "raw" / "asked" / "captures").iterdir())
    assert {p.name for p in capture.iterdir()} == {
        "page-1.csv",
        "page-2.csv",
        "manifest.json",
        "checksums.sha256",
    }
    assert kfm("run", "asked", "--json").json["runs"][0]["state"] == "NOOP"
    assert kfm("verify").code == 0


def test_a_change_token_saves_the_asking(
    kfm: Kfm, up: Upstream, connector: Callable[..., None]
) -> None:
    pages(up)
    up.files["/stamp"] = b"one"
    connector(
        PAGED
        + '\n\ndef change_token(ask):\n    return ask.get("{base}/stamp", "stamp", keep=False).read_text()\n'
    )
    assert kfm("run", "asked").code == 0
    up.asked.clear()
    assert kfm("run", "asked", "--json").json["runs"][0]["state"] == "NOOP"
    assert [path for path in up.asked if path.endswith(".csv")] == []
    up.files["/stamp"], up.files["/2.csv"] = b"two", b"id,v\nb,3\n"
    assert kfm("run", "asked", "--json").json["runs"][0]["state"] == "COMMITTED"


def test_the_steps_of_a_connector_are_those_of_the_plan(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None]
) -> None:
    """acquire gives the inputs, transform and validate run inside execute, publishing is the upsert
    with its catalogs; lineage and telemetry tell of all of it.
    """
    pages(up)
    connector(
        PAGED.replace("yield row", 'ctx.log("row.made")\n            yield row')
        + '\n\ndef validate(ctx, rows):\n    ctx.log("row.seen", rows=len(list(rows)))\n    return []\n'
    )
    (made,) = kfm("run", "asked", "--json").json["runs"]
    folder = ws / "data" / "work" / "asked" / "runs" / made["run_id"]
    log = [json.loads(x) for x in (folder / "artifacts" / "run.jsonl").read_text().splitlines()]
    events = list(dict.fromkeys(line["event"] for line in log))
    wanted = [
        "source.answered",
        "connector.page.read",
        "run.claimed",
        "connector.row.made",
        "connector.row.seen",
        "transform.convert",
        "version.written",
        "channel.appended",
        "telemetry.emitted",
    ]
    assert [e for e in events if e in wanted] == wanted
    wal = [json.loads(line) for line in (folder / "wal.jsonl").read_text().splitlines()]
    (planned,) = (r for r in wal if r["step_id"] == "plan")
    plan = json.loads(planned["payload"])["plan"]
    assert [i["source_id"] for i in plan["inputs"]] == ["page-1", "page-2"]
    done = [(r["phase"], r["step_id"]) for r in wal if r["status"] == "DONE"]
    assert [step for step in done if step[1] in {s["id"] for s in plan["steps"]}] == [
        (s["phase"], s["id"]) for s in plan["steps"]
    ]
    assert (folder / "lineage.cypher").is_file() and (folder / "openlineage.json").is_file()
    assert (ws / "data" / "catalog" / "dcat" / "asked.json").is_file()


def test_a_refusal_in_the_middle_keeps_what_came_before_it(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None]
) -> None:
    pages(up)
    connector(PAGED)
    good = kfm("run", "asked", "--json").json["runs"][0]["version_id"]
    up.files["/1.csv"] = b"<html>so sorry</html>"
    refuse = 'from kfm.connectors.base import Refused\n\ndef acquire(ask):\n    ask.get(ask.urls[0], "page-1")\n'
    connector(
        refuse
        + '    raise Refused("page", "It is a web page.", expected="rows", remedy="Ask again later.")\n'
    )
    said = kfm("run", "asked", "--json")
    outcome = said.json["runs"][0]
    assert (said.code, outcome["state"], outcome["reason"]) == (1, "FAILED", "It is a web page.")
    assert any(
        p.read_bytes() == b"<html>so sorry</html>"
        for p in (ws / "data" / "raw" / "asked" / "captures").rglob("page-1.csv")
    )
    assert kfm("status", "--json").json["datasets"][0]["dataset_id"] == "asked"
    assert kfm("get", "asked", "-o", str(ws / "out"), "--json").json["version_id"] == good


@pytest.mark.parametrize(
    ("ask", "code", "words"),
    [
        ('ask.get("{base}/missing.csv", "a")', 4, "404"),
        ('ask.get("http://169.254.169.254/x", "a")', 3, "not allowed"),
        ('ask.get("file:///etc/passwd", "a")', 2, "not usable"),
        ('ask.get(ask.urls[0], "../a")', 2, "named"),
        ('ask.get(ask.urls[0], "a"); ask.get(ask.urls[0], "a")', 1, "twice"),
        ("pass", 1, "asked for nothing"),
        ('raise KeyError("oops")', 1, "oops"),
    ],
)
def test_what_may_not_be_asked_ends_the_run_with_the_reason(
    kfm: Kfm,
    ws: Path,
    up: Upstream,
    connector: Callable[..., None],
    ask: str,
    code: int,
    words: str,
) -> None:
    pages(up)
    connector(f"def acquire(ask):\n    {ask}\n")
    said = kfm("run", "asked", "--json")
    assert (said.code, said.json["runs"][0]["state"]) == (code, "FAILED")
    assert words in said.json["runs"][0]["reason"]
    assert not (ws / "data" / "processed").exists()


def test_many_files_are_asked_for_at_once_and_keep_their_order(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None]
) -> None:
    for number in range(20):
        up.files[f"/{number}.csv"] = f"id,v\nr{number:02},{number}\n".encode()
    connector(
        'def acquire(ask):\n    ask.get_many({f"f{n:02}": f"{base}/{n}.csv" for n in range(20)})\n'.replace(
            "{base}", up.url
        )
    )
    said = kfm("run", "asked", "--json")
    assert said.code == 0, said.err
    assert [r["id"] for r in rows(ws, said)] == [f"r{n:02}" for n in range(20)]


def test_a_reference_in_a_page_is_never_resolved(
    kfm: Kfm,
    ws: Path,
    up: Upstream,
    connector: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KFM_TEST_SECRET", "swordfish-swordfish")
    pages(up)
    connector('def acquire(ask):\n    ask.get("{base}/1.csv?token=env:KFM_TEST_SECRET", "a")\n')
    kfm("run", "asked")
    assert not [path for path in up.asked if "swordfish" in path]


def test_a_static_dataset_runs_once_and_again_only_when_its_tools_change(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    up.files["/fixed.csv"] = b"id,v\na,1\n"
    path = ws / "data" / "registry" / "fixed.yml"
    path.write_text(
        "dataset_id: fixed\ntitle: Fixed\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\ncadence: static\n"
        f"source: {{url: '{up.url}/fixed.csv', format: csv}}\nbusiness_key: [id]\n"
    )
    assert kfm("run", "fixed", "--json").json["runs"][0]["state"] == "COMMITTED"
    up.files["/fixed.csv"] = b"id,v\na,2\n"
    up.asked.clear()
    assert kfm("run", "fixed", "--json").json["runs"][0]["state"] == "NOOP"
    assert up.asked == []
    path.write_text(path.read_text() + "pipeline_version: 2.0.0\n")
    assert kfm("run", "fixed", "--json").json["runs"][0]["state"] == "COMMITTED"


def test_a_refusal_holds_when_the_run_was_killed_before_it_could_say_so(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None]
) -> None:
    up.files["/1.csv"] = b"id,v\na,1\n"
    refuse = 'from kfm.connectors.base import Refused\n\ndef acquire(ask):\n    ask.get(ask.urls[0], "page-1")\n'
    connector(
        refuse
        + '    raise Refused("page", "The second page never came.", expected="two", remedy="Ask again later.")\n'
    )
    workspace = open_workspace(ws)
    with open_world(workspace) as world:
        assert (
            stop_run(
                world, targets_of(workspace, "asked")[0], frozenset({"capture stored"}), wait_s=1
            )
            is None
        )
    up.files.clear()
    said = kfm("resume")
    assert said.code == 1 and "The second page never came." in said.out + said.err
    assert not (ws / "data" / "processed").exists()


LIES = {
    "bytes rewritten after the fetch": (
        'def acquire(ask):\n    ask.get(ask.urls[0], "page-1").write_text("id,v\\na,666\\n")\n',
        0,
        "",
    ),
    "a link to a key in place of the table": (
        "import os\n\ndef validate(ctx, rows):\n    list(rows)\n    name = next(n for n in os.listdir('.') if n.endswith('.parquet'))\n"
        "    os.remove(name)\n    os.symlink('/proc/self/cwd/keys/x.key', name)\n    return []\n",
        1,
        "os.symlink",
    ),
    "another table": (
        "import os, pyarrow as pa, pyarrow.parquet as pq\n\ndef validate(ctx, rows):\n    list(rows)\n"
        "    name = next(n for n in os.listdir('.') if n.endswith('.parquet'))\n    table = pq.read_table(name)\n"
        "    pq.write_table(pa.concat_tables([table, table]), name)\n    return []\n",
        1,
        "business key of another",
    ),
    "a word hidden in the file": (
        "import os, pyarrow.parquet as pq\n\ndef validate(ctx, rows):\n    list(rows)\n"
        "    name = next(n for n in os.listdir('.') if n.endswith('.parquet'))\n    table = pq.read_table(name)\n"
        "    pq.write_table(table.replace_schema_metadata({'hidden': 'word'}), name)\n    return []\n",
        6,
        "not the one its transform told of",
    ),
    "another content": (
        "import os, pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq\n\ndef validate(ctx, rows):\n    list(rows)\n"
        "    name = next(n for n in os.listdir('.') if n.endswith('.parquet'))\n    table = pq.read_table(name)\n"
        "    pq.write_table(table.set_column(1, table.schema.field(1), pc.add(table.column(1), 1)), name)\n    return []\n",
        6,
        "not the one its transform told of",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_connector_code_cannot_change_what_is_kept_or_told(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None], lie: str
) -> None:
    up.files["/1.csv"] = b"id,v\na,1\nb,2\n"
    code, exit_code, words = LIES[lie]
    connector(code)
    said = kfm("run", "asked", "--json")
    assert (said.code, words in said.json["runs"][0]["reason"]) == (exit_code, True), said.json
    if exit_code:
        assert not (ws / "data" / "processed").exists()
    else:
        assert [r["v"] for r in rows(ws, said)] == [1, 2], (
            "the bytes of upstream, not those of the connector"
        )
        assert kfm("verify").code == 0


def test_forged_numbers_and_paths_in_the_answer_of_the_child_are_not_believed(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None]
) -> None:
    up.files["/1.csv"] = b"id,v\na,1\nb,2\n"
    connector(
        "import gc, os\nfrom kfm.connectors.child.inside import _Wire\n\ndef validate(ctx, rows):\n    list(rows)\n"
        "    wire = next(o for o in gc.get_objects() if isinstance(o, _Wire))\n"
        "    books = {'read': 1000, 'written': 1000}\n"
        "    wire.send({'op': 'done', 'result': {'artifact': 'x', 'books': books, 'schema': [{'name': 'id', 'type': 'string'},"
        " {'name': 'v', 'type': 'integer'}], 'content_id': 'sha256:0', 'profile': {}, 'rows': 1000, 'quarantine': '../../../keys/root.json'}})\n"
        "    os._exit(0)\n"
    )
    said = kfm("run", "asked", "--json")
    assert said.code == 6 and "not the one its transform told of" in said.json["runs"][0]["reason"]
    assert not (ws / "data" / "processed").exists()
    assert not list((ws / "data" / "work").rglob("rows.jsonl"))


def test_a_capture_has_no_room_for_a_source_named_like_its_manifest(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None]
) -> None:
    up.files["/1.csv"] = b'{"id": "a"}'
    connector('def acquire(ask):\n    ask.get(ask.urls[0], "manifest")\n')
    path = ws / "data" / "registry" / "asked.yml"
    path.write_text(path.read_text().replace("format: csv", "format: json"))
    said = kfm("run", "asked", "--json")
    assert said.code == 2 and "manifest" in said.json["runs"][0]["reason"]


def test_the_addresses_of_a_private_dataset_never_follow_from_its_records(
    kfm: Kfm, ws: Path, connector: Callable[..., None]
) -> None:
    connector('def acquire(ask):\n    ask.get(ask.urls[0], "a")\n')
    path = ws / "data" / "registry" / "asked.yml"
    path.write_text(path.read_text().replace("sensitivity: public", "sensitivity: restricted"))
    said = kfm("run", "asked")
    assert said.code == 2 and "not public" in said.err


def test_a_refused_capture_that_equals_the_official_one_is_still_refused(
    kfm: Kfm, up: Upstream, connector: Callable[..., None]
) -> None:
    up.files |= {"/1.csv": b"id,v\na,1\n", "/ok": b"yes"}
    code = 'from kfm.connectors.base import Refused\n\ndef acquire(ask):\n    ask.get(ask.urls[0], "a")\n'
    code += '    if ask.get("{base}/ok", "ok", keep=False).read_text() != "yes":\n        raise Refused("x", "No.", expected="yes", remedy="-")\n'
    connector(code)
    assert kfm("run", "asked").code == 0
    up.files["/ok"] = b"no"
    assert kfm("run", "asked", "--json").json["runs"][0]["state"] == "FAILED"


def test_many_files_together_keep_to_the_registered_size(
    kfm: Kfm, up: Upstream, connector: Callable[..., None]
) -> None:
    for number in range(20):
        up.files[f"/{number}.csv"] = b"id,v\nabcd,12\n"
    connector(
        'def acquire(ask):\n    ask.get_many({f"f{n}": f"{base}/{n}.csv" for n in range(20)})\n',
        max_bytes=40,
    )
    said = kfm("run", "asked", "--json")
    assert said.code == 1 and "larger than 40 bytes" in said.json["runs"][0]["reason"]


def test_the_connectors_own_mistake_is_told_and_not_an_earlier_answer(
    kfm: Kfm, up: Upstream, connector: Callable[..., None]
) -> None:
    up.files["/1.csv"] = b"id,v\na,1\n"
    connector(
        'def acquire(ask):\n    try:\n        ask.get("{base}/missing", "m")\n    except OSError:\n        pass\n    raise ValueError("my own")\n'
    )
    said = kfm("run", "asked", "--json")
    assert said.code == 1 and "my own" in said.json["runs"][0]["reason"]


def test_a_connector_that_is_no_python_is_named(kfm: Kfm, connector: Callable[..., None]) -> None:
    connector("def acquire(ask:\n    pass\n")
    said = kfm("run", "asked")
    assert said.code == 2 and "connector.py" in said.err


def test_what_code_says_on_the_way_is_in_the_log_of_the_run(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None]
) -> None:
    pages(up)
    connector(
        PAGED.replace(
            "    for row in rows:", '    ctx.log("looking", closely=True)\n    for row in rows:'
        )
    )
    run = kfm("run", "asked", "--json").json["runs"][0]["run_id"]
    said = (ws / "data" / "work" / "asked" / "runs" / run / "artifacts" / "run.jsonl").read_text()
    assert "connector.page.read" in said and "connector.looking" in said


def test_places_may_go_and_come_again(kfm: Kfm, ws: Path, up: Upstream) -> None:
    def features(*names: str) -> bytes:
        shape = '{"type":"Feature","properties":{"id":"%s"},"geometry":{"type":"Point","coordinates":[-98,38]}}'
        return (
            '{"type":"FeatureCollection","features":[' + ",".join(shape % n for n in names) + "]}"
        ).encode()

    (ws / "data" / "registry" / "alerts.yml").write_text(
        "dataset_id: alerts\ntitle: Alerts\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\nquality: {min_rows: 0}\n"
        f"source: {{url: '{up.url}/a.geojson', format: geojson}}\nbusiness_key: [id]\n"
        "schema: [{name: id, type: string}, {name: geometry, type: geometry}]\n"
    )
    for names in (("a", "b"), (), ("c",)):
        up.files["/a.geojson"] = features(*names)
        said = kfm("run", "alerts", "--json")
        assert (said.code, said.json["runs"][0]["state"]) == (0, "COMMITTED"), said.json
        assert (ws / "data" / "catalog" / "stac" / "alerts" / "collection.json").exists() == bool(
            names
        )
    assert kfm("verify").code == 0


def test_a_misspelt_hook_publishes_nothing_and_fetches_nothing(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None]
) -> None:
    pages(up)
    connector(PAGED.replace("def transform", "def tranform").replace("def acquire", "def _acquire"))
    for command in (("run", "asked"), ("plan", "asked")):
        said = kfm(*command)
        assert (
            said.code == 2
            and "connector.py, line 11: tranform()" in said.err
            and "Did you mean `transform`?" in said.err
        )
    said = kfm("connector", "check", "asked")
    assert (
        said.code == 1
        and "tranform() is no hook" in said.out
        and "Did you mean `transform`?" in said.out
    )
    assert up.asked == [] and not (ws / "data" / "raw" / "asked").exists()
    assert kfm("status").code == 0  # one broken connector does not hide the rest


def warned(ws: Path, dataset_id: str) -> list[list[str]]:
    """The warnings of each run's sources, oldest first."""
    with open_world(open_workspace(ws)) as world:
        rows = sorted(
            world.store.read(lambda tx: tx.runs.recent(dataset_id)), key=lambda row: row.timestamp
        )
    return [
        [w for s in json.loads(row.source_metadata) for w in s.get("warnings", [])] for row in rows
    ]


def test_a_wrong_type_and_other_bytes_under_one_tag_are_kept_as_warnings(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    up.files["/odd.csv"], up.headers["/odd.csv"] = (
        b"id,v\na,1\n",
        {"ETag": '"same"', "Content-Type": "text/csv"},
    )
    (ws / "data" / "registry" / "odd.yml").write_text(
        "dataset_id: odd\ntitle: Odd\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
        f"source: {{url: '{up.url}/odd.csv', format: csv, recheck: '0'}}\nbusiness_key: [id]\n"
    )
    assert kfm("run", "odd").code == 0
    up.files["/odd.csv"], up.headers["/odd.csv"] = (
        b"id,v\na,2\n",
        {"ETag": '"same"', "Content-Type": "text/html"},
    )
    assert kfm("run", "odd").code == 0
    first, second = warned(ws, "odd")
    assert first == []
    assert [w.partition(",")[0] for w in second] == [
        "Upstream calls its answer text/html",
        "Another body came under the ETag of the last one",
    ]


def test_a_page_of_another_type_is_kept_as_a_warning_and_what_only_helped_to_ask_is_not(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None]
) -> None:
    pages(up)
    up.files["/stamp"] = b"one"
    up.headers = {
        path: {"Content-Type": "application/json"} for path in ("/1.csv", "/2.csv", "/stamp")
    }
    connector(
        PAGED
        + '\n\ndef change_token(ask):\n    return ask.get("{base}/stamp", "stamp", keep=False).read_text()\n'
    )
    workspace = open_workspace(ws)
    with open_world(workspace) as world, world.data.scratch() as scratch:
        found = look(
            world, targets_of(workspace, "asked")[0], world.log("asked"), scratch, conditional=True
        )
    assert [s["warnings"] for s in found.sources] == [list(found.warnings)] * 2
    assert found.warnings == (
        "Upstream calls its answer application/json, but csv is registered; it was read as csv.",
    )


def test_all_files_of_a_capture_share_one_limit_of_bytes_and_it_is_named(
    kfm: Kfm, ws: Path, up: Upstream, connector: Callable[..., None]
) -> None:
    for number in range(4):
        up.files[f"/{number}.csv"] = b"id,v\n" + f"r{number},{'x' * 600}\n".encode()
    many = 'def acquire(ask):\n    ask.get_many({f"f{n}": f"{base}/{n}.csv" for n in range(4)})\n'.replace(
        "{base}", up.url
    )
    entry = ws / "data" / "registry" / "asked.yml"
    for code, source in (
        (many, {"max_bytes": 2000}),
        (
            "def transform(ctx, rows):\n    yield from rows\n",
            {"max_bytes": 1000, "urls": f"['{up.url}/2.csv']"},
        ),
    ):
        connector(code, **source)
        said = kfm("run", "asked")
        assert said.code == 1
        told = " ".join((said.out + said.err).split())
        assert (
            f"larger than {source['max_bytes']:,} bytes, together" in told
            and "raise `source.max_bytes`" in told
        )
        entry.write_text(
            entry.read_text().replace(f"max_bytes: {source['max_bytes']}", "max_bytes: 3000")
        )
        assert kfm("run", "asked").code == 0


@pytest.mark.parametrize("hook", ["acquire(ask)", "transform(ctx, rows)"])
def test_a_step_ends_at_its_limit_of_time_and_the_limit_is_named(
    kfm: Kfm, up: Upstream, connector: Callable[..., None], hook: str
) -> None:
    pages(up)
    # what comes before the hook of rows has to be done in that time
    end, limit = ("", "1s") if "acquire" in hook else ("    yield from rows\n", "4s")
    connector(
        f"import threading\n\ndef {hook}:\n    threading.Event().wait()\n{end}", max_step=limit
    )
    said = kfm("run", "asked")
    told = " ".join((said.out + said.err).split())
    assert said.code == 1
    assert (
        f"The step {hook.partition('(')[0]} of asked was not done after {limit} and was stopped."
        in told
    )
    assert "raise `source.max_step` in data/registry/asked.yml" in told
