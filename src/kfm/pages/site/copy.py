"""Everything that goes into a static copy: asked of the reader, then linked and written."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from kfm.access.references import dataset_of
from kfm.model import Denied, Json, UsageError
from kfm.pages.site.answers import HERE, Answer, NotAnswered, ask, ask_into
from kfm.pages.site.index import IndexPage, Row, forward, render
from kfm.pages.site.links import Links
from kfm.pages.site.scripts import one_script
from kfm.pages.static_files import FILES
from kfm.reader.app import ReaderApp

__all__ = ["LeftOut", "Wanted", "copied", "wanted_of"]

How = Literal["page", "json", "text"]
_ROWS = 10_000  # of a table, as the reader hands out at once
_FORMS = {"bibtex": "bib", "ris": "ris", "text": "txt", "csl": "csl.json"}
_SCRIPTS = ("kfm.css", "map.mjs", "row.mjs")  # the map library comes with it


class Wanted(NamedTuple):
    """A dataset as a whole, or versions of it."""

    dataset_id: str
    which: tuple[str, ...] = ()


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset that is not in a copy, and why."""

    dataset_id: str
    why: str


def wanted_of(refs: Sequence[str]) -> list[Wanted]:
    """References, by dataset; one that is asked for as a whole is not asked for in parts."""
    found: dict[str, list[str]] = {}
    whole = set()
    for ref in refs:
        name, which = dataset_of(ref), ref.partition("@")[2]
        found.setdefault(name, []).append(which)
        whole |= set() if which else {name}
    return [
        Wanted(name, () if name in whole else tuple(dict.fromkeys(each)))
        for name, each in sorted(found.items())
    ]


class _Copy:
    """A copy while it is made: what is answered is kept by its address, large files on the disk."""

    def __init__(self, app: ReaderApp, folder: Path) -> None:
        self.app, self.folder = app, folder
        self.places: dict[str, tuple[How, bytes]] = {}  # by file, until they are linked
        self.files: dict[str, str] = {}  # address -> file
        self.rows: list[Row] = []

    async def text(self, address: str, file: str, how: How) -> Answer:
        """Ask for what is linked to others. Raises `NotAnswered`."""
        found = await ask(self.app, address, page=how == "page")
        if how == "page" and not found.kind.startswith("text/html"):
            raise NotAnswered(address, 404)
        self.places[file] = (how, found.body)
        self.files[address] = file
        return found

    async def maybe(self, address: str, file: str, how: How) -> None:
        """The same, where not every version has it."""
        try:
            await self.text(address, file, how)
        except NotAnswered as nothing:
            if nothing.status != 404:
                raise

    async def raw(self, address: str, file: str, *, needed: bool = True) -> None:
        """Bytes that stay as they are."""
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            await ask_into(self.app, address, path)
            self.files[address] = file
        except NotAnswered as nothing:
            path.unlink(missing_ok=True)
            if needed or nothing.status != 404:
                raise


async def copied(
    app: ReaderApp, wanted: Sequence[Wanted], folder: Path, at: str
) -> tuple[dict[str, list[int]], list[LeftOut]]:
    """Fill a folder; which generations of which dataset are in it, and what is not. What was changed
    meanwhile is in none.
    """
    copy, left_out, taken = _Copy(app, folder), list[LeftOut](), dict[str, list[int]]()
    before: dict[str, bytes] = {}
    for each in wanted:
        try:
            before[each.dataset_id] = await _standing(app, each.dataset_id)
        except NotAnswered as no:
            left_out.append(LeftOut(dataset_id=each.dataset_id, why=_why(no)))
            continue
        taken[each.dataset_id] = await _dataset(copy, each, before[each.dataset_id])
    if not taken:
        said = "; ".join(f"{one.dataset_id}: {one.why}" for one in left_out)
        raise Denied(
            f"There is nothing to copy. {said}".strip(),
            expected="a dataset that anybody may read",
            remedy="`kfm status` says what is published, `kfm explain ID` why one is not.",
        )
    await copy.text("/about", "about/index.html", "page")
    await copy.text("/about.json", "about.json", "json")
    _scripts(copy)
    _index(copy)
    links = Links(copy.files, at)
    for file, (how, body) in copy.places.items():
        _write(folder / file, _linked(links, file, how, body))
    for name, then in before.items():
        if await _standing(app, name) != then:
            raise _changed(name)
    return taken, left_out


