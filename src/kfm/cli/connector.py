"""Make a connector that works, and check that connectors keep their contract.

kfm connector new DATASET                                         on a synthetic sample, to be replaced by yours
kfm connector new DATASET --file FILE.csv --licence SPDX          a CSV of yours: copied into the workspace, columns mapped
kfm connector new DATASET --file FILE.json --licence SPDX         JSON or GeoJSON of yours, copied too: its members are the columns
kfm connector new DATASET --url URL [--kind KIND] [--file SAMPLE]  a file somewhere else, with a sample to map it by
kfm connector check [DATASET…] [--golden]
"""

import csv
import io
import os
import re
import shutil
import tempfile
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kfm.cli.call import Parser, again, emit
from kfm.cli.terminal import sign
from kfm.connectors.base import InputFile, Refused
from kfm.connectors.operations import Read
from kfm.judge.gates.mandatory import is_spdx
from kfm.model import KINDS, Json, UsageError, check_dataset_id, check_id, column_names, kind_of
from kfm.workspace.config import check_source_url, new_entry
from kfm.workspace.folder import Workspace, open_workspace

if TYPE_CHECKING:
    from kfm.testing import Finding

__all__ = ["configure", "main"]

SKELETON = Path("scripts", "connectors", "_templates", "dataset_connector_skeleton")
SAMPLE_ROWS = 200
_MOST = 8 << 20  # of a file, looked at for its columns
_NESTED = ("json", "geojson")
# texts that may mean "no value"; the last two could also be a value of a text column
_NULLS = ("N/A", "n/a", "NA", "-")

SYNTHETIC = (  # made up; what a new connector is tried on until its author brings something better
    "site_id,name,observed_at,value,latitude,longitude\n"
    "S1,Sample one,2026-01-01T00:00:00Z,1.5,38.5,-98.3\n"
    "S2,Sample two,2026-01-02T00:00:00Z,0,37.9,-97.1\n"
    "S3,Sample three,2026-01-03T00:00:00Z,,39.2,-99.8\n"
    "S4,Sample four,2026-01-04T00:00:00Z,12.25,37.1,-95.6\n"
)


