"""Everything a connector is written with; nothing else of kfm is needed, and nothing heavy loaded.

    from kfm.connect import Ask, Context, Row, column, source

    wells = source("my_wells", columns=[column("well_id", key=True), column("depth_ft", float)])

    @wells.acquire
    def pages(ask: Ask) -> None:
        ask.pages(next="next")

    @wells.transform
    def tidy(ctx: Context, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            yield {"well_id": row["API"], "depth_ft": row["Depth"]}

`docs/connectors.md` tells it step by step. What `source` is given is read from the text, before
anything of it is run: write it out, without conditions.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, Protocol, TypeVar, get_args
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit, urlunsplit

import msgspec

__all__ = [
    "Ask",
    "Auth",
    "Context",
    "Field",
    "File",
    "NotFetched",
    "Refused",
    "Row",
    "Source",
    "basic",
    "bearer",
    "column",
    "header",
    "query",
    "source",
]

Row = dict[str, Any]  # one record: column -> value
ColumnType = Literal[
    "string", "integer", "number", "boolean", "timestamp", "date", "geometry", "json"
]
Hook = TypeVar("Hook", bound=Callable[..., object])
_TYPES: dict[str, ColumnType] = {  # what Python calls it -> what a table does
    "str": "string",
    "int": "integer",
    "float": "number",
    "Decimal": "number",
    "bool": "boolean",
    "datetime": "timestamp",
    "date": "date",
    "dict": "json",
    "list": "json",
}
_MOST_PAGES = 10_000
_MOST_REASONS = 50  # a reason is a rule; who needs more writes values of rows into it
_SECRET = ("credential:", "env:")
_GZIP = b"\x1f\x8b"


class Refused(Exception):
    """Raise it where the whole capture cannot be taken: nothing is published, the bytes are kept,
    the last good version stays official.
    """

    def __init__(
        self,
        happened: str,
        *,
        expected: str = "a capture that the connector can take",
        remedy: str = "Look at the captured bytes; correct the connector if they are right.",
        code: str = "connector.refused",
    ) -> None:
        super().__init__(happened)
        self.happened, self.expected, self.remedy, self.code = happened, expected, remedy, code


class NotFetched(OSError):
    """The parent could not fetch what was asked for, or may not."""


# ---- what a source is ----------------------------------------------------------------------------
class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One column of the table, as `column` says it."""

    name: str
    type: ColumnType = "string"
    key: bool = False
    required: bool = False
    unit: str | None = None
    min: float | str | None = None
    max: float | str | None = None
    sentinels: tuple[float | str, ...] = ()
    free_text: bool = False
    at: str | int | None = None
    format: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()


class Auth(msgspec.Struct, frozen=True, kw_only=True):
    """How the registered server is told who asks; it names a credential and never holds one."""

    headers: dict[str, str] = {}
    fields: dict[str, str] = {}


def column(
    name: str,
    type: type | ColumnType = "string",
    *,
    key: bool = False,
    required: bool = False,
    unit: str | None = None,
    min: float | str | None = None,
    max: float | str | None = None,
    sentinels: Iterable[float | str] = (),
    free_text: bool = False,
    at: str | int | None = None,
    format: str | Iterable[str] = (),
    nulls: Iterable[str] = (),
) -> Field:
    """A column of the published table.

    `type` is `str` (left out), `int`, `float`, `bool`, `datetime`, `date`, `dict` or `list` (kept
    as JSON), or the word of the registry, such as "geometry". `key`: together with the other key
    columns it tells records apart. `required`: a record without it is set aside. `min`, `max`: what
    lies outside cannot be true, the record is set aside. `sentinels`: values that mean "none".
    `free_text`: control characters may stand in it. `at`: its header in a delimited file, or its
    number from 1, where that is not `name`; `format`: how the file writes dates, "%m/%d/%Y";
    `nulls`: texts in it that mean "no value".
    """
    word = type if isinstance(type, str) else _TYPES.get(type.__name__)
    if word is None or word not in get_args(ColumnType):
        raise ValueError(
            f"column {name!r}: {word or type!r} is no type; there are str, int, float, bool,"
            f" datetime, date, dict, list and the words {', '.join(get_args(ColumnType))}"
        )
    if not isinstance(name, str) or not name:
        raise ValueError(f"column {name!r}: a column needs a name")
    return Field(
        name=name,
        type=word,
        key=key,
        required=required,
        unit=unit,
        min=min,
        max=max,
        sentinels=tuple(sentinels),
        free_text=free_text,
        at=at,
        format=(format,) if isinstance(format, str) else tuple(format),
        nulls=tuple(nulls),
    )


