"""What connectors are tested with; kfm's own tests use the same.

`check_connector(workspace, dataset_id)` is the contract every connector keeps, as a suite: what is
wrong, nothing when all is well. Connector code runs in the child, as in a run. `read_fixtures` gives
the rows it makes of its fixtures, `read_kind` and `ask_kind` let a kind of source read bytes and ask
for them, `Upstream` is a server on loopback, `workspace` a place to run in, `golden` compares rows
with a file that was accepted.
"""

import ast
import contextlib
import io
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from pathlib import Path

import msgspec
from msgspec import UNSET

from kfm.connectors.base import Books, CaptureRefused, ConnectorFailed, InputFile, TransformResult
from kfm.connectors.child.code import hooks_in
from kfm.connectors.child.process import kept_warm, printed, run_inline, run_transform
from kfm.connectors.operations import Acquire, Discover, Join, Read, Try
from kfm.model import (
    PACKED,
    Capabilities,
    Column,
    DatasetEntry,
    Denied,
    Json,
    KfmError,
    UsageError,
    bounds,
    check_dataset_id,
    is_private,
    kind_of,
)
from kfm.release.transform_inputs import transform_job
from kfm.runners.stages import STAGES, flags_table, parser_of
from kfm.workspace import config
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.world.target import Target
from kfm.zones.base import hash_file, room

__all__ = [
    "RULES",
    "Finding",
    "Left",
    "Made",
    "Tried",
    "Upstream",
    "Workspace",
    "ask_kind",
    "check_connector",
    "golden",
    "read_fixtures",
    "read_kind",
    "try_connector",
    "workspace",
    "write_golden",
]

