"""The house keeps its shape: imports point down only, every module says what it is for and what it offers."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "kfm"
LAYERS = {
    "words": {"aside", "model", "canonical", "clock", "confine", "durable", "errors", "interrupts", "flock", "masking", "secrets"},
    "seams": {"zones", "store", "fetch", "publisher", "lineage", "policy", "telemetry", "connectors", "extras"},
    "judgement": {"gates", "catalog", "story", "diff"},
    "run": {
        "update", "acquire", "operate", "projection", "capture", "ending", "claim", "closing", "assemble", "promote", "quarantine", "attest", "receipts", "boundary", "proposal", "channel", "wal", "world", "raw",
        "runlog", "runfiles", "verify", "reindex", "doctor", "status", "ref", "heartbeat", "trust", "bundle", "commitments", "labels", "leak", "judge",
        "canary", "records", "rebuild", "erase", "release", "derive", "grants", "permits", "judgement", "evidence", "retention", "staged", "moments", "acts", "named", "approvals",
        "roots", "proofs", "sealing", "inbox", "agreed", "taken", "work", "part", "transforming", "tables", "removed", "verified", "answers",
    },
    "control": {"inline", "attention", "search", "discover", "schedule", "backfill", "pools", "webhook", "worker", "jobs", "runners"},
    "faces": {"joblog", "cli", "backup", "job_process", "reader", "console", "config", "wiring", "workspace", "upstreams", "targets", "testing", "stages", "sample_upstream", "sample_kansas", "drill", "__main__"},
}  # fmt: skip
MAY = {  # layer -> layers it may look at
    "words": {"words"},
    "seams": {"words", "seams"},
    "judgement": {"words", "judgement"},
    "run": {"words", "seams", "judgement", "run"},
    "control": {"words", "seams", "judgement", "run", "control"},
    "faces": {"words", "seams", "judgement", "run", "control", "faces"},
}
MODULES = sorted(p for p in SRC.rglob("*.py") if "template" not in p.parts and p != SRC / "__init__.py")


def part(module: str) -> str:
    return module.split(".")[1] if module.count(".") else ""


def layer(name: str) -> str:
    return next((layer for layer, parts in LAYERS.items() if name in parts), "")


def imports(path: Path) -> set[str]:
    """Every kfm module that `path` imports, also inside functions and for types."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "kfm":
            found |= {f"{node.module}.{a.name}" if node.module == "kfm" else node.module for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "kfm"}
    return found - {"kfm.__version__"}


def own(path: Path) -> str:
    relative = path.relative_to(SRC)
    return relative.parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_down(path: Path) -> None:
    mine = layer(own(path))
    assert mine, f"{own(path)} belongs to no layer: add it to LAYERS"
    for module in imports(path):
        theirs = layer(part(module))
        assert theirs in MAY[mine], f"{path.name} ({mine}) imports {module} ({theirs})"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_seam_sees_only_words_and_itself(path: Path) -> None:
    name = own(path)
    if layer(name) != "seams":
        return
    for module in imports(path):
        assert layer(part(module)) == "words" or part(module) == name or module.endswith(".base"), f"{path.name} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_only_the_wiring_names_back_ends(path: Path) -> None:
    """The run layer meets a seam through its promise, not through a back end."""
    if layer(own(path)) not in ("run", "control"):
        return
    promises = ("base", "url", "trace")
    for module in imports(path):
        if layer(part(module)) == "seams":
            assert module.rsplit(".", 1)[-1] in promises, f"{path.name} imports the back end {module}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_module_says_what_it_is_for_and_what_it_offers(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "a module opens with one sentence on what it is for"
    if path.name in ("__init__.py", "__main__.py"):
        return
    assert any(isinstance(n, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in n.targets) for n in tree.body), "no __all__"


def test_no_other_line_asks_whether_it_is_a_dry_run() -> None:
    """Dry run is a wiring: outside the faces nothing branches on it."""
    for path in MODULES:
        if layer(own(path)) == "faces":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.If):
                names = {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(node.test)}
                assert "dry_run" not in names, f"{path.name}:{node.lineno}"


WRITERS = {"write_text", "write_bytes", "unlink", "rmdir", "mkdir", "rename", "symlink_to", "touch", "rmtree", "copyfile", "copytree"}
FACES_OF_EFFECTS = {"runfiles.py", "erase.py", "retention.py"}  # remove folders they emptied; files go through the zone


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_no_other_code_writes(path: Path) -> None:
    """The engine writes through zones, store and publisher only; judgement and control write nothing."""
    if layer(own(path)) not in ("run", "judgement", "control") or own(path) in ("attest", "commitments"):  # both keep keys
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if (name == "rmdir" and path.name in FACES_OF_EFFECTS) or (name == "unlink" and path.name == "doctor.py"):
            continue
        assert name not in WRITERS, f"{path.name}:{node.lineno} calls {name}"
        assert name != "open", f"{path.name}:{node.lineno} opens a file"
        starts = name in ("Popen", "system") or ast.unparse(node.func) == "subprocess.run"
        assert not starts or path.name in ("wiring.py", "worker.py"), f"{path.name}:{node.lineno} starts a process"
