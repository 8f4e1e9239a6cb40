"""What can be asked of the child: one struct for each operation, with what it may depend on.

The same operation over the same bytes gives the same artifact, byte for byte. They are told over a
pipe and stored nowhere.
"""

from typing import Annotated, Literal

import msgspec

from kfm.connectors.base import RECORD_BYTES, InputFile
from kfm.model import Column, Json, Location, Packed, Release

__all__ = [
    "Acquire",
    "Catalogue",
    "Chain",
    "Collect",
    "Discover",
    "Govern",
    "Join",
    "Measure",
    "Merge",
    "Operation",
    "Read",
    "Recheck",
    "Search",
    "Trace",
    "TransformJob",
    "Try",
    "Twin",
    "code_of",
]

Conflicts = Literal["refuse", "quarantine", "newest"]


class Operation(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    tag=lambda name: name.lower(),
):
    """What every operation has."""

    dataset_id: str
    inputs: tuple[InputFile, ...] = ()
    artifact: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]

    @property
    def kind(self) -> str:
        """Its name, as people are told it."""
        return str(self.__struct_config__.tag)


class Acquire(Operation, frozen=True, kw_only=True):
    """Ask for the files of a capture; there are no inputs yet."""

    source_kind: str = "http_file"  # which module of `kinds` asks for them
    options: Json = {}  # of that kind, as registered
    urls: tuple[str, ...] = ()  # the registered addresses, filled for this window
    known_token: str | None = None  # the change token of the official version
    format: str
    records: str | None = None  # where they are in a JSON document
    since: str | None = None  # RFC 3339, inclusive
    until: str | None = None  # RFC 3339, exclusive
    conflicts: Conflicts = "refuse"
    connector: str | None = None  # a workspace's connector.py


class Discover(Operation, frozen=True, kw_only=True):
    """Let a connector say what its source can."""

    since: str | None = None
    until: str | None = None
    connector: str | None = None


class Catalogue(Operation, frozen=True, kw_only=True):
    """Read what a catalogue offers."""

    url: str
    form: str  # stac, dcat or arcgis


class Read(Operation, frozen=True, kw_only=True, tag="transform"):
    """Make a table of captured files: read, type and judge each record."""

    source_kind: str = "http_file"  # which module of `kinds` reads the inputs
    options: Json = {}  # of that kind, as registered
    # a ring of longitude and latitude: rows outside are dropped by rule
    area: tuple[tuple[float, float], ...] = ()
    # west, south, east, north of where records may lie
    extent: tuple[float, float, float, float] | None = None
    # When the capture was made, as its run recorded it: the same on every resume and rebuild, and
    # part of no hash. What a record says of a
    # later time cannot be true. None: nobody recorded it.
    captured_at: str | None = None
    mapping: Json = {}  # delimited: mapping.yml
    format: str
    packed: Packed | None = None  # what the inputs are packed in
    encoding: str | None = None  # None: a UTF-8 byte order mark or plain UTF-8
    # JSON: dotted path to the array; "." = every top-level value is a record
    records: str | None = None
    schema: tuple[Column, ...] = ()  # empty: inferred from the data
    # of the official version: what is inferred keeps their types where the data allows it
    known: tuple[Column, ...] = ()
    known_words: dict[str, int] = {}  # documents: how many words each has in the official version
    max_record_bytes: Annotated[int, msgspec.Meta(ge=1024)] = RECORD_BYTES
    business_key: tuple[str, ...] = ()
    time_column: str | None = None
    may_be_empty: bool = False  # the registry expects that there may be nothing
    since: str | None = None  # RFC 3339, inclusive
    until: str | None = None  # RFC 3339, exclusive
    max_quarantined: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.01
    # (source id, line): nothing but these records is read; empty: all
    only: tuple[tuple[str, int], ...] = ()
    # digest of a record that would be set aside -> column -> the text that is right
    fixes: dict[str, dict[str, str | None]] = {}
    connector: str | None = None  # a workspace's connector.py
    conflicts: Conflicts = "refuse"  # records that share a key and differ


class Try(Read, frozen=True, kw_only=True, tag="try"):
    """The same over the first records alone, telling what they were before and after."""

    rows: int = 10  # of each to tell


class Trace(Read, frozen=True, kw_only=True, tag="trace"):
    """Where in the captured files a key stands; nothing is made."""

    wanted: tuple[Column, ...]  # the columns of the key
    texts: tuple[str, ...]  # what each of them holds