RULES: dict[str, str] = {  # rule -> what it asks
    "folder": "the folder is named as the dataset is registered",
    "files": "ingest, validate and promote are there, and no stage that nobody knows",
    "header": (
        "every runner says its stage, purpose, inputs, outputs, zone writes and governance"
        " invariants"
    ),
    "thin": "a runner calls kfm.stages and does nothing else",
    "help": "--help of every runner is that of its parser, and the documented table is too",
    "mapping": "mapping.yml can be read",
    "fixture": (
        "there is a slice to try it on, and no exact place in one of a dataset that is not public"
    ),
    "discover": "discover() returns Capabilities, and what it declares is there",
    "writes": "nothing outside the scratch folder changes",
    "same": "the same input gives the same bytes",
    "retry": "killed in the middle and run again, it gives the same bytes",
    "window": "rows outside the window do not come out",
    "golden": "the fixture gives the rows that were accepted",
    "acquire": "the same answers are asked for in the same order, also after a failure",
    "runs": "the connector's code ends without an exception and refuses nothing of its own fixture",
}
_RUNNERS = {f"{stage}{end}": stage for stage in STAGES for end in (".py", ".ts", ".sh")}
_CODE = ("connector.py", "connector_canary.py")
_OTHERS = {*_CODE, "test_connector.py", "__init__.py"}
_HEADINGS = ("Stage:", "Purpose:", "Inputs:", "Outputs:", "Zone writes:", "Governance invariants:")
_MOST_LINES = 60
_SHIM = (
    'import sys\nfrom kfm.stages import main\nif __name__ == "__main__":\n   '
    ' sys.exit(main("{stage}", __file__))\n'
)
# more than three decimals: closer than about 100 m
_EXACT = re.compile(rb"(?<![\d.])\d{1,3}\.\d{4,}(?!\d*\.)")
_GOLDEN, _REPLAY = "expected.json", "replay.json"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One rule a connector does not keep."""

    rule: str
    what: str
    remedy: str


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """One row that is not published, and why."""

    reason: str
    row: Json

    @classmethod
    def of(cls, told: Json) -> "Left":
        return cls(reason=str(told.get("reason")), row=told.get("row") or {})


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What a connector made of the first rows."""

    dataset_id: str
    of: str  # what it was tried on: fixtures, or a capture
    inputs: tuple[str, ...]
    columns: tuple[str, ...]  # that were there
    before: tuple[Json, ...]
    after: tuple[Json, ...]
    left: tuple[Left, ...]  # by a rule of the connector
    aside: tuple[Left, ...]  # for a person to look at
    counts: Json | None  # the books of all that was read
    types: dict[str, str]  # of the table
    warnings: tuple[str, ...]  # that a run would tell
    printed: str
    problem: str
    remedy: str
    stack: tuple[str, ...]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What was made of some bytes."""

    rows: list[Json]
    types: dict[str, str]  # of the columns, in order
    result: TransformResult


def read_kind(
    kind: str,
    files: Mapping[str, bytes],
    *,
    format: str = "",
    columns: Sequence[Column] = (),
    key: Sequence[str] = (),
    options: Json | None = None,
    **more: object,
) -> Made:
    """What a kind of source reads in files, `name -> bytes`; `more`: any other member of `Read`.

    In this process, without isolation: the rows are the same. Raises `CaptureRefused`.
    """
    known = kind_of(kind)
    form = format or (known.format if known is not None else "csv")
    with tempfile.TemporaryDirectory(prefix="kfm-read-") as temp:
        inputs = []
        for name, content in files.items():
            path = Path(temp, f"{name}.{form}")
            path.write_bytes(content)
            inputs.append(InputFile(source_id=name, path=str(path), digest=""))
        plain = {
            "dataset_id": "tested",
            "artifact": "tested.parquet",
            "source_kind": kind,
            "format": form,
            "options": options or {},
            "schema": tuple(columns),
            "business_key": tuple(key),
        }
        job = msgspec.structs.replace(
            Read(dataset_id="tested", format=form, artifact="tested.parquet"),
            **(plain | more),
            inputs=tuple(inputs),
        )
        return _made(run_inline(job, room(Path(temp), "made")), Path(temp, "made"))


def read_fixtures(folder: Path) -> Made:
    """What a connector, by its folder in a workspace, makes of its fixtures."""
    target = targets_of(open_workspace(folder.parents[2]), folder.name)[0]
    with tempfile.TemporaryDirectory(prefix="kfm-read-") as temp:
        job = _job(target, _inputs(folder, target))
        result = run_transform(job, Path(temp), timeout_s=600, entries=(target.entry,))
        return _made(result, Path(temp))


def _made(result: TransformResult, folder: Path) -> Made:
    import pyarrow.parquet as pq  # with an extra

    rows = pq.read_table(folder / result.artifact).to_pylist()
    return Made(rows=rows, types={c.name: c.type for c in result.schema}, result=result)


def ask_kind(
    kind: str,
    answers: Mapping[str, bytes],
    *,
    url: str,
    options: Json | None = None,
    connector: Path | None = None,
    since: str | None = None,
    until: str | None = None,
) -> dict[str, str]:
    """What a kind of source, or the `acquire` of a connector.py, asks for: `name -> address`, in
    order. `answers` are by address; what has none is not fetched.
    """
    asked: dict[str, str] = {}
    known = kind_of(kind)
    with tempfile.TemporaryDirectory(prefix="kfm-ask-") as temp:

        def serve(message: Json) -> Json:
            paths = []
            for item in message.get("items") or [message]:
                asked[str(item["name"])] = str(item["url"])
                if item["url"] not in answers:
                    return {"error": "upstream does not answer"}
                path = Path(temp, f"{len(asked)}")
                path.write_bytes(answers[item["url"]])
                paths.append(str(path))
            return {"paths": paths} if "items" in message else {"path": paths[0]}

        job = Acquire(
            dataset_id="tested",
            source_kind=kind,
            options=options or {},
            urls=(url,),
            format=known.format if known is not None else "json",
            since=since,
            until=until,
            connector=str(connector) if connector is not None else None,
            artifact="tested.parquet",
        )
        run_inline(job, Path(temp), fetch=serve)
    return asked


def golden(file: Path, rows: Sequence[Json]) -> None:
    """Compare rows with those that were accepted, one to a line; with KFM_GOLDEN=1 they are accepted
    now. Raises `AssertionError` with the first that differs.
    """
    said = [msgspec.json.encode(row, order="sorted") for row in rows]
    if os.environ.get("KFM_GOLDEN"):
        file.write_bytes(b"".join(line + b"\n" for line in said))
    there = file.read_bytes().splitlines() if file.is_file() else []
    for number, (now, accepted) in enumerate(zip_longest(said, there), 1):
        if now != accepted:
            raise AssertionError(
                f"{file.name}, line {number}: {_text(accepted)} was accepted, {_text(now)} came; if"
                " that is right, run it once with KFM_GOLDEN=1"
            )


def _text(line: bytes | None) -> str:
    return "nothing" if line is None else line.decode()


class Upstream:
    """A server on loopback: `files[path] = bytes`; `headers[path]` adds headers to an answer, an
    ETag for one.
    """

    def __init__(self) -> None:
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

        self.files: dict[str, bytes] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []  # paths, in order
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                body = outer.files.get(self.path)
                self.send_response(200 if body is not None else 404)
                for name, value in outer.headers.get(self.path, {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self.do_GET()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )

    @property
    def url(self) -> str:
        """Its address, without a slash at the end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Upstream":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Workspace(msgspec.Struct, frozen=True):
    """A workspace of a test."""

    path: Path

    def register(self, dataset_id: str, *, code: str = "", **entry: object) -> Path:
        """Write a registry entry, public and CC0-1.0 unless `entry` says otherwise, and connector.py
        where there is `code`. Returns the connector's folder.
        """
        plain = {
            "dataset_id": dataset_id,
            "title": dataset_id,
            "licence": "CC0-1.0",
            "sensitivity": "public",
            "policy_label": "public",
            "cadence": "daily",
            **entry,
        }
        config.new_entry(plain)
        (self.path / "data" / "registry" / f"{dataset_id}.yml").write_bytes(
            msgspec.yaml.encode(plain)
        )
        folder = self.path / "scripts" / "connectors" / dataset_id
        if code:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "connector.py").write_text(code)
        return folder

    def call(self, *words: str) -> tuple[int, str, str]:
        """`kfm WORDS` here, in this process: exit code, what it prints, what it says beside it."""
        from kfm.cli import main

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["-w", str(self.path), *words])
        return code, out.getvalue(), err.getvalue()

    def rows(self, dataset_id: str) -> list[Json]:
        """The rows that are official."""
        from kfm.data.workspace import open_data

        try:
            found = open_data(self.path).dataset(dataset_id).latest().table()
        except KfmError as error:
            raise AssertionError(f"{dataset_id} cannot be read. {error}") from error
        rows: list[Json] = found.to_pylist()
        return rows


