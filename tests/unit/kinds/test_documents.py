"""Documents: paragraphs that can be cited and found again."""

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from tests.given.verbs import SHARED

from kfm.connectors.base import CaptureRefused, InputFile, Refused, TransformResult
from kfm.connectors.child.process import run_inline
from kfm.connectors.operations import Read
from kfm.kinds import documents
from kfm.samples import kansas as sample_kansas
from kfm.workspace.config import parse

REGISTERED = Path(__file__).parents[3] / "kansas" / "data" / "registry" / "ks_treaties.yml"
HISTORY = SHARED / "data" / "history"
recorded = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not HISTORY.exists(), reason="not run: the recordings are not beside this repository"
    ),
]


def job(*files: Path, encoding: str | None = None, **options: Any) -> Read:
    inputs = tuple(InputFile(source_id=f.stem, path=str(f), digest="") for f in files)
    return Read(
        dataset_id="treaties",
        source_kind="documents",
        format="txt",
        inputs=inputs,
        options=options,
        encoding=encoding,
        artifact="x.parquet",
    )


def made(tmp_path: Path, raw: bytes, **options: Any) -> list[dict[str, Any]]:
    file = tmp_path / "V0206.txt"
    file.write_bytes(raw)
    return table(tmp_path, job(file, **options))[0]


def table(tmp_path: Path, asked: Read) -> tuple[list[dict[str, Any]], TransformResult]:
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    result = run_inline(asked, scratch)
    return pq.read_table(scratch / "x.parquet").to_pylist(), result


TREATY = "Articles of a treaty,\tmade  at\nFort Leavenworth.\n\nARTICLE 1.\n \t\nThe said  tribes\u2014thereuhto\n\n\n\nArticle 2nd.\n\nPeace.\r"


def test_paragraphs_lie_between_blank_lines_and_stand_under_their_heading(tmp_path):
    rows = made(tmp_path, TREATY.encode())
    assert [(r["paragraph"], r["heading"], r["text"], r["words"]) for r in rows] == [
        (1, None, "Articles of a treaty, made at Fort Leavenworth.", 8),
        (2, "ARTICLE 1.", "ARTICLE 1.", 2),
        (3, "ARTICLE 1.", "The said tribes\u2014thereuhto", 3),
        (4, "Article 2nd.", "Article 2nd.", 2),
        (5, "Article 2nd.", "Peace.", 1),
    ]
    assert (
        TREATY[rows[0]["char_start"] : rows[0]["char_end"]]
        == "Articles of a treaty,\tmade  at\nFort Leavenworth."
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("encoding", "mark"), [(None, b""), (None, b"\xef\xbb\xbf"), ("utf-16", b"")]
)
def test_marks_encodings_and_line_ends_change_no_anchor(tmp_path, end, encoding, mark):
    text = TREATY.rstrip("\r").replace("\n", end)
    rows = made(tmp_path, mark + text.encode(encoding or "utf-8"), encoding=encoding)
    plain = made(tmp_path, TREATY.encode())
    assert [r["anchor"] for r in rows] == [r["anchor"] for r in plain]
    assert [" ".join(text[r["char_start"] : r["char_end"]].split()) for r in rows] == [
        r["text"] for r in plain
    ]


def test_the_anchor_names_the_words(tmp_path):
    before = made(tmp_path, b"One.\n\nTwo.\n\nThree.")
    after = made(tmp_path, b"One.\n\nTwo, corrected.\n\nThree.")
    assert before[0]["anchor"] == "V0206#p1-" + hashlib.sha256(b"One.").hexdigest()[:8]
    assert [a["anchor"] == b["anchor"] for a, b in zip(before, after)] == [True, False, True]


def test_a_text_without_blank_lines_is_taken_line_by_line(tmp_path):
    rows = made(
        tmp_path, b"CO BIG HARBOR TIEUP-\n  RBI TRA TION\t'ACCEPTED.\nWill Lay Off 150 Craft.\n\n"
    )
    assert [r["text"] for r in rows] == [
        "CO BIG HARBOR TIEUP-",
        "RBI TRA TION 'ACCEPTED.",
        "Will Lay Off 150 Craft.",
    ]
    assert [r["char_start"] for r in rows] == [0, 23, 47]