class _Kinds(tuple[str, ...]):
    """Those that are shown, and among which those count too that a package offers."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or kind_of(str(name)) is not None


def configure(parser: Parser) -> None:
    parser.add_argument("action", choices=("new", "check"))
    parser.add_argument(
        "dataset", nargs="*", metavar="DATASET", help="new: the id; check: default every connector"
    )
    parser.add_argument(
        "--file",
        type=Path,
        metavar="FILE",
        help="new: a CSV to map, JSON or GeoJSON; without --url it is the source, copied to inbox/",
    )
    parser.add_argument(
        "--url",
        help="new: where the file is; {since}, {until} and {partition} are filled at run time",
    )
    parser.add_argument(
        "--kind",
        choices=_Kinds(("http_file", *KINDS)),
        help=(
            "new: the kind of source; default: delimited for a public CSV as --file, else http_file"
        ),
    )
    parser.add_argument(
        "--format", help="new: what the bytes are; default: from the end of the file's name"
    )
    parser.add_argument("--title", help="new: default the id in words")
    parser.add_argument(
        "--licence",
        "--license",
        dest="licence",
        help="new: an SPDX id; without one nothing is published",
    )
    parser.add_argument(
        "--sensitivity",
        default="public",
        choices=("public", "restricted", "sensitive-location", "aggregate-only"),
        help="new: default public",
    )
    parser.add_argument(
        "--policy-label", default="", help="new: what policy reads; default: the sensitivity"
    )
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="COLUMN",
        help="new: a column of the business key, by its name here or in the file; default: guessed",
    )
    parser.add_argument("--time-column", help="new: the column a window is cut by")
    parser.add_argument("--encoding", help="new: of the file, when it is not UTF-8")
    parser.add_argument(
        "--force",
        action="store_true",
        help="new: add what is missing beside what is there; nothing is overwritten",
    )
    parser.add_argument(
        "--golden",
        action="store_true",
        help="check: accept what the fixtures give now, as fixtures/expected.json",
    )


def main(args: Namespace) -> int:
    workspace = open_workspace(args.workspace)
    return _new(workspace, args) if args.action == "new" else _check(workspace, args)


# ---- check ---------------------------------------------------------------------------------------
def _check(workspace: Workspace, args: Namespace) -> int:
    from kfm.testing import RULES, check_connector, write_golden  # with an extra: pyarrow

    folder = workspace.path / "scripts" / "connectors"
    names = args.dataset or sorted(
        p.name for p in folder.glob("*") if p.is_dir() and not p.name.startswith(("_", "."))
    )
    if not names:
        raise UsageError(
            "There is no connector here.",
            expected="scripts/connectors/<dataset_id>",
            remedy="`kfm connector new` makes one.",
        )
    for name in names:
        if not (folder / name).is_dir():
            # registered without a connector is a finding, a name nobody knows is a mistake
            workspace.require(name)
    for name in names if args.golden else ():
        workspace.require(name)
        write_golden(workspace.path, name)
    found = {name: check_connector(workspace.path, name) for name in names}
    if args.json:
        emit(
            {
                "connectors": [
                    {"dataset_id": n, "findings": [msgspec.to_builtins(f) for f in fs]}
                    for n, fs in found.items()
                ]
            }
        )
    else:
        for name, findings in found.items():
            broken = {f.rule for f in findings}
            print(
                f"  {sign('REJECTED' if findings else 'PASS')} {name:<24}"
                f" {len(RULES) - len(broken)} of {len(RULES)} rules kept"
            )
            for f in findings:
                print(f"      {f.rule}: {f.what}\n        {f.remedy}")
    return int(any(found.values()))


# ---- new -----------------------------------------------------------------------------------------
def _new(workspace: Workspace, args: Namespace) -> int:
    if len(args.dataset) != 1:
        raise UsageError(
            "A connector needs one id.",
            expected="kfm connector new DATASET",
            remedy="Name the dataset it is for.",
        )
    name = check_dataset_id(args.dataset[0])
    if args.licence and (
        not is_spdx(args.licence) or args.licence.upper() in ("NOASSERTION", "NONE")
    ):
        raise UsageError(
            f"{args.licence!r} is not an SPDX licence id.",
            expected="one such as CC-BY-4.0, or none yet",
            remedy="See spdx.org/licenses.",
        )
    if not args.url and not args.file:
        with tempfile.TemporaryDirectory(prefix="kfm-sample-") as aside:
            args.file = Path(aside, "sample.csv")
            args.file.write_text(SYNTHETIC)
            args.licence, args.title = (
                args.licence or "CC0-1.0",
                args.title or f"{name.replace('_', ' ').capitalize()} (synthetic sample)",
            )
            return _write(workspace, name, args)
    return _write(workspace, name, args)


def _write(workspace: Workspace, name: str, args: Namespace) -> int:
    folder = workspace.path / "scripts" / "connectors" / name
    if not args.force and (folder.exists() or workspace.entry(name) is not None):
        raise UsageError(
            f"{name} is there already.",
            expected="a new id",
            remedy="--force adds what is missing and overwrites nothing.",
        )
    files, entry = _drawn(name, args)
    entry = entry if workspace.entry(name) is None else {}
    if entry:
        new_entry(entry)  # nothing is written that could not be run
        files[Path("data", "registry", f"{name}.yml")] = msgspec.yaml.encode(entry, order=None)
    hidden = args.sensitivity != "public" or args.policy_label not in ("", "public")
    made = [
        str(p)
        for p, content in files.items()
        if _created(workspace.path / p, content, hidden and p.parts[0] == "inbox")
    ]
    sampled = any(p.parent.name == "fixtures" for p in files)
    findings = _accept(workspace, name) if sampled else []
    missing = [k for k in ("licence", "policy_label") if not getattr(workspace.require(name), k)]
    if args.json:
        emit(
            {
                "status": "made",
                "dataset_id": name,
                "files": made,
                "missing": missing,
                "findings": [msgspec.to_builtins(f) for f in findings],
            }
        )
        return 1 if findings else 0
    for path in made:
        print(f"  + {path}")
    for f in findings:
        print(f"  {sign('REJECTED')} {f.rule}: {f.what}\n      {f.remedy}")
    registered = workspace.require(name)
    print(
        f"\n{name} is labelled {registered.sensitivity}; its key is"
        f" {', '.join(registered.business_key) or 'none'}: correct data/registry/{name}.yml if that"
        " is wrong."
    )
    if missing:
        print(
            f"Nothing is published without {', '.join(missing)}: add"
            f" {'it' if len(missing) == 1 else 'them'} there."
        )
    if hidden:
        print(
            "Not all of it may be shown: state a `release` there (docs/governance.md), and keep the"
            " file itself out of version control."
        )
    if not sampled:
        also = (
            " and its columns into mapping.yml"
            if registered.source.kind == "delimited" and not args.file
            else ""
        )
        print(
            "Nothing was tried: put a small made-up slice into"
            f" scripts/connectors/{name}/fixtures/{also}; `kfm connector check` then tries it."
        )
    checks = f"{again(args, f'connector check {name}')}\n      " if sampled else ""
    print(f"\nNext  {checks}{again(args, f'run {name}')}")
    return 1 if findings else 0


def _created(path: Path, content: bytes | Path, hidden: bool) -> bool:
    """Write a file that is not there yet; what is not for everyone is only for its owner."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(
            path, "xb", opener=lambda p, flags: os.open(p, flags, 0o600 if hidden else 0o666)
        ) as file:
            if isinstance(content, Path):
                with content.open("rb") as given:
                    shutil.copyfileobj(given, file)
            else:
                file.write(content)
    except FileExistsError:
        return False
    return True