class Join(Operation, frozen=True, kw_only=True):
    """Two tables or more become one, by the columns `on` that they share."""

    schema: tuple[Column, ...] = ()
    business_key: tuple[str, ...] = ()
    on: tuple[str, ...] = ()


class Recheck(Operation, frozen=True, kw_only=True):
    """Write the one input again, a table that connector code had a hand in."""

    schema: tuple[Column, ...] = ()
    business_key: tuple[str, ...] = ()


class Merge(Operation, frozen=True, kw_only=True):
    """The rows of a part into those of a base; these two are the inputs."""

    source_kind: str = "http_file"  # whose columns tell what became of a row
    schema: tuple[Column, ...] = ()
    business_key: tuple[str, ...] = ()
    time_column: str | None = None
    since: str | None = None  # RFC 3339, inclusive
    until: str | None = None  # RFC 3339, exclusive
    windows: tuple[tuple[str, str], ...] = ()  # of many parts that were collected into one
    # the first and last time that the source says it answered for
    answered: tuple[str, str] | None = None
    # records of the part were set aside, so one that is not there may still be upstream
    incomplete: bool = False
    # the source says that its answer is newer than the official one, so that whatever it holds is
    # its last word
    newer: bool = False
    # other windows have become official since this one was asked for
    overtaken: bool = False
    captured_at: str | None = None  # as in `Read`
    # what a row leaves behind, by column: aliases, state, into, time, revision
    tombstones: dict[str, str] = {}


class Collect(Operation, frozen=True, kw_only=True):
    """Many parts in their order, after a base or none."""

    source_kind: str = "http_file"
    schema: tuple[Column, ...] = ()
    business_key: tuple[str, ...] = ()
    time_column: str | None = None
    # of each part; ("", "") where what it lacks may still be upstream
    windows: tuple[tuple[str, str], ...] = ()


class Measure(Operation, frozen=True, kw_only=True):
    """How much tables differ: base and candidate of each in turn."""

    source_kind: str = "http_file"
    business_key: tuple[str, ...] = ()


class Govern(Operation, frozen=True, kw_only=True):
    """One table, released by rule; then what explained its public rows before, and what explains
    those of a neighbour, if anything does.
    """

    schema: tuple[Column, ...] = ()
    business_key: tuple[str, ...] = ()
    location: Location | None = None
    release: Release | None = None
    # {"records": {column: value, ...}} or {"area": [w, s, e, n]}
    suppress: tuple[Json, ...] = ()


class Twin(Operation, frozen=True, kw_only=True):
    """Captured files, changed where nothing public may depend on them."""

    format: str
    packed: Packed | None = None  # what the inputs are packed in; the twins are not
    encoding: str | None = None
    records: str | None = None
    schema: tuple[Column, ...] = ()
    known: tuple[Column, ...] = ()  # of the records
    business_key: tuple[str, ...] = ()
    time_column: str | None = None
    since: str | None = None
    until: str | None = None
    location: Location | None = None
    release: Release | None = None
    suppress: tuple[Json, ...] = ()
    seed: int = 0
    neighbour: Literal[-1, 0, 1] = 0  # one record less, or one more


class Search(Operation, frozen=True, kw_only=True):
    """Tables with everything in them, then public files: what gives something away?"""

    schema: tuple[Column, ...] = ()
    business_key: tuple[str, ...] = ()
    on: tuple[str, ...] = ()
    location: Location | None = None
    release: Release
    registered: str = ""  # a person wrote it for everybody to read
    despite: tuple[tuple[str, str], ...] = ()  # (column, what): a steward shows it all the same
    releases: dict[str, Release | None] = {}  # of the tables that were joined


class Chain(Operation, frozen=True, kw_only=True):
    """Step after step, each on what the one before made; no connector code among them."""

    steps: tuple[Twin | Read | Govern, ...]


TransformJob = (
    Acquire
    | Discover
    | Catalogue
    | Read
    | Try
    | Trace
    | Join
    | Recheck
    | Merge
    | Collect
    | Measure
    | Govern
    | Twin
    | Search
    | Chain
)


def code_of(job: TransformJob) -> str | None:
    """The connector code that an operation runs."""
    return job.connector if isinstance(job, Read | Acquire | Discover) else None
