"""The read policy is asked at every way out, and whatever is no clear yes is a no."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from kfm.access.boundary import data_of
from kfm.model.errors import Denied
from kfm.policy.base import sources_of
from kfm.policy.embedded import Embedded
from kfm.testing import Upstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said
from tests.given.ways_out import HANDING_JOBS, HANDS_OUT

Kfm = Callable[..., Said]
TREES, MARK = "trees", "Zyxomma"
NO = 'package kfm.serve\n\ndeny contains {"code": "mine.no", "message": "Not for you.", "remedy": "Ask."} if true\n'


@pytest.fixture
def trees(kfm: Kfm, ws: Path) -> Iterator[str]:
    """Two official versions, indexed for search, and a proposal; every row carries the mark."""
    with Upstream() as up:
        entry = ws / "data" / "registry" / f"{TREES}.yml"
        entry.write_text(
            "dataset_id: trees\ntitle: Trees\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
            f"source: {{url: '{up.url}/trees.csv', format: csv}}\nbusiness_key: [id]\n"
        )
        for count in (3, 4, 5):
            up.files["/trees.csv"] = b"id,kind,y,x\n" + b"".join(
                b"t%d,%s,38.%d,-98.1\n" % (n, MARK.encode(), n) for n in range(count)
            )
            if count == 5:
                entry.write_text(entry.read_text() + "approvals: 1\n")
            assert kfm("run", TREES).code == (7 if count == 5 else 0)
        assert (
            kfm(
                "worker",
                "run-job",
                "index.build_embeddings",
                "--dataset",
                TREES,
                "--set",
                "embeddings=false",
            ).code
            == 0
        )
        yield TREES


def test_every_way_out_is_closed_when_the_rules_say_no(
    kfm: Kfm, ws: Path, trees: str, tmp_path: Path
) -> None:
    receipt = str(next((ws / "receipts" / "ingest.pull_source").rglob("*.json")))
    number = kfm("review", "--json").json["proposals"][0]["proposal"]
    passage = kfm("search", MARK, "--json").json["hits"][0]["citation"]["address"]
    out = tmp_path / "out"
    ways = {
        "get": [
            ("get", trees, "-o", str(out)),
            ("get", f"{trees}@1", "-o", str(out)),
            ("get", trees, "--format", "csv", "-o", str(out)),
        ],
        "bundle": [("bundle", trees, "-o", str(out))],
        "diff": [
            ("diff", trees),
            ("diff", f"{trees}@1", f"{trees}@2"),
            ("diff", f"proposal/{number}"),
        ],
        "cite": [("cite", trees)],
        "search": [("search", MARK, "--dataset", trees), ("search", passage)],
        "rebuild": [("rebuild", receipt)],
        "dataset": [("dataset", "schema", trees)],
        # tests/integration/test_canary.py: what it compares comes from the same door as what `diff`
        # shows
        "canary": [],
        "withdraw": [],  # tests/integration/test_withdraw.py: it may go on, and shows no row
        "promote": [("promote", str(number))],
        "index.build_embeddings": [
            ("worker", "run-job", "index.build_embeddings", "--dataset", trees)
        ],
        "transform.build_tiles": [
            ("worker", "run-job", "transform.build_tiles", "--dataset", trees)
        ],
        "history": [("history", trees)],
        "show": [
            ("show", trees),
            ("show", f"{trees}@1", "--sql", "select * from data"),
            ("show", f"proposal/{number}"),
        ],
        "story": [("story", trees), ("story", f"{trees}@1", "--format", "html", "-o", str(out))],
        "blame": [("blame", trees, "--key", "t1"), ("blame", f"{trees}@1", "--key", "id=t1")],
        "ask": [("ask", trees, "where from"), ("ask", trees, "why is t1 missing")],
        "lineage": [("lineage", "show", trees), ("lineage", "export", trees, "--format", "dot")],
        "export": [
            ("export", "site", trees, "-o", str(out)),
            ("export", "site", f"{trees}@1", "-o", str(out)),
        ],
        "github": [],  # tests/integration/test_github_proposals.py: it wants a repository
        "serve": [],  # tests/integration/test_reader.py: every address, every label
        "notify": [("worker", "run-job", "notify", "--dataset", trees)],
    }
    assert ways.keys() == HANDS_OUT | HANDING_JOBS, "a new way out is tried here too"
    asked = [
        args
        for name, each in ways.items()
        for args in each
        if name not in ("promote", *HANDING_JOBS)
    ]
    for args in asked:
        assert kfm(*args).code == 0, args
        shutil.rmtree(out) if out.is_dir() else out.unlink(missing_ok=True)
    (ws / "policy" / "mine.rego").write_text(NO)
    for args in (args for each in ways.values() for args in each):
        said = kfm(*args)
        assert said.code == {"promote": 7, "history": 0, "lineage": 2}.get(args[0], 3), args
        assert MARK not in said.out + said.err and not out.exists(), args
    assert "decision" in kfm("get", trees, "-o", str(out)).err
    told = kfm("history", trees, "--json").json  # when what was official is no secret
    assert {e["rows"] for e in told["generations"]} == {None} and "Not for you." in told["not_told"]


def test_rules_that_give_no_clear_yes_hand_out_nothing(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    """Missing, broken, undefined, odd or contradictory; the same sentence as the rules' own no."""
    assert kfm("run", "ks_earthquakes").code == 0
    serve = "package kfm.serve\n\n"
    loop = (
        serve
        + "deny contains 1 if { some a in numbers.range(1, 20000); some b in numbers.range(1, 20000); a == b + 100000 }\n"
    )
    changes: list[dict[str, str | None]] = [
        dict.fromkeys((p.name for p in (ws / "policy").iterdir()), None),  # moved away
        {"serve.rego": None},  # undefined
        {"mine.rego": serve + "broken := \n"},
        # outside the subset
        {"mine.rego": 'package mine\n\nx := http.send({"url": "http://127.0.0.1"})\n'},
        {"serve.rego": serve + 'allow := "yes"\n\ndeny := set()\n'},
        {"serve.rego": serve + "allow := true\n\ndeny := true\n"},
        {"serve.rego": serve + "allow := false\n\ndeny := set()\n"},
        # contradicts itself
        {"mine.rego": serve + "allow := true if 1 == 1\n\nallow := false if 2 == 2\n"},
        {"mine.rego": NO},
        {"mine.rego": "\udcff"},  # no text at all
    ]
    whole = {p.name: p.read_bytes() for p in (ws / "policy").iterdir()}
    for change in changes:
        for name, text in change.items():
            (ws / "policy" / name).unlink(missing_ok=True) if text is None else (
                ws / "policy" / name
            ).write_bytes(text.encode(errors="surrogateescape"))
        with (
            open_world(open_workspace(ws)) as world,
            pytest.raises(Denied, match="may not be handed out"),
        ):
            data_of(world, "ks_earthquakes")
        (ws / "policy" / "mine.rego").unlink(missing_ok=True)
        for name, content in whole.items():
            (ws / "policy" / name).write_bytes(content)
    with open_world(open_workspace(ws)) as world:
        assert data_of(world, "ks_earthquakes").files
        slow = Embedded({**sources_of(ws / "policy"), "loop.rego": loop.encode()}, seconds=0.2)
        with closing(slow), pytest.raises(Denied, match="in time"):
            data_of(msgspec.structs.replace(world, policy=slow), "ks_earthquakes")
        with pytest.raises(Denied):
            data_of(msgspec.structs.replace(world, policy=None), "ks_earthquakes")
    (ws / "policy").rename(ws / "away")
    assert (
        kfm("get", "ks_earthquakes", "-o", str(tmp_path / "out")).code == 3
        and not (tmp_path / "out").exists()
    )
