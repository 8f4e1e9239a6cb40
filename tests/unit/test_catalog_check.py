"""The cross-check of catalog records: silent when all is well, and one code for each way in which
it is not.
"""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.given.catalogs import CASES, PLAIN, RUN, V1, V2, V3, folders_of, records_of, run_of

from kfm.catalog.base import Described
from kfm.catalog.check import check_records
from kfm.catalog.prov import prov
from kfm.model.paths import collection_path, dcat_path, item_path, prov_path

FULL = CASES["spatial, with history"]
DCAT, COLLECTION, ITEM = (
    dcat_path("city_trees"),
    collection_path("city_trees"),
    item_path("city_trees", V3),
)
PROV = prov_path("city_trees", RUN)
Change = Callable[[dict[str, Any]], None]


def judged(files: dict[str, bytes], d: Described = FULL, lost: str = "") -> list[tuple[str, str]]:
    """(code, message) of every finding; `lost` is a path that is not there."""

    def exists(path: str) -> bool:
        assert not path.startswith(("..", "/")), "a zone is never asked about what lies outside"
        return path != lost and path in folders_of(d)

    findings = check_records(files, d, exists)
    assert all(
        len(finding) == 3 and finding[1].endswith((".", "`")) and finding[2].endswith(".")
        for finding in findings
    )
    return [finding[:2] for finding in findings]


def changed(path: str, change: Change, d: Described = FULL) -> dict[str, bytes]:
    files = records_of(d)
    record = json.loads(files[path])
    change(record)
    return files | {path: json.dumps(record).encode()}


@pytest.mark.parametrize("name", CASES)
def test_records_as_they_are_rendered_give_no_finding(name: str) -> None:
    d = CASES[name]
    assert judged(records_of(d), d) == []


def test_stac_1_0_0_is_read_as_well() -> None:
    files = changed(ITEM, lambda record: record.update(stac_version="1.0.0"))
    files[COLLECTION] = changed(COLLECTION, lambda record: record.update(stac_version="1.0.0"))[
        COLLECTION
    ]
    assert judged(files) == []
    assert [
        code
        for code, _ in judged(changed(ITEM, lambda record: record.update(stac_version="0.9.0")))
    ] == ["catalog.invalid"]


@pytest.mark.parametrize("path", [DCAT, COLLECTION, ITEM, PROV])
def test_a_record_that_is_not_there_is_missing(path: str) -> None:
    files = records_of(FULL)
    del files[path]
    codes = judged(files)
    assert codes[0][0] == "catalog.missing" and codes[0][1].startswith(path[:20])
    # what pointed at it dangles
    assert {code for code, _ in codes} <= {"catalog.missing", "catalog.dangling"}


def test_a_dataset_without_a_place_needs_no_stac_and_may_have_none() -> None:
    stac = {path: raw for path, raw in records_of(FULL).items() if path.startswith("catalog/stac/")}
    assert {code for code, _ in judged(records_of(PLAIN) | stac, PLAIN)} == {"catalog.unexpected"}
    left = check_records(records_of(PLAIN), PLAIN, lambda path: True)
    assert [(code, message.split()[0]) for code, message, _ in left] == [
        ("catalog.unexpected", COLLECTION)
    ]


@pytest.mark.parametrize("path", [DCAT, COLLECTION, ITEM, PROV])
@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"a": 1, "a": 2}', b"\xff"])
def test_what_is_not_a_json_object_is_invalid(path: str, raw: bytes) -> None:
    assert ("catalog.invalid", path) in [
        (code, message.split()[0]) for code, message in judged(records_of(FULL) | {path: raw})
    ]


@pytest.mark.parametrize(
    ("path", "change", "where"),
    [
        (DCAT, lambda r: r.pop("title"), "title"),
        (DCAT, lambda r: r.pop("@context"), "@context"),
        (DCAT, lambda r: r.update({"kfm:generation": "3"}), "$.kfm:generation"),
        (DCAT, lambda r: r["distribution"][0].update(byteSize=12), "$.distribution[0].byteSize"),
        (
            DCAT,
            lambda r: r["distribution"][0].update(byteSize="12.5"),
            "$.distribution[0].byteSize",
        ),
        (
            DCAT,
            lambda r: r["distribution"][0]["checksum"].update(algorithm="md5"),
            "$.distribution[0].checksum.algorithm",
        ),
        (COLLECTION, lambda r: r.pop("extent"), "extent"),
        (
            COLLECTION,
            lambda r: r["extent"]["temporal"].update(interval=[[None]]),
            "$.extent.temporal.interval[0]",
        ),
        (ITEM, lambda r: r["properties"].pop("datetime"), "$.properties"),
        (ITEM, lambda r: r["properties"].pop("start_datetime"), "$.properties.start_datetime"),
        (ITEM, lambda r: r["assets"]["city_trees.parquet"].pop("href"), "href"),
        (PROV, lambda r: r.update(entity=[]), "$.entity"),
        (PROV, lambda r: r["used"]["_:used0"].pop("prov:entity"), "$.used._:used0.prov:entity"),
    ],
)
def test_a_member_that_is_missing_or_of_another_type_is_named(
    path: str, change: Change, where: str
) -> None:
    [(code, message)] = judged(changed(path, change))
    assert code == "catalog.invalid" and path in message and where in message