def workspace(folder: Path) -> Workspace:
    """A new workspace in `folder` that may be fed from loopback."""
    from kfm.cli.init import make_workspace

    make_workspace(folder, sample=False, allow_loopback=True)
    return Workspace(folder)


def check_connector(workspace: Path, dataset_id: str) -> list[Finding]:
    """Everything that is wrong with a connector; empty when it keeps the contract."""
    folder = workspace / "scripts" / "connectors" / dataset_id
    if not folder.is_dir():
        return [
            _found(
                "folder",
                f"scripts/connectors/{dataset_id} does not exist.",
                f"`kfm connector new {dataset_id}` makes it.",
            )
        ]
    entry = open_workspace(workspace).readable(dataset_id)
    found = [*_files(folder), *_help(folder, () if entry is None else (entry,))]
    if (broken := _broken(folder)) is not None:
        return [*found, broken]
    try:
        check_dataset_id(dataset_id)
        entry = open_workspace(workspace).require(dataset_id)
        target = targets_of(open_workspace(workspace), dataset_id)[0]
    except KfmError as error:
        return [
            *found,
            _found(
                "mapping" if _unreadable(workspace, folder) else "folder",
                error.happened,
                error.remedy,
            ),
        ]
    found += [*_mapping(folder), *_fixtures(folder, entry)]
    with kept_warm(private=False, coded=True):
        return [*found, *_behaviour(folder, target)]