def _accept(workspace: Workspace, name: str) -> "list[Finding]":
    from kfm.testing import check_connector, write_golden  # with an extra: pyarrow

    if not (
        workspace.path / "scripts" / "connectors" / name / "fixtures" / "expected.json"
    ).exists():
        try:
            write_golden(workspace.path, name)
        except Exception:  # the check says why, rule by rule
            pass
    return check_connector(workspace.path, name)


def _drawn(name: str, args: Namespace) -> tuple[dict[Path, bytes | Path], Json]:
    """Every file of the new connector, and its registry entry."""
    folder = Path("scripts", "connectors", name)
    nested = args.format in _NESTED or (
        args.format is None and args.file is not None and args.file.suffix[1:].lower() in _NESTED
    )
    kind = args.kind or (
        "delimited" if args.file and args.sensitivity == "public" and not nested else "http_file"
    )
    source: Json = {
        "kind": kind,
        "url": args.url or "",
        "format": args.format or _ending(args, kind),
    }
    entry: Json = {
        "dataset_id": name,
        "title": args.title or name.replace("_", " ").capitalize(),
    }
    entry |= {"licence": args.licence} if args.licence else {}
    entry |= {
        "sensitivity": args.sensitivity,
        "policy_label": args.policy_label or args.sensitivity,
    }
    files: dict[Path, bytes | Path] = {}
    if args.file:
        beginning = _beginning(args.file)
        plain = check_id(re.sub(r"[^A-Za-z0-9._-]+", "-", args.file.name), "file name")
        if not args.url:
            source["url"] = f"file:///inbox/{name}/{plain}"
            files[Path("inbox", name, plain)] = args.file
        table = (
            _Listed(name, source["format"], beginning[1], args)
            if nested and kind == "http_file"
            else _Table(*beginning, args, kind)
        )
        columns = list(table.names.values()) if kind == "delimited" else list(table.names)
        unknown = [c for c in (*args.key, args.time_column) if c and c not in columns]
        if unknown:
            raise UsageError(
                f"{args.file.name} has no column {unknown[0]}.",
                expected=f"one of {', '.join(columns)}",
                remedy="Correct it.",
            )
        if args.sensitivity == "public":  # a slice of what is not is for its author to make up
            files[folder / "fixtures" / plain] = table.sample
        if isinstance(table, _Table) and kind == "delimited":
            entry["schema"] = table.schema()
            args.key = args.key or table.key
            files[folder / "mapping.yml"] = table.mapping()
    source |= {
        k: v for k, v in (("time_column", args.time_column), ("encoding", args.encoding)) if v
    }
    entry |= {"source": source, "business_key": list(args.key)}
    check_source_url(source["url"], "--url")
    for path in sorted((Path(__file__).parents[1] / "template" / SKELETON).rglob("*")):
        relative = path.relative_to(Path(__file__).parents[1] / "template" / SKELETON)
        left_out = (
            relative.name == "mapping.yml" and kind != "delimited"
        ) or relative.name == ".gitkeep"
        if path.is_file() and "__pycache__" not in relative.parts and not left_out:
            text = path.read_text().replace("dataset_connector_skeleton", name)
            text = text.replace("__URL__", source["url"]).replace("__FORMAT__", source["format"])
            files.setdefault(folder / relative, text.encode())
    return files, entry


