"""Nothing leaves but through the boundary: whoever opens official bytes is listed here with a
reason, and every command is sorted.
"""

import ast
import inspect
from pathlib import Path

from kfm.cli import COMMANDS
from kfm.jobs import JOB_MODULES
from kfm.model import paths

SRC = Path(__file__).parents[2] / "src" / "kfm"
DOOR = "judge/boundary.py"

# Commands that show or copy what is official, or proposed, to whoever calls them.
HANDS_OUT = {
    "get",
    "bundle",
    "diff",
    "cite",
    "search",
    "rebuild",
    "promote",
    "canary",
    "dataset",
    "withdraw",
}
KEEPS = {  # command -> why it need not ask
    **dict.fromkeys(
        ("demo", "init", "connector", "discover", "plan", "sample-upstream", "drill"),
        "works on what comes from upstream",
    ),
    **dict.fromkeys(
        ("run", "propose", "resume", "backfill", "schedule", "scheduler", "worker", "jobs", "up"),
        "writes, and tells counts",
    ),
    **dict.fromkeys(
        ("status", "runs", "wal", "ledger", "logs", "explain", "du", "doctor", "done"),
        "tells what happened, no record",
    ),
    **dict.fromkeys(
        ("verify", "gates", "review", "witness", "policy", "reindex"),
        "compares digests, signatures and rules",
    ),
    **dict.fromkeys(
        ("keys", "grant", "licence", "approve", "reject", "switch"), "is about who may do what"
    ),
    "rollback": "changes what is official",
    "upgrade": "seals, signs and writes registry entries",
    **dict.fromkeys(
        ("quarantine",),
        "is the workbench of the restricted side: what was refused was never official",
    ),
    **dict.fromkeys(
        ("backup", "gc"), "keeps or removes the whole workspace for who holds it anyway"
    ),
}
HANDING_JOBS = {"transform.build_tiles", "index.build_embeddings", "notify"}
OTHER_JOBS = {
    "ingest.pull_source",
    "validate.qa_dataset",
    "promote",
    "repair",
    "maintenance.compact",
    "maintenance.gc",
    "backfill.run_parts",
}

PLACES = (
    "processed/",
    "data/processed",
    "catalog/dcat",
    "catalog/stac",
    "catalog/prov",
    "catalog/{",
)
# Functions that name such a place, and what opens a version, a candidate or a catalog record, by
# name.
NAMES = {
    name
    for name, maker in vars(paths).items()
    if name in paths.__all__ and inspect.isfunction(maker) and name != "place_of"
    if maker(
        *(7 if n == "generation" else "x" for n in inspect.signature(maker).parameters)
    ).startswith(PLACES)
}
OPENERS = NAMES | {
    "candidate_of", "index_path", "official_candidate", "open_table", "read_facts", "records_of_version", "tiles_folder", "version_listing",
}  # fmt: skip
INSIDE = {  # module that names such a place -> why nothing leaves there
    **dict.fromkeys(
        (
            "run/candidate.py",
            "run/collect.py",
            "run/plan.py",
            "run/withheld.py",
            "judge/derive.py",
            "run/publish.py",
            "judge/release.py",
            "run/tables.py",
            "run/transform_inputs.py",
        ),
        "makes the next version",
    ),
    **dict.fromkeys(
        (
            "evidence/approval_count.py",
            "evidence/withdrawal_check.py",
            "judge/candidate.py",
            "judge/verdicts.py",
            "upkeep/judge_official.py",
            "upkeep/judge_again.py",
            "judge/intact.py",
            "upkeep/attention.py",
        ),
        "judges it",
    ),
    **dict.fromkeys(
        (
            "evidence/acts.py",
            "upkeep/erase.py",
            "run/act.py",
            "run/rollback.py",
            "run/withdraw.py",
            "evidence/removed.py",
            "upkeep/retention.py",
        ),
        "takes it away",
    ),
    **dict.fromkeys(
        (
            "model/paths.py",
            "catalog/base.py",
            "catalog/check.py",
            "catalog/dcat.py",
            "catalog/stac.py",
        ),
        "names it",
    ),
    **dict.fromkeys(
        (
            "channel/chain.py",
            "evidence/projection.py",
            "evidence/version_records.py",
            "upkeep/reindex.py",
        ),
        "renders and indexes it inside the workspace",
    ),
    **dict.fromkeys(
        (
            "upkeep/verify.py",
            "upkeep/after_withdrawal.py",
            "upkeep/work_check.py",
            "upkeep/missing_files.py",
            "upkeep/named_files.py",
            "evidence/receipts.py",
            "keys/key_folder.py",
            "drill/compare.py",
        ),
        "compares digests",
    ),
    "workspace/backup.py": "copies the whole workspace for who holds it anyway",
    **dict.fromkeys(
        ("workspace/job_process.py", "runners/stages.py", "cli/done.py"),
        "lists names and digests for receipts and answers",
    ),
    "upkeep/rebuild.py": "makes a table again and gives its digest; `kfm rebuild` asks first",
    "upkeep/bundle.py": "packs what was opened by the boundary: it takes nothing else",
    "upkeep/search.py": "asks an index of what was opened by the boundary",
    "jobs/tiles.py": "makes tiles of what was opened by the boundary",
    "jobs/embeddings.py": "indexes what was opened by the boundary",
}
FACES = (
    "cli/",
    "jobs/",
    "diff/",
    "extras/",
    "reader/",
    "console/",
    "webhook/",
    "upkeep/search.py",
    "judge/canary.py",
)
MODULES = {str(p.relative_to(SRC)): p for p in SRC.rglob("*.py") if "template" not in p.parts}


