"""The shipped Kansas workspace: every stream runs on invented answers, and the two that must not be
published are not.
"""

import base64
import contextlib
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kfm.cli import main
from kfm.cli.init import make_workspace
from kfm.samples.kansas import answer
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.config import load_dataset, load_workspace, registered
from tests.given.verbs import Said, caller, for_recordings

KANSAS = Path(__file__).parents[2] / "kansas"
NAMES = registered(KANSAS)


@pytest.fixture(scope="module")
def kansas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kansas") / "ws"
    assert main(["init", str(folder), "--kansas", "--sample"]) == 0
    return folder


@pytest.fixture(scope="module")
def outcomes(kansas: Path) -> dict[str, dict[str, Any]]:
    """Everything run once against the sample upstream."""
    import os

    with SampleUpstream() as sample:
        os.environ["KFM_SAMPLE_UPSTREAM"] = sample.url
        try:
            with contextlib.redirect_stdout(io.StringIO()) as out:
                code = main(["-w", str(kansas), "run", "--all", "--upstream", "sample", "--json"])
        finally:
            del os.environ["KFM_SAMPLE_UPSTREAM"]
    assert code == 7  # the highest: one stream waits for a person
    return {r["dataset_id"]: r for r in json.loads(out.getvalue())["runs"]}


@pytest.fixture
def call(kansas: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def call(*args: str) -> Said:
        capsys.readouterr()
        code = main(["-w", str(kansas), *args])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


def table(kansas: Path, outcome: dict[str, Any]) -> Any:
    name = outcome["dataset_id"]
    return pq.read_table(
        kansas / "data" / "processed" / name / outcome["version_id"] / f"{name}.parquet"
    )


def test_at_least_eight_streams_are_registered_with_live_addresses() -> None:
    entries = [load_dataset(KANSAS, name) for name in NAMES]
    assert len(entries) >= 8
    assert all(
        e is not None
        and e.source.url.startswith(("https://", "http://"))
        and ".example" not in e.source.url
        for e in entries
    )


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("ks_oil_wells", "ks_radiocarbon")])
def test_a_public_stream_becomes_official(name: str, outcomes: dict[str, dict[str, Any]]) -> None:
    assert (outcomes[name]["state"], outcomes[name]["exit_code"], outcomes[name]["generation"]) == (
        "COMMITTED",
        0,
        1,
    )
    assert outcomes[name]["rows_written"] > 0


def test_the_stream_without_a_licence_is_denied(
    outcomes: dict[str, dict[str, Any]], kansas: Path
) -> None:
    assert (outcomes["ks_oil_wells"]["state"], outcomes["ks_oil_wells"]["exit_code"]) == (
        "REJECTED",
        3,
    )
    assert [r["code"] for r in outcomes["ks_oil_wells"]["reasons"]] == ["licence.missing"]
    assert not (kansas / "data" / "processed" / "ks_oil_wells").exists()
    assert list((kansas / "data" / "raw" / "ks_oil_wells" / "captures").iterdir()), (
        "its bytes are kept"
    )


def test_the_sensitive_stream_waits_for_a_person_and_shows_no_site(
    outcomes: dict[str, dict[str, Any]], kansas: Path
) -> None:
    assert (outcomes["ks_radiocarbon"]["state"], outcomes["ks_radiocarbon"]["exit_code"]) == (
        "PROPOSED",
        7,
    )
    assert not (kansas / "data" / "processed" / "ks_radiocarbon").exists()
    for path in (kansas / "data").rglob("*"):
        if path.is_file() and "ks_radiocarbon" in str(path):
            assert b"14XX0" not in path.read_bytes(), path


def test_earthquakes_are_told_from_arkansas_by_place(
    outcomes: dict[str, dict[str, Any]], kansas: Path
) -> None:
    places = table(kansas, outcomes["ks_earthquakes"])["place"].to_pylist()
    assert places == ["Sample, Kansas"] * 6  # 3 in Arkansas and 12 in Alaska were dropped by rule