async def _standing(app: ReaderApp, dataset_id: str) -> bytes:
    """How the channel of a dataset stands for anybody now."""
    return (await ask(app, f"/datasets/{quote(dataset_id)}/versions.json")).body


def _why(no: NotAnswered) -> str:
    return {
        403: "its label asks something of who reads it, which a copy cannot",
        451: "it was public, and may not be shown now",
    }.get(no.status, "nothing of it is public")


def _changed(dataset_id: str) -> UsageError:
    return UsageError(
        f"{dataset_id} was changed while it was copied; nothing was written.",
        expected="versions, labels and rules that stay for as long as it takes",
        remedy="Export again.",
    )


# ---- what is asked for ---------------------------------------------------------------------------
async def _dataset(copy: _Copy, wanted: Wanted, standing: bytes) -> list[int]:
    name, told = wanted.dataset_id, msgspec.json.decode(standing)
    made: list[Json] = told["generations"]
    base, folder = f"/datasets/{name}", f"datasets/{name}"
    chosen = made if not wanted.which else [await _one(copy, base, w) for w in wanted.which]
    try:
        about = msgspec.json.decode(
            (await copy.text(f"{base}.json", f"{folder}.json", "json")).body
        )
        if not wanted.which:
            await copy.text(base, f"{folder}/index.html", "page")
            copy.files[f"{base}/card.svg"] = f"{folder}/versions/{about['version_id']}/card.svg"
            await copy.text(f"{base}/feed", f"{folder}/feed.xml", "text")
            await copy.text(f"{base}/versions.json", f"{folder}/versions.json", "json")
            await copy.text(f"/lineage/{name}", f"lineage/{name}/index.html", "page")
            await copy.text(f"/lineage/{name}.json", f"lineage/{name}.json", "json")
            await _table(copy, f"{base}/versions/{about['version_id']}")
        for generation in sorted({int(g["generation"]) for g in chosen}):
            await _generation(copy, base, generation)
        for version_id in sorted({str(g["version_id"]) for g in chosen}):
            await _version(copy, name, version_id)
    except NotAnswered as no:
        raise _changed(name) from no
    page = base if not wanted.which else f"{base}/versions/{chosen[0]['generation']}"
    copy.rows.append(_row(about, page))
    return sorted({int(g["generation"]) for g in chosen})


async def _one(copy: _Copy, base: str, which: str) -> Json:
    """The generation that a reference names."""
    try:
        found: Json = msgspec.json.decode(
            (await ask(copy.app, f"{base}/versions/{quote(which)}.json")).body
        )
    except NotAnswered as no:
        raise UsageError(
            f"{base.rpartition('/')[2]}@{which} is no version that anybody may have.",
            expected="one that `kfm history` lists",
            remedy="Name another, or the dataset for all of them.",
        ) from no
    return found


async def _table(copy: _Copy, address: str) -> None:
    """What the page of a dataset draws and lists: rows, places, tiles."""
    folder, rows = address.removeprefix("/"), f"{address}/rows"
    await copy.maybe(f"{rows}?limit={_ROWS}", f"{folder}/rows.json", "json")
    if f"{rows}?limit={_ROWS}" in copy.files:
        copy.files[rows] = copy.files[f"{rows}?limit={_ROWS}"]
    for form in ("csv", "geojson"):
        asked = f"{rows}?form={form}&limit={_ROWS}"
        try:
            await copy.raw(asked, f"{folder}/rows.{form}", needed=False)
        except NotAnswered as no:
            if no.status != 400:  # no place, no GeoJSON
                raise
    await copy.raw(f"{address}/places", f"{folder}/places.geojson", needed=False)
    await copy.raw(f"{address}/tiles", f"{folder}/tiles.pmtiles", needed=False)


