"""What is said of a version: how to cite it, its records in DCAT, PROV and OpenLineage, what it comes
from, what changed, how it was made, and who gave a row its values.
"""

import re
from typing import Annotated, Literal

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler

from kfm.access.boundary import Opened
from kfm.access.references import Ref
from kfm.catalog.dcat import CONTEXT, dcat
from kfm.catalog.lineage.openlineage import About, Output, completed
from kfm.data.libraries import library
from kfm.diff.base import Diff
from kfm.evidence.append_times import appended_at
from kfm.evidence.lineage import known_lineage
from kfm.evidence.version_records import describe
from kfm.lineage.ask import Around, Walk, walk
from kfm.model import (
    DatasetEntry,
    Denied,
    IntegrityError,
    Json,
    UsageError,
    VersionFacts,
    canonical,
)
from kfm.reader.changes import diff_of, nothing_before
from kfm.reader.door import Asking, BadQuestion, Hidden, is_dataset
from kfm.reader.kinds import CSL, DCAT, JSON, LD, OPENLINEAGE, PROV, TEXT, WHICH, Answers, named
from kfm.reader.route import reads
from kfm.reader.versions import which_of
from kfm.story.blame import Blame, blame
from kfm.story.node import Story
from kfm.story.write import story_of
from kfm.upkeep.citation import quoted

__all__ = ["ROUTES", "Cited", "Lineage", "around"]

_VERSION = "/datasets/{dataset_id:str}/versions/{which:str}"
_BIBTEX, _RIS = "application/x-bibtex", "application/x-research-info-systems"
_PARTS = re.compile(r"(?:[^,\\]|\\.)+", re.DOTALL)
_STEPS = named(minimum=0, maximum=100)


class Cited(msgspec.Struct, frozen=True, kw_only=True):
    """How to cite a version, in the forms that reference managers read."""

    address: str
    text: str
    bibtex: str
    csl: Json
    ris: str
    evidence: str


class Lineage(Around, frozen=True, kw_only=True):
    """What a version comes from and what comes from it, as far as this viewer may know."""


@reads(
    f"{_VERSION}/cite",
    page="cite",
    answers=Answers(
        kinds={
            **dict.fromkeys(("text/plain", _BIBTEX, _RIS), TEXT),
            CSL: {
                "type": "array",
                "items": {"type": "object", "required": ["id", "type", "title"]},
            },
        }
    ),
    strict=True,
)
def cite(
    asking: Asking,
    dataset_id: str,
    which: str,
    form: Literal["json", "text", "bibtex", "csl", "ris"] = "json",
) -> Cited:
    """How to cite a version: it names exactly these bytes for ever."""
    ref = asking.known(which_of(dataset_id, which))
    found = quoted(asking.world, asking.workspace.require(dataset_id), ref)
    cited = Cited(
        address=found.address,
        text=found.text(f"{ref.dataset_id}@{ref.generation}"),
        bibtex=found.bibtex,
        csl=found.csl,
        ris=found.ris,
        evidence=f"{asking.address}/evidence/{ref.dataset_id}@{ref.version_id}",
    )
    return cited if form == "json" else _in_form(form, cited)  # type: ignore[return-value]


def _in_form(form: str, cited: Cited) -> Response[bytes]:
    kinds = {"bibtex": _BIBTEX, "ris": _RIS}
    if form == "csl":
        return Response(msgspec.json.encode([cited.csl]), media_type=CSL)
    text = {"bibtex": cited.bibtex, "ris": cited.ris, "text": cited.text}[form]
    return Response(f"{text}\n".encode(), media_type=kinds.get(form, "text/plain"))


# ---- records -------------------------------------------------------------------------------------
@reads("/dcat", media=LD, answers=Answers(kinds={LD: DCAT}))
def all_dcat(asking: Asking) -> Json:
    """Every dataset that may be shown, as a catalog in DCAT 3."""
    found = [_dcat(asking, *each) for each in asking.datasets()]
    return {
        "@context": CONTEXT,
        "@id": f"{asking.address}/dcat",
        "@type": "dcat:Catalog",
        "title": "What is published here",
        "dcat:dataset": [{n: v for n, v in each.items() if n != "@context"} for each in found],
    }


@reads(f"{_VERSION}/dcat", media=LD, answers=Answers(kinds={LD: DCAT}))
def one_dcat(asking: Asking, dataset_id: str, which: str) -> Json:
    """A version in DCAT 3; what it says of itself, byte for byte, is `proofs/dcat`."""
    ref, facts = asking.facts(which_of(dataset_id, which))
    return _dcat(asking, asking.workspace.require(dataset_id), ref, facts)


def _dcat(asking: Asking, entry: DatasetEntry, ref: Ref, facts: VersionFacts) -> Json:
    made = asking.world.store.read(lambda tx: tx.index.generation(ref.dataset_id, ref.generation))
    at = appended_at(asking.world, made) if made is not None else None
    said = describe(entry, facts, generation=ref.generation, modified=at)
    told: Json = canonical.loads(dcat(said))
    base = f"{asking.address}/datasets/{ref.dataset_id}/versions/{ref.version_id}/files"
    for each in told.get("distribution", ()):
        name = str(each["dcat:downloadURL"]).rpartition(f"{ref.version_id}/")[2]
        each["dcat:downloadURL"] = each["dcat:accessURL"] = f"{base}/{name}"
    return told