def bearer(credential: str) -> Auth:
    """`Authorization: Bearer …`, with the token that `credentials` in kfm.yml has by this name."""
    return Auth(headers={"Authorization": f"Bearer credential:{_named(credential)}"})


def basic(credential: str) -> Auth:
    """`Authorization: Basic …`; the credential holds `user:password`."""
    return Auth(headers={"Authorization": f"Basic credential:{_named(credential)}"})


def header(name: str, credential: str) -> Auth:
    """A header of its own, such as `X-Api-Key`; the credential is its whole value."""
    return Auth(headers={name: f"credential:{_named(credential)}"})


def query(field: str, credential: str) -> Auth:
    """A field of the query, such as `api_key`; it is in no address that is kept or shown."""
    return Auth(fields={field: f"credential:{_named(credential)}"})


def _named(credential: str) -> str:
    plain = credential.replace("-", "").replace("_", "").replace(".", "")
    if not plain.isascii() or not plain.isalnum() or len(credential) > 64:
        raise ValueError(
            "a credential is named as `credentials` in kfm.yml has it; its value is never written"
            " into a connector"
        )
    return credential


class Source:
    """A dataset's connector: what it states, and the functions that were named for it."""

    def __init__(
        self, dataset_id: str, fields: tuple[Field, ...], auth: Auth | None, records: str | None
    ) -> None:
        self.dataset_id, self.columns, self.auth, self.records = dataset_id, fields, auth, records
        self.hooks: dict[str, Callable[..., Any]] = {}

    @property
    def stated(self) -> tuple[object, ...]:
        """What it was given; two that state the same are equal in this."""
        return self.dataset_id, self.columns, self.auth, self.records

    def _take(self, name: str, hook: Hook) -> Hook:
        if name in self.hooks:
            raise TypeError(f"{self.dataset_id} has two functions for {name}")
        self.hooks[name] = hook
        return hook

    def discover(self, hook: Hook) -> Hook:
        """`def f(ctx: Context) -> Capabilities`: what is known of upstream before it is asked."""
        return self._take("discover", hook)

    def change_token(self, hook: Hook) -> Hook:
        """`def f(ask: Ask) -> str | None`: a word that changes when upstream does; equal to the
        last one, nothing is fetched.
        """
        return self._take("change_token", hook)

    def acquire(self, hook: Hook) -> Hook:
        """`def f(ask: Ask) -> None`: asks for the files; what is fetched is the capture, in order.

        Left out: the registered addresses are fetched.
        """
        return self._take("acquire", hook)

    def parse(self, hook: Hook) -> Hook:
        """`def f(ctx: Context, file: File) -> Iterator[Row]`: the rows of one captured file, for a
        format that kfm does not read (`kind: parsed` in the registry).
        """
        return self._take("parse", hook)

    def transform(self, hook: Hook) -> Hook:
        """`def f(ctx: Context, rows: Iterator[Row]) -> Iterator[Row]`: rows as they are published,
        of rows as they were read. The same rows in give the same rows out: no clock, no chance.
        """
        return self._take("transform", hook)

    def validate(self, hook: Hook) -> Hook:
        """`def f(ctx: Context, rows: Iterator[Row]) -> Iterator[str]`: whatever it yields of the
        rows that would be published refuses them all.
        """
        return self._take("validate", hook)


