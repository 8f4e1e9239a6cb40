"""The catalog keeps its own rules: every type is whole, documented and tested on its three
paths.
"""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from kfm.jobs import JOB_MODULES
from kfm.jobs.base import catalog_table, job_type
from kfm.model.errors import UsageError

HERE = Path(__file__).parent


def paths_tried() -> dict[str, set[str]]:
    """Type of job -> the paths that marked tests of this folder try."""
    found: dict[str, set[str]] = {}
    for path in HERE.glob("test_*.py"):
        module = importlib.import_module(f"tests.integration.jobs.{path.stem}")
        whole = getattr(module, "pytestmark", [])
        for name, test in vars(module).items():
            if name.startswith("test_") and callable(test):
                marks = [
                    *(whole if isinstance(whole, list) else [whole]),
                    *getattr(test, "pytestmark", []),
                ]
                for mark in [m for m in marks if m.name == "job"]:
                    found.setdefault(mark.args[0], set()).update(
                        word for word in ("happy", "retry", "deny") if word in name
                    )
    return found


@pytest.mark.parametrize("name", JOB_MODULES)
def test_every_type_has_a_happy_a_retry_and_a_deny_test(name: str) -> None:
    assert paths_tried().get(name) == {"happy", "retry", "deny"}


@pytest.mark.parametrize("name", JOB_MODULES)
def test_every_type_says_what_it_is(name: str) -> None:
    kind = job_type(name)
    assert kind.name == name
    assert all(issubclass(t, object) for t in (kind.parameters,))
    assert {kind.zone_in, kind.zone_out} <= {"Raw", "Work", "Processed", "Published"}


@pytest.mark.parametrize(
    "field",
    ["purpose", "triggers", "inputs", "outputs", "idempotency", "rules", "zone_in", "zone_out"],
)
def test_a_type_that_lacks_something_is_refused(field: str) -> None:
    with pytest.raises(UsageError, match=field):
        replace(job_type("ingest.pull_source"), **{field: () if field == "rules" else ""})


def test_the_documented_table_is_the_registry() -> None:
    assert catalog_table() in (HERE.parents[2] / "docs" / "workers.md").read_text()


def test_every_kind_of_work_of_the_workers_document_has_a_type() -> None:
    wanted = {
        "re-indexing": "index.build_embeddings", "ingest": "ingest.pull_source", "qa": "validate.qa_dataset", "batch": "transform.build_tiles",
        "side effects": "notify", "backfills": "backfill.run_parts", "repair": "repair",
    }  # fmt: skip
    assert set(wanted.values()) <= set(JOB_MODULES)
