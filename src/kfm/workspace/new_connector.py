"""The files of a new connector: drawn from what its author says of the source and, where a file is
brought, from that.
"""

import re
import shlex
from pathlib import Path

import msgspec

from kfm.model import PACKED, Json, UsageError, check_id, guessed, kind_of, known_kinds
from kfm.model.kinds import Guess
from kfm.workspace.brought_file import (
    BroughtFile,
    BroughtRecords,
    BroughtTable,
    BroughtWhole,
    record_path,
    table_in,
)
from kfm.workspace.config import check_source_url

__all__ = ["Asked", "Drawn", "draw"]

TEMPLATE = Path(__file__).parents[1] / "template"
SKELETON = Path("scripts", "connectors", "_templates", "dataset_connector_skeleton")
_NESTED = ("json", "geojson")
_FORMATS = "--format csv, json, geojson, xlsx, ods, xml, parquet or gpkg"
_TEXT = ("csv", "tsv", "txt", "tab", "dat", "psv", "asc")  # what a CSV is called
# kinds whose files cannot be cut: all of a small one is the sample
_WHOLE = ("spreadsheet", "xml", "parquet", "geopackage", "fixed_width")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What an author says of a new connector."""

    file: Path | None = None
    url: str = ""
    kind: str = ""
    format: str = ""
    sensitivity: str = "public"
    title: str = ""
    licence: str = ""
    policy_label: str = ""
    key: tuple[str, ...] = ()
    time_column: str = ""
    encoding: str | None = None

    @property
    def name(self) -> str:
        """What the file is called, here or there."""
        return self.file.name if self.file is not None else self.url.split("?")[0]

    @property
    def hidden(self) -> bool:
        """Whether not all of it may be shown."""
        return self.sensitivity != "public" or self.policy_label not in ("", "public")


class Drawn(msgspec.Struct, frozen=True):
    """Every file of a new connector, below the workspace, and its registry entry."""

    files: dict[Path, bytes | Path]
    entry: Json


def draw(name: str, asked: Asked) -> Drawn:
    """Nothing is written."""
    folder, source = Path("scripts", "connectors", name), _source(name, asked)
    files: dict[Path, bytes | Path] = {}
    stated, key, time_column = "", list(asked.key), asked.time_column
    if asked.file is not None:
        plain = check_id(re.sub(r"[^A-Za-z0-9._-]+", "-", asked.file.name), "file name")
        if not asked.url:
            source["url"] = f"file:///inbox/{name}/{plain}"
            files[Path("inbox", name, plain)] = asked.file
        brought = _brought(name, asked, asked.file, source)
        mapped = source["kind"] == "delimited"
        if isinstance(brought, BroughtTable) and mapped:
            key, time_column = [brought.named(k) for k in key], brought.named(time_column)
        _check_columns(asked.file.name, brought, [*key, time_column])
        if asked.sensitivity == "public":  # a slice of what is not is for its author to make up
            files[folder / "fixtures" / plain] = brought.sample
        if isinstance(brought, BroughtTable) and mapped:
            key, stated = [], brought.stated(name)  # the connector says which
            files[folder / "mapping.yml"] = brought.mapping()
    source |= {k: v for k, v in (("time_column", time_column), ("encoding", asked.encoding)) if v}
    check_source_url(source["url"], "--url")
    for path, content in _skeleton(name, source["kind"], stated).items():
        files.setdefault(path, content)
    return Drawn(files, _entry(name, asked, source, key))


def _entry(name: str, asked: Asked, source: Json, key: list[str]) -> Json:
    return {
        "dataset_id": name,
        "title": asked.title or name.replace("_", " ").capitalize(),
        **({"licence": asked.licence} if asked.licence else {}),
        "sensitivity": asked.sensitivity,
        "policy_label": asked.policy_label or asked.sensitivity,
        "source": source,
        **({"business_key": key} if key else {}),
        "cadence": "daily",
    }


def _source(name: str, asked: Asked) -> Json:
    """What the registry says of the source, as far as it can be told without its bytes."""
    if asked.kind and asked.kind not in known_kinds():
        raise UsageError(
            f"{name}: there is no kind of source {asked.kind!r}.",
            expected=", ".join(known_kinds()),
            remedy="Name one of these, or leave --kind out.",
        )
    seems = guessed(asked.file.name if asked.file else asked.url, asked.format or None)
    if asked.file is not None and seems is None and not asked.kind:
        _refuse_riddle(name, asked.file)
    packed = seems.packed if seems is not None else _packing(asked)
    kind = asked.kind or _kind(asked, seems, packed)
    source: Json = {
        "kind": kind,
        "url": asked.url,
        "format": asked.format or _ending(asked, kind, seems),
    }
    source |= {"packed": packed} if packed else {}
    if kind == "fixed_width":  # which columns there are is for its author to say
        source["options"] = {"columns": [{"name": "line", "start": 1, "width": 1000}]}
    return source


def _refuse_riddle(name: str, file: Path) -> None:
    """A file whose name does not say what it is; text that may be a CSV is taken for one."""
    _, *ends = file.name.lower().split(".")
    if ends and (ends[-1] in PACKED or ends[-1] not in _TEXT):
        what = "is in it" if ends[-1] in PACKED else "it is"
        raise UsageError(
            f"The name of {file.name} does not say what {what}.",
            expected=f"--kind fixed_width, or {_FORMATS}",
            remedy=f"`kfm connector new {name} --file {shlex.quote(str(file))} --format csv`, for one.",
        )


def _kind(asked: Asked, seems: Guess | None, packed: str) -> str:
    known = seems is not None and (seems.kind != "http_file" or seems.format in _NESTED or packed)
    if seems is not None and known:
        return seems.kind
    return "delimited" if asked.file and asked.sensitivity == "public" else "http_file"


def _packing(asked: Asked) -> str:
    """What a file of a stated kind is packed in, by how its name ends; some kinds are archives
    themselves.
    """
    end = asked.name.rpartition(".")[2].lower()
    known = kind_of(asked.kind) if asked.kind else None
    return PACKED.get(end, "") if known is not None and end != known.format else ""


def _ending(asked: Asked, kind: str, seems: Guess | None) -> str:
    end = asked.name.rpartition(".")[2].lower()
    if seems is not None and seems.kind == kind:
        return seems.format
    if (known := kind_of(kind)) is not None:
        return end if end in known.formats else known.format
    raise UsageError(
        "The address does not say which format the file has.",
        expected=_FORMATS,
        remedy="Repeat it with one of these behind; `--format json`, for one.",
    )


def _brought(name: str, asked: Asked, file: Path, source: Json) -> BroughtFile:
    """Look at the file; of XML also where its records are."""
    kind, packed = source["kind"], source.get("packed", "")
    if kind == "xml":
        source["options"] = {"records": record_path(file, packed, asked.encoding)}
    if kind == "spreadsheet" and not packed and (where := table_in(file, source["format"])):
        source["options"] = where
    if packed or kind in _WHOLE:
        return BroughtWhole(name, source, file, asked.encoding)
    if kind == "http_file" and source["format"] in _NESTED:
        return BroughtRecords(name, source["format"], file, asked.encoding)
    return BroughtTable(file, asked.encoding, asked.key, mapped=kind == "delimited")


def _check_columns(file: str, brought: BroughtFile, named: list[str]) -> None:
    unknown = [c for c in named if c and c not in brought.columns]
    if unknown:
        raise UsageError(
            f"{file} has no column {unknown[0]}.",
            expected=f"one of {', '.join(brought.columns)}",
            remedy="Choose one of these for --key and --time-column.",
        )


def _skeleton(name: str, kind: str, stated: str) -> dict[Path, bytes | Path]:
    """What every connector begins with, and what all share, which comes with the first."""
    shared = SKELETON.parents[1] / "README.md"
    found: dict[Path, bytes | Path] = {shared: TEMPLATE / shared}
    for path in sorted((TEMPLATE / SKELETON).rglob("*")):
        relative = path.relative_to(TEMPLATE / SKELETON)
        unneeded = relative.name == "mapping.yml" and kind != "delimited"
        if not path.is_file() or "__pycache__" in relative.parts or relative.name == ".gitkeep":
            continue
        if not unneeded:
            text = path.read_text().replace(SKELETON.name, name)
            if stated and relative.name == "connector.py":
                text = text.replace(f'source("{name}")', stated, 1)
                text = text.replace("Row, source", "Row, column, source", 1)
            found[Path("scripts", "connectors", name) / relative] = text.encode()
    return found