def source(
    dataset_id: str,
    *,
    columns: Iterable[Field] = (),
    auth: Auth | None = None,
    records: str | None = None,
) -> Source:
    """The connector of the dataset that is registered by this id; one for a file.

    `columns`: the columns of the published table, in order; left out, they are found in the data.
    What the registry entry or mapping.yml says of a column wins. `auth`: `bearer`, `basic`,
    `header` or `query`. `records`: where the records are in a JSON document, as a dotted path.
    """
    fields = tuple(columns)
    names = [f.name for f in fields]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise ValueError(f"column {twice!r} is there twice")
    return Source(dataset_id, fields, auth, records)


# ---- what its functions are given ----------------------------------------------------------------
class _Step(Protocol):
    @property
    def dataset_id(self) -> str: ...
    @property
    def since(self) -> str | None: ...
    @property
    def until(self) -> str | None: ...


class Context:
    """What a function is given beside its rows: nothing in it can write outside `scratch` or reach
    a store.
    """

    def __init__(self, job: _Step, scratch: Path, emit: Callable[[dict[str, Any]], None]) -> None:
        self.dataset_id = job.dataset_id
        # since and until as RFC 3339, half-open; None: no bound
        self.window = (job.since, job.until)
        self.scratch = scratch  # a folder to work in, empty at first
        self._emit = emit
        self._left: list[tuple[str, Row, str]] = []
        self._reasons: set[str] = set()

    def log(self, event: str, **fields: object) -> None:
        """One event for the run's log."""
        self._emit(
            {"op": "log", "event": event, "fields": msgspec.to_builtins(fields, str_keys=True)}
        )

    def refuse(self, row: Row, reason: str) -> None:
        """Leave a row out on purpose; the books count how many, by reason.

        `reason` is a rule in a few words ("plugged"), the same for every row it holds for.
        """
        self._reasons.add(reason)
        if not reason or len(reason) > 64 or len(self._reasons) > _MOST_REASONS:
            raise ValueError(
                f"refuse() was given {reason!r}: a reason is a rule of at most 64 characters, and"
                f" there are at most {_MOST_REASONS}; values of the row do not belong into it"
            )
        self._left.append((f"drop:connector {reason}", row, reason))

    def set_aside(self, row: Row, reason: str) -> None:
        """Keep a row that cannot be right from being published, and show it to a person: `kfm
        quarantine` lists it. More than `max_quarantined` of them refuse the capture.
        """
        self._left.append(("connector", row, reason))

    def taken(self) -> list[tuple[str, Row, str]]:
        """What was left out since it was asked last: rule, row, reason."""
        found, self._left = self._left, []
        return found


class File:
    """One captured file, as `parse` is given it."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name  # as `acquire` named it; "source" where the registry has one address
        self.path = path  # it may be read, not changed

    def open(self) -> IO[bytes]:
        """Its bytes as they came."""
        return self.path.open("rb")

    def unpacked(self) -> IO[bytes]:
        """Its bytes, of gzip what is packed in it; read as they come, never held as a whole."""
        file = self.open()
        packed = file.read(2) == _GZIP
        file.seek(0)
        return io.BufferedReader(_Whole(file)) if packed else file

    @contextmanager
    def text(self, encoding: str = "utf-8-sig", newline: str | None = None) -> Iterator[IO[str]]:
        """Its text, line by line; of gzip what is packed in it. Bytes that are not `encoding` are an
        error.
        """
        with io.TextIOWrapper(self.unpacked(), encoding=encoding, newline=newline) as lines:
            yield lines


class _Whole(gzip.GzipFile):
    """A gzip file that says what is wrong with it."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(fileobj=file, mode="rb")

    def readinto(self, buffer: Any) -> int:
        try:
            return super().readinto(buffer)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise Refused(
                f"The gzip file is damaged or cut off: {error}",
                expected="a whole gzip file",
                code="truncated",
            ) from error


