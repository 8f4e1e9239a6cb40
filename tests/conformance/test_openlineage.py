"""What a collector is told of runs, however they end: every event and every facet is valid, and nothing
in them is anybody's business.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.given.events import wrong
from tests.given.family import Family
from tests.given.sites import body, sites
from tests.given.stand import Stand, answer
from tests.given.verbs import SHARED

pytestmark = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not SHARED.exists(), reason="not run: the shared schemas are not beside this repository"
    ),
]
CSV = "id,height_ft,kind\n" + "".join(f"t{n},{n}.5,oak\n" for n in range(8))
RELEASE = {
    "h3_resolution": 5,
    "show": ["period"],
    "withhold": ["site_no", "name"],
    "aggregate": {"collect": ["period"]},
    "min_records": 5,
}


class Told:
    """A workspace whose collector is a folder."""

    def __init__(self, stand: Stand) -> None:
        self.stand, self.folder = stand, stand.folder.parent / "events"
        file = stand.ws / "kfm.yml"
        address = {"receivers": {"collector": f"openlineage+file://{self.folder}"}}
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | address))
        self.seen: set[Path] = set()

    def new(self) -> list[dict[str, Any]]:
        """What was told since the last time, in the order it happened."""
        files = sorted(set(self.folder.glob("*.json")) - self.seen)
        self.seen |= {*files}
        events: list[dict[str, Any]] = [json.loads(f.read_bytes()) for f in files]
        order = ("START", "RUNNING", "FAIL", "ABORT", "COMPLETE")
        return sorted(events, key=lambda e: (e["run"]["runId"], order.index(e["eventType"])))

    def types(self) -> list[str]:
        events = self.new()
        assert [problem for event in events for problem in wrong(event)] == []
        return [event["eventType"] for event in events]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    (tmp_path / "stand").mkdir()
    with Stand(tmp_path / "stand") as stand:
        yield Told(stand)


def trees(stand: Stand, **more: Any) -> None:
    stand.register(
        "trees",
        {"format": "csv"},
        business_key=["id"],
        owners=["Forestry <trees@example.org>"],
        custodian="City of Emporia",
        description="Every tree of the city.",
        **more,
    )


def test_every_ending_is_told_by_a_valid_event(told: Told) -> None:
    stand = told.stand
    trees(stand)
    stand.publish("trees", answer(CSV))
    assert told.types() == ["START", "RUNNING", "COMPLETE"]
    stand.speaker.says["/trees"] = answer("", "404 Not Found")
    stand.run("trees")
    assert told.types() == ["START", "FAIL"], "not even fetched"
    stand.speaker.says["/trees"] = answer("<html>so sorry</html>")
    stand.run("trees")
    assert told.types() == ["START", "FAIL"], "fetched and refused"
    stand.speaker.says["/trees"] = answer(CSV)
    stand.run("trees")
    assert told.types() == [], "of a look that found nothing new nothing is told"
    trees(stand, licence=None)
    stand.speaker.says["/trees"] = answer(CSV.replace("oak", "elm"))
    stand.run("trees")
    assert told.types() == ["START", "RUNNING", "FAIL"], "denied by a gate"
    trees(stand, approvals=1)
    stand.run("trees", "--force", "--reason", "again")
    assert told.types() == ["START", "RUNNING"], "it waits for a person"
    stand.speaker.says["/trees"] = answer(CSV.replace("oak", "ash"))
    stand.run("trees")
    assert told.types() == ["ABORT", "START", "RUNNING"], "another came first"
    proposal = stand("review", "--json").json["proposals"][0]["proposal"]
    stand("keys", "new", "--name", "Steward", "--role", "steward", "--for", "City of Emporia")
    said = stand("reject", str(proposal), "--reason", "too many", "--key", "Steward")
    assert said.code == 0, said.err
    assert told.types() == ["ABORT"], "a person said no"


def test_what_became_official_is_told_with_all_that_is_known_of_it(told: Told) -> None:
    trees(told.stand)
    told.stand.publish("trees", answer(CSV))
    told.stand.publish("trees", answer(CSV.replace("oak", "elm")))
    first, second = (e for e in told.new() if e["eventType"] == "COMPLETE")
    job = first["job"]["facets"]
    assert job["documentation"]["description"] == "Every tree of the city."
    assert [o["name"] for o in job["ownership"]["owners"]] == ["Forestry", "City of Emporia"]
    assert json.loads(job["sourceCode"]["sourceCode"])["kind"] == "http_file"
    made = first["outputs"][0]["facets"]
    assert made["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    assert {t["key"] for t in made["tags"]["tags"]} == {"sensitivity", "policy_label", "licence"}
    assert [f["name"] for f in made["schema"]["fields"]] == ["id", "height_ft", "kind"]
    metrics = made["dataQualityMetrics"]
    assert metrics["rowCount"] == 8 and metrics["bytes"] > 0
    assert metrics["columnMetrics"]["height_ft"] == {"nullCount": 0, "min": 0.5, "max": 7.5}
    gates = {a["assertion"]: a["success"] for a in made["dataQualityAssertions"]["assertions"]}
    assert len(gates) == 12 and all(gates.values()) and {"schema", "quality", "leak"} <= {*gates}
    (field,) = made["columnLineage"]["fields"]["kind"]["inputFields"]
    assert (field["name"], field["field"]) == (f"{told.stand.speaker.url}/trees", "kind")
    changed = second["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"]
    assert changed == "OVERWRITE" and second["eventTime"] > first["eventTime"]


def test_a_gate_that_denies_is_an_assertion_that_failed(told: Told) -> None:
    trees(told.stand, licence=None)
    told.stand.speaker.says["/trees"] = answer(CSV)
    told.stand.run("trees")
    (failed,) = (e for e in told.new() if e["eventType"] == "FAIL")
    assertions = failed["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"]
    assert "licence" in [a["assertion"] for a in assertions if not a["success"]]
    assert "version" not in failed["outputs"][0]["facets"], "there is none"
    assert "licence.missing" in failed["run"]["facets"]["errorMessage"]["message"]


def test_columns_of_a_join_lead_to_the_datasets_they_come_from(told: Told) -> None:
    Family(told.stand)
    made = next(
        e["outputs"][0]["facets"]["columnLineage"]["fields"]
        for e in told.new()
        if e["eventType"] == "COMPLETE" and e["job"]["name"] == "join.all_three"
    )
    of = {n: {f["name"] for f in c["inputFields"]} for n, c in made.items()}
    assert of["owner"] == {"kfm://dataset/owners"} and of["height"] == {"kfm://dataset/both"}
    assert of["id"] == {"kfm://dataset/both", "kfm://dataset/owners"}


def test_of_sealed_records_no_name_count_value_or_word_is_told(told: Told) -> None:
    stand = told.stand
    stand.register(
        "sites",
        {"format": "geojson"},
        business_key=["site_no"],
        sensitivity="sensitive-location",
        policy_label="sensitive-location",
        care_label="Generalised only",
        release=RELEASE,
    )
    stand.speaker.says["/sites"] = answer(body(sites()))
    stand("run", "sites")
    stand.speaker.says["/sites"] = answer(body(sites()[:100]).replace(b'"Point"', b'"Spot"'))
    stand("run", "sites")
    events = told.new()
    assert [p for e in events for p in wrong(e)] == []
    assert [e["eventType"] for e in events] == ["START", "RUNNING", "COMPLETE", "START", "FAIL"]
    text = json.dumps(events)
    for secret in ("site_no", "14XX", "Hidden Mound", '"name": "name"'):
        assert secret not in text
    made = events[2]["outputs"][0]["facets"]
    cell = made["columnLineage"]["fields"]["h3_cell"]["inputFields"][0]
    assert cell["field"].startswith("hmac-sha256:") and cell["transformations"][0]["masking"]
    dropped = made["columnLineage"]["dataset"]
    assert len(dropped) >= 2 and all(d["field"].startswith("hmac-sha256:") for d in dropped)
    assert all("min" not in c for c in made["dataQualityMetrics"]["columnMetrics"].values())


def test_what_is_planted_is_found_in_no_event(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREES_TOKEN", "s3cr3t-token-value")
    stand = told.stand
    stand.register(
        "trees",
        {"format": "csv", "headers": {"Authorization": "env:TREES_TOKEN"}},
        owners=["Jo <jo.planted@example.org>"],
        business_key=["id"],
    )
    stand.publish("trees", answer(CSV))
    bad = "id,height_ft,kind\nt1,1,jo.planted@example.org\nt1,2,s3cr3t-token-value\n"
    stand.speaker.says["/trees"] = answer(bad)
    stand.run("trees")
    events = told.new()
    assert [e["eventType"] for e in events][-1] == "FAIL"
    text = json.dumps(events)
    for planted in ("jo.planted", "s3cr3t", str(stand.folder)):
        assert planted not in text


def test_an_event_is_kept_once_however_often_it_is_told(told: Told) -> None:
    trees(told.stand)
    told.stand.publish("trees", answer(CSV))
    before = {f.name: f.read_bytes() for f in told.folder.iterdir()}
    assert told.stand("reindex").code == 0
    told.stand("doctor", "--fix")
    assert {f.name: f.read_bytes() for f in told.folder.iterdir()} == before
    assert len(before) == 3
