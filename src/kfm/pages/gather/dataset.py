"""What the page of a dataset tells."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock

from kfm.access.boundary import Opened
from kfm.access.derived import tiles_of
from kfm.access.references import Ref, generations_of
from kfm.access.status import DatasetStatus, dataset_status
from kfm.data.history import history
from kfm.data.shown import Map, Profile, Shown
from kfm.evidence.append_times import appended_at
from kfm.model import DatasetEntry, Generation, KfmError, VersionFacts
from kfm.model.origin import told as told_origin
from kfm.pages import addresses
from kfm.pages.dataset import Cited, DatasetPage, File, Held, Snippet, Standing
from kfm.pages.gather.asks import Asks
from kfm.pages.gather.places import MOST
from kfm.pages.gather.standing import Told, standing_of
from kfm.pages.parts import Message
from kfm.pages.words import lasting, when
from kfm.reader.files import tables_of
from kfm.upkeep.citation import quoted, receipt_of
from kfm.world.world import World

__all__ = ["dataset_page", "made_of", "preview"]

FEW = MOST  # places that a map draws without tiles
_VERSIONS = 12
_FIRST = 12
_MANY = 2_000_000  # rows: beyond, only what the version says of its columns is told
_WHAT = {
    ".parquet": "GeoParquet",
    ".pmtiles": "Map tiles (PMTiles)",
    ".tif": "Raster (COG)",
    ".geojson": "GeoJSON",
    ".csv": "CSV",
}


def dataset_page(asks: Asks, dataset_id: str) -> DatasetPage:
    ref = asks.known(dataset_id)
    entry = asks.entry(dataset_id)
    status = dataset_status(asks.world, dataset_id)
    told = standing_of(asks.world, status, entry, operator=asks.is_operator)
    held = _held(asks, entry, ref)
    past = history(asks.world, dataset_id, asks.reader, _VERSIONS)
    return DatasetPage(
        address=addresses.dataset(dataset_id),
        title=entry.title,
        card=f"{asks.address}{addresses.card(dataset_id)}",
        command=f"kfm explain {dataset_id}",
        dataset_id=dataset_id,
        description=entry.description,
        label=entry.policy_label or entry.sensitivity,
        care=entry.care_label,
        licence=entry.licence,
        rights=entry.rights,
        custodian=entry.custodian,
        owners=tuple(name.partition("<")[0].strip() for name in entry.owners),
        cadence=entry.cadence,
        source=entry.source.kind,
        standing=_standing(asks, status, told, held),
        held=held,
        versions=past.generations,
        earlier=past.earlier,
        used_by=_used_by(asks, dataset_id),
    )


def _standing(asks: Asks, status: DatasetStatus, told: Told, held: Held) -> Standing:
    since = f" since {when(held.official_at)}" if held.official_at else ""
    if asks.is_copy:
        sentence = f"Generation {held.generation} was official{since} when this copy was made."
        return Standing(state="noop", word="A copy", note="", sentence=sentence)
    sentence = f"Generation {held.generation} is official{since}."
    if told.age_s is not None:
        sentence += f" Its source was last asked {lasting(told.age_s)} ago."
    trouble = None
    if asks.is_operator and told.state in ("denied", "failed", "wait"):
        trouble = Message(happened=told.note, remedy=_pasted(status.next))
    return Standing(
        state=told.state,
        word=told.word,
        note="" if trouble else told.note,
        sentence=sentence,
        trouble=trouble,
    )


def _pasted(next_command: str | None) -> str:
    return f"`{next_command}`" if next_command else ""


# ---- what the official version holds -------------------------------------------------------------
def _held(asks: Asks, entry: DatasetEntry, ref: Ref) -> Held:
    text = f"{ref.dataset_id}@{ref.generation}"
    facts, opened = asks.facts(text), asks.data(text)
    shown, places = preview(opened, facts)
    made = made_of(asks.world, ref)
    # tiles leave out what is too dense to see: few places are drawn exactly
    tiled = facts.rows > FEW and tiles_of(asks.world, opened) is not None
    forms = ("csv", "geojson") if _has_places(facts) else ("csv",)
    files = tuple(_files(opened, facts.rows, forms))
    return Held(
        version_id=ref.version_id,
        version_digest=ref.version_digest,
        generation=ref.generation,
        official_at=appended_at(asks.world, made) if made is not None else None,
        rows=facts.rows,
        columns=tuple(shown.columns),
        units={c.name: c.unit for c in facts.schema if c.unit},
        first=tuple(shown.first),
        bbox=facts.bbox,
        interval=facts.interval,
        map=places,
        tiles=addresses.tiles(ref.dataset_id, ref.version_id) if tiled else None,
        layer=ref.dataset_id,
        files=files,
        cite=_cited(asks, entry, ref),
        snippets=_snippets(ref, files, asks.address, asks.is_copy, forms[-1]),
        origin=tuple(told_origin([o]) for o in facts.origin or ()),
        receipt=receipt_of(asks.world, ref.dataset_id, ref.version_id),
        h3_resolution=facts.h3_resolution,
        key=() if asks.is_copy else _key(entry, facts),
    )


def _key(entry: DatasetEntry, facts: VersionFacts) -> tuple[str, ...]:
    """What a row is known by, where all of it is shown."""
    names = {c.name for c in facts.schema}
    return tuple(entry.business_key) if names >= {*entry.business_key} else ()


def made_of(world: World, ref: Ref) -> Generation | None:
    rows = generations_of(world, ref.dataset_id)
    return next((g for g in rows if g.generation == ref.generation), None)


def _cited(asks: Asks, entry: DatasetEntry, ref: Ref) -> Cited:
    found, text = quoted(asks.world, entry, ref), f"{ref.dataset_id}@{ref.generation}"
    return Cited(
        text=found.text(text).splitlines()[0],
        bibtex=found.bibtex,
        command=f"kfm cite {text} --format bibtex",
    )


def _has_places(facts: VersionFacts) -> bool:
    return any(column.type == "geometry" for column in facts.schema)


def _files(opened: Opened, rows: int, forms: Sequence[str]) -> list[File]:
    found = []
    for name, path in sorted(opened.files.items()):
        found.append(
            File(
                name=name,
                what=_WHAT.get(Path(name).suffix, name),
                bytes=path.stat().st_size if path.is_file() else None,
                digest=opened.digests[name],
                href=addresses.asset(opened.dataset_id, opened.version_id, name),
            )
        )
    if any(f.name.endswith(".parquet") for f in found):
        for form in forms:
            what = {"csv": "CSV", "geojson": "GeoJSON"}[form]
            href = addresses.rows(opened.dataset_id, opened.version_id, form)
            some = (
                f"{what}, the first {addresses.MOST_ROWS:,} rows"
                if rows > addresses.MOST_ROWS
                else what
            )
            found.append(File(name=f"rows.{form}", what=some, bytes=None, digest="", href=href))
    return found


def _snippets(
    ref: Ref, files: tuple[File, ...], origin: str, copy: bool, form: str
) -> tuple[Snippet, ...]:
    table = next((f.href for f in files if f.name.endswith(".parquet")), None)
    if table is None:
        return ()
    url, rows = f"{origin}{table}", addresses.rows(ref.dataset_id, ref.version_id, form)
    stac = (
        ""
        if copy or form != "geojson"
        else f"\n\nOr Layer, Add Layer, Add STAC Layer: {origin}/stac"
    )
    return tuple(
        Snippet(language=language, lines=lines)
        for language, lines in (
            ("Python", f'import pandas\n\nrows = pandas.read_parquet("{url}")'),
            (
                "Python, beside the workspace",
                f'import kfm\n\nrows = kfm.open().dataset("{ref.dataset_id}").latest().to_pandas()',
            ),
            ("R", f'library(arrow)\n\nrows <- read_parquet(url("{url}"))'),
            ("DuckDB", f"SELECT * FROM read_parquet('{url}') LIMIT 10;"),
            (
                "QGIS",
                "Layer, Add Layer, Add Vector Layer, Protocol: HTTP(S), then this address:\n"
                f"{origin}{rows}{stac}",
            ),
        )
        if not (copy and "workspace" in language)
    )


def _used_by(asks: Asks, dataset_id: str) -> tuple[str, ...]:
    from kfm.lineage.ask import impact

    try:
        found = impact(asks.world, dataset_id, asks.reader)
    except KfmError:
        return ()
    return tuple(a.dataset_id for a in found.affected if a.official and a.dataset_id != dataset_id)


# ---- previews, which are the same for ever for the same bytes ------------------------------------
_kept: OrderedDict[str, tuple[Shown, Map | None]] = OrderedDict()
_lock = Lock()
_KEPT = 32


def preview(opened: Opened, facts: VersionFacts) -> tuple[Shown, Map | None]:
    """Rows, columns and places of a version the boundary let out; read once for its digest, and
    only while the tables are those of it.
    """
    if facts.rows > _MANY:
        return _stated(facts), None
    tables = tables_of(opened)
    with _lock:
        if opened.version_digest in _kept:
            _kept.move_to_end(opened.version_digest)
            return _kept[opened.version_digest]
    found = _looked(tables, facts)
    with _lock:
        _kept[opened.version_digest] = found
        while len(_kept) > _KEPT:
            _kept.popitem(last=False)
    return found


def _looked(tables: Mapping[str, Path], facts: VersionFacts) -> tuple[Shown, Map | None]:
    if not tables:
        return _stated(facts), None
    from kfm.data import show  # pyarrow: only where a table is looked at

    return show.preview(tables, _FIRST)


def _stated(facts: VersionFacts) -> Shown:
    """What a version says of its columns, without looking at its rows."""
    columns = [
        Profile(
            name=c.name,
            type=c.type,
            missing=p.nulls if (p := facts.profile.get(c.name)) is not None else 0,
            distinct=None,
            lowest=p.min if p is not None else None,
            highest=p.max if p is not None else None,
        )
        for c in facts.schema
    ]
    return Shown(rows=facts.rows, columns=columns, first=[], bbox=None)