class _Asked(_Step, Protocol):
    @property
    def urls(self) -> tuple[str, ...]: ...
    @property
    def options(self) -> dict[str, Any]: ...
    @property
    def format(self) -> str: ...
    @property
    def conflicts(self) -> Literal["refuse", "quarantine", "newest"]: ...
    @property
    def records(self) -> str | None: ...


class Ask:
    """What `acquire` is given: the registered addresses, the window, and one way to get bytes.

    Everything is fetched by the parent: hosts that the registry allows, at the pace upstream bears,
    asked again when it fails, with the credentials that were named.
    """

    def __init__(
        self,
        job: _Asked,
        ask: Callable[[dict[str, Any]], dict[str, Any]],
        log: Callable[..., None],
    ) -> None:
        self.dataset_id, self.urls, self.options = job.dataset_id, job.urls, job.options
        self.since, self.until = job.since, job.until  # RFC 3339, half-open; None: no bound
        self.format, self.records = job.format, job.records
        # refuse: no record may come twice; else the table's rule decides
        self.conflicts = job.conflicts
        self._ask, self.log = ask, log
        self._names: set[str] = set()

    @property
    def url(self) -> str:
        """The registered address, filled for this window and partition."""
        return self.urls[0]

    def get(
        self,
        url: str = "",
        name: str = "",
        *,
        accept: str = "",
        body: object = None,
        keep: bool = True,
        params: Mapping[str, object] | None = None,
    ) -> Path:
        """The whole body of `url` as a file; `body` (JSON) makes it a POST. Kept ones are the
        capture, in order of asking.

        `url` may be relative to the registered address; `params` are added to its query. `name` is
        the source id of the file: letters, digits, `.`, `_` and `-`, once per capture; left out:
        numbered. The same host, or one the registry allows. Raises `NotFetched`; when that ends the
        acquire, the run ends with the parent's own error and exit code.
        """
        return self._get(url, name, accept=accept, body=body, keep=keep, params=params)[0]

    def post(
        self, url: str, body: object, name: str = "", *, accept: str = "", keep: bool = True
    ) -> Path:
        """The answer to a POST of `body` as JSON, as `get` gives it."""
        return self.get(url, name, accept=accept, body=body, keep=keep)

    def json(
        self, url: str = "", *, params: Mapping[str, object] | None = None, body: object = None
    ) -> Any:
        """What a JSON document says that only helps to ask, such as a list of files; it is no part
        of the capture.
        """
        path = self.get(
            url, f"asked-{len(self._names) + 1:05}", params=params, body=body, keep=False
        )
        return _document(path, url or self.url)

    def files(self, wanted: Mapping[str, str] | Iterable[str], *, accept: str = "") -> list[Path]:
        """Several files at once, in order: addresses, or `name -> address`."""
        if not isinstance(wanted, Mapping):
            begin = len(self._names) + 1
            wanted = {f"file-{n:05}": url for n, url in enumerate(wanted, begin)}
        return self.get_many({n: self._address(url) for n, url in wanted.items()}, accept=accept)

    def get_many(self, wanted: dict[str, str], *, accept: str = "") -> list[Path]:
        """Several files at once, `name -> url`, in order."""
        if twice := self._names & set(wanted):
            raise ValueError(f"{min(twice)} was asked for twice")
        self._names |= set(wanted)
        items = [{"url": url, "name": name, "accept": accept} for name, url in wanted.items()]
        answer = self._ask({"op": "fetch", "items": items}) if items else {"paths": []}
        if "paths" not in answer:
            raise NotFetched(
                f"could not fetch {len(items)} files: {answer.get('error', 'no reason given')}"
            )
        return [Path(path) for path in answer["paths"]]

    def pages(
        self,
        url: str = "",
        *,
        next: str = "",
        token: str = "",
        offset: str = "",
        number: str = "",
        first: int | None = None,
        records: str | None = None,
        total: str = "",
        params: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        name: str = "page",
        accept: str = "",
        most: int = _MOST_PAGES,
    ) -> list[Path]:
        """Every page of a JSON source that answers in pages, in order. Say how the next one is found:

        `next="links.next"`: its address stands there; of a list, `links[rel=next].href` picks one.
        `next="Link"`: its address stands in the header `Link` as rel="next".
        `next="meta.cursor", token="cursor"`: a word stands there, sent back as that query field, or
        as that member of the `body` of a POST.
        `offset="skip"`: skip=0, then as many as there were records, until a page holds none.
        `number="page"`: page=1, 2, 3 (`first=0`: 0, 1, 2), until a page holds none.

        `records` is where the records of a page are; left out: as `source` or the registry says, or
        the only list there is. `total` is where it says how many there are in all: fewer refuse the
        capture. A page that is asked for twice, or that repeats the one before, ends it as refused,
        and so do more than `most` pages.
        """
        ways = [w for w in (next, offset, number) if w]
        if len(ways) != 1 or (token and not next):
            raise TypeError(
                "pages() needs one of next=, offset= and number=; token= goes with next="
            )
        way = _Way(next=next, token=token, offset=offset, number=number)
        where = self.records if records is None else records
        here, asked = self._address(url, params), dict(body) if body is not None else None
        if offset or number:
            begin = (1 if number else 0) if first is None else first
            here, asked = _with(here, asked, offset or number, begin)
        found, seen, count, before = list[Path](), set[str](), 0, b""
        while True:
            mark = f"{here} {msgspec.json.encode(asked).decode()}"
            if mark in seen:
                _loop(here, "it is asked for a second time")
            seen.add(mark)
            if len(found) >= most:
                _loop(here, f"there are more than {most:,} pages")
            path, link = self._get(
                here,
                f"{name}-{len(found) + 1:05}",
                accept=accept,
                body=asked,
                keep=True,
                params=None,
            )
            found.append(path)
            document = _document(path, here)
            rows = _records(document, where, here)
            count += len(rows)
            now = msgspec.json.encode(rows)
            if rows and now == before:
                _loop(here, "it holds the same records as the one before")
            before = now
            stated = _at(document, total) if total else None
            enough = isinstance(stated, int) and count >= stated
            ahead = way.ahead(document, link, len(rows), count, first, len(found))
            if ahead is None or (enough and not next):
                break
            if token:
                here, asked = _with(here, asked, token, ahead)
            elif next:
                here = urljoin(here, _link(ahead, next, here))
            else:
                here, asked = _with(here, asked, offset or number, ahead)
        if total and isinstance(stated, int) and count < stated:
            raise Refused(
                f"Upstream says that there are {stated:,} records, and {count:,} came in"
                f" {len(found):,} pages.",
                expected="every record that upstream counts",
                remedy="Run again; if it stays so, look how the next page is found.",
                code="paging.incomplete",
            )
        return found

    def _get(
        self,
        url: str,
        name: str,
        *,
        accept: str,
        body: object,
        keep: bool,
        params: Mapping[str, object] | None,
    ) -> tuple[Path, str]:
        name = name or f"file-{len(self._names) + 1:05}"
        url = self._address(url, params)
        if name in self._names:
            raise ValueError(f"{name} was asked for twice")
        self._names.add(name)
        payload = msgspec.json.encode(body).decode() if body is not None else ""
        answer = self._ask(
            {
                "op": "fetch",
                "url": url,
                "name": name,
                "accept": accept,
                "body": payload,
                "keep": keep,
            }
        )
        if "path" not in answer:
            raise NotFetched(f"could not fetch {url}: {answer.get('error', 'no reason given')}")
        return Path(answer["path"]), str(answer.get("next") or "")

    def _address(self, url: str, params: Mapping[str, object] | None = None) -> str:
        """The whole address; what names a credential in the registered one stands in it too, where
        it leads to the same server.
        """
        if not self.urls:
            return url
        found = urljoin(self.url, url) if url else self.url
        for field, value in (params or {}).items():
            found = _with(found, None, field, value)[0]
        home, there = urlsplit(self.url), urlsplit(found)
        if home.netloc.lower() != there.netloc.lower():
            return found
        there_are = {field for field, _ in parse_qsl(there.query, keep_blank_values=True)}
        for field, value in parse_qsl(home.query, keep_blank_values=True):
            if value.startswith(_SECRET) and field not in there_are:
                found = _with(found, None, field, value)[0]
        return found


