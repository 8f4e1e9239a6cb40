"""The contract every connector keeps, as a suite: for `kfm connector check` and for tests of a
connector's own.

`check_connector(workspace, dataset_id)` returns what is wrong, nothing when all is well. Connector
code runs in the child, as in a run.
"""

import ast
import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from kfm.connectors.base import CaptureRefused, ConnectorFailed, TransformResult
from kfm.connectors.child.code import hooks_in
from kfm.connectors.child.process import printed, run_transform
from kfm.connectors.operations import Acquire, Discover, Join, Read
from kfm.model import (
    Capabilities,
    DatasetEntry,
    Denied,
    Json,
    KfmError,
    UsageError,
    bounds,
    check_dataset_id,
    kind_of,
)
from kfm.run.transform_inputs import transform_job
from kfm.runners.stages import STAGES, flags_table, parser_of
from kfm.workspace import config
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import targets_of
from kfm.world.target import Target
from kfm.zones.base import hash_file

__all__ = ["RULES", "Finding", "check_connector", "write_golden"]

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
                "mapping" if _unreadable(folder / "mapping.yml") else "folder",
                error.happened,
                error.remedy,
            ),
        ]
    return [*found, *_mapping(folder), *_fixtures(folder, entry), *_behaviour(folder, target)]


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
                "Copy it from scripts/connectors/_templates/dataset_connector_skeleton.",
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
        yield _found("thin", f"{path.name} is no Python{line}.", "Copy it from the skeleton.")
        return
    head = (
        (ast.get_docstring(tree) or "") if tree is not None else "\n".join(text.splitlines()[:30])
    )
    missing = [h.rstrip(":") for h in _HEADINGS if h not in head]
    if missing:
        yield _found(
            "header",
            f"The header of {path.name} does not say: {', '.join(missing)}.",
            "Copy it from the skeleton.",
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
            "Copy it from a new workspace.",
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


def _unreadable(mapping: Path) -> bool:
    try:
        config.load_mapping(mapping)
    except KfmError:
        return True
    return False


def _mapping(folder: Path) -> Iterator[Finding]:
    path = folder / "mapping.yml"
    try:
        if path.is_file() and not isinstance(config.parse(path.read_bytes(), path.name), dict):
            raise UsageError("mapping.yml holds no mapping.", remedy="Correct it.")
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
                "Correct it.",
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
                if len(asked) == fail_at or item["url"] not in files:
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