def _ending(args: Namespace, kind: str) -> str:
    end = str(args.file.name if args.file else args.url.split("?")[0]).rpartition(".")[2].lower()
    if (known := kind_of(kind)) is not None:
        return end if end in known.formats else known.format
    if end not in ("csv", "json", "geojson"):
        raise UsageError(
            "The address does not say which format the file has.",
            expected="--format csv, json or geojson",
            remedy="Name it.",
        )
    return end


def _beginning(path: Path) -> tuple[bytes, bool]:
    """The first bytes of a file, and whether that is all of it."""
    try:
        with path.open("rb") as file:
            found = file.read(_MOST)
            return found, not file.read(1)
    except OSError as error:
        raise UsageError(
            f"{path.name} cannot be read: {error.strerror}.",
            expected="a file",
            remedy="Check the path.",
        ) from error


class _Table:
    """A CSV somebody brings: its columns with the types their values have, and its first rows."""

    def __init__(self, beginning: bytes, is_all: bool, args: Namespace, kind: str) -> None:
        self._encoding = args.encoding
        try:
            text = beginning.decode(args.encoding or "utf-8-sig", "strict" if is_all else "ignore")
        except (UnicodeDecodeError, LookupError) as error:
            raise UsageError(
                f"{args.file.name} is not {args.encoding or 'UTF-8'}.",
                expected="its encoding",
                remedy="Name it: --encoding cp1252, for one.",
            ) from error
        head = text.split("\n", 1)[0]
        self.delimiter = max(",;\t|", key=head.count)
        csv.field_size_limit(16 << 20)
        lines = io.StringIO(text, newline="")
        reader = csv.reader(lines, delimiter=self.delimiter)
        try:
            first = [row for row, _ in zip(reader, range(SAMPLE_ROWS + 1)) if row]
            at, rest = reader.line_num, [row for row in reader if row]
        except csv.Error as error:
            raise UsageError(
                f"{args.file.name}, line {reader.line_num}: {error}.",
                expected="a CSV with a header",
                remedy="Correct the file.",
            ) from error
        if len(first) < 2 or len({h.strip() for h in first[0]}) < len(first[0]):
            raise UsageError(
                f"{args.file.name} has no header with a row below it, or a name twice.",
                expected="a CSV with a header",
                remedy="Correct the file.",
            )
        self.sample = "".join(text.splitlines(keepends=True)[:at]).encode(args.encoding or "utf-8")
        header, *rows = [*first, *rest]
        rows = rows if is_all or len(rows) < 2 else rows[:-1]  # the last one may go on
        self.names = column_names(header)  # header -> column
        if kind == "delimited":  # as it is called in the file, or here
            here = {h.strip(): name for h, name in self.names.items()} | {
                n: n for n in self.names.values()
            }
            args.key, args.time_column = (
                [here.get(k, k) for k in args.key],
                here.get(args.time_column, args.time_column),
            )
        self._cells = {
            h: [row[i].strip() for row in rows if i < len(row)] for i, h in enumerate(header)
        }
        guessed = {h: self._type(h) for h in header}
        self.types = {header: kind for header, (kind, _) in guessed.items()}
        self._nulls = {header: nulls for header, (_, nulls) in guessed.items()}
        # a row that stands twice is one record
        different = len(set(map(tuple, ([c.strip() for c in row] for row in rows))))
        self.key = args.key or self._key(different)
        # numbers as a run takes them; days and times are cut by window, which text cannot be
        plain = {
            h: "string"
            for h, name in self.names.items()
            if name in self.key and self.types[h] not in ("date", "timestamp")
        }
        self.types |= plain

    def _type(self, header: str) -> tuple[str, list[str]]:
        """The type of a column, as a run that is told none infers it, and the texts in it that mean
        "no value".
        """
        from kfm.connectors.table.infer import Inferred  # with an extra: pyarrow

        there = {c for c in self._cells[header] if c in _NULLS}
        held = [c for c in self._cells[header] if c and c not in there]
        inferred = Inferred(Read(dataset_id="new", format="csv", artifact="new"), None, cells=True)
        inferred.add(self.names[header], held)
        found = inferred.columns()[0].type
        return found, sorted(there if found != "string" or not held else there & set(_NULLS[:2]))

    def _key(self, rows: int) -> list[str]:
        """The first column that has another value in every row, as far as that can be seen here."""
        for header, cells in self._cells.items():
            distinct = set(cells) - {"", *self._nulls[header]}
            if len(distinct) == rows and self.types[header] in ("string", "integer"):
                return [self.names[header]]
        return []

    def schema(self) -> list[dict[str, str]]:
        return [{"name": name, "type": self.types[header]} for header, name in self.names.items()]

    def mapping(self) -> bytes:
        lines = [
            (
                "# Which column of the file becomes which column of the dataset; types were guessed"
                " from its first rows. data/registry"
            ),
            (
                "# repeats them as `schema`. Coordinates of a known system: add crs, x and y."
                " Units: unit, and source_unit to convert."
            ),
            (
                '# Texts that mean "no value" (nulls) are a guess too. docs/connectors.md lists'
                " every key."
            ),
        ]
        lines += [f"encoding: {self._encoding}"] if self._encoding else []
        lines += [f"delimiter: {msgspec.json.encode(self.delimiter).decode()}", "columns:"]
        for header, name in self.names.items():
            nulls = (
                f", nulls: {msgspec.json.encode(self._nulls[header]).decode()}"
                if self._nulls[header]
                else ""
            )
            lines.append(
                f"  - {{from: {msgspec.json.encode(header).decode()}, to: {name}, type:"
                f" {self.types[header]}{nulls}}}"
            )
        return "\n".join([*lines, ""]).encode()


class _Listed:
    """JSON or GeoJSON somebody brings: its columns and its first records."""

    def __init__(self, dataset_id: str, form: str, is_all: bool, args: Namespace) -> None:
        from kfm.connectors.release.twin import read_json  # with an extra: pyarrow

        if not is_all:
            raise UsageError(
                f"{args.file.name} is larger than 8 MiB.",
                expected="a sample",
                remedy="Give a few records as --file, and --url.",
            )
        source = InputFile(source_id=args.file.name, path=str(args.file), digest="")
        try:
            found = read_json(
                Read(
                    dataset_id=dataset_id, format=form, artifact=dataset_id, encoding=args.encoding
                ),
                source,
            )
        except Refused as error:
            said = error.refusal
            raise UsageError(said.happened, expected=said.expected, remedy=said.remedy) from error
        rows = [r for r in found.records if isinstance(r, dict)]
        if not rows:
            raise UsageError(
                f"{args.file.name} holds no records.",
                expected="a list of objects, or features",
                remedy="Correct the file.",
            )
        self.names = {name: name for name in rows[0]}  # every record shows them all
        written = found.write([*rows[:SAMPLE_ROWS]])
        self.sample = written.encode() if isinstance(written, str) else written