# ---- pages ---------------------------------------------------------------------------------------
class _Way(msgspec.Struct, frozen=True, kw_only=True):
    """How the next page is found."""

    next: str
    token: str
    offset: str
    number: str

    def ahead(
        self, document: object, link: str, rows: int, count: int, first: int | None, pages: int
    ) -> object:
        """What leads to the next page; None: this was the last."""
        if self.next == "Link":
            return link or None
        if self.next:
            return _at(document, self.next) or None
        if not rows:
            return None
        return (first or 0) + count if self.offset else (1 if first is None else first) + pages


def _link(ahead: object, next: str, here: str) -> str:
    if isinstance(ahead, str) and ("/" in ahead or ahead.startswith("?")):
        return ahead
    raise Refused(
        f"{next} of {_shown(here)} is {ahead!r}, which is no address.",
        expected="the address of the next page",
        remedy=f'If it is a cursor, say into which query field it goes: pages(next="{next}", token="…").',
        code="paging.next",
    )


def _loop(here: str, why: str) -> NoReturn:
    raise Refused(
        f"The pages do not end: {_shown(here)}: {why}.",
        expected="pages that lead to a last one",
        remedy="Look at what upstream answers, and how pages() finds the next page.",
        code="paging.loop",
    )


def _shown(url: str) -> str:
    return url if len(url) <= 200 else f"{url[:200]}…"


