"""search: look for words in what may be read now; the channel's head decides which version, and
only its own index is asked.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kfm.access.boundary import NOBODY, Opened, Reader, data_of, located
from kfm.access.references import Ref
from kfm.evidence.run_end import workers_alive
from kfm.extras.search.base import DamagedIndex, Passage, Scored, find, passages, question
from kfm.model import Denied, KfmError, UsageError
from kfm.model.paths import search_path, version_path
from kfm.upkeep.citation import receipt_of
from kfm.upkeep.derived import derivation
from kfm.upkeep.search_answer import Citation, Found, Hit, IndexNote, NotSearched
from kfm.world.world import World

__all__ = ["index_note", "index_path", "is_address", "opened", "search"]

JOB_TYPE = "index.build_embeddings"
_ADDRESS = re.compile(r"kfm://dataset/([^/@]+@[^/]+)/(.+#[pr][0-9]+)")


def index_path(ref: Ref | Opened) -> str:
    """Where the index of a version lies, in the data zone; its note lies beside it."""
    return search_path(ref.dataset_id, ref.version_id, "search.sqlite")


def index_note(world: World, ref: Ref | Opened) -> IndexNote | None:
    """What is written beside the index of a version; None when there is none that can be read."""
    path = index_path(ref).replace(".sqlite", ".json")
    try:
        return msgspec.json.decode(world.data.read(path), type=IndexNote)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def search(
    world: World, text: str, datasets: Iterable[str], limit: int = 10, reader: Reader = NOBODY
) -> Found:
    """The best passages of `datasets`; one that may not be read, or has no index that can be, gives
    nothing and is named.

    Raises `DamagedIndex` when every index there is to ask is damaged.
    """
    names = list(datasets)
    try:
        return _search(world, text, names, limit, reader)
    except _Replaced:
        # another version became official and was indexed between our look and our reading
        return _search(world, text, names, limit, reader)


class _Replaced(DamagedIndex):
    """An index went away while it was asked."""


def _search(world: World, text: str, datasets: list[str], limit: int, reader: Reader) -> Found:
    open_: dict[Path, Opened] = {}
    closed: list[NotSearched] = []
    for name in datasets:
        try:
            ref = data_of(world, name, reader)
        except (Denied, UsageError) as error:
            closed.append(
                NotSearched(
                    dataset_id=name, reason=error.happened, denied=isinstance(error, Denied)
                )
            )
        except KfmError as error:  # damage of one dataset does not hide the others
            closed.append(NotSearched(dataset_id=name, reason=error.happened, next="kfm doctor"))
        else:
            if index_note(world, ref) is None or not world.data.exists(index_path(ref)):
                closed.append(_missing(world, ref))
            else:
                open_[world.data.local(index_path(ref))] = ref
    hits, note = _find(open_, closed, text, limit)
    behind = {r.dataset_id: receipt_of(world, r.dataset_id, r.version_id) for r in open_.values()}
    return Found(
        query=" ".join(question(text)),
        ranking="words" if note else "hybrid",
        searched=tuple(sorted(r.dataset_id for r in open_.values())),
        hits=tuple(
            Hit(
                score=h.score,
                text=h.passage.text,
                citation=_citation(ref, h.passage, behind[ref.dataset_id]),
            )
            for h in hits
            for ref in (open_[h.file],)
        ),
        not_searched=tuple(closed),
        note=note,
    )


def _find(
    open_: dict[Path, Opened], closed: list[NotSearched], text: str, limit: int
) -> tuple[list[Scored], str]:
    """The best passages of the indexes that can be read; the others move from `open_` to
    `closed`.
    """
    while True:
        try:
            return find(list(open_), text, limit)
        except DamagedIndex as error:
            if not error.path.exists():
                raise _Replaced(error.path, error) from error
            ref = open_.pop(error.path)
            closed.append(
                NotSearched(dataset_id=ref.dataset_id, reason=error.happened, next=_ask(ref))
            )
            if not open_:
                raise


def is_address(text: str) -> bool:
    """Whether `text` is what a citation calls its address."""
    return _ADDRESS.fullmatch(text) is not None


def opened(world: World, address: str, reader: Reader = NOBODY) -> Found:
    """The one passage an address names, read from the published file itself, when it may be handed
    out now.
    """
    version, place = _ADDRESS.fullmatch(address).groups()  # type: ignore[union-attr]  # the caller asked `is_address`
    ref = located(world, version, reader)
    passage = next((p for p in passages(ref.files) if _place(p) == place), None)
    if passage is None:
        raise UsageError(
            f"{version} has no {place}.",
            expected="an address as `kfm search` prints it",
            remedy="Search for words of the passage.",
        )
    hit = Hit(
        score=1.0,
        text=passage.text,
        citation=_citation(ref, passage, receipt_of(world, ref.dataset_id, ref.version_id)),
    )
    return Found(
        query=address,
        ranking="words",
        searched=(ref.dataset_id,),
        hits=(hit,),
        not_searched=(),
        note="",
    )


def _ask(ref: Opened) -> str:
    return derivation(JOB_TYPE, ref.dataset_id)


def _missing(world: World, ref: Opened) -> NotSearched:
    jobs, alive = world.store.read(
        lambda tx: (
            tx.jobs.listing(dataset_id=ref.dataset_id, job_type=JOB_TYPE, limit=1),
            workers_alive(tx),
        )
    )
    state, following = jobs[0].state if jobs else "", _ask(ref)
    reason = f"There is no index of {ref.version_id[:9]}… yet."
    if state in ("queued", "running") and not alive:
        reason = "Its index was asked for, and no worker runs that would build it."
    elif state in ("queued", "running"):
        reason = (
            "Its index is being built."
            if state == "running"
            else "Its index waits for a worker to be free."
        )
        following = f"kfm jobs list --dataset {ref.dataset_id}"
    elif jobs and jobs[0].outcome in ("failed", "dead"):
        reason, following = (
            f"Its index could not be built: {jobs[0].error}",
            f"kfm jobs show {jobs[0].job_id[:8]}",
        )
    return NotSearched(dataset_id=ref.dataset_id, reason=reason, next=following)


def _place(passage: Passage) -> str:
    document, paragraph = passage.about.get("document_id"), passage.about.get("paragraph")
    return f"{document}#p{paragraph}" if document else f"{passage.file}#r{passage.row}"


def _citation(ref: Opened, passage: Passage, receipt: str) -> Citation:
    version = f"{ref.dataset_id}@{ref.version_id}"
    facts = {
        "dataset_id": ref.dataset_id,
        "version_id": ref.version_id,
        "address": f"kfm://dataset/{version}/{_place(passage)}",
        "file": f"data/{version_path(ref.dataset_id, ref.version_id, passage.file)}",
        "row": passage.row,
        "get": f"kfm get {version}",
        "receipt": receipt,
        "bytes": passage.span,
    }
    return msgspec.convert(facts | dict(passage.about), Citation)
