"""The house keeps its shape: a room imports only the rooms named for it, every module says what it
is for and what it offers.
"""

import ast
import importlib
import io
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest
from tests.given.house import NAMES, SRC, imports, name_of, rooms

import kfm
from kfm.cli.spec import HEADS

LOOSE = {"__init__.py", "__main__.py", "connect.py", "testing.py"}
# what one must hold in the head
ENGINE = ("model", "zones", "store", "channel", "evidence", "judge", "run")
MOST_ENGINE_LINES = 14_000

# room -> the rooms it may import, hidden imports and imports for types counted
SEAMS = {"model", "zones", "store", "sandbox", "fetch", "keys", "policy", "catalog", "connectors"}
MAY: dict[str, set[str]] = {
    "model": set(),
    "zones": {"model"},
    "store": {"model", "zones"},
    "sandbox": {"model"},
    "fetch": {"model"},
    "keys": {"model", "zones"},
    "policy": {"model", "sandbox"},
    "catalog": {"model"},
    "connectors": {"model", "zones", "sandbox", "connect"},
    "kinds": {"model", "connectors"},
    "diff": {"model", "zones"},
    "gates": {"model"},
    "samples": {"model", "fetch"},
    "channel": {"model", "zones", "store", "keys"},
    "world": SEAMS | {"channel"},
}
MAY["grants"] = {"model", "keys", "world"}
MAY["evidence"] = SEAMS | {"diff", "channel", "world", "grants"}
MAY["release"] = MAY["evidence"] | {"evidence"}
MAY["quarantine"] = MAY["evidence"] | {"evidence"}
MAY["acts"] = MAY["release"] | {"release"}
MAY["judge"] = MAY["release"] | {"release", "gates"}
MAY["access"] = MAY["judge"] | {"judge"}
MAY["lineage"] = MAY["access"] | {"access"}
MAY["run"] = MAY["judge"] | {"judge", "acts", "quarantine"}
MAY["telemetry"] = {"model", "zones", "store", "fetch", "world"}
MAY["upkeep"] = MAY["run"] | {"run", "access"}
MAY["story"] = MAY["upkeep"] | {"upkeep"}
MAY["jobs"] = MAY["upkeep"] | {"upkeep"}
MAY["workspace"] = MAY["jobs"] | {"jobs", "samples", "connect", "telemetry"}
FACES = {"cli", "data", "pages", "runners", "drill", "extras", "reader", "console", "webhook"}
MODULES = sorted(
    p for p in SRC.rglob("*.py") if "template" not in p.parts and p != SRC / "__init__.py"
)
# All modules are looked at in one test, which names each that is not as it should be: a test for
# each and every rule would be four thousand.


def room(module: str) -> str:
    return module.split(".")[1]