def try_connector(workspace: Path, dataset_id: str, rows: int = 10) -> Tried:
    """What a connector makes of the first rows of its fixtures, or of its newest capture."""
    target = targets_of(open_workspace(workspace), dataset_id)[0]
    folder = workspace / "scripts" / "connectors" / dataset_id
    inputs, of = _inputs(folder, target), "fixtures"
    if not inputs:
        inputs, of = _captured(workspace, target)
    if not inputs:
        raise UsageError(
            f"There is nothing to try {dataset_id} on.",
            expected=f"a small slice in scripts/connectors/{dataset_id}/fixtures, or a capture",
            remedy=f"Put one there, or run `kfm run {dataset_id}`: what it fetches is kept.",
        )
    job = _job(target, inputs)
    if isinstance(job, Join):
        raise UsageError(
            f"{dataset_id} is a join and has no connector.",
            expected="a dataset with a source of its own",
            remedy=f"`kfm plan {dataset_id}` says what it would do.",
        )
    told: Json = {}
    heard: list[str] = []

    def hear(event: Json) -> None:
        if event.get("op") == "tried":
            told.update(event)
        elif event.get("op") == "output":
            heard.append(event["text"])

    trial = msgspec.convert(
        {**msgspec.structs.asdict(job), "rows": rows, "max_quarantined": 1.0},
        Try,
        from_attributes=True,
    )
    with tempfile.TemporaryDirectory(prefix="kfm-try-") as temp:
        error: KfmError | None = None
        result: TransformResult | None = None
        try:
            result = run_transform(
                trial, Path(temp), timeout_s=60, on_event=hear, entries=(target.entry,)
            )
        except (CaptureRefused, ConnectorFailed) as failed:
            error = failed
        left = [Left.of(item) for item in told.get("left", ())][:rows]
        aside = _set_aside(Path(temp), rows)
    if result is not None and error is None:
        error = _too_many(result.books, job, aside)
    return Tried(
        dataset_id=dataset_id,
        of=of,
        inputs=tuple(p.name for p in inputs),
        columns=tuple(told.get("columns", ())),
        before=tuple(told.get("before", ())),
        after=tuple(told.get("after", ())),
        left=tuple(left),
        aside=tuple(aside),
        counts=None if result is None else msgspec.to_builtins(result.books),
        types={} if result is None else {c.name: c.type for c in result.schema},
        warnings=() if result is None else result.warnings,
        printed="".join(heard),
        problem="" if error is None else error.happened,
        remedy="" if error is None else error.remedy,
        stack=_authors_lines(getattr(error, "stack", "")),
    )


def _too_many(books: Books, job: Read, aside: "list[Left]") -> KfmError | None:
    """What a run would say to so many rows that are set aside; a trial shows them all the same."""
    if not books.quarantined or books.quarantined <= job.max_quarantined * books.read:
        return None
    return KfmError(
        f"A run would refuse this: {books.quarantined} of {books.read} records are set"
        f" aside; the first: {aside[0].reason}.",
        remedy=(
            f"Mend the connector or its columns until at most {100 * job.max_quarantined:g} % of"
            " them are; `max_quarantined` in the registry says how many may be."
        ),
    )


def _captured(workspace: Path, target: Target) -> tuple[list[Path], str]:
    """The files of the newest capture, in their order; none where it is sealed, or there is none."""
    if is_private([target.entry]) or target.entry.sensitivity != "public":
        return [], ""
    folder = open_workspace(workspace).data / "raw" / target.dataset_id / "captures"
    found = sorted(folder.glob("*/manifest.json"), key=lambda p: p.stat().st_mtime_ns)
    if not found:
        return [], ""
    listed = msgspec.json.decode(found[-1].read_bytes())["files"]
    paths = [found[-1].parent / f["path"] for f in listed]
    return [p for p in paths if p.is_file()], f"capture {found[-1].parent.name[:9]}"


