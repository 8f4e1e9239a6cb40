"""What a search answers, and what is written beside an index."""

import msgspec

__all__ = ["Citation", "Found", "Hit", "IndexNote", "NotSearched"]


class Citation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a passage stands, for ever: a version never changes."""

    dataset_id: str
    version_id: str
    address: str  # kfm://dataset/<id>@<version>/<document>#p<paragraph>, or …/<artifact>#r<row>
    file: str  # of the version, below the workspace
    row: int  # line of an NDJSON file, row of a table; counted from 1
    get: str  # the command that hands the file out, checked
    receipt: str = ""  # of the run that made the version, below the workspace
    # of the file: the passage as a JSON string without its quotes; the end is not part of it
    bytes: tuple[int, int] | None = None
    document_id: str | None = None
    paragraph: int | None = None
    anchor: str | None = None
    heading: str | None = None
    title: str | None = None
    characters: tuple[int, int] | None = None  # of the document as it was captured


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One passage; scores compare within one answer only."""

    score: float
    text: str
    citation: Citation


class NotSearched(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset that gave nothing, and why."""

    dataset_id: str
    reason: str
    next: str | None = None
    denied: bool = False  # it may not be read


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """`kfm search --json`."""

    query: str  # the words that were looked for
    ranking: str  # hybrid, or words
    searched: tuple[str, ...]
    hits: tuple[Hit, ...]
    not_searched: tuple[NotSearched, ...] = ()
    note: str = ""


class IndexNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`work/<id>/index/<version_id>/search.json`: the index beside it, as it was made."""

    digest: str
    passages: int
    model: str  # of the embeddings; empty: words only
    format: int
