"""A proposal in a namespace of its own, before it is promoted: `/proposals/N/preview` and what lies
below. It is decided as what it would be once published, and shown to who runs things alone; it is in
no list, search, catalog or count, and nobody keeps it. Once it is a version, or was rejected, there
is nothing here any more.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response import Stream

from kfm.access.boundary import Opened
from kfm.console.act import OPERATES
from kfm.diff.base import Diff
from kfm.model import Generation, VersionFacts
from kfm.reader.changes import diff_of, nothing_before
from kfm.reader.door import Asking, Hidden, whole_number
from kfm.reader.files import handed_out
from kfm.reader.route import reads
from kfm.reader.rows import Question, Rows, rows_page

__all__ = ["ROUTES", "base_of", "preview_at", "previewed"]

_AT = "/proposals/{number:str}/preview"


def preview_at(number: int | str) -> str:
    return f"/proposals/{number}/preview"


@contextmanager
def previewed(asking: Asking, number: str) -> Iterator[tuple[Opened, VersionFacts]]:
    """The data of a proposal, for who may look at proposals and may read what it would be. Raises
    `Hidden`.
    """
    if not asking.viewer.may(OPERATES):
        raise Hidden
    meant = whole_number(number)
    if meant is None:
        raise Hidden
    with asking.proposed(meant) as found:
        yield found


def base_of(asking: Asking, dataset_id: str) -> Opened | None:
    """What is official now, as far as it may be read; None: nothing is. Raises `Hidden`, `NoLonger`."""
    head: Generation = asking.world.store.transaction(
        lambda tx: asking.world.channel(dataset_id).head(tx)
    )
    return None if head.version_id is None else asking.data(dataset_id)


@reads(f"{_AT}/rows", strict=True)
def rows(
    asking: Asking,
    number: FromPath[str],
    form: Literal["json", "csv", "geojson"] = "json",
    columns: str | None = None,
    filter: str | None = None,
    sort: str | None = None,
    limit: int = 100,
    token: str | None = None,
) -> Rows:
    """Rows of a proposal, asked for as those of a version are."""
    said = Question(form, columns, filter, sort, limit, token)
    with previewed(asking, number) as (opened, _):
        return rows_page(asking, opened, preview_at(number), f"/proposals/{number}", said)


@reads(f"{_AT}/files/{{name:path}}")
def file(asking: Asking, number: FromPath[str], name: FromPath[str]) -> Response[Any]:
    """One file of a proposal; `Range` and the rest are heeded."""
    stack = ExitStack()
    try:
        opened, _ = stack.enter_context(previewed(asking, number))
        name = str(name).removeprefix("/")
        if name not in opened.files:
            raise Hidden
        answer = handed_out(opened.files[name], opened.digests[name], name)
    except BaseException:
        stack.close()
        raise
    if isinstance(answer, Stream):
        answer.iterator = _Held(answer.iterator, stack)
    else:
        stack.close()
    return answer


class _Held:
    """The pieces of a file that is open as long as somebody takes them."""

    def __init__(self, pieces: Any, stack: ExitStack) -> None:
        self._pieces, self._stack = iter(pieces), stack

    def __iter__(self) -> "_Held":
        return self

    def __next__(self) -> bytes:
        try:
            piece: bytes = next(self._pieces)
        except BaseException:
            self._stack.close()
            raise
        return piece

    def __del__(self) -> None:
        self._stack.close()  # who asked went away


@reads(f"{_AT}/diff")
def diff(asking: Asking, number: FromPath[str]) -> Diff:
    """What it would change of what is official."""
    with previewed(asking, number) as (opened, _):
        old = base_of(asking, opened.dataset_id)
        return diff_of(old if old is not None else nothing_before(opened), opened)


ROUTES: tuple[HTTPRouteHandler, ...] = (rows, file, diff)