@pytest.mark.parametrize(
    ("path", "change", "what"),
    [
        (DCAT, lambda r: r.update(version=V2), V2),
        (DCAT, lambda r: r.pop("version"), V3),
        (DCAT, lambda r: r.update(license="https://spdx.org/licenses/MIT"), "MIT"),
        (
            DCAT,
            lambda r: r["distribution"][0].update(license="https://spdx.org/licenses/MIT"),
            "MIT",
        ),
        (DCAT, lambda r: r["distribution"][0].update(byteSize="1"), "city_trees.parquet"),
        (
            DCAT,
            lambda r: r["distribution"][0]["checksum"].update(checksumValue="0" * 64),
            "city_trees.parquet",
        ),
        (DCAT, lambda r: r.update(distribution=[]), "city_trees.parquet"),
        (DCAT, lambda r: r.pop("spatial"), "bounding box"),
        (
            DCAT,
            lambda r: r.update({"dcat:previousVersion": f"kfm://dataset/city_trees@{V1}"}),
            "previous versions",
        ),
        (COLLECTION, lambda r: r.update(license="MIT"), "MIT"),
        (COLLECTION, lambda r: r["extent"]["spatial"].update(bbox=[[0, 0, 1, 1]]), "bounding box"),
        (COLLECTION, lambda r: r.update(version=V1), V1),
        (ITEM, lambda r: r.update(id=V1), V1),
        (ITEM, lambda r: r.update(bbox=[0, 0, 1, 1]), "bounding box"),
        (ITEM, lambda r: r["geometry"].update(type="Point"), "geometry"),
        (ITEM, lambda r: r["properties"].update(license="MIT"), "MIT"),
        (
            ITEM,
            lambda r: r["assets"]["city_trees.parquet"].update({"file:size": 1}),
            "city_trees.parquet",
        ),
        (
            ITEM,
            lambda r: r["assets"]["city_trees.parquet"].update(
                {"file:checksum": "1220" + "0" * 64}
            ),
            "city_trees.parquet",
        ),
        (ITEM, lambda r: r["assets"].pop("city_trees.parquet"), "city_trees.parquet"),
        (
            PROV,
            lambda r: r["entity"][f"dataset:city_trees@{V3}"].update({"kfm:versionDigest": "0"}),
            "version digest",
        ),
        (
            PROV,
            lambda r: r["entity"][f"dataset:city_trees@{V3}/city_trees.parquet"].update(
                {"kfm:digest": "0"}
            ),
            "city_trees.parquet",
        ),
    ],
)
def test_a_record_that_says_something_else_disagrees(path: str, change: Change, what: str) -> None:
    findings = judged(changed(path, change))
    assert [code for code, _ in findings] == ["catalog.mismatch"], findings
    assert findings[0][1].startswith(path) and what in findings[0][1]


def test_a_version_nobody_tells_the_making_of_disagrees() -> None:
    # names V3, but does not make it
    other = msgspec.structs.replace(run_of(FULL), version_id=V1, base_version=V3)
    [(code, message)] = judged(records_of(FULL) | {PROV: prov(other)})
    assert code == "catalog.mismatch" and V3 in message


def test_the_prov_of_an_older_version_is_not_compared() -> None:
    older = prov(
        msgspec.structs.replace(
            run_of(FULL), run_id="older", version_id=V1, version_digest="1" * 64, outputs=()
        )
    )
    assert judged(records_of(FULL) | {prov_path("city_trees", "older"): older}) == []


@pytest.mark.parametrize("path", [DCAT, COLLECTION])
def test_a_record_of_another_generation_is_stale(path: str) -> None:
    [(code, message)] = judged(changed(path, lambda record: record.update({"kfm:generation": 2})))
    assert code == "catalog.stale" and "2" in message and "3" in message


@pytest.mark.parametrize(
    ("lost", "pointing"),
    [
        (f"processed/city_trees/{V3}/city_trees.parquet", {DCAT, ITEM}),
        (f"processed/city_trees/{V3}/dcat.json", {DCAT, ITEM}),
        (f"processed/city_trees/{V1}/checksums.sha256", {DCAT}),
    ],
)
def test_a_link_to_what_is_not_there_dangles(lost: str, pointing: set[str]) -> None:
    findings = judged(records_of(FULL), lost=lost)
    assert {code for code, _ in findings} == {"catalog.dangling"}
    assert {message.split()[0] for _, message in findings} == pointing and all(
        lost in message for _, message in findings
    )


def test_a_lost_item_leaves_its_links_dangling() -> None:
    files = records_of(FULL)
    del files[item_path("city_trees", V2)]
    findings = judged(files)
    assert [(code, message.split()[0]) for code, message in findings] == [
        ("catalog.dangling", COLLECTION),
        ("catalog.dangling", ITEM),
    ]


@pytest.mark.parametrize(
    "address",
    ["../../../../etc/passwd", "./nowhere.json", "/etc/passwd", "../../../../../../processed"],
)
def test_a_link_out_of_the_data_folder_dangles(address: str) -> None:
    files = changed(
        COLLECTION, lambda record: record["links"].append({"rel": "about", "href": address})
    )
    assert [code for code, _ in judged(files)] == ["catalog.dangling"]


def test_prov_that_speaks_of_what_it_does_not_describe_dangles() -> None:
    [(code, message)] = judged(
        changed(PROV, lambda record: record["entity"].pop(f"run:{RUN}/input/0"))
    )
    assert code == "catalog.dangling" and f"run:{RUN}/input/0" in message