def own(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def test_nothing_lies_loose() -> None:
    assert {p.name for p in SRC.glob("*.py")} <= LOOSE
    assert MAY.keys() <= rooms() <= MAY.keys() | FACES, "a new room: say which rooms it may import"


def test_a_room_imports_only_what_is_named_for_it() -> None:
    found = [
        f"{name_of(path)} imports {module}"
        for path in MODULES
        if own(path) in MAY
        for module in imports(path)
        if room(module) not in {own(path), *MAY[own(path)]}
        # what an extra promises may be known by everybody
        and not (room(module) == "extras" and module.endswith(".base"))
    ]
    assert not found, "\n".join(found)


def test_a_kind_that_is_an_extra_knows_no_more_than_any_other() -> None:
    kinds = [SRC / "extras" / "agencies", SRC / "extras" / "raster"]
    modules = [p for p in MODULES if p.parent in kinds]
    found = [
        f"{name_of(path)} imports {module}"
        for path in modules
        for module in imports(path)
        if room(module) not in MAY["kinds"]
        and not module.startswith(name_of(path.parent / "__init__.py"))
    ]
    assert modules and not found, "\n".join(found)


def test_no_module_imports_another_in_a_circle() -> None:
    graph = {name_of(p): imports(p) & NAMES for p in MODULES}
    done: set[str] = set()

    def walk(name: str, on_the_way: tuple[str, ...]) -> None:
        assert name not in on_the_way, " -> ".join((*on_the_way[on_the_way.index(name) :], name))
        if name not in done:
            for other in sorted(graph.get(name, ())):
                if other != name:
                    walk(other, (*on_the_way, name))
            done.add(name)

    for name in sorted(graph):
        walk(name, ())


BACK_ENDS = {
    "kfm.zones.local",
    "kfm.workspace.overlay",
    "kfm.store.sqlite",
    "kfm.extras.postgres.store",
    "kfm.fetch.http",
    "kfm.fetch.offline",
    "kfm.policy.embedded",
    "kfm.policy.opa",
    "kfm.connectors.child.process",
    "kfm.connectors.child.inside",
    "kfm.connectors.child.perform",
    "kfm.connectors.child.transform",
}


def test_only_the_workspace_names_back_ends() -> None:
    """The engine meets a seam through its promise, not through a back end."""
    names_none = (
        "world",
        "grants",
        "evidence",
        "quarantine",
        "release",
        "acts",
        "judge",
        "access",
        "run",
        "upkeep",
        "story",
        "jobs",
    )
    named = {name_of(p): imports(p) & BACK_ENDS for p in MODULES if own(p) in names_none}
    assert {name: back_ends for name, back_ends in named.items() if back_ends} == {}


def test_no_module_of_connectors_knows_more_than_fifteen_others() -> None:
    """All of `model` counts as one."""
    known = {
        name_of(path): {"kfm.model" if room(m) == "model" else m for m in imports(path)}
        for path in MODULES
        if own(path) == "connectors"
    }
    assert known and {name: sorted(of) for name, of in known.items() if len(of) > 15} == {}


def test_no_module_needs_the_whole_house() -> None:
    """Faces and the workspace bring rooms together; the words of the model count once."""
    needed = {
        name_of(path): {"kfm.model" if n.startswith("kfm.model") else n for n in imports(path)}
        for path in MODULES
        if own(path) not in FACES | {"workspace", "testing"}
    }
    assert {name: len(of) for name, of in needed.items() if len(of) > 15} == {}


def test_the_door_of_the_model_is_the_same_for_people_and_for_python() -> None:
    from kfm import model

    stub = ast.parse((SRC / "model" / "__init__.pyi").read_text())
    told = {(n.module, a.name) for n in stub.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert told == {(f"kfm.model.{where}", word) for word, where in model._WHERE.items()}
    assert all(getattr(model, word) is not None for word in model.__all__)
    with pytest.raises(AttributeError, match="no attribute"):
        model.nothing_of_the_kind  # noqa: B018


def test_the_engine_fits_in_a_head() -> None:
    """What explains costs nothing: blank lines, comments and docstrings are not counted."""
    count = sum(lines_of_code(p) for p in MODULES if own(p) in ENGINE)
    assert count < MOST_ENGINE_LINES, f"{count:,} lines: give what is new a room of its own"


def lines_of_code(path: Path) -> int:
    """The rows of a file on which code stands."""
    apart = (
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.COMMENT,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
    text = path.read_text()
    rows: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in apart:
            rows |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            said = node.body[0]
            rows -= set(range(said.lineno, (said.end_lineno or said.lineno) + 1))
    return len(rows)


def test_a_module_says_what_it_is_for_and_what_it_offers() -> None:
    found = []
    for path in MODULES:
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree):
            found.append(f"{name_of(path)} opens with no sentence on what it is for")
        if path.name not in ("__init__.py", "__main__.py") and not any(
            isinstance(n, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in n.targets)
            for n in tree.body
        ):
            found.append(f"{name_of(path)} has no __all__")
    assert not found, "\n".join(found)


def test_no_command_needs_an_extra_to_be_called() -> None:
    """What an extra brings is imported where it is used, and what is missing is named there."""
    code = f"import sys\nfor name in {list(HEADS.values())}:\n    __import__(f'kfm.cli.{{name}}')\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    extras = {"pyarrow", "numpy", "shapely", "h3", "pyproj", "pyogrio", "psycopg", "rasterio"}
    extras |= {"jsonschema_rs", "duckdb", "orjson", "rfc8785"}  # and what tests alone use
    assert extras.isdisjoint(loaded)


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("kfm.cli.run", "dataclasses inspect typing_extensions yaml orjson shutil tempfile"),
        ("kfm.jobs.worker, kfm.store.sqlite", "dataclasses inspect typing_extensions hashlib yaml"),
        ("kfm.cli.run, kfm.telemetry.unsent", "http.client ssl kfm.fetch.post kfm.telemetry.otlp"),
    ],
)
def test_who_starts_often_or_stays_long_loads_little(modules: str, heavy: str) -> None:
    code = f"import sys, kfm.model, {modules}\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(heavy.split()).isdisjoint(loaded)


