"""Nothing leaves but through the boundary: whoever opens official bytes is listed here with a
reason, and every command is sorted.
"""

import ast
import inspect
from pathlib import Path

from tests.given.ways_out import HANDING_JOBS, HANDS_OUT

from kfm.cli.spec import HEADS
from kfm.jobs import JOB_MODULES
from kfm.model import paths

SRC = Path(__file__).parents[2] / "src" / "kfm"
DOOR = "access/boundary.py"

KEEPS = {  # command -> why it need not ask
    **dict.fromkeys(
        ("help", "completion"),
        "prints what is in the table of commands",
    ),
    **dict.fromkeys(
        ("demo", "init", "connector", "discover", "plan", "sample-upstream", "drill"),
        "works on what comes from upstream",
    ),
    **dict.fromkeys(
        (
            "run",
            "propose",
            "resume",
            "backfill",
            "schedule",
            "scheduler",
            "worker",
            "jobs",
        ),
        "writes, and tells counts",
    ),
    "up": "writes, and lets the reader of `serve` answer",
    "open": "prints the address of a page, which decides for itself",
    "webhook": "tells what others have told us",
    **dict.fromkeys(
        ("runner",),
        "writes files that call commands, and tells what they were told",
    ),
    **dict.fromkeys(
        (
            "status",
            "runs",
            "wal",
            "ledger",
            "logs",
            "explain",
            "du",
            "doctor",
            "done",
            "slo",
            "alerts",
            "energy",
        ),
        "tells what happened, no record",
    ),
    **dict.fromkeys(
        ("verify", "gates", "review", "witness", "policy", "reindex", "release"),
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
OTHER_JOBS = {
    "ingest.pull_source",
    "quarantine.replay",
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
    "access/as_signed.py": "holds it against what was signed, for the boundary",
    "access/places.py": "finds which items a search may mean; the door decides on each shown",
    **dict.fromkeys(
        (
            "run/candidate.py",
            "run/collect.py",
            "run/plan.py",
            "run/withheld.py",
            "release/dataset_inputs.py",
            "run/publish.py",
            "release/by_rule.py",
            "run/tables.py",
            "release/transform_inputs.py",
        ),
        "makes the next version",
    ),
    **dict.fromkeys(
        (
            "access/approval_count.py",
            "acts/withdrawal_check.py",
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
            "acts/intend.py",
            "upkeep/erase.py",
            "acts/append_act.py",
            "acts/rollback.py",
            "acts/withdraw.py",
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
            "channel/generations.py",
            "evidence/lineage.py",
            "evidence/projection.py",
            "evidence/version_records.py",
            "upkeep/reindex.py",
        ),
        "renders and indexes it inside the workspace",
    ),
    "lineage/columns.py": "names of columns, once Sight has asked the boundary for the version",
    **dict.fromkeys(
        (
            "upkeep/verify.py",
            "upkeep/after_withdrawal.py",
            "upkeep/doctor.py",
            "upkeep/work_check.py",
            "upkeep/missing_files.py",
            "upkeep/named_files.py",
            "evidence/receipts.py",
            "keys/key_folder.py",
            "drill/compare.py",
        ),
        "compares digests",
    ),
    **dict.fromkeys(
        ("access/missing_file.py", "jobs/drive.py"),
        "says whether a file is there, and nothing else",
    ),
    "access/shown_before.py": "says whether a version was public, and nothing else",
    "access/proofs.py": "gives what proves a version that was opened by the boundary",
    "workspace/latest.py": "lets a link lead to what was opened by the boundary for everybody",
    "workspace/backup.py": "copies the whole workspace for who holds it anyway",
    **dict.fromkeys(
        ("workspace/job_process.py", "runners/stages.py", "cli/done.py"),
        "lists names and digests for receipts and answers",
    ),
    "upkeep/put_back.py": "a missing file of a version, put where it was",
    "upkeep/rebuild.py": "makes a table again and gives its digest; `kfm rebuild` asks first",
    "upkeep/bundle.py": "packs what was opened by the boundary: it takes nothing else",
    "upkeep/search.py": "asks an index of what was opened by the boundary",
    "jobs/tiles.py": "makes tiles of what was opened by the boundary",
    "jobs/embeddings.py": "indexes what was opened by the boundary",
}
FACES = (
    "cli/",
    "data/",
    "jobs/",
    "diff/",
    "extras/",
    "reader/",
    "console/",
    "webhook/",
    "upkeep/search.py",
    "upkeep/canary.py",
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
    if "kfm.access.boundary" not in path.read_text():
        return False
    nodes = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom))
    return any(
        n.module == "kfm.access.boundary"
        and {a.name for a in n.names} - {"Opened", "Reader", "NOBODY"}
        for n in nodes
    )


def test_every_command_and_every_job_is_sorted_by_whether_it_hands_something_out() -> None:
    assert not HANDS_OUT & KEEPS.keys() and not HANDING_JOBS & OTHER_JOBS
    assert HANDS_OUT | KEEPS.keys() == HEADS.keys(), (
        "a new command: does it show or copy official data? Then it asks the boundary"
    )
    assert JOB_MODULES.keys() == HANDING_JOBS | OTHER_JOBS, (
        "a new job: does it make something of official data for others to read?"
    )


def test_only_the_boundary_opens_official_bytes_for_somebody() -> None:
    opening = {name for name, path in MODULES.items() if opened_by(path)} - {DOOR}
    assert opening - INSIDE.keys() == set(), (
        "take the files from kfm.access.boundary, or say here why nothing leaves there"
    )


def test_every_way_out_asks_the_boundary() -> None:
    helped = {  # their faces only print
        "github": "extras/github/evidence.py",
        "search": "upkeep/search.py",
        "canary": "upkeep/canary.py",
        "history": "data/history.py",
        "story": "story/write.py",
        "blame": "story/blame.py",
        "ask": "story/blame.py",
        "lineage": "lineage/sight.py",
        "serve": "reader/door.py",
        "export": "reader/door.py",
    }
    ways = {helped.get(name, f"cli/{HEADS[name]}.py") for name in HANDS_OUT}
    ways |= {"jobs/base.py", "jobs/tiles.py", "jobs/embeddings.py"}
    ways |= {"data/dataset.py", "data/version.py"}  # tests/integration/test_data.py
    ways |= {"extras/github/receiver.py"}  # tests/integration/test_github_releases.py
    ways |= {"console/boundary.py"}  # tests/integration/test_console.py
    # it tells what is decided, no data: tests/integration/test_reader_matrix.py
    ways |= {"console/boundary.py"}
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
        "data/history.py": "signed generations",
    }
    found = set()
    for name in (
        n for n in MODULES if n.startswith(("cli/", "data/", "reader/", "console/", "webhook/"))
    ):
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
    # two try what somebody typed, and hand out nothing by the answer; one answers the door of a
    # worker elsewhere, which asks there instead
    assert asking == {DOOR, "cli/policy.py", "pages/gather/operate.py", "console/boundary.py"}