def test_what_the_registry_knows_of_a_document_stands_beside_it(tmp_path):
    about = {
        "id": "T-206",
        "title": "Treaty with the Iowa",
        "date": "1836-09-17",
        "nations": "Iowa; Sauk",
        "place": "Fort Leavenworth",
    }
    rows = made(tmp_path, b"One.\n\nTwo.", documents={"V0206": about, "other": {"title": "x"}})
    assert {
        (r["document_id"], r["title"], str(r["date"]), r["nations"], r["url"]) for r in rows
    } == {("T-206", "Treaty with the Iowa", "1836-09-17", "Iowa; Sauk", None)}
    assert rows[1]["anchor"].startswith("T-206#p2-")


@pytest.mark.parametrize(
    "wrong",
    [
        {"documents": {"V0206": {"date": "9-17-1836"}}},
        {"documents": {"V0206": {"author": "x"}}},
        {"titles": {}},
    ],
)
def test_options_that_are_none_are_refused(tmp_path, wrong):
    with pytest.raises(Refused) as refused:
        documents.readers(job(tmp_path / "V0206.txt", **wrong))
    assert refused.value.refusal.code == "options"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\n <!DOCTYPE html><title>404</title>", "html"),
        (b"One.\n\nTw\0o.", "encoding"),
        (b"\x89PNG\r\n\x1a\n", "encoding"),
        (b"%PDF-1.7", "format"),
        (b"", "empty"),
        (b"\xef\xbb\xbf \n\t\n", "empty"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, raw, code):
    with pytest.raises(CaptureRefused) as refused:
        made(tmp_path, raw)
    assert refused.value.code == code


def test_one_blank_document_among_others_is_refused_too(tmp_path):
    for name, raw in {"a": b"One.", "b": b" \n\n "}.items():
        (tmp_path / f"{name}.txt").write_bytes(raw)
    with pytest.raises(CaptureRefused, match="b holds nothing") as refused:
        table(tmp_path, job(tmp_path / "a.txt", tmp_path / "b.txt"))
    assert refused.value.code == "empty"


def test_a_text_too_long_to_be_one_document_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "_LARGEST", 10)
    assert len(made(tmp_path, b"0123456789")) == 1
    with pytest.raises(CaptureRefused) as refused:
        made(tmp_path, b"01234567890")
    assert refused.value.code == "document.size"


PAGE = b"""<!DOCTYPE HTML PUBLIC "-//W3C//DTD HTML 4.0//EN">
<html><head><meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1">
<title>INDIAN AFFAIRS</title><style>p { color: red }</style>
<body onload="x()"><!-- <p>not shown</p> --><script>if (a < b) { document.write("<p>nor this</p>") }</script>
<h2>Articles of a&nbsp;treaty,
made  at</h2><table><tr><td>Fort Leavenworth.<td>Sept. 17</tr></table>
<P>ARTICLE <B>1</B>.
<p>The said

tribes\x97there<i>uhto</i> &amp; &#147;forever&#148; 1 < 2<br>in peace.</div><![if !IE]>
Signed,<BR><BR>Notchininga<pre>No  Heart,
  x</pre></body></html>"""


