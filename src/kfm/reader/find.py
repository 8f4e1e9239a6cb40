"""Search by words and by meaning, with citations that lead to evidence; and tiles for maps."""

from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from kfm.access.derived import tiles_of
from kfm.model import MissingExtra
from kfm.reader.door import Asking, BadQuestion, Hidden
from kfm.reader.files import handed_out
from kfm.reader.kinds import PMTILES, Answers, named
from kfm.reader.route import reads
from kfm.reader.versions import which_of
from kfm.upkeep.search import is_address, opened, search
from kfm.upkeep.search_answer import Citation, Found

__all__ = ["ROUTES", "Passages"]


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A passage that fits, and where it stands."""

    score: float
    text: str
    citation: Citation
    evidence: str


class Passages(msgspec.Struct, frozen=True, kw_only=True):
    """The best passages of what this viewer may read."""

    query: str
    ranking: str
    searched: tuple[str, ...]
    hits: list[Passage]


@reads("/search", page="search")
def passages(
    asking: Asking,
    q: Annotated[str, named(maxLength=2000)] = "",
    dataset: str | None = None,
    limit: Annotated[int, named(minimum=1, maximum=100)] = 10,
) -> Passages:
    """Passages by words and by meaning; or the one that an address of a citation names."""
    if not 1 <= limit <= 100:
        raise BadQuestion("limit is 1 to 100.", "limit")
    if len(q) > 2000:
        raise BadQuestion("A question has at most 2,000 characters.", "q")
    reader = asking.viewer.reader
    if is_address(q):
        ref = q.removeprefix("kfm://dataset/").partition("/")[0]
        asking.data(ref)
        with asking.let_through(ref):
            return _told(asking, opened(asking.world, q, reader))
    names = [e.dataset_id for e, _, _ in asking.datasets() if dataset in (None, e.dataset_id)]
    if dataset is not None and not names:
        raise Hidden
    try:
        return _told(asking, search(asking.world, q, names, limit, reader))
    except (MissingExtra, ImportError) as error:
        raise BadQuestion("Nothing can be searched here: the extra is not installed.") from error


def _told(asking: Asking, found: Found) -> Passages:
    return Passages(
        query=found.query,
        ranking=found.ranking,
        searched=found.searched,
        hits=[
            Passage(
                score=hit.score,
                text=hit.text,
                citation=hit.citation,
                evidence=f"{asking.address}/evidence/{hit.citation.dataset_id}@{hit.citation.version_id}",
            )
            for hit in found.hits
        ],
    )


@reads(
    "/datasets/{dataset_id:str}/versions/{which:str}/tiles",
    media=PMTILES,
    answers=Answers(kinds={PMTILES: None}, parts=True),
)
def tiles(asking: Asking, dataset_id: str, which: str) -> Response[Any]:
    """The vector tiles of a version as one PMTiles file, by Range."""
    found = asking.data(which_of(dataset_id, which))
    made = tiles_of(asking.world, found)
    if made is None:
        raise Hidden
    return handed_out(made.path, made.digest, f"{dataset_id}.pmtiles")


ROUTES: tuple[HTTPRouteHandler, ...] = (passages, tiles)
