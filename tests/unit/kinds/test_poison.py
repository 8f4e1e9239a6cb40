"""For every kind of source a family of poisoned records: each is set aside by row with its line and
rule, and the rest stays as it was.
"""

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.given.feeds import AT, CAPTURED, COUNT, FEEDS, Feed, Record

from kfm.connectors.base import InputFile, TransformResult
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Read
from kfm.kinds import shapefile


def cases() -> Iterator[Any]:
    for name, make in FEEDS.items():
        for poison in make().poisons:
            yield pytest.param(name, poison, id=f"{name}-{poison}".replace(" ", "_"))


def tried(
    feed: Feed, records: list[Record], folder: Path
) -> tuple[TransformResult, list[str], list[dict[str, Any]]]:
    """The result, the rows as text, and what was set aside."""
    inputs = []
    (folder / "in").mkdir()
    for name, content in feed.render(records).items():
        (folder / "in" / name).write_bytes(content)
        inputs.append(
            InputFile(
                source_id=name, path=str(folder / "in" / name), digest=f"sha256:{folder.name}"
            )
        )
    job = {
        "dataset_id": "d",
        "source_kind": feed.kind,
        "format": feed.format,
        "artifact": "d.parquet",
        "captured_at": CAPTURED,
    }
    result = run_inline(
        Read(**job, inputs=tuple(inputs), max_quarantined=feed.share, **feed.more), folder
    )  # type: ignore[arg-type]
    assert result.books.balanced
    rows = pq.read_table(folder / result.artifact).to_pylist()
    aside = (folder / result.quarantine).read_text().splitlines() if result.quarantine else []
    return result, [json.dumps(r, default=repr) for r in rows], [json.loads(line) for line in aside]


@cache
def honest(name: str, folder: Path) -> Counter[str]:
    feed = FEEDS[name]()
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        result, rows, aside = tried(feed, feed.records, folder)
    assert (aside, result.books.written) == ([], len(rows))
    return Counter(rows)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("honest")


@pytest.mark.parametrize(("name", "poison"), list(cases()))
def test_a_poisoned_record_is_set_aside_with_its_line_and_rule_and_the_rest_is_as_it_was(
    name, poison, base, tmp_path, monkeypatch
):
    clean = honest(name, base / name.replace(" ", "_"))
    feed = FEEDS[name]()
    at = AT if len(feed.records) == COUNT else len(feed.records) // 2
    change, rule = feed.poisons[poison]
    poisoned = change(feed.records[at])
    assert poisoned != feed.records[at]
    monkeypatch.chdir(tmp_path)
    shapefile._cached.cache_clear()
    result, rows, aside = tried(
        feed, [*feed.records[:at], poisoned, *feed.records[at + 1 :]], tmp_path
    )
    assert [(r["line"], r["rule"]) for r in aside] == [(feed.line(at), rule)], [
        r["reason"] for r in aside
    ]
    assert aside[0]["reason"] and aside[0]["record"]
    lost = clean - Counter(rows)
    assert not Counter(rows) - clean, "no other row changes"
    # a whole line of a station file is one record, and holds a month of values
    assert lost.total() == (
        1 if not aside[0]["rule"].startswith("ghcnd.") or feed.format != "dly" else 28
    )
    assert result.books.quarantined == 1


def test_every_kind_has_a_family() -> None:
    from kfm.model.kinds import KINDS

    assert {make().kind for make in FEEDS.values()} == {*KINDS, "http_file"}