def test_no_class_is_a_room_of_its_own() -> None:
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                many = sum(isinstance(n, ast.FunctionDef) for n in node.body)
                assert many <= 25, f"{path.name}: {node.name} has {many} methods"


def test_a_transaction_is_typed_wherever_it_goes() -> None:
    for path in MODULES:
        assert "(tx: Any" not in path.read_text() and " tx: Any" not in path.read_text(), path.name


def test_no_other_line_asks_whether_it_is_a_dry_run() -> None:
    """Dry run is a wiring: outside the faces and the workspace nothing branches on it."""
    for path in MODULES:
        text = path.read_text()
        if own(path) in FACES | {"workspace", "testing"} or "dry_run" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.If):
                names = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(node.test)}
                assert "dry_run" not in names, f"{path.name}:{node.lineno}"


WRITERS = {
    "write_text",
    "write_bytes",
    "unlink",
    "rmdir",
    "mkdir",
    "rename",
    "symlink_to",
    "touch",
    "rmtree",
    "copyfile",
    "copytree",
}
# remove folders they emptied; files go through the zone
EMPTIES = {"run_files.py", "erase.py", "retention.py"}


WRITE_NOTHING = [
    "channel",
    "world",
    "grants",
    "evidence",
    "diff",
    "gates",
    "quarantine",
    "release",
    "acts",
    "judge",
    "access",
    "run",
    "upkeep",
    "jobs",
    "catalog",
    "keys",
]


def test_no_other_code_writes() -> None:
    """The engine writes through zones, store and publisher only; who judges and who plans writes
    nothing.
    """
    apart = ("job_log.py", "key_folder.py", "commitments.py")  # keys lie in a folder
    found = [
        f"{name_of(path)}:{node.lineno} {what}"
        for path in MODULES
        if own(path) in WRITE_NOTHING and path.parent.name != "publisher" and path.name not in apart
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and (what := does(path, node))
    ]
    assert not found, "\n".join(found)


def does(path: Path, node: ast.Call) -> str:
    """What this call does that only zones, store and publisher do."""
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if (name == "rmdir" and path.name in EMPTIES) or (
        name == "unlink" and path.name == "doctor.py"
    ):
        return ""
    if name in WRITERS:
        return f"calls {name}"
    if name == "open":
        return "opens a file"
    whole = ast.unparse(node.func)
    if whole in ("os.replace", "os.link"):
        return "moves a file"
    starts = name in ("Popen", "system") or whole == "subprocess.run"
    return "starts a process" if starts and path.name != "worker.py" else ""


@pytest.mark.parametrize("old", sorted(kfm._MOVED))
def test_imports_that_were_shown_keep_working(old: str) -> None:
    new = importlib.import_module(kfm._MOVED[old])
    shown = importlib.import_module(old)
    assert {n for n in vars(new) if not n.startswith("_")} <= vars(shown).keys()
    assert all(getattr(shown, n) is getattr(new, n) for n in getattr(new, "__all__", ()))