def _set_aside(scratch: Path, rows: int) -> "list[Left]":
    found = []
    for path in scratch.rglob("*.quarantine.jsonl"):
        with path.open("rb") as lines:
            for line in islice(lines, rows):
                said = msgspec.json.decode(line)
                found.append(Left(reason=str(said["reason"]), row=_record(said["record"])))
    return found


def _record(text: str) -> Json:
    """A record that was set aside: columns where it is told as JSON, else its text."""
    with contextlib.suppress(msgspec.DecodeError):
        found = msgspec.json.decode(text)
        if isinstance(found, dict):
            return found
    return {"record": text}


def _authors_lines(stack: str) -> tuple[str, ...]:
    """The lines of a traceback that are the author's: what called what, and the last one raised."""
    frames = re.findall(r'/(connector\w*\.py)", line (\d+), in (\S+)\n +([^\n]*)', stack)
    return tuple(f"{file}, line {line}, in {name}: {code}" for file, line, name, code in frames)


def write_golden(workspace: Path, dataset_id: str) -> Json:
    """Accept what the fixture gives now: `fixtures/expected.json`."""
    folder = workspace / "scripts" / "connectors" / dataset_id
    if (broken := _broken(folder)) is not None:
        raise UsageError(
            broken.what, expected="connector code that can be read", remedy=broken.remedy
        )
    target = targets_of(open_workspace(workspace), dataset_id)[0]
    with tempfile.TemporaryDirectory(prefix="kfm-check-") as temp:
        golden = _golden(
            run_transform(
                _job(target, _inputs(folder, target)), Path(temp), entries=(target.entry,)
            )
        )
    (folder / "fixtures" / _GOLDEN).write_bytes(
        msgspec.json.format(msgspec.json.encode(golden), indent=2) + b"\n"
    )
    return golden


def _found(rule: str, what: str, remedy: str) -> Finding:
    assert rule in RULES
    return Finding(rule=rule, what=what, remedy=remedy)


def _broken(folder: Path) -> Finding | None:
    """What keeps connector code from being run at all: it is no Python, or has a function that may
    be a misspelt hook.
    """
    for name in _CODE:
        try:
            hooks_in(folder / name)
        except UsageError as error:
            return _found("runs", error.happened, error.remedy)
    return None


# ---- files ---------------------------------------------------------------------------------------
def _files(folder: Path) -> Iterator[Finding]:
    names = {p.name for p in folder.iterdir() if p.is_file()}
    for stage in ("ingest", "validate", "promote"):
        if not any(_RUNNERS.get(name) == stage for name in names):
            yield _found(
                "files",
                f"There is no {stage}.py.",
                f"`kfm connector new {folder.name} --force` adds it.",
            )
    for name in sorted(names):
        if name in _RUNNERS:
            yield from _runner(folder / name, _RUNNERS[name])
        elif name.endswith((".py", ".ts", ".sh")) and name not in _OTHERS:
            yield _found(
                "files",
                f"{name} is no stage.",
                f"The stages are {', '.join(STAGES)}; other code belongs into connector.py.",
            )


def _runner(path: Path, stage: str) -> Iterator[Finding]:
    text = path.read_text(errors="replace")
    try:
        tree = ast.parse(text) if path.suffix == ".py" else None
    except (SyntaxError, ValueError) as error:
        line = f": line {error.lineno}" if isinstance(error, SyntaxError) else ""
        yield _found(
            "thin",
            f"{path.name} is no Python{line}.",
            f"Remove it; `kfm connector new {path.parent.name} --force` writes it anew.",
        )
        return
    head = (
        (ast.get_docstring(tree) or "") if tree is not None else "\n".join(text.splitlines()[:30])
    )
    missing = [h.rstrip(":") for h in _HEADINGS if h not in head]
    if missing:
        yield _found(
            "header",
            f"The header of {path.name} does not say: {', '.join(missing)}.",
            f"Remove it; `kfm connector new {path.parent.name} --force` writes it anew.",
        )
    elif not re.search(rf"Stage:\s*{stage}\b", head):
        yield _found(
            "header", f"The header of {path.name} names another stage.", f"Write `Stage: {stage}`."
        )
    imported = {n for node in ast.walk(tree) for n in _imports(node)} if tree is not None else set()
    if len(text.splitlines()) > _MOST_LINES or imported - {"sys", "kfm.stages"}:
        yield _found(
            "thin",
            f"{path.name} does more than call kfm.stages.",
            "Move what it does into connector.py.",
        )


