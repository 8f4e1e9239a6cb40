"""Search answers with passages of what may be read now, and every citation opens."""

import io
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kfm.cli import main
from kfm.cli.answer import Call, answering
from kfm.cli.init import make_workspace
from kfm.cli.search import Passages
from kfm.extras.search.base import find, question
from kfm.upkeep.search import search
from kfm.upkeep.search_answer import Found, Hit, NotSearched
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.papers import TEXTS, index, library, publish
from tests.given.verbs import SHARED, Said, for_recordings

PAIRS = json.loads((Path(__file__).parents[1] / "search_pairs.json").read_text())
HOSTILE = [
    '"', '" OR text:x --', "a AND (b NEAR/3 c) * ^", "NOT", "AND OR", "{text} : x", "text:ferry*", "'; DROP TABLE passages; --", "\0", "boat\0\0",
    "\ud800 boat", "-", "--help me", "%s %n {0}", "../../etc/passwd", "😀", "Ⅻ ½ ٣", "İstanbul ß ﬁ", "ن̈ ไทย", "",
]  # fmt: skip


def ask(workspace: Path, text: str, *datasets: str, limit: int = 10) -> Found:
    opened = open_workspace(workspace)
    with open_world(opened) as world:
        return search(world, text, datasets or opened.registered(), limit)


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    workspace = library(tmp_path)
    assert index(workspace).status == "succeeded"
    return workspace


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, for those who only read."""
    workspace = library(tmp_path_factory.mktemp("shelf"))
    assert index(workspace).status == "succeeded"
    return workspace


def opened_text(workspace: Path, hit: Hit) -> Any:
    """What stands where a citation points, in the published file."""
    cited = hit.citation
    assert cited.bytes is not None
    data = (workspace / cited.file).read_bytes()
    return json.loads(b'"' + data[slice(*cited.bytes)] + b'"')


def test_every_citation_opens_on_the_passage_itself(shelf: Path) -> None:
    found = ask(shelf, "boat oak school oxen flour snow", limit=50)
    assert {h.text for h in found.hits} == {
        " ".join(p.split()) for t in TEXTS.values() for p in t.split("\n\n")
    }
    for hit in found.hits:
        cited = hit.citation
        assert opened_text(shelf, hit) == hit.text
        assert TEXTS[str(cited.document_id)][slice(*(cited.characters or ()))] == hit.text
        line = json.loads((shelf / cited.file).read_text().splitlines()[cited.row - 1])
        assert (line["anchor"], line["paragraph"]) == (cited.anchor, cited.paragraph)
        assert (
            cited.address
            == f"kfm://dataset/papers@{cited.version_id}/{cited.document_id}#p{cited.paragraph}"
        )


def test_the_command_of_a_citation_hands_the_file_out(shelf: Path, tmp_path: Path) -> None:
    hit = ask(shelf, "ferryman's boat").hits[0]
    assert main(["-w", str(shelf), *hit.citation.get.split()[1:], "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / Path(hit.citation.file).name).read_bytes() == (
        shelf / hit.citation.file
    ).read_bytes()


def test_words_and_meaning_both_find(shelf: Path) -> None:
    assert ask(shelf, "leaking boats").hits[0].citation.document_id == "letter"
    assert "oxen" in ask(shelf, "grassland livestock journey").hits[0].text, "not a word in common"
    assert ask(shelf, "quantum chromodynamics").hits == (), "nothing alike is nothing found"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_question_is_never_a_query_language(shelf: Path, text: str) -> None:
    found = ask(shelf, text)
    assert len(found.hits) <= 6 and found.searched == ("papers",)
    assert [h.text for h in ask(shelf, text + " ferryman").hits][:1] == [
        TEXTS["letter"].split("\n\n")[0]
    ]


def test_only_the_beginning_of_an_endless_question_counts(shelf: Path) -> None:
    assert ask(shelf, "ferryman " + "x" * 10_000_000).hits[0].citation.document_id == "letter"
    assert ask(shelf, '" ' * 5_000_000).hits == ()
    assert len(question(" ".join(map(str, range(10_000))))) <= 64


def test_a_withdrawn_record_is_gone_at_once_and_stays_gone(
    ws: Path, kfm: Callable[..., Said]
) -> None:
    assert kfm("run", "ks_weather_stations").code == 0
    index(ws, "ks_weather_stations")
    assert "Topeka 1" in ask(ws, "Topeka 1").hits[0].text
    assert (
        kfm(
            "withdraw",
            "--yes",
            "ks_weather_stations",
            "--record",
            "name=Topeka 1",
            "--reason",
            "asked for",
        ).code
        == 0
    )
    found = ask(ws, "Topeka 1", "ks_weather_stations")
    assert found.hits == () and "no index" in found.not_searched[0].reason, (
        "the index of the version before is not asked"
    )
    index(ws, "ks_weather_stations")
    found = ask(ws, "Topeka 1", limit=200)
    assert found.hits and not [h.text for h in found.hits if "Topeka 1 " in h.text]
    left = [
        p
        for p in (ws / "data/work/ks_weather_stations/index").rglob("*")
        if p.is_file() and b"Topeka 1 " in p.read_bytes()
    ]
    assert left == [], "nor does it lie in an index any more"


def test_a_withdrawn_dataset_or_one_without_a_licence_gives_nothing(papers: Path) -> None:
    entry = papers / "data/registry/papers.yml"
    said = entry.read_text()
    entry.write_text(said.replace("CC0-1.0", "NOASSERTION"))
    found = ask(papers, "ferryman")
    assert (found.hits, found.searched, [n.dataset_id for n in found.not_searched]) == (
        (),
        (),
        ["papers"],
    )
    entry.write_text(said)
    assert ask(papers, "ferryman").hits
    assert main(["-w", str(papers), "withdraw", "--yes", "papers", "--reason", "asked for"]) == 0
    assert ask(papers, "ferryman").hits == ()


def test_a_dataset_whose_label_became_stricter_gives_nothing(
    ws: Path, kfm: Callable[..., Said]
) -> None:
    assert kfm("run", "ks_earthquakes").code == 0
    index(ws, "ks_earthquakes")
    assert ask(ws, "Salina").hits
    entry = ws / "data/registry/ks_earthquakes.yml"
    entry.write_text(entry.read_text().replace("policy_label: public", "policy_label: restricted"))
    found = ask(ws, "Salina", "ks_earthquakes")
    assert found.hits == () and len(found.not_searched) == 1
    assert index(ws, "ks_earthquakes").exit_code == 3


def test_after_a_rollback_the_index_of_what_was_left_is_not_asked(papers: Path) -> None:
    publish(papers, {**TEXTS, "letter": "The bridge is finished."})
    index(papers)
    assert ask(papers, "bridge").hits[0].text == "The bridge is finished."
    assert main(["-w", str(papers), "rollback", "papers", "--reason", "wrong letter"]) == 0
    assert ask(papers, "bridge ferryman").hits == ()
    index(papers)
    assert "ferryman" in ask(papers, "bridge ferryman").hits[0].text


def test_an_index_that_is_replaced_while_it_is_asked_is_no_damage(
    papers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*args: Any) -> Any:
        monkeypatch.setattr("kfm.upkeep.search.find", find)
        publish(papers, {**TEXTS, "letter": "The bridge is finished."})
        index(papers)
        return find(*args)

    monkeypatch.setattr("kfm.upkeep.search.find", late)
    assert ask(papers, "bridge").hits[0].text == "The bridge is finished."


def test_an_index_that_is_asked_for_is_said_to_be_coming_only_when_somebody_builds_it(
    tmp_path: Path,
) -> None:
    from kfm.model.job import Request

    workspace, kind = library(tmp_path), "index.build_embeddings"
    build = f"kfm worker run-job {kind} --dataset kfm://dataset/papers"
    none = ask(workspace, "boat").not_searched[0]
    assert "no index" in none.reason and none.next == build
    with open_world(open_workspace(workspace)) as world:
        job = world.store.transaction(
            lambda tx: tx.jobs.submit(Request(job_type=kind, dataset_id="papers"))
        )
        alone = ask(workspace, "boat").not_searched[0]
        assert "no worker runs" in alone.reason and alone.next == build
        token = world.store.transaction(lambda tx: tx.leases.take("worker/me", "me", 60))
        assert "waits" in ask(workspace, "boat").not_searched[0].reason
        assert world.store.transaction(lambda tx: tx.queue.claim_one(token, job.job_id))
        assert ask(workspace, "boat").not_searched[0].reason == "Its index is being built."
        world.store.transaction(
            lambda tx: (tx.queue.release(token, [job]), tx.leases.release(token))
        )
    assert main(["-w", str(workspace), *build.split()[1:]]) == 0, (
        "the command that was named builds it"
    )
    assert ask(workspace, "boat").not_searched == ()


def test_words_alone_still_find_where_there_are_no_vectors(
    shelf: Path,
    without_vectors: None,
) -> None:
    found = ask(shelf, "ferryman's boat")
    assert (found.ranking, found.hits[0].citation.document_id) == ("words", "letter")
    assert "kfm[search]" in found.note
    assert [len(ask(shelf, text).hits) for text in ("zebulon", "millers", "livestock")] == [
        1,
        1,
        0,
    ], "accents and endings do not matter"


def test_an_index_of_words_alone_is_searched_by_words_and_says_so(tmp_path: Path) -> None:
    workspace = library(tmp_path)
    index(workspace, embeddings=False)
    found = ask(workspace, "zebulon")
    assert (len(found.hits), found.ranking) == (1, "words") and "no embeddings" in found.note


def test_a_damaged_index_is_an_integrity_error_that_names_the_job(
    papers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = (papers / "data/work/papers/index").rglob("search.sqlite")
    os.chmod(path, 0o644)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE vectors SET data = substr(data, 2)")
    db.close()
    assert main(["-w", str(papers), "search", "boat"]) == 6
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    assert main(["-w", str(papers), "search", "boat"]) == 6
    assert capsys.readouterr().err.count("index.build_embeddings") == 2


def beside(papers: Path, rows: str) -> None:
    """A second dataset, indexed."""
    (papers / "data/registry/levels.yml").write_text(
        "dataset_id: levels\ntitle: Levels\nlicence: CC0-1.0\nsensitivity: public\npolicy_label: public\n"
        "source: {kind: http_file, format: csv, url: 'file:///inbox/levels.csv'}\nbusiness_key: [site]\ncadence: daily\n"
    )
    (papers / "inbox").mkdir()
    (papers / "inbox/levels.csv").write_text(rows)
    assert main(["-w", str(papers), "run", "levels"]) == 0
    assert index(papers, "levels").status == "succeeded"


def test_a_damaged_index_hides_no_other_and_is_named_with_what_builds_it_anew(
    papers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside(papers, "site\nferry landing\n")
    (path,) = (papers / "data/work/papers/index").rglob("search.sqlite")
    os.chmod(path, 0o644)
    path.write_bytes(path.read_bytes()[:3000])
    found = ask(papers, "ferry")
    assert [h.citation.dataset_id for h in found.hits] == ["levels"] and found.searched == (
        "levels",
    )
    (damaged,) = found.not_searched
    assert (
        damaged.dataset_id == "papers"
        and damaged.next
        == "kfm worker run-job index.build_embeddings --dataset kfm://dataset/papers"
    )
    capsys.readouterr()
    assert main(["-w", str(papers), "search", "ferry"]) == 0
    assert (
        "cannot be read" in (said := capsys.readouterr().err)
        and "worker run-job index.build_embeddings" in said
    )
    assert main(["-w", str(papers), "search", "ferry", "--dataset", "papers"]) == 6, (
        "nothing else was asked"
    )


def test_the_command_prints_passages_with_their_address(
    shelf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    capsys.readouterr()
    assert main(["-w", str(shelf), "search", "who", "wants", "a", "boat?", "--limit", "1"]) == 0
    said = capsys.readouterr()
    assert "ferryman" in said.out and "/letter#p1" in said.out and "get papers@v" in said.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"oxen \xff"), "utf-8"))
    assert main(["-w", str(shelf), "search", "-", "--dataset", "papers", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["query"] == "oxen" and answer["hits"][0]["citation"]["document_id"] == "diary"
    assert main(["-w", str(shelf), "search", "x", "--limit", "0"]) == 2
    assert main(["-w", str(shelf), "search", "x", "--dataset", "paper"]) == 2


def test_of_many_datasets_without_an_index_a_few_are_named_and_those_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    none = [NotSearched(dataset_id=f"d{n}", reason="None yet.", next=f"kfm {n}") for n in range(9)]
    found = Found(query="a boat", ranking="words", searched=(), hits=(), not_searched=tuple(none), note="")  # fmt: skip
    answering(Passages, found, asked=("d7",)).tell(Call(None, False, False))
    said = capsys.readouterr()
    lines = (said.out + said.err).splitlines()
    assert [line[:2] for line in lines[1:-1]] == ["d7", "d0", "d1", "d2"]
    assert lines[-1].startswith("5 more ") and "search 'a boat' --json`" in lines[-1]


def test_the_address_of_a_citation_opens_on_the_whole_passage(
    papers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beside(papers, "site\nferry landing\n")
    hits = ask(papers, "boat oak school oxen flour snow ferry", limit=50).hits
    assert {h.citation.dataset_id for h in hits} == {"papers", "levels"}, "paragraphs and rows"
    for hit in hits:
        capsys.readouterr()
        assert main(["-w", str(papers), "search", hit.citation.address, "--json"]) == 0
        (opened,) = json.loads(capsys.readouterr().out)["hits"]
        assert (opened["text"], opened["citation"]["address"]) == (hit.text, hit.citation.address)
    old = next(h.citation.address for h in hits if h.citation.document_id)
    publish(papers, {**TEXTS, "letter": "The bridge is finished." + " It is long." * 100})
    assert main(["-w", str(papers), "search", old]) == 0, (
        "also when another version is official by now"
    )
    assert main(["-w", str(papers), "search", "kfm://dataset/papers@2/letter#p1"]) == 0
    assert "…" not in capsys.readouterr().out.rpartition("The bridge")[2], "all of it"
    assert main(["-w", str(papers), "search", "kfm://dataset/papers@2/letter#p99"]) == 2
    assert main(["-w", str(papers), "withdraw", "--yes", "papers", "--reason", "asked for"]) == 0
    assert main(["-w", str(papers), "search", old]) == 3


def test_a_row_of_a_table_is_found_and_cited_by_its_place(
    ws: Path, kfm: Callable[..., Said]
) -> None:
    import pyarrow.parquet as pq

    assert kfm("run", "ks_earthquakes").code == 0
    assert index(ws, "ks_earthquakes").status == "succeeded"
    hit = ask(ws, "near Salina", "ks_earthquakes", limit=1).hits[0]
    row = pq.read_table(ws / hit.citation.file).slice(hit.citation.row - 1, 1).to_pylist()[0]
    assert hit.text == " · ".join(v for v in row.values() if isinstance(v, str) and v)
    assert hit.citation.address.endswith(f"ks_earthquakes.parquet#r{hit.citation.row}")


# ---- the recorded treaties -----------------------------------------------------------------------
@pytest.fixture(scope="module")
def treaties(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = tmp_path_factory.mktemp("treaties") / "ws"
    make_workspace(workspace, sample=False)
    registry = Path(__file__).parents[2] / "kansas/data/registry/ks_treaties.yml"
    (workspace / "data/registry/ks_treaties.yml").write_bytes(registry.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        for_recordings(workspace)
        patch.setenv("KFM_REPLAY", str(SHARED / "data"))
        assert main(["-w", str(workspace), "run", "ks_treaties", "--upstream", "replay"]) == 0
    assert index(workspace, "ks_treaties").status == "succeeded"
    return workspace


def plain(workspace: Path) -> Callable[[str], list[tuple[str, int]]]:
    """Full text search as SQLite offers it, over the paragraphs alone."""
    (file,) = (workspace / "data/processed/ks_treaties").rglob("ks_treaties.ndjson")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE t USING fts5 (text, tokenize='porter unicode61')")
    db.executemany(
        "INSERT INTO t (rowid, text) VALUES (?, ?)", [(n, r["text"]) for n, r in enumerate(rows)]
    )

    def best(text: str) -> list[tuple[str, int]]:
        asked = " OR ".join(f'"{w}"' for w in question(text))
        found = [
            n
            for (n,) in db.execute(
                "SELECT rowid FROM t WHERE t MATCH ? ORDER BY rank LIMIT 10", (asked,)
            )
        ]
        return [(rows[n]["document_id"], rows[n]["paragraph"]) for n in found]

    return best


def recall(answers: dict[str, list[tuple[str, int]]], depth: int) -> float:
    wanted = [(p["question"], p["document_id"], p["paragraph"]) for p in PAIRS]
    return sum(
        any(d == doc and number in (None, n) for d, n in answers[q][:depth])
        for q, doc, number in wanted
    ) / len(wanted)


@pytest.mark.needs_shared
@pytest.mark.skipif(
    not SHARED.exists(), reason="not run: the recordings are not beside this repository"
)
def test_forty_questions_find_their_paragraphs_better_than_by_words_alone(treaties: Path) -> None:
    assert len(PAIRS) == 40 and len({p["kind"] for p in PAIRS}) == 7
    words, hybrid, by_words = plain(treaties), {}, {}
    with open_world(open_workspace(treaties)) as world:
        for text in (p["question"] for p in PAIRS):
            hits = search(world, text, ["ks_treaties"]).hits
            assert all(opened_text(treaties, h) == h.text for h in hits)
            hybrid[text] = [
                (str(h.citation.document_id), int(h.citation.paragraph or 0)) for h in hits
            ]
            by_words[text] = words(text)
    assert recall(hybrid, 10) >= max(0.9, recall(by_words, 10))
    for depth in (1, 5):
        assert recall(hybrid, depth) >= recall(by_words, depth)