def test_alerts_without_an_outline_get_that_of_their_counties(
    outcomes: dict[str, dict[str, Any]], kansas: Path
) -> None:
    found = table(kansas, outcomes["ks_weather_alerts"])
    assert sorted(found["geometry_source"].to_pylist()) == ["counties", "polygon"]
    assert found["geometry"].null_count == 0


def test_the_counties_are_105_and_nobody_elses(
    outcomes: dict[str, dict[str, Any]], kansas: Path
) -> None:
    assert table(kansas, outcomes["ks_counties"]).num_rows == 105


def test_the_raster_stream_has_a_cog_beside_its_index(
    outcomes: dict[str, dict[str, Any]], kansas: Path
) -> None:
    import rasterio

    outcome = outcomes["ks_temperature_analysis"]
    folder = kansas / "data" / "processed" / "ks_temperature_analysis" / outcome["version_id"]
    asset = table(kansas, outcome)["asset"][0].as_py()
    assert (folder / asset).is_file() and f"  {asset}\n" in (
        folder / "checksums.sha256"
    ).read_text()
    with rasterio.open(folder / asset) as cog:
        assert (cog.width, cog.height, cog.count) == (33, 17, 1)
    assert asset in (folder / "stac.json").read_text()


def test_a_second_run_changes_nothing(
    outcomes: dict[str, dict[str, Any]], call: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    with SampleUpstream() as sample:
        monkeypatch.setenv("KFM_SAMPLE_UPSTREAM", sample.url)
        names = [
            "ks_weather_daily",
            "ks_earthquakes",
            "ks_weather_alerts",
            "ks_counties",
            "ks_stream_gauges",
            "ks_temperature_analysis",
        ]
        said = call("run", *names, "--upstream", "sample", "--json")
        daily = [path for _, path, _ in sample.requests if path.endswith(".dly")]
    assert [r["state"] for r in said.json["runs"]] == ["NOOP"] * len(names)
    assert daily == [], "the version stamp alone said that nothing changed"


def test_earlier_captures_answer_where_the_folder_of_recordings_is_not(
    outcomes: dict[str, dict[str, Any]],
    kansas: Path,
    call: Callable[..., Said],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # token, pages, POST, day
    names = ["ks_weather_daily", "ks_stream_gauges", "ks_aerial_images", "ks_temperature_analysis"]
    said = call("run", *names, "--upstream", "replay", "--json")
    assert [(r["state"], r["exit_code"]) for r in said.json["runs"]] == [("NOOP", 0)] * len(
        names
    ), said.err
    monkeypatch.setenv("KFM_REPLAY", "not-there")
    assert call("run", "ks_counties", "--upstream", "replay").code == 2


def test_aerial_images_of_another_state_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = answer("planetarycomputer.microsoft.com", "/api/stac/v1/search", "")[2]  # type: ignore[index]
    items = json.loads(page)
    # a server that ignores the bounding box, and answers with Vermont
    for item in items["features"]:
        item["bbox"] = [-73.21, 43.99, -73.12, 44.05]
        item["geometry"] = {
            "type": "Polygon",
            "coordinates": [[[-73.2, 44.0], [-73.13, 44.0], [-73.13, 44.04], [-73.2, 44.0]]],
        }
    items["links"] = []
    (tmp_path / "page").write_text(json.dumps(items))
    digest = hashlib.sha256((tmp_path / "page").read_bytes()).hexdigest()
    url = "https://planetarycomputer.microsoft.com/api/stac/v1/search"
    (tmp_path / "REPLAY.json").write_text(
        json.dumps({"entries": [{"method": "POST", "url": url, "file": "page", "sha256": digest}]})
    )
    assert main(["init", str(tmp_path / "ws"), "--kansas"]) == 0
    monkeypatch.setenv("KFM_REPLAY", str(tmp_path))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert (
            main(
                [
                    "-w",
                    str(tmp_path / "ws"),
                    "run",
                    "ks_aerial_images",
                    "--upstream",
                    "replay",
                    "--json",
                ]
            )
            != 0
        )
    (run,) = json.loads(out.getvalue())["runs"]
    assert (run["state"], [r["code"] for r in run["reasons"]]) == ("REJECTED", ["quality.coverage"])


def test_what_was_invented_never_carries_the_name_of_an_agency(
    outcomes: dict[str, dict[str, Any]], kansas: Path, call: Callable[..., Said]
) -> None:
    name, version = "ks_counties", outcomes["ks_counties"]["version_id"]
    folder = kansas / "data" / "processed" / name / version
    dcat = json.loads((folder / "dcat.json").read_bytes())
    assert dcat["kfm:origin"] == ["sample"]
    assert (
        dcat["publisher"]["name"]
        == "kfm sample upstream (invented data in the form of US Census Bureau)"
    )
    assert json.loads((folder / "stac.json").read_bytes())["properties"]["kfm:origin"] == ["sample"]
    shown = json.loads((kansas / "data/catalog/stac" / name / "collection.json").read_bytes())
    assert "invented" in shown["providers"][0]["name"]
    signed = json.loads(
        base64.b64decode(json.loads((folder / "attestation.json").read_bytes())["payload"])
    )
    assert [
        d["annotations"] for d in signed["predicate"]["buildDefinition"]["resolvedDependencies"]
    ] == [{"origin": "sample"}]
    run = outcomes[name]["run_id"]
    record = next((kansas / "data/work" / name / "runs").rglob(f"{run}/run_record.json"), None)
    assert record is not None
    assert {s["origin"] for s in json.loads(record.read_bytes())["sources"]} == {"sample"}
    journal = (record.parent / "wal.jsonl").read_text().splitlines()
    (planned,) = [
        json.loads(json.loads(line)["payload"])
        for line in journal
        if json.loads(line)["step_id"] == "plan"
    ]
    assert {i["origin"] for i in planned["plan"]["inputs"]} == {"sample"}
    cited = call("cite", name).out
    assert "invented data" in cited and call("cite", name, "--json").json["note"].endswith(
        "origin sample"
    )
    assert call("status", name, "--json").json["datasets"][0]["origin"] == ["sample"]
    assert "sample" in call("status", name).out


def test_invented_and_real_data_never_share_a_workspace(
    kansas: Path, call: Callable[..., Said], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = call("run", "ks_counties", "--upstream", "live")
    assert refused.code == 2 and "kfm init DIR --kansas`" in refused.err
    real = tmp_path / "real"
    assert main(["init", str(real), "--kansas"]) == 0
    refused = caller(real, capsys)("run", "ks_counties", "--upstream", "sample")
    assert refused.code == 2 and "kfm init DIR --kansas --sample" in refused.err
    assert main(["init", str(real), "--sample"]) == 2, "what is for real data stays so"
    assert "sample: true" not in (real / "kfm.yml").read_text()


def test_the_shipped_workspace_names_no_folder_outside() -> None:
    config = load_workspace(KANSAS)
    assert isinstance(config.replay, bool), "where recordings lie, the environment says"
    assert (config.store, config.zones) == (
        "sqlite:///ledger/idempotency.sqlite",
        "file:///data",
    )
    assert not config.credentials and ".." not in (KANSAS / "kfm.yml").read_text()


def test_recordings_answer_only_where_the_workspace_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "ws"
    make_workspace(folder, sample=False)
    (folder / "data/registry/ks_counties.yml").write_bytes(
        (KANSAS / "data/registry/ks_counties.yml").read_bytes()
    )
    (tmp_path / "REPLAY.json").write_text('{"entries": []}')
    monkeypatch.setenv("KFM_REPLAY", str(tmp_path))
    assert main(["-w", str(folder), "run", "ks_counties", "--upstream", "replay"]) == 2
    for_recordings(folder)
    assert main(["-w", str(folder), "run", "ks_counties", "--upstream", "replay"]) == 4


def test_every_version_verifies(
    outcomes: dict[str, dict[str, Any]], call: Callable[..., Said]
) -> None:
    assert call("verify").code == 0


def test_every_connector_keeps_its_contract_on_its_synthetic_fixtures(
    kansas: Path, call: Callable[..., Said]
) -> None:
    said = call("connector", "check", "--json")
    assert said.code == 0, said.out
    assert {
        p.name
        for p in (kansas / "scripts" / "connectors").iterdir()
        if not p.name.startswith(("_", "R"))
    } == set(NAMES)


def test_every_connector_has_tests_of_its_own_that_run_every_time(
    kansas: Path, request: pytest.FixtureRequest
) -> None:
    assert "kansas/scripts/connectors" in request.config.getini("testpaths")
    for name in NAMES:
        tests = f"scripts/connectors/{name}/tests"
        assert (KANSAS / tests / f"test_{name}.py").is_file()
        assert {p.name for p in (kansas / tests).iterdir()} == {
            f"test_{name}.py",
            "test_connector.py",
        }
        text = (kansas / "scripts" / "connectors" / name / "ingest.py").read_text()
        assert text.startswith(f'"""KFM Connector Runner: {name}/ingest')


def test_fixtures_are_what_the_sample_upstream_makes() -> None:
    folder = KANSAS / "scripts" / "connectors"
    assert (folder / "ks_counties" / "fixtures" / "source.zip").read_bytes() == answer(
        "www2.census.gov", "/x", ""
    )[2]  # type: ignore[index]
    assert (folder / "ks_earthquakes" / "fixtures" / "source.geojson").read_bytes() == answer(
        "earthquake.usgs.gov", "/x", ""
    )[2]  # type: ignore[index]


def test_records_cannot_be_withdrawn_from_under_a_raster(
    outcomes: dict[str, dict[str, Any]], kansas: Path, call: Callable[..., Said]
) -> None:
    asset = table(kansas, outcomes["ks_temperature_analysis"])["asset"][0].as_py()
    said = call(
        "withdraw",
        "--yes",
        "ks_temperature_analysis",
        "--record",
        f"asset={asset}",
        "--reason",
        "court order",
    )
    assert said.code == 3 and "is no table" in said.err
    assert call("verify", "ks_temperature_analysis").code == 0


def test_the_sample_answers_for_the_time_that_is_asked_for() -> None:
    def days(query: str) -> list[str]:
        found = answer("api.waterdata.usgs.gov", "/ogcapi/v0/collections/daily/items", query)
        assert found is not None
        return [f["properties"]["time"] for f in json.loads(found[2])["features"]]

    assert days("f=json&time=2024-12-30/2025-01-02") == [
        "2024-12-30",
        "2024-12-31",
        "2025-01-01",
        "2025-01-02",
    ]
    assert days("f=json&time=2026-02-01/2026-02-28") == [] and days("time=../1998-08-02") == [
        "1998-08-01",
        "1998-08-02",
    ]

    def images(**asked: str) -> int:
        found = answer(
            "planetarycomputer.microsoft.com", "/api/stac/v1/search", "", json.dumps(asked).encode()
        )
        assert found is not None
        return len(json.loads(found[2])["features"])

    quarter = {"datetime": "2025-01-01T00:00:00Z/2025-04-01T00:00:00Z"}
    assert (
        images(),
        images(**quarter),
        images(datetime="2025-06-03T00:00:00Z/2025-06-05T00:00:00Z"),
    ) == (8, 0, 2)
    archive = answer("waterservices.usgs.gov", "/nwis/dv/", "startDT=1998-08-01&endDT=1998-08-03")
    assert archive is not None and [line.split("\t")[2] for line in archive[2].decode().splitlines()[3:]] == [
        "1998-08-01", "1998-08-02", "1998-08-03",
    ]  # fmt: skip
    feed = answer(
        "earthquake.usgs.gov",
        "/fdsnws/event/1/query",
        "starttime=2026-01-01T01:00:00&endtime=2026-01-01T03:00:00",
    )
    assert feed is not None and json.loads(feed[2])["metadata"]["count"] == 3
