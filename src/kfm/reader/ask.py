"""Focus: the fixed questions about a version, answered from evidence; each sentence with the files
that show it, and where they open.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated

import msgspec
from litestar.handlers import HTTPRouteHandler

from kfm.access.references import Ref
from kfm.data.libraries import library
from kfm.model import UsageError, ids
from kfm.reader.door import LEFT_OUT, Asking, BadQuestion
from kfm.reader.kinds import named
from kfm.reader.route import reads
from kfm.reader.versions import which_of
from kfm.story.answers import Answered, answer
from kfm.story.node import Proof, Sentence
from kfm.story.questions import QUESTIONS, example_of

__all__ = ["ROUTES", "Citation", "Focus", "Said", "citations", "focus_of"]

_LONGEST = 500  # characters of a question
Asked = Annotated[str, named(maxLength=_LONGEST)]
_GENERATION = re.compile(r"data/catalog/channels/[a-z0-9_]+/([0-9]{8})\.json")
_OF_A_ROW = {"had", "missing"}
_OF_NOW = {"fresh"}


class Putable(msgspec.Struct, frozen=True, kw_only=True):
    """A question that can be put, and how."""

    question: str
    example: str
    needs_row: bool  # it asks for a row to be named


class Citation(msgspec.Struct, frozen=True, kw_only=True):
    """A file that shows something, and where its bytes are had: they have this digest."""

    n: int
    what: str
    shows: str
    path: str  # below the workspace
    digest: str
    address: str | None  # None: it stays inside, and the digest is all that is told of it


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What evidence answers."""

    question: str
    known: bool  # False: evidence does not say all of it
    answer: tuple[Sentence, ...]
    evidence: tuple[Citation, ...]


class Focus(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked about one version, and answered; nothing is guessed."""

    dataset_id: str
    title: str
    version_id: str
    version_digest: str
    generation: int
    asked: str  # empty: everything that needs no row to be named
    questions: tuple[Putable, ...]
    answers: tuple[Said, ...]


@reads("/datasets/{dataset_id:str}/ask", page="focus_of")
def of_dataset(asking: Asking, dataset_id: str, q: Asked = "") -> Focus:
    """Questions about what is official of a dataset, answered with citations that open."""
    return focus_of(asking, dataset_id, "latest", q)


@reads("/datasets/{dataset_id:str}/versions/{which:str}/ask", page="focus")
def of_version(asking: Asking, dataset_id: str, which: str, q: Asked = "") -> Focus:
    """Questions about one version, answered with citations that open."""
    return focus_of(asking, dataset_id, which, q)


def focus_of(asking: Asking, dataset_id: str, which: str, q: str, *, now: bool = True) -> Focus:
    """What is answered; without `now` nothing that depends on the moment it is asked."""
    if len(q) > _LONGEST:
        raise BadQuestion(f"A question has at most {_LONGEST} characters.", "q")
    ref, facts = asking.facts(which_of(dataset_id, which))
    text = f"{dataset_id}@{ref.generation}"
    library("pyarrow", "reads Parquet")
    put = [x for x in QUESTIONS if x.id not in _OF_A_ROW and (now or x.id not in _OF_NOW)]
    words = [q] if q.strip() else [one.text for one in put]
    asking.limit_time()
    try:
        with asking.let_through(text, known=True):
            found = [answer(asking.world, text, each, asking.viewer.reader, None) for each in words]
    except UsageError as error:
        raise BadQuestion(f"{error.happened} Expected {error.expected}.", "q") from error
    opens = citations(asking, ref, (proof for one in found for proof in one.evidence))
    entry, columns = asking.workspace.require(dataset_id), [c.name for c in facts.schema]
    key = [name for name in entry.business_key if name in columns]  # others are not shown
    return Focus(
        dataset_id=dataset_id,
        title=entry.title,
        version_id=ref.version_id,
        version_digest=ref.version_digest,
        generation=ref.generation,
        asked=q.strip(),
        questions=tuple(
            Putable(
                question=x.text,
                example=example_of(x, key, columns),
                needs_row=x.id in _OF_A_ROW,
            )
            for x in QUESTIONS
        ),
        answers=tuple(_said(one, opens) for one in found),
    )


def _said(one: Answered, opens: Mapping[str, str]) -> Said:
    return Said(
        question=one.question,
        known=one.known,
        answer=one.answer,
        evidence=tuple(
            Citation(
                n=p.n,
                what=p.what,
                shows=p.shows,
                path=p.path,
                digest=p.digest,
                address=opens.get(p.digest),
            )
            for p in one.evidence
        ),
    )


def citations(asking: Asking, ref: Ref, proofs: Iterable[Proof]) -> dict[str, str]:
    """Where the bytes of each digest are had, as far as whoever asks may have them."""
    text = f"{ref.dataset_id}@{ref.generation}"
    base = f"{asking.address}/datasets/{ref.dataset_id}/versions"
    found = asking.proofs(text)
    opens = {d: f"{base}/{ref.version_id}/files/{n}" for n, d in found.opened.digests.items()}
    for name, file in found.files.items():
        opens[ids.digest(file.raw)] = f"{base}/{ref.version_id}/proofs/{name}"
    for proof in proofs:
        other = _GENERATION.fullmatch(proof.path)
        if other and proof.digest not in opens:
            number = int(other[1])
            with suppress(*LEFT_OUT):
                asking.known(f"{ref.dataset_id}@{number}")
                opens[proof.digest] = f"{base}/{number}/proofs/generation"
    return opens


ROUTES: tuple[HTTPRouteHandler, ...] = (of_dataset, of_version)