def opened_by(path: Path) -> set[str]:
    """What a module uses that leads to official bytes: functions by name, places by the beginning
    of a path.
    """
    text = path.read_text()
    if not any(word in text for word in (*OPENERS, "processed", "catalog/")):
        return set()
    tree = ast.parse(text)
    words = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words:
            found |= (
                {node.value}
                if node.value.startswith(PLACES) or node.value == "processed"
                else set()
            )
        elif isinstance(node, ast.Name) and node.id in OPENERS:
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and node.attr in OPENERS:
            found.add(node.attr)
    return found


def test_a_function_that_names_an_official_place_is_known_by_what_it_makes() -> None:
    folders = {
        "versions_folder",
        "version_folder",
        "version_path",
        "stac_folder",
        "items_folder",
        "item_folder",
        "prov_folder",
    }
    assert folders | {"collection_path", "dcat_path", "item_path", "prov_path"} == NAMES


def asks(path: Path) -> bool:
    """Whether a module imports something of the boundary that decides."""
    if "kfm.judge.boundary" not in path.read_text():
        return False
    nodes = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom))
    return any(
        n.module == "kfm.judge.boundary"
        and {a.name for a in n.names} - {"Opened", "Reader", "NOBODY"}
        for n in nodes
    )


def test_every_command_and_every_job_is_sorted_by_whether_it_hands_something_out() -> None:
    assert not HANDS_OUT & KEEPS.keys() and not HANDING_JOBS & OTHER_JOBS
    assert HANDS_OUT | KEEPS.keys() == COMMANDS.keys(), (
        "a new command: does it show or copy official data? Then it asks the boundary"
    )
    assert JOB_MODULES.keys() == HANDING_JOBS | OTHER_JOBS, (
        "a new job: does it make something of official data for others to read?"
    )


def test_only_the_boundary_opens_official_bytes_for_somebody() -> None:
    opening = {name for name, path in MODULES.items() if opened_by(path)} - {DOOR}
    assert opening - INSIDE.keys() == set(), (
        "take the files from kfm.judge.boundary, or say here why nothing leaves there"
    )


def test_every_way_out_asks_the_boundary() -> None:
    helped = {"search": "upkeep/search.py", "canary": "judge/canary.py"}  # their faces only print
    ways = {helped.get(name, f"cli/{COMMANDS[name][0]}.py") for name in HANDS_OUT}
    ways |= {"jobs/base.py", "jobs/tiles.py", "jobs/embeddings.py"}
    assert [name for name in sorted(ways) if not asks(MODULES[name])] == []
    strangers = [
        name
        for name, path in MODULES.items()
        if name.startswith(FACES) and asks(path) and name not in ways
    ]
    assert strangers == [], "it asks the boundary, so it hands something out: sort it above"


def test_a_face_reads_no_bytes_of_the_data_zone_itself() -> None:
    """However a path is put together: commands get files from the boundary, and facts from the
    rooms below.
    """
    allowed = {
        "cli/explain.py": "why a run was denied or set aside",
        "cli/witness.py": "signed generations",
    }
    found = set()
    for name in (n for n in MODULES if n.startswith(("cli/", "reader/", "console/", "webhook/"))):
        for node in ast.walk(ast.parse(MODULES[name].read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("read", "local", "open"):
                found |= (
                    {name}
                    if isinstance(node.value, ast.Attribute) and node.value.attr == "data"
                    else set()
                )
    assert found == allowed.keys()


def test_nobody_but_the_boundary_asks_the_rules_on_reading() -> None:
    """One place asks `kfm.serve`, so that one place can fail closed."""
    asking = {name for name, path in MODULES.items() if '"kfm.serve"' in path.read_text()}
    assert asking == {DOOR, "cli/policy.py"}