def test_a_web_page_is_read_where_the_registry_says_so(tmp_path):
    rows = made(tmp_path, PAGE, html=True, min_words=20)
    assert [(r["heading"], r["text"]) for r in rows] == [
        (None, "Articles of a treaty, made at"),
        (None, "Fort Leavenworth."),
        (None, "Sept. 17"),
        ("ARTICLE 1.", "ARTICLE 1."),
        ("ARTICLE 1.", "The said tribes\u2014thereuhto & \u201cforever\u201d 1 < 2 in peace."),
        ("ARTICLE 1.", "Signed,"),
        ("ARTICLE 1.", "Notchininga"),
        ("ARTICLE 1.", "No Heart, x"),
    ]
    text = documents._Text.of(documents._HIDDEN.sub("", PAGE.decode("cp1252"))).text
    assert [" ".join(text[r["char_start"] : r["char_end"]].split()) for r in rows] == [
        r["text"] for r in rows
    ]
    plain = "\n\n".join(r["text"] for r in rows)
    assert [r["anchor"] for r in made(tmp_path, plain.encode(), html=True)] == [
        r["anchor"] for r in rows
    ], "plain text is read as well"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(
            PAGE.replace(b"iso-8859-1", b"utf-8"), "encoding", id="not the encoding it states"
        ),
        pytest.param(
            PAGE.replace(b"iso-8859-1", b"utf-7"), "encoding", id="an encoding nobody needs"
        ),
        pytest.param(PAGE.replace(b"No  Heart", b"No\0Heart"), "encoding", id="a NUL"),
        pytest.param(PAGE[:-4], "document.html", id="cut off in a tag"),
        pytest.param(PAGE[: PAGE.index(b"not shown")], "document.html", id="cut off in a comment"),
        pytest.param(
            b"<html><title>404</title><body><h1>Not found</h1>" + b"<p></p>" * 50,
            "document.short",
            id="an error message",
        ),
        pytest.param(
            b"<!doctype html><html><script>" + b"word " * 100 + b"</script>",
            "document.short",
            id="no paragraph",
        ),
        pytest.param(PAGE + b" " * (8 << 20), "document.size", id="too long"),
        pytest.param(
            b"<?xml version='1.0'?><rss>" + b"word " * 100, "format", id="XML that is no page"
        ),
    ],
)
def test_a_web_page_that_is_no_document_is_refused(tmp_path, raw, code):
    with pytest.raises(CaptureRefused) as refused:
        made(tmp_path, raw, html=True, min_words=20)
    assert refused.value.code == code


def test_a_web_page_is_refused_where_the_registry_does_not_expect_one(tmp_path):
    with pytest.raises(CaptureRefused) as refused:
        made(tmp_path, PAGE, min_words=20)
    assert refused.value.code == "html"


@pytest.mark.parametrize("form", ["text", "page"])
def test_the_registered_treaties_read_as_text_and_as_pages_and_say_what_they_are(tmp_path, form):
    source = parse(REGISTERED.read_bytes(), REGISTERED.name)["source"]
    names = [Path(url).stem for url in (source["url"], *source["urls"])]
    assert list(source["options"]["documents"]) == names and len(names) == 16
    for name in names:
        paragraphs = (
            sample_kansas.answer(
                "digital.library.okstate.edu", f"/kappler/Vol2/treaties/{name}.htm", ""
            )[2].decode()
            * 2
        )
        page = f"<html><body>{'<p>'.join(paragraphs.split(chr(10)))}</body></html>"
        (tmp_path / f"{name}.txt").write_text(page if form == "page" else paragraphs)
    rows, _ = table(tmp_path, job(*(tmp_path / f"{n}.txt" for n in names), **source["options"]))
    told = {
        r["document_id"]: (r["title"], str(r["date"]), r["nations"], r["place"], r["url"])
        for r in rows
    }
    assert list(told) == names and all(None not in t for t in told.values())
    assert [t[4] for t in told.values()] == [source["url"], *source["urls"]]
    assert all(t[1][:4] == t[0][-4:] for t in told.values()), (
        "the year of a title is that of its date"
    )