def _imports(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [a.name for a in node.names]
    return [node.module or "."] if isinstance(node, ast.ImportFrom) else []


def _help(folder: Path, entries: Sequence[DatasetEntry]) -> Iterator[Finding]:
    """--help of every runner against its parser; the documented table against all of them."""
    for name, stage in _RUNNERS.items():
        if (
            not name.endswith(".py")
            or not (folder / name).is_file()
            or _is_shim(folder / name, stage)
        ):
            continue
        if _flags(printed(folder / name, "--help", entries=entries)) != _flags(
            parser_of(stage).format_help()
        ):
            yield _found(
                "help",
                f"{name} --help does not list the flags it takes.",
                f'Let it call `kfm.stages.main("{stage}", __file__)`.',
            )
    readme = folder.parent / "README.md"
    if not readme.is_file() or flags_table() not in readme.read_text():
        yield _found(
            "help",
            "The table of flags in scripts/connectors/README.md is not that of the runners.",
            f"Remove it; `kfm connector new {folder.name} --force` writes it anew.",
        )


def _is_shim(path: Path, stage: str) -> bool:
    """Whether a runner is that of the skeleton but for its header: its --help is then that of its
    parser, and need not be tried.
    """
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError):
        return False
    code = (
        body[1:]
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        else body
    )
    return [ast.dump(node) for node in code] == [
        ast.dump(node) for node in ast.parse(_SHIM.format(stage=stage)).body
    ]


def _flags(text: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z_-]+", text))


def _unreadable(workspace: Path, folder: Path) -> bool:
    try:
        config.load_mapping(folder / "mapping.yml", config.stating(workspace, folder.name))
    except KfmError:
        return True
    return False


def _mapping(folder: Path) -> Iterator[Finding]:
    path = folder / "mapping.yml"
    try:
        if path.is_file() and not isinstance(config.parse(path.read_bytes(), path.name), dict):
            raise UsageError(
                "mapping.yml holds no mapping.",
                remedy="Write `columns:` and what each is read from.",
            )
    except KfmError as error:
        yield _found("mapping", error.happened, error.remedy)


def _fixtures(folder: Path, entry: DatasetEntry) -> Iterator[Finding]:
    public = entry.sensitivity == "public" and entry.policy_label == "public"
    for path in sorted((folder / "fixtures").rglob("*")) if not public else ():
        raw = path.read_bytes() if path.is_file() else b""
        exact = _EXACT.search(raw)
        if b"\0" in raw:
            yield _found(
                "fixture",
                f"{path.name} cannot be looked into, and {entry.dataset_id} is not public.",
                "Use a text format.",
            )
        elif exact is not None:
            line = raw[: exact.start()].count(b"\n") + 1
            yield _found(
                "fixture",
                f"{path.name}, line {line} has a number with more than three decimals, and"
                f" {entry.dataset_id} is not public.",
                "Make it up, or round it: a fixture shows no real place.",
            )


# ---- behaviour -----------------------------------------------------------------------------------
def _inputs(folder: Path, target: Target) -> list[Path]:
    kind = kind_of(target.entry.source.kind)
    ends = {target.entry.source.format, *((kind.format, *kind.formats) if kind else ())} - {""}
    if (packing := target.entry.source.packing) is not None:
        ends = {end for end, by in PACKED.items() if by == packing.by}
    listed = sorted((folder / "fixtures").glob("*")) if (folder / "fixtures").is_dir() else []
    return [p for p in listed if p.suffix.lstrip(".") in ends and p.name not in (_GOLDEN, _REPLAY)]


def _job(target: Target, inputs: list[Path]) -> Read | Join:
    return transform_job(target, {p.stem: (p, hash_file(p).digest) for p in inputs})