async def _generation(copy: _Copy, base: str, generation: int) -> None:
    address = f"{base}/versions/{generation}"
    folder = address.removeprefix("/")
    await copy.text(address, f"{folder}/index.html", "page")
    await copy.maybe(f"{address}/diff", f"{folder}/diff/index.html", "page")
    await copy.text(f"{address}/story", f"{folder}/story/index.html", "page")
    await copy.text(f"{address}/ask", f"{folder}/ask/index.html", "page")
    await copy.raw(f"{address}/proofs/generation", f"{folder}/proofs/generation.json")


async def _version(copy: _Copy, name: str, version_id: str) -> None:
    address = f"/datasets/{name}/versions/{version_id}"
    folder = address.removeprefix("/")
    found = await copy.text(f"{address}.json", f"{folder}.json", "json")
    told = msgspec.json.decode(found.body)
    for what in ("story", "diff", "lineage", "cite"):
        await copy.text(f"{address}/{what}.json", f"{folder}/{what}.json", "json")
        copy.files[f"{address}/{what}"] = f"{folder}/{what}.json"
    for what in ("dcat", "openlineage"):
        await copy.maybe(f"{address}/{what}", f"{folder}/{what}.json", "json")
    await copy.raw(f"{address}/prov", f"{folder}/prov.json", needed=False)
    await copy.raw(f"{address}/card.svg", f"{folder}/card.svg")
    for form, end in _FORMS.items():
        await copy.text(f"{address}/cite?form={form}", f"{folder}/cite.{end}", "text")
    evidence = f"/evidence/{name}@{version_id}"
    await copy.text(f"{evidence}.json", f"{evidence[1:]}.json", "json")
    copy.files[evidence] = f"{evidence[1:]}.json"
    own = f"/datasets/{name}/versions/{told['generation']}"
    pages = [copy.places[copy.files[a]][1].decode() for a in (own,) if a in copy.files]
    inside = re.compile(rf'"({re.escape(address)}/(?:files|proofs)/[^"]+)"')
    hrefs = [href for page in pages for href in inside.findall(page)]
    hrefs += [str(f["address"]).removeprefix(HERE) for f in (*told["files"], *told["proofs"])]
    for href in dict.fromkeys(hrefs):
        await copy.raw(href, _named(href))
    if pages:  # the address by its id stays what it is for ever
        copy.places[f"{folder}/index.html"] = ("page", forward(f"../{told['generation']}/"))
        copy.files[address] = f"{folder}/index.html"


def _named(href: str) -> str:
    """A file by its own name; what proves something has none that a host knows the kind of."""
    file = unquote(href.removeprefix("/"))
    if "/proofs/" not in href:
        return file
    return f"{file}.txt" if file.endswith("/checksums") else f"{file}.json"


# ---- what is written -----------------------------------------------------------------------------
def _linked(links: Links, file: str, how: How, body: bytes) -> bytes:
    if how == "json":
        return links.json(body, file)
    text = body.decode()
    return (links.html(text, file) if how == "page" else links.words(text, file)).encode()


def _write(path: Path, body: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


def _scripts(copy: _Copy) -> None:
    """The style sheet, one script for everything but the map, and the map with its library."""
    _write(copy.folder / "static/site.js", one_script().encode())
    copy.files["/static/site.js"] = "static/site.js"
    for name, path in FILES.items():
        if name in _SCRIPTS or name.startswith("vendor/"):
            _write(copy.folder / "static" / name, path.read_bytes())
            copy.files[f"/static/{name}"] = f"static/{name}"


def _index(copy: _Copy) -> None:
    page = IndexPage(
        address="/",
        title="Datasets",
        command="kfm export site " + " ".join(row.dataset_id for row in copy.rows) + " -o DIR",
        datasets=tuple(copy.rows),
    )
    copy.places["index.html"] = ("page", render(page).encode())
    copy.places["index.json"] = ("json", msgspec.json.encode(page))
    copy.files |= {
        "/": "index.html",
        "/datasets": "index.html",
        "/home.json": "index.json",
    }


def _row(about: Json, page: str) -> Row:
    return Row(
        dataset_id=about["dataset_id"],
        title=about["title"],
        description=about["description"],
        licence=about["licence"],
        label=about["policy_label"] or about["sensitivity"],
        rows=about["rows"],
        generation=about["generation"],
        address=f"{HERE}{page}",
    )