class TestRecordings:
    pytestmark = recorded

    def test_what_is_registered_of_the_treaties_is_what_their_index_says(self):
        about = parse(REGISTERED.read_bytes(), REGISTERED.name)["source"]["options"]["documents"]
        with (HISTORY / "treaties" / "UniverseCases.csv").open(
            encoding="utf-8", errors="replace", newline=""
        ) as file:
            listed = {r["URL"]: r for r in csv.DictReader(file)}
        for name, said in about.items():
            row = listed[said["url"]]
            month, day, year = row["Date"].split("-")
            nations = [
                v.strip() for k, v in row.items() if k.startswith("Nation") and v and v.strip()
            ]
            assert (said["date"], said["place"]) == (f"{year}-{month}-{day}", row["Place"]), name
            assert said["nations"].split("; ") == nations, name

    def test_every_paragraph_of_every_treaty_can_be_found(self, tmp_path):
        files = sorted((HISTORY / "treaties" / "text").glob("*.txt"))
        rows, result = table(tmp_path, job(*files))
        assert (len(files), result.books.read, len({r["anchor"] for r in rows})) == (26, 628, 628)
        for file in files:
            with file.open(encoding="utf-8-sig", newline="") as opened:
                text = opened.read()
            mine = [r for r in rows if r["document_id"] == file.stem]
            assert [" ".join(text[r["char_start"] : r["char_end"]].split()) for r in mine] == [
                r["text"] for r in mine
            ]
            # nothing lost, nothing twice
            assert " ".join(r["text"] for r in mine).split() == text.split()
            assert sum(r["words"] for r in mine) == len(text.split())
        leavenworth = [r for r in rows if r["document_id"] == "V0206"]
        assert (leavenworth[1]["heading"], leavenworth[1]["text"]) == ("ARTICLE 1.", "ARTICLE 1.")

    def test_newspaper_ocr_has_no_blank_lines_and_gives_its_lines(self, tmp_path):
        file = HISTORY / "chronam-ocr-sample.txt"
        rows, _ = table(tmp_path, job(file))
        lines = [
            " ".join(line.split()) for line in file.read_text("utf-8").split("\n") if line.strip()
        ]
        assert [r["text"] for r in rows] == lines
        assert len(lines) == 693


def test_the_paragraphs_are_also_there_line_by_line(tmp_path):
    file = tmp_path / "V0206.txt"
    file.write_text(TREATY)
    rows, result = table(tmp_path, job(file))
    lines = [
        json.loads(line) for line in (tmp_path / "scratch" / "x.ndjson").read_text().splitlines()
    ]
    assert result.files == ("x.ndjson",)
    assert [(n["anchor"], n["text"]) for n in lines] == [(r["anchor"], r["text"]) for r in rows]


def page(words: int, inside: str = "") -> bytes:
    text = " ".join(f"word{n}" for n in range(words))
    return f"<!doctype html><html><head><title>T</title></head><body>{inside}<p>{text}</p></body></html>".encode()


@pytest.mark.parametrize(
    ("words", "inside", "code"),
    [
        (60, "<form action=/login><input type=password name=p></form>", "document.form"),
        (300, "<FORM><INPUT TYPE=' Password '></FORM>", "document.form"),
        (60, "<form action=/consent><button></button></form>", "document.form"),
        (60, "", ""),
        # the text of a page that also lets people log in
        (1200, "<form><input type=password></form>", ""),
        (300, "<form><input type=search></form>", ""),
    ],
)
def test_a_page_that_is_a_form_is_no_document(tmp_path, words, inside, code):
    if not code:
        assert made(tmp_path, page(words, inside), html=True)
        return
    with pytest.raises(CaptureRefused) as refused:
        made(tmp_path, page(words, inside), html=True)
    assert refused.value.code == code and f"with {words} words" in refused.value.happened


@pytest.mark.parametrize(
    ("known", "words", "refused"),
    [(400, 190, True), (400, 210, False), (90, 10, False), (0, 10, False)],
)
def test_a_document_that_loses_more_than_half_of_its_words_is_refused(
    tmp_path, known, words, refused
):
    file = tmp_path / "V0206.txt"
    file.write_text(" ".join(["word"] * words))
    asked = msgspec.structs.replace(job(file), known_words={"V0206": known})
    if not refused:
        assert table(tmp_path, asked)[1].books.written == 1
        return
    with pytest.raises(
        CaptureRefused, match=f"{words} words, and {known} in the official version"
    ) as told:
        table(tmp_path, asked)
    assert told.value.code == "document.shrunk"
