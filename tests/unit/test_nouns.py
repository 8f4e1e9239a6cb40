"""What a kfm of before the structs wrote into journals and proposals is read, and written back byte
for byte.
"""

import json
from pathlib import Path

import msgspec
import pytest

from kfm.evidence.journal import asked_of, done_of, payload_of
from kfm.evidence.version_records import placed, read_facts, version_facts
from kfm.keys.commitments import OPEN
from kfm.model import canonical
from kfm.model.candidate import Candidate
from kfm.model.errors import IntegrityError, KfmError
from kfm.model.journal import (
    Appending,
    Assembled,
    Captured,
    Capturing,
    LineageKept,
    LineageMeant,
    PartDone,
    Pinned,
    Planned,
    Stopped,
    Transforming,
    VersionKept,
    VersionNamed,
)
from kfm.model.ledger import WalRecord
from kfm.model.proposal import Proposal
from kfm.zones.local import LocalZone

# {what, text}: of runs of public, private, partitioned and failed datasets
RECORDED = Path(__file__).parents[1] / "fixtures" / "nouns.jsonl"
KINDS: dict[str, type[msgspec.Struct]] = {
    "plan DONE": Planned,
    "capture IN_PROGRESS": Capturing,
    "capture DONE": Captured,
    "capture FAILED": Stopped,
    "transform IN_PROGRESS": Transforming,
    "transform DONE": PartDone,
    "transform FAILED": Stopped,
    "pin DONE": Pinned,
    "assemble DONE": Assembled,
    "version IN_PROGRESS": VersionNamed,
    "version DONE": VersionKept,
    "lineage PENDING": LineageMeant,
    "lineage DONE": LineageKept,
    "channel IN_PROGRESS": Appending,
    "channel DONE": Appending,
}


def recorded(*, files: bool) -> list[tuple[str, str]]:
    found = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    return [(f["what"], f["text"]) for f in found if f["what"].endswith(".json") == files]


def record(step_id: str, status: str, payload: str) -> WalRecord:
    return WalRecord(
        wal_id="w", seq=0, phase="EXECUTE", step_id=step_id, updater_id="u", updater_version="1", input_hash="", payload=payload,
        status=status, ts="", prev="", hash="",  # type: ignore[arg-type]
    )  # fmt: skip


def test_every_payload_is_written_back_byte_for_byte() -> None:
    payloads = recorded(files=False)
    assert {what for what, _ in payloads} >= {
        "plan DONE",
        "transform DONE",
        "pin DONE",
        "assemble DONE",
        "version IN_PROGRESS",
    }
    for what, text in payloads:
        told = record(*what.split(), text)
        found = msgspec.to_builtins(payload_of(told, OPEN, KINDS[what]))
        if what == "plan DONE":  # it came first, and said what was asked for
            found |= msgspec.to_builtins(asked_of([told], OPEN))
        assert msgspec.json.encode(found).decode() == text, what


def test_every_candidate_and_proposal_is_written_back_byte_for_byte() -> None:
    kinds: dict[str, type[Candidate] | type[Proposal]] = {
        "candidate.json": Candidate,
        "proposal.json": Proposal,
    }
    files = recorded(files=True)
    assert {what for what, _ in files} == kinds.keys()
    for what, text in files:
        assert (
            msgspec.convert(canonical.loads(text.encode()), kinds[what]).written().decode() == text
        )


FACTS = (
    b'{"artifacts":{"t.parquet":{"digest":"sha256:1","release":"sha256:2","rows":2,"size":7}},'
    b'"bbox":[-100,37.5,-95,40],"content_id":"sha256:4","dataset_id":"trees","h3_resolution":null,'
    b'"interval":["2026-01-01","2026-01-02"],"profile":{"id":{"max":"b","min":"a","nulls":0}},'
    b'"schema":[{"name":"id","nullable":true,"type":"string","unit":null},{"min":0,"name":"height",'
    b'"nullable":true,"sentinels":[-1],"type":"number","unit":"m"}],"steps":[{"columns":["id"],'
    b'"step":"show"}],"transform_hash":"t","updater_version":"1.0.0","version_digest":"d",'
    b'"version_id":"v1"}'
)


def test_the_facts_of_a_version_are_read_and_written_back_byte_for_byte(tmp_path: Path) -> None:
    zone, path = LocalZone(tmp_path), "processed/trees/v1/version.json"
    for raw in (FACTS, FACTS.replace(b'"profile"', b'"origin":["sample"],"profile"')):
        zone.replace(path, raw)
        facts = read_facts(zone, "trees", "v1")
        lies = placed(facts, "trees", "v1")
        assert lies["t.parquet"]["from"] == "processed/trees/v1/t.parquet" and facts.rows == 2
        made = Candidate(**{**msgspec.structs.asdict(facts), "artifacts": lies})
        assert canonical.dumps(msgspec.to_builtins(version_facts(made))) == raw
        assert made.books.gone and not made.books.balanced, "nobody said what was read"
    zone.replace(path, FACTS.replace(b'"rows":2', b'"rows":2}},"schema":{"x":{"y":2'))
    with pytest.raises(KfmError):  # a member twice
        read_facts(zone, "trees", "v1")
    zone.replace(path, FACTS.replace(b'"t",', b"7,"))
    with pytest.raises(IntegrityError, match=r"version\.json is damaged"):
        read_facts(zone, "trees", "v1")


def test_only_a_step_that_is_done_says_what_it_did() -> None:
    begun, done = (
        record("capture", "IN_PROGRESS", '{"capture_id":"c1","files":{}}'),
        record("capture", "DONE", '{"capture_id":"c1"}'),
    )
    failed = record("capture", "FAILED", '{"error":"no","code":"x"}')
    assert done_of([], "capture", OPEN, Captured) is None
    assert done_of([begun], "capture", OPEN, Captured) is None
    assert done_of([begun, done], "capture", OPEN, Captured) == Captured(capture_id="c1")
    assert done_of([begun, done, failed], "capture", OPEN, Captured) is None


@pytest.mark.parametrize("text", ['{"part":7}', "no json", '{"sealed":7}'])
def test_a_payload_that_cannot_be_read_is_damage(text: str) -> None:
    with pytest.raises(IntegrityError, match="says of pin cannot be read"):
        payload_of(record("pin", "DONE", text), OPEN, Pinned)
