"""The members of what `--json` prints, and their order: readers rely on them."""

import json

import msgspec
import pytest

from kfm.access.status import DatasetStatus
from kfm.cli.call import emit
from kfm.cli.canary import Stands, Tried
from kfm.cli.du import Filled
from kfm.cli.explain import Explained, Step
from kfm.cli.keys import Listed as Key
from kfm.cli.review import Waiting
from kfm.cli.schedule import Failing, Listed
from kfm.cli.scheduler import Problem
from kfm.upkeep.doctor import Advice, Finding
from kfm.workspace.backup import Restored

SHAPES: dict[type[msgspec.Struct], str] = {
    DatasetStatus: "dataset_id state version_id generation fresh last_run_id reason next origin",
    Step: "ts phase step status",
    Advice: "code where what remedy",
    Finding: "code where what remedy fixed",
    Restored: "files erased epoch reindexed reindex_needed needs",
    Problem: "file what remedy",
    Failing: "window partition outcome fails error job_id due_at",
    Listed: "name dataset job_type cadence time_zone windows pool paused next_at"
    " windows_by_outcome failing",
    Waiting: "proposal dataset_id version_id since approvals needed asked problem",
    Filled: "dataset_id zones bytes retention freeable",
    Stands: "proposal partition version_id approvals needed compared",
    Tried: "dataset_id pipeline_version partitions proposals",
}


@pytest.mark.parametrize("kind", SHAPES, ids=lambda kind: kind.__name__)
def test_what_is_printed_has_these_members_in_this_order(kind: type[msgspec.Struct]) -> None:
    config = kind.__struct_config__
    assert list(kind.__struct_encode_fields__) == SHAPES[kind].split()
    assert config.frozen and not config.omit_defaults


def test_what_is_not_said_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    step = Step(ts="t", phase="PLAN", step="plan", status="DONE")
    emit([Explained(what="w", facts={}, next=None), Explained(what="w", facts={}, why=["y"], timeline=[step], next="n", exit_code=3)])  # fmt: skip
    short, full = json.loads(capsys.readouterr().out)
    assert list(short.items()) == [("what", "w"), ("facts", {}), ("next", None)]
    assert list(full) == ["what", "facts", "why", "timeline", "next", "exit_code"]
    key = Key(name="n", roles=["root"], keyid="k", state="in use", fingerprint="f", enrolled="")
    emit({"keys": [key, msgspec.structs.replace(key, custodians=["c"])]})
    short, full = json.loads(capsys.readouterr().out)["keys"]
    assert list(short) == ["name", "roles", "keyid", "state", "fingerprint", "enrolled"]
    assert list(full) == [
        "name",
        "roles",
        "keyid",
        "state",
        "fingerprint",
        "custodians",
        "enrolled",
    ]