def _behaviour(folder: Path, target: Target) -> Iterator[Finding]:
    before = _tree(folder)
    with tempfile.TemporaryDirectory(prefix="kfm-check-") as temp:
        suite = _Suite(folder, target, Path(temp))
        for check in (suite.discovered, suite.asked, suite.made):
            try:
                yield from check()
            except (CaptureRefused, ConnectorFailed, Denied) as error:
                reach = re.findall(r"^PermissionError: ([^\n]*)", getattr(error, "stack", ""), re.M)
                what = f"{reach[-1][:1].upper()}{reach[-1][1:]}." if reach else error.happened
                yield _found("writes" if reach else "runs", what, error.remedy)
    if _tree(folder) != before:
        yield _found(
            "writes", "The connector's folder changed while it ran.", "Write to ctx.scratch only."
        )


def _tree(folder: Path) -> dict[str, str]:
    return {
        str(p): hash_file(p).digest
        for p in sorted(folder.rglob("*"))
        if p.is_file() and "__pycache__" not in p.parts
    }


def _golden(result: TransformResult) -> Json:
    books = msgspec.to_builtins(result.books)
    return {"rows": result.rows, "books": books, "content_id": result.content_id}


class _Suite:
    """One connector, its fixture and a folder to work in."""

    def __init__(self, folder: Path, target: Target, temp: Path) -> None:
        self.folder, self.target, self.temp = folder, target, temp
        self.entries = (target.entry,)
        self.inputs = _inputs(folder, target)
        self.names = hooks_in(folder / "connector.py")

    def room(self, name: str) -> Path:
        found = self.temp / name
        found.mkdir()
        return found

    # -- discover
    def discovered(self) -> Iterator[Finding]:
        if "discover" not in self.names:
            return
        heard: list[Json] = []
        room = self.room("discover")
        job = Discover(
            dataset_id=self.target.dataset_id,
            connector=self.target.connector,
            artifact=self.target.artifact,
        )
        run_transform(job, room, timeout_s=60, on_event=heard.append, entries=self.entries)
        if any(room.iterdir()):
            yield _found(
                "discover",
                "discover() writes files.",
                "Let it return what it knows, and write nothing.",
            )
        said: object = next((e["found"] for e in heard if e.get("op") == "capabilities"), None)
        try:
            abilities = msgspec.convert(said, Capabilities).abilities
        except msgspec.ValidationError as error:
            yield _found(
                "discover",
                f"discover() returns something else than Capabilities: {error}.",
                "Let it return kfm.connect.Capabilities, or leave it out.",
            )
            return
        kind = kind_of(self.target.entry.source.kind)
        source = self.target.entry.source
        windowed = (
            "{since}" in source.url
            or source.time_column is not None
            or bool(kind and kind.asks)
            or "acquire" in self.names
        )
        kept = {
            "incremental": windowed,
            "backfillable": windowed,
            "paged": self.target.asks,
            "change_token": "change_token" in self.names or self.target.asks,
        }
        for ability in abilities:
            if not kept[ability]:
                yield _found(
                    "discover",
                    f"It declares {ability}, but nothing here can do that.",
                    "Take it out of abilities, or add what it needs.",
                )

    # -- acquire
    def asked(self) -> Iterator[Finding]:
        listed = self.folder / "fixtures" / _REPLAY
        if "acquire" not in self.names:
            return
        if not listed.is_file():
            yield _found(
                "acquire",
                f"There is no fixtures/{_REPLAY} to try acquire() on.",
                "Write {address: file name} into it.",
            )
            return
        files = {
            url: self.folder / "fixtures" / name
            for url, name in msgspec.json.decode(listed.read_bytes()).items()
        }
        whole = self._ask(files, "ask-1")
        with contextlib.suppress(ConnectorFailed):
            self._ask(files, "ask-2", fail_at=max(1, len(whole) // 2))
        if self._ask(files, "ask-3") != whole:
            yield _found(
                "acquire",
                "acquire() asks for other files when it is called again.",
                "Let what it asks follow from the answers alone.",
            )

    def _ask(self, files: dict[str, Path], room: str, fail_at: int = 0) -> list[tuple[str, str]]:
        asked: list[tuple[str, str]] = []

        def serve(message: Json) -> Json:
            paths = []
            for item in message.get("items") or [message]:
                asked.append((str(item["url"]), str(item.get("name"))))
                if item["url"] not in files:
                    return {"error": f"fixtures/{_REPLAY} has no answer for it"}
                if len(asked) == fail_at:
                    return {"error": "upstream does not answer"}
                copy = self.temp / room / f"{len(asked)}"
                copy.write_bytes(files[item["url"]].read_bytes())
                paths.append(str(copy))
            return {"paths": paths} if "items" in message else {"path": paths[0]}

        source = self.target.entry.source
        job = Acquire(
            dataset_id=self.target.dataset_id,
            source_kind=source.kind,
            options=source.options,
            urls=(source.url, *source.urls),
            format=source.format,
            records=source.records,
            conflicts=(
                "refuse" if self.target.entry.conflicts is UNSET else self.target.entry.conflicts
            ),
            connector=self.target.connector,
            artifact=self.target.artifact,
        )
        run_transform(job, self.room(room), timeout_s=120, fetch=serve, entries=self.entries)
        return asked

    # -- transform and validate
    def made(self) -> Iterator[Finding]:
        if not self.inputs:
            yield _found(
                "fixture",
                "There is nothing to try it on in fixtures/.",
                f"Put a small synthetic .{self.target.entry.source.format} there.",
            )
            return
        job = _job(self.target, self.inputs)
        first, bytes_of = self._run(job, "one")
        if self._run(job, "two")[1] != bytes_of:
            yield _found(
                "same",
                "The same input gave other bytes.",
                "No clock, no chance, no sets: the order of rows and columns must follow from the"
                " input.",
            )
        self._kill(job, self.room("killed"))
        if self._run(job, "killed")[1] != bytes_of:
            yield _found(
                "retry",
                "After it was killed in the middle it gave other bytes.",
                "Do not read what an earlier attempt left in ctx.scratch.",
            )
        yield from self._window(first)
        golden = self.folder / "fixtures" / _GOLDEN
        if golden.is_file() and msgspec.json.decode(golden.read_bytes()) != _golden(first):
            yield _found(
                "golden",
                f"The fixture gives {first.rows} rows that are not those of fixtures/{_GOLDEN}.",
                f"If that is right: kfm connector check {self.target.dataset_id} --golden",
            )

    def _run(self, job: Read | Join, room: str) -> tuple[TransformResult, bytes]:
        scratch = self.temp / room
        scratch.mkdir(exist_ok=True)
        result = run_transform(job, scratch, timeout_s=600, entries=self.entries)
        return result, (scratch / result.artifact).read_bytes()

    def _kill(self, job: Read | Join, room: Path) -> None:
        """Let the child die once it has begun to write."""

        def die(event: Json) -> None:
            if event.get("op") == "progress":
                raise _Killed

        with contextlib.suppress(_Killed):
            run_transform(job, room, timeout_s=600, on_event=die, entries=self.entries)

    def _window(self, whole: TransformResult) -> Iterator[Finding]:
        """The first half of the fixture's time: nothing later may come out."""
        column = self.target.entry.source.time_column
        profile = whole.profile.get(column or "")
        if profile is None or not profile.min or not profile.max or profile.min == profile.max:
            return
        since, until = bounds(_moment(profile.min), _moment(profile.max)).split("/")
        job = _job(self.target, self.inputs)
        if isinstance(job, Join):
            return
        part, _ = self._run(msgspec.structs.replace(job, since=since, until=until), "window")
        last = part.profile[str(column)].max
        if part.rows >= whole.rows or (last is not None and _moment(last) >= _moment(profile.max)):
            yield _found(
                "window",
                f"Rows after {until} came out of a window that ends there.",
                "Leave the time column as it was read.",
            )


class _Killed(Exception):
    pass


def _moment(text: str) -> str:
    return text if "T" not in text or text.endswith("Z") or "+" in text else f"{text}Z"
