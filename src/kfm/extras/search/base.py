"""One SQLite file that finds the passages of one version: full text by words, embeddings by
meaning.

A passage scores half by BM25 over its text and, for half as much, the titles and headings it stands
under, half by the likeness of its embedding to the question's; each is divided by the best of its
kind, so that neither drowns the other. How rare a word is, is told over all indexes that are asked:
in an index of two rows no word is rare. A question is never a query language: its words are looked
for, any of them may be missing.
"""

import json
import math
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from kfm.extras.search.embed import Embedder, embedder
from kfm.extras.search.passages import Passage, passages
from kfm.model import IntegrityError, MissingExtra

__all__ = [
    "FORMAT",
    "DamagedIndex",
    "Passage",
    "Scored",
    "build",
    "find",
    "model",
    "passages",
    "question",
]

FORMAT = 1
_BATCH = 1024  # passages in one block of vectors
_BEST = 200  # passages of each kind that are weighed against each other
# a passage without a word of the question is at least this like it; unrelated ones are less
_ALIKE = 0.2
_LONGEST, _MOST_WORDS = 2000, 64  # characters and words of a question that count
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE passages (id INTEGER PRIMARY KEY, text TEXT, context TEXT, file TEXT, place INTEGER, first INTEGER, last INTEGER, about TEXT);
CREATE TABLE vectors (block INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE VIRTUAL TABLE words USING fts5 (text, context, content='passages', content_rowid='id', tokenize='porter unicode61 remove_diacritics 2');
"""
_BY_WORD = "SELECT rowid, -bm25(words, 1.0, 0.5) * ? FROM words WHERE words MATCH ?"
_BY_WORDS = (
    "WITH found (id, score) AS MATERIALIZED ({}) SELECT id, sum(score) AS score FROM found GROUP BY"
    " id ORDER BY score DESC, id LIMIT ?"
)


class Scored(NamedTuple):
    """A passage that was found, and the index it was found in."""

    score: float
    file: Path
    passage: Passage


class _Held(NamedTuple):
    """How many passages there are, and how many with each word."""

    passages: int
    with_word: Mapping[str, int]

    def rarity(self, word: str) -> float:
        """The inverse document frequency as FTS5 reckons it."""
        number = self.with_word[word]
        return max(math.log((self.passages - number + 0.5) / (number + 0.5)), 1e-6)


class DamagedIndex(IntegrityError):
    """One index cannot be read; others may."""

    def __init__(self, path: Path, error: Exception) -> None:
        super().__init__(
            f"The search index {path.parent.name}/{path.name} cannot be read: {error}.",
            expected="the index as it was written",
            remedy="Run the job index.build_embeddings of that dataset again: it makes another.",
        )
        self.path = path


def model() -> str:
    """The model embeddings are made with here; raises `MissingExtra` where it is not installed."""
    return embedder().model


def build(found: Iterable[Passage], path: Path, *, embeddings: bool = True) -> int:
    """Write the index of `found` to the new file `path`: the same passages make the same bytes.
    Returns how many there were.
    """
    meaning = embedder() if embeddings else None
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(
            "PRAGMA page_size=8192; PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + _SCHEMA
        )
        db.execute("BEGIN")
        total = 0
        for block, some in enumerate(_blocks(found)):
            rows = [(total + n, p.text, p.context) for n, p in enumerate(some, 1)]
            places = [
                (
                    p.file,
                    p.row,
                    *(p.span or (None, None)),
                    json.dumps(dict(p.about), ensure_ascii=False),
                )
                for p in some
            ]
            db.executemany(
                "INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [a + b for a, b in zip(rows, places, strict=True)],
            )
            db.executemany("INSERT INTO words (rowid, text, context) VALUES (?, ?, ?)", rows)
            if meaning is not None:
                data = meaning.embed([p.text for p in some], [p.context for p in some]).tobytes()
                db.execute("INSERT INTO vectors VALUES (?, ?)", (block, data))
            total += len(some)
        meta = {
            "format": str(FORMAT),
            "model": meaning.model if meaning is not None else "",
            "passages": str(total),
        }
        db.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
        db.execute("INSERT INTO words (words) VALUES ('optimize')")
        db.execute("COMMIT")
        db.execute("VACUUM")
    return total


def _blocks(found: Iterable[Passage]) -> Iterator[list[Passage]]:
    left = iter(found)
    while some := list(islice(left, _BATCH)):
        yield some


def question(text: str) -> list[str]:
    """The words of a question, whatever else it holds: no more than anybody asks in earnest."""
    return list(dict.fromkeys(re.findall(r"[^\W_]+", text[:_LONGEST].lower())))[:_MOST_WORDS]


def find(indexes: Sequence[Path], text: str, limit: int) -> tuple[list[Scored], str]:
    """The best passages of all `indexes` together, and a note when they were found by words only;
    raises `DamagedIndex` for the first.
    """
    words, note = question(text), ""
    if not words or limit < 1:
        return [], note
    meaning: Embedder | None = None
    try:
        meaning = embedder()
    except MissingExtra as error:
        note = f"Found by words only: {error.remedy.split(',')[0]}."
    held = {path: _held(path, words) for path in indexes}
    everywhere = _Held(
        sum(h.passages for h in held.values()),
        {w: sum(h.with_word[w] for h in held.values()) for w in words},
    )
    candidates: list[tuple[float, float, int, Path]] = []  # by words, by meaning, passage, index
    for path in indexes:
        with _reading(path) as db:
            alike = _alike(db, meaning, " ".join(words)) if meaning is not None else None
            candidates += [
                (*scores, path) for scores in _candidates(db, held[path], everywhere, alike)
            ]
        if meaning is not None and alike is None:
            note = (
                "Found by words only in part: an index holds no embeddings of this model; build it"
                " again."
            )
    by_words = max((c[0] for c in candidates), default=0.0) or 1.0
    by_meaning = max((c[1] for c in candidates), default=0.0) or 1.0
    ranked = sorted((-(w / by_words + m / by_meaning) / 2, path, n) for w, m, n, path in candidates)
    return [
        Scored(round(-score, 4), path, _passage(path, n)) for score, path, n in ranked[:limit]
    ], note


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """An index, opened; whatever is odd in it is damage."""
    try:
        with closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        ) as db:
            yield db
    except (sqlite3.DatabaseError, ValueError, TypeError, LookupError) as error:
        raise DamagedIndex(path, error) from error


def _alike(db: sqlite3.Connection, meaning: Embedder, text: str) -> Any:
    """The likeness of every passage to the question; None when the index was made with other
    vectors.
    """
    import numpy as np

    made_with = db.execute("SELECT value FROM meta WHERE name = 'model'").fetchone()
    if made_with is None or made_with[0] != meaning.model:
        return None
    asked = meaning.embed([text])[0].astype(np.float32) / (127 * 127)
    blocks = (
        np.frombuffer(data, np.int8).reshape(-1, meaning.size)
        for (data,) in db.execute("SELECT data FROM vectors ORDER BY block")
    )
    return np.concatenate(
        [np.zeros(0, np.float32), *(b.astype(np.float32) @ asked for b in blocks)]
    )


def _held(path: Path, words: Sequence[str]) -> _Held:
    with _reading(path) as db:
        (total,) = db.execute("SELECT value FROM meta WHERE name = 'passages'").fetchone()
        return _Held(
            int(total),
            {
                w: (
                    db.execute(
                        "SELECT count(*) FROM words WHERE words MATCH ?", (f'"{w}"',)
                    ).fetchone()[0]
                )
                for w in words
            },
        )


def _by_words(db: sqlite3.Connection, held: _Held, everywhere: _Held) -> dict[int, float]:
    """BM25 of the best passages, with each word weighed as everywhere and not as in this index
    alone.
    """
    weights = {
        w: everywhere.rarity(w) / held.rarity(w) for w, number in held.with_word.items() if number
    }
    if not weights:
        return {}
    asked = [part for w, weight in weights.items() for part in (weight, f'"{w}"')]
    return dict(
        db.execute(
            _BY_WORDS.format(" UNION ALL ".join([_BY_WORD] * len(weights))), (*asked, _BEST)
        ).fetchall()
    )


def _candidates(
    db: sqlite3.Connection, held: _Held, everywhere: _Held, alike: Any
) -> Iterator[tuple[float, float, int]]:
    """The best by words and the best by meaning, each with both scores."""
    lexical = _by_words(db, held, everywhere)
    chosen = dict.fromkeys(lexical)
    if alike is not None and len(alike):
        order = alike.argsort(kind="stable")[::-1][:_BEST]
        chosen |= dict.fromkeys(int(n) + 1 for n in order)
    for n in chosen:
        likeness = float(alike[n - 1]) if alike is not None else 0.0
        if n in lexical or likeness >= _ALIKE:
            yield max(lexical.get(n, 0.0), 0.0), max(likeness, 0.0), n


def _passage(path: Path, number: int) -> Passage:
    with _reading(path) as db:
        text, context, file, row, first, last, about = db.execute(
            "SELECT text, context, file, place, first, last, about FROM passages WHERE id = ?",
            (number,),
        ).fetchone()
        return Passage(
            text, context, file, row, None if first is None else (first, last), json.loads(about)
        )