@reads(f"{_VERSION}/prov", answers=Answers(kinds={JSON: PROV}))
def prov(asking: Asking, dataset_id: str, which: str) -> Response[bytes]:
    """Where a version comes from, in PROV-JSON."""
    found = asking.proofs(which_of(dataset_id, which)).files.get("prov")
    if found is None:
        raise Hidden
    return Response(found.raw, media_type="application/json")


@reads(f"{_VERSION}/openlineage", answers=Answers(kinds={JSON: OPENLINEAGE}))
def one_openlineage(asking: Asking, dataset_id: str, which: str) -> Response[bytes]:
    """The run that made a version, as an event of OpenLineage."""
    text = which_of(dataset_id, which)
    made, (_, facts) = asking.proofs(text).made, asking.facts(text)
    record = asking.world.store.read(lambda tx: known_lineage(tx, made.run_id))
    at = appended_at(asking.world, made)
    if record is None or at is None:
        raise Hidden
    about = About(
        run_id=record.run_id,
        dataset_id=dataset_id,
        updater_id=record.updater_id,
        updater_version=record.updater_version,
        inputs=record.inputs,
        spec=None,
        closed=asking.world.is_withheld(dataset_id),
    )
    output = Output(
        schema=facts.schema,
        profile=facts.profile,
        artifacts=facts.artifacts,
        verdicts=(),
        columns=(),
    )
    return Response(completed(record, at, about, output), media_type="application/json")


@reads(f"{_VERSION}/lineage", page="lineage")
def lineage(
    asking: Asking,
    dataset_id: str,
    which: str,
    up: Annotated[int, _STEPS] = 10,
    down: Annotated[int, _STEPS] = 10,
) -> Lineage:
    """What a version comes from and what comes from it."""
    if not (0 <= up <= 100 and 0 <= down <= 100):
        raise BadQuestion("up and down are 0 to 100.", "up")
    ref = asking.known(which_of(dataset_id, which))
    return around(asking, f"{ref.dataset_id}@{ref.version_id}", up, down)


def around(asking: Asking, what: str, up: int, down: int) -> Lineage:
    """The same of a version, a run, or the address of a source. That something of it is hidden is told
    to nobody.
    """

    def walked() -> Walk:
        viewer, on = asking.viewer.reader, asking.check_time
        return walk(asking.world, what, up=up, down=down, reader=viewer, on=on)

    asking.limit_time()
    if is_dataset(what.partition("@")[0]):
        with asking.let_through(what):
            found = walked()
    else:  # whose it is, nobody knows before it is found
        try:
            found = walked()
        except (UsageError, Denied, IntegrityError) as nothing:
            raise Hidden from nothing
    return Lineage(start=found.start, points=found.points, lines=found.lines)


# ---- what changed, and why -----------------------------------------------------------------------
@reads(f"{_VERSION}/diff", page="diff")
def diff(
    asking: Asking,
    dataset_id: str,
    which: str,
    since: Annotated[str | None, named(pattern=f"^$|{WHICH}")] = None,
    limit: Annotated[int, named(minimum=0, maximum=1000)] = 50,
) -> Diff:
    """What is other than in the version before, or in `since`."""
    if not 0 <= limit <= 1000:
        raise BadQuestion("limit is 0 to 1000.", "limit")
    new = asking.data(which_of(dataset_id, which))
    before = since or _before(asking, new)
    old = asking.data(which_of(dataset_id, before)) if before else nothing_before(new)
    return diff_of(old, new, limit)


def _before(asking: Asking, new: Opened) -> str:
    """The last version before that is another; empty: there is none to be seen."""
    for made, _ in asking.versions(new.dataset_id):
        if made.generation < int(new.generation or 0) and made.version_id != new.version_id:
            return str(made.generation)
    return ""


@reads(f"{_VERSION}/story", page="story")
def story(asking: Asking, dataset_id: str, which: str) -> Story:
    """How a version was produced, each sentence with the files that show it."""
    ref = asking.known(which_of(dataset_id, which))
    text = f"{ref.dataset_id}@{ref.generation}"
    with asking.let_through(text):
        return story_of(asking.world, text, asking.viewer.reader)


@reads(f"{_VERSION}/blame", page="blame")
def blamed(
    asking: Asking, dataset_id: str, which: str, key: str, column: str | None = None
) -> Blame:
    """Who gave a row its values: `key` is `COLUMN=VALUE`, several with a comma between them; a comma in
    a value has a backslash before it.
    """
    library("pyarrow", "reads Parquet")
    ref = asking.known(which_of(dataset_id, which))
    text = f"{ref.dataset_id}@{ref.generation}"
    asking.limit_time()
    with asking.let_through(text, known=True):
        found = blame(asking.world, text, _parts_of(key), column, asking.viewer.reader, None)
    # which generations somebody else may look at is nobody's business
    return msgspec.structs.replace(found, not_shown=())


def _parts_of(key: str) -> list[str]:
    r"""What a key says of each column; a comma in a value is `\,` and a backslash `\\`."""
    return [re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in _PARTS.findall(key)]


ROUTES: tuple[HTTPRouteHandler, ...] = (
    cite, all_dcat, one_dcat, prov, one_openlineage, lineage, diff, story, blamed,
)  # fmt: skip
