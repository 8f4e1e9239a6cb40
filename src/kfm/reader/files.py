"""The files of a version, byte for byte: whole or in part, checked against their digests, never as a
whole in memory.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream
from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send

from kfm.access.boundary import Opened
from kfm.access.checked_files import check_bytes
from kfm.access.memory import Mark, mark_of
from kfm.reader.door import Asking, Hidden
from kfm.reader.kinds import ANY, CSV, FILES, GEOJSON, JSON, RECORD, TEXT, Answers, kind_of
from kfm.reader.route import reads
from kfm.reader.sendable import Sendable
from kfm.reader.versions import which_of
from kfm.reader.visit import Visit, has

__all__ = ["ROUTES", "Part", "handed_out", "part_of", "tables_of"]

_PIECE = 1 << 20
_RANGE = re.compile(r"bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))")
_SCHEMAS = {JSON: dict[str, object](), GEOJSON: RECORD, **dict.fromkeys((CSV, "text/plain"), TEXT)}


class Part(NamedTuple):
    """Which bytes of a file were asked for: from the first up to before the end."""

    first: int
    end: int


def tables_of(opened: Opened) -> dict[str, Path]:
    """The tables of what was let out, once their bytes are those of their digests. Raises
    `IntegrityError`.
    """
    tables = {n: path for n, path in sorted(opened.files.items()) if n.endswith(".parquet")}
    for name, path in tables.items():
        check_bytes(path, opened.digests[name])
    return tables


@reads(
    "/datasets/{dataset_id:str}/versions/{which:str}/files/{name:path}",
    answers=Answers(
        kinds={kind: _SCHEMAS.get(kind) for kind in (*FILES.values(), ANY)}, parts=True
    ),
)
def file(asking: Asking, dataset_id: str, which: str, name: str) -> Response[Any]:
    """One file of a version; `Range`, `If-Range`, `If-None-Match` and `If-Match` are heeded."""
    opened = asking.folder(which_of(dataset_id, which))
    name = str(name).removeprefix("/")
    if name not in opened.files:
        raise Hidden
    return handed_out(opened.files[name], opened.digests[name], name)


def handed_out(path: Path, digest: str, name: str) -> Response[Any]:
    """A file that was let out, or the part of it that is asked for."""
    stated, tag = Visit.now().headers, f'"{digest}"'
    headers = {
        "etag": tag,
        "accept-ranges": "bytes",
        "content-disposition": f'attachment; filename="{_plain(name)}"',
        "kfm-digest": digest,
    }
    if b"if-match" in stated and not has(stated[b"if-match"], tag, strong=True):
        return Response(b"", status_code=412, headers=headers)
    if has(stated.get(b"if-none-match"), tag):
        return Response(b"", status_code=304, headers=headers)
    mark = check_bytes(path, digest)
    size = mark[1] if mark is not None else 0
    whole = Part(0, size)
    part = whole if Visit.now().is_head else part_of(stated, whole, tag)
    if part is None:
        return Response(
            b"", status_code=416, headers=headers | {"content-range": f"bytes */{size}"}
        )
    partial = part is not whole
    if partial:
        headers["content-range"] = f"bytes {part.first}-{part.end - 1}/{size}"
    headers["content-length"] = str(part.end - part.first)
    kind = kind_of(name)
    status = 206 if partial else 200
    if Visit.now().is_head:
        return _Typed(iter(()), status_code=status, headers=headers, media_type=kind)
    return _File(path, part, mark, status_code=status, headers=headers, media_type=kind)


def part_of(stated: dict[bytes, str], whole: Part, tag: str) -> Part | None:
    """What `Range` asks for, None where there is no such part; several parts, a form that is not
    known or a tag that is not this one's mean all of it.
    """
    size = whole.end
    if b"range" not in stated or stated.get(b"if-range", tag) != tag:
        return whole
    found = _RANGE.fullmatch(stated[b"range"].strip())
    if found is None:
        return whole
    first, last, suffix = found.groups()
    if suffix is not None:
        return Part(max(0, size - int(suffix)), size) if int(suffix) and size else None
    if last and int(last) < int(first):
        return whole
    end = min(size, int(last) + 1) if last else size
    return Part(int(first), end) if int(first) < size else None


class _Typed(Stream):
    """Bytes of the kind that they are: Litestar would call a stream what its route is."""

    def to_asgi_response(self, *given: Any, **more: Any) -> ASGIResponse:
        return super().to_asgi_response(*given, **(more | {"media_type": self.media_type}))


class _File(_Typed):
    """A part of a file as an answer."""

    def __init__(self, path: Path, part: Part, mark: Mark, **more: Any) -> None:
        super().__init__(_pieces(path, part, mark), **more)
        self.file = (path, part, mark)

    def to_asgi_response(self, *given: Any, **more: Any) -> ASGIResponse:
        found = super().to_asgi_response(*given, **more)
        send_file = Visit.now().send_file
        return found if send_file is None else _Sent(found, *self.file)


class _Sent(ASGIResponse):
    """The same, from the disk to the network without passing through this process."""

    def __init__(self, like: ASGIResponse, path: Path, part: Part, mark: Mark) -> None:
        self.like, self.file = like, (path, part, mark)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, part, mark = self.file
        with path.open("rb", buffering=0) as opened:
            number = opened.fileno()
            await self.like.start_response(send)
            sendable = Sendable(number, part.first, part.end, lambda: mark_of(number) == mark)
            await Visit.now().sent(sendable, send)


def _pieces(path: Path, part: Part, mark: Mark) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as opened:
        at = part.first
        while at < part.end:
            piece = os.pread(opened.fileno(), min(_PIECE, part.end - at), at)
            if not piece or mark_of(opened.fileno()) != mark:
                return  # it was changed meanwhile: whoever reads it sees that bytes are missing
            at += len(piece)
            yield piece


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", name.rpartition("/")[2])


ROUTES: tuple[HTTPRouteHandler, ...] = (file,)
