"""The job that indexes an official version for search."""

import hashlib
import json
import os
import sqlite3
from pathlib import Path

import pytest

from kfm.extras.search import embed
from kfm.extras.search.base import build, find
from kfm.extras.search.passages import Passage, passages
from tests.given.papers import TEXTS, index, library, publish

marked = pytest.mark.job("index.build_embeddings")


def index_files(workspace: Path, dataset_id: str = "papers") -> dict[str, bytes]:
    folder = workspace / f"data/work/{dataset_id}/index"
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


@marked
def test_happy_the_official_version_is_indexed_and_the_receipt_says_what_from(
    tmp_path: Path,
) -> None:
    workspace = library(tmp_path)
    result = index(workspace)
    assert (result.status, result.error) == ("succeeded", "")
    (output,) = result.outputs
    made = workspace / "data" / output.id
    assert output.checksum == f"sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}"
    receipt = json.loads((workspace / result.receipt).read_text())
    version = made.parent.name
    assert receipt["inputs"][0]["id"] == f"kfm://dataset/papers@{version}"
    assert receipt["outputs"] == [
        {"kind": "file", "id": output.id, "checksum": output.checksum, "zone": "Work"}
    ]
    assert [d["decision"] for d in receipt["provenance"]["policy_decisions"]] == ["allow"]
    with sqlite3.connect(made) as db:
        assert [t for (t,) in db.execute("SELECT text FROM passages")] == [
            " ".join(p.split()) for text in TEXTS.values() for p in text.split("\n\n")
        ]
    db.close()


@marked
def test_retry_makes_the_same_bytes_and_an_unchanged_version_is_skipped(tmp_path: Path) -> None:
    workspace = library(tmp_path)
    first, before = index(workspace), index_files(workspace)
    second = index(workspace)
    assert (second.status, second.outputs) == ("skipped", first.outputs)
    assert index_files(workspace) == before
    (path,) = (workspace / "data/work/papers/index").rglob("search.sqlite")
    os.chmod(path, 0o644)
    path.write_bytes(b"damaged")
    assert index(workspace).status == "succeeded"
    path.unlink()  # killed between the removal and the new file
    assert index(workspace).status == "succeeded"
    assert index_files(workspace) == before


@marked
def test_deny_what_may_not_be_handed_out_is_not_indexed(tmp_path: Path) -> None:
    workspace = library(tmp_path)
    entry = workspace / "data/registry/papers.yml"
    entry.write_text(entry.read_text().replace("CC0-1.0", "NOASSERTION"))
    result = index(workspace)
    assert (result.status, result.retry, result.exit_code) == ("failed", False, 3)
    assert [d.decision for d in result.decisions] == ["deny"]
    assert index_files(workspace) == {}


@marked
def test_deny_without_word_vectors_unless_words_are_enough(
    tmp_path: Path, without_vectors: None
) -> None:
    workspace = library(tmp_path)
    result = index(workspace)
    assert (result.status, result.exit_code) == ("failed", 2)
    assert "kfm[search]" in result.error and index_files(workspace) == {}
    assert "words only" in index(workspace, embeddings=False).reason
    embed.embedder.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embed, "_WEIGHTS", "weights/l2_supercat_256.safetensors")
        assert "words and meaning" in index(workspace).reason, (
            "an index of words is made again once there are vectors"
        )
        assert index(workspace, embeddings=False).status == "skipped", "and then serves both"


def test_only_the_index_of_the_head_is_kept(tmp_path: Path) -> None:
    workspace = library(tmp_path)
    index(workspace)
    old = set(index_files(workspace))
    publish(workspace, {**TEXTS, "diary": "Nothing happened today."})
    index(workspace)
    new = set(index_files(workspace))
    assert len(new) == 2 and not new & old


def test_the_same_passages_make_the_same_file_whatever_their_number(tmp_path: Path) -> None:
    some = [
        Passage(f"row {n} of many, {n % 7} horses", f"book {n % 3}", "t.parquet", n)
        for n in range(1, 2500)
    ]
    for name in ("a", "b"):
        assert build(iter(some), tmp_path / name) == len(some)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    hits, note = find([tmp_path / "a"], "row 1789", 3)
    assert (hits[0].passage.row, note) == (1789, "")


def test_a_word_is_as_rare_as_it_is_over_all_indexes(tmp_path: Path) -> None:
    large = [
        Passage(f"day {n}, {'at the landing' if n % 3 else 'on the river'}", "", "t.parquet", n)
        for n in range(1, 60)
    ]
    small = [
        Passage("quicksilver landing", "", "t.parquet", 1),
        Passage("other", "", "t.parquet", 2),
    ]
    for name, some in (("large", large), ("small", small)):
        build(some, tmp_path / name, embeddings=False)
    both = [tmp_path / "large", tmp_path / "small"]
    for text in ("quicksilver", "quicksilver landing", "quicksilver river"):
        hits, _ = find(both, text, 3)
        assert (hits[0].file.name, hits[0].passage.row) == ("small", 1), text
    alone, _ = find(both[:1], "day 17", 100)
    assert [h.passage.row for h in find(both, "day 17", 100)[0]] == [
        h.passage.row for h in alone
    ], "and the order within one is its own"


def test_rows_of_a_table_are_passages_of_their_text_columns(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "name": ["Cheney Lake", None, "x" * 9000],
            "depth": [3.5, 1.0, 2.0],
            "kind": ["reservoir", None, "y"],
            "wkb": [b"1", b"2", b"3"],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    found = list(passages({"t.parquet": tmp_path / "t.parquet", "notes.txt": tmp_path / "none"}))
    assert [(p.row, p.text) for p in found] == [(1, "Cheney Lake · reservoir"), (3, "x" * 2000)]
    pq.write_table(pa.table({"depth": [1.0]}), tmp_path / "bare.parquet")
    assert list(passages({"bare.parquet": tmp_path / "bare.parquet"})) == []
    assert build([], tmp_path / "empty") == 0
    assert find([tmp_path / "empty"], "anything", 5)[0] == []