def _with(
    url: str, body: dict[str, object] | None, field: str, value: object
) -> tuple[str, dict[str, object] | None]:
    """The next question: `field` in the body where there is one, else in the query."""
    if body is not None:
        return url, {**body, field: value}
    parts = urlsplit(url)
    kept = [f for f in parts.query.split("&") if f and f.partition("=")[0] != quote(field, safe="")]
    added = urlencode({field: str(value)}, safe=":")
    return urlunsplit(parts._replace(query="&".join([*kept, added]))), None


def _document(path: Path, url: str) -> object:
    raw = path.read_bytes()
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        page = looks_like_a_page(raw[:512])
        what = "a web page, probably an error page" if page else f"no JSON ({error})"
        raise Refused(
            f"{_shown(url)} answers with {what}.",
            expected="a JSON document",
            remedy="Open the address in a browser to see what upstream says, then run again.",
            code="html" if page else "json",
        ) from error


def looks_like_a_page(head: bytes) -> bool:
    """Whether bytes begin as a web page does, not merely as markup."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith(b"<?xml"):
        start = start.partition(b"?>")[2].lstrip()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<body"))


def _at(document: object, path: str) -> Any:
    """What stands at a dotted path; None: nothing."""
    for step in path.split("."):
        name, _, pick = step.partition("[")
        if name.isdecimal() and isinstance(document, list):
            document = document[int(name)] if int(name) < len(document) else None
        else:
            document = document.get(name) if isinstance(document, dict) else None
        if pick:
            key, _, value = pick.rstrip("]").partition("=")
            among = document if isinstance(document, list) else []
            document = next((m for m in among if isinstance(m, dict) and m.get(key) == value), None)
    return document


def _records(document: object, where: str | None, here: str) -> list[Any]:
    if where and where != ".":
        found: object = _at(document, where)
    elif isinstance(document, dict):
        lists = [m for m in document.values() if isinstance(m, list)]
        found = lists[0] if len(lists) == 1 else None
        if "features" in document:
            found = document["features"]
    else:
        found = document
    if not isinstance(found, list):
        raise Refused(
            f"A page of {_shown(here)} has no list of records"
            + (f" at {where}." if where else ", or more than one."),
            expected="a list of records",
            remedy='Say where it is: source(…, records="results").',
            code="paging.records",
        )
    return found
