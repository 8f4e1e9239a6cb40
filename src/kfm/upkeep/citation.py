"""How a version is cited: it names exactly these bytes for ever, and says how to check them."""

from typing import Literal
from unicodedata import category

import msgspec

from kfm.access.references import Ref
from kfm.evidence.receipts import find_receipt
from kfm.evidence.version_records import origin_of
from kfm.model import DatasetEntry, Json
from kfm.model.origin import worded
from kfm.world.world import World

__all__ = ["FORMS", "Form", "Quoted", "quoted", "receipt_of"]

Form = Literal["text", "bibtex", "csl"]
FORMS: tuple[Form, ...] = ("text", "bibtex", "csl")


class Quoted(msgspec.Struct, frozen=True, kw_only=True):
    """A citation, before it is written in one of its forms."""

    ref: Ref
    title: str
    licence: str | None
    by: str
    year: str  # or n.d.
    root: str
    origin: tuple[str, ...]

    def __post_init__(self) -> None:
        """A line of its own, or a tab, would be another field, or another record, to who reads it."""
        for name in ("title", "by", "licence"):
            if (text := getattr(self, name)) is not None:
                msgspec.structs.force_setattr(self, name, _one_line(text))
        msgspec.structs.force_setattr(self, "origin", tuple(map(_one_line, self.origin)))

    @property
    def address(self) -> str:
        return f"kfm://dataset/{self.ref.dataset_id}@{self.ref.version_id}"

    @property
    def csl(self) -> Json:
        """As reference managers read it."""
        origin = f", origin {', '.join(self.origin)}" if self.origin else ""
        return {
            "id": f"{self.ref.dataset_id}-{self.ref.version_id}",
            "type": "dataset",
            "title": self.title,
            "publisher": self.by,
            "version": self.ref.version_id,
            "issued": {"date-parts": [[int(self.year)]]} if self.year.isdigit() else {},
            "URL": self.address,
            "license": self.licence,
            "note": (
                f"sha256:{self.ref.version_digest}, generation {self.ref.generation}, root"
                f" {self.root}{origin}"
            ),
        }

    @property
    def bibtex(self) -> str:
        return (
            f"@misc{{{self.ref.dataset_id}_{self.ref.version_id[:9]},\n  title ="
            f" {{{_braced(self.title)}}},\n  author = {{{_braced(self.by)}}},\n  year = {{{self.year}}},\n  version ="
            f" {{{self.ref.version_id}}},\n  url = {{{self.address}}},\n  note ="
            f" {{{_braced(self.csl['note'])}}}\n}}"
        )

    @property
    def ris(self) -> str:
        """As RIS has it: a tag a line."""
        year = [f"PY  - {self.year}"] if self.year.isdigit() else []
        lines = [
            "TY  - DATA",
            f"TI  - {self.title}",
            f"AU  - {self.by}",
            *year,
            f"ET  - {self.ref.version_id}",
            f"UR  - {self.address}",
            f"N1  - {self.csl['note']}",
            "ER  -",
        ]
        return "\n".join(lines)

    def text(self, asked: str) -> str:
        """Two lines for people; `asked` is how they named it."""
        return (
            f"{self.by} ({self.year}). {self.title}, version {self.ref.version_id}. {self.licence}."
            f" {self.address}\n"
            f"sha256:{self.ref.version_digest}, generation {self.ref.generation}. Check: kfm bundle"
            f" {asked} -o f.zip; kfm verify f.zip --root {self.root}"
        )


def _one_line(text: str) -> str:
    """Without controls, surrogates and separators of lines; they are taken for spaces."""
    apart = ("Cc", "Cs", "Zl", "Zp")
    return " ".join("".join(" " if category(c) in apart else c for c in text).split())


def _braced(text: str) -> str:
    """As it may stand between braces: BibTeX counts them, whatever stands before one."""
    said = {"\\": "backslash", "{": "braceleft", "}": "braceright"}
    return "".join(f"\\text{said[c]} " if c in said else c for c in text)


def quoted(world: World, entry: DatasetEntry, ref: Ref) -> Quoted:
    """The citation of a version that the boundary let its reader know of."""
    row = world.store.read(lambda tx: tx.runs.maker_of(ref.dataset_id, ref.version_id))
    trust = world.keys.trust()
    origin = origin_of(world.data, ref.dataset_id, ref.version_id)
    return Quoted(
        ref=ref,
        title=entry.title,
        licence=entry.licence,
        by=worded(
            origin,
            entry.custodian
            or ", ".join(o.split(" <")[0] for o in entry.owners)
            or "unknown custodian",
        ),
        year=row.timestamp[:4] if row is not None else "n.d.",
        root=trust.fingerprint if trust is not None else "none",
        origin=tuple(origin),
    )


def receipt_of(world: World, dataset_id: str, version_id: str) -> str:
    """Where the receipt of the run that made a version lies; empty: no run made it, or it is not
    here.
    """
    row = world.store.read(lambda tx: tx.runs.maker_of(dataset_id, version_id))
    return (find_receipt(world.root, row.run_id) or "") if row is not None else ""
