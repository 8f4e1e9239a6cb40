"""`kfm discover`: what is new or changed becomes a draft, once; nothing is published by it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kfm.testing import Upstream
from tests.given.verbs import SHARED, Said, tree

Kfm = Callable[..., Said]


@pytest.fixture
def catalogue(ws: Path, up: Upstream) -> Callable[[str, object], None]:
    """Name one catalogue in kfm.yml, with this content."""

    def name(kind: str, document: object) -> None:
        up.files["/catalogue.json"] = json.dumps(document).encode()
        plain = (ws / "kfm.yml").read_text().partition("catalogues:")[0]
        (ws / "kfm.yml").write_text(
            plain + f"catalogues:\n  - {{url: '{up.url}/catalogue.json', kind: {kind}}}\n"
        )

    return name


DATA_JSON = {
    "dataset": [
        {
            "title": "Water Rights",
            "description": "Rights to use water.",
            "license": "https://creativecommons.org/publicdomain/zero/1.0/",
            "distribution": [
                {"downloadURL": "rights.csv", "mediaType": "text/csv"},
                {"downloadURL": "rights.pdf", "mediaType": "application/pdf"},
            ],
        },
        {
            "title": "Fish",
            "distribution": [
                {
                    "downloadURL": "https://fish.example/fish.geojson",
                    "mediaType": "application/geo+json",
                }
            ],
        },
    ]
}


def test_a_catalogue_gives_one_draft_per_resource_however_often_it_is_read(
    kfm: Kfm, ws: Path, catalogue: Callable[..., None]
) -> None:
    catalogue("dcat", DATA_JSON)
    first = kfm("discover", "--catalogues", "--json")
    assert first.code == 0
    assert [(d["dataset_id"], d["licence"], d["new"]) for d in first.json["drafts"]] == [
        ("found_water_rights", "CC0-1.0", True),
        ("found_fish", None, True),
    ]
    before = tree(ws / "data")
    second = kfm("discover", "--catalogues", "--json")
    assert [d["new"] for d in second.json["drafts"]] == [False, False]
    assert tree(ws / "data") == before
    assert not (ws / "data" / "processed").exists() or not list(
        (ws / "data" / "processed").iterdir()
    )


def test_the_catalog_record_of_a_draft_says_that_it_is_one(
    kfm: Kfm, ws: Path, catalogue: Callable[..., None]
) -> None:
    catalogue("dcat", DATA_JSON)
    path = kfm("discover", "--catalogues", "--json").json["drafts"][0]["path"]
    record = json.loads((ws / "data" / path / "dcat.json").read_text())
    assert (record["@type"], record["adms:status"], record["dct:title"]) == (
        "dcat:Dataset",
        "draft",
        "Water Rights",
    )


def test_an_adopted_draft_is_registered_and_still_needs_its_labels(
    kfm: Kfm, ws: Path, up: Upstream, catalogue: Callable[..., None]
) -> None:
    catalogue("dcat", DATA_JSON)
    up.files["/rights.csv"] = b"id,acres\na,1\nb,2\n"
    kfm("discover", "--catalogues")
    assert kfm("discover", "--adopt", "found_water_rights").code == 0
    assert kfm("discover", "--adopt", "found_water_rights").code == 2
    said = kfm("run", "found_water_rights", "--json")
    assert (said.code, said.json["runs"][0]["state"]) == (3, "REJECTED")
    assert {r["code"] for r in said.json["runs"][0]["reasons"]} >= {
        "labels.sensitivity",
        "labels.policy",
    }
    assert [d["dataset_id"] for d in kfm("discover", "--catalogues", "--json").json["drafts"]] == [
        "found_fish"
    ]


def listing(*offers: tuple[str, str]) -> dict[str, object]:
    """A data.json of `(title, address)`."""
    return {
        "dataset": [
            {"title": t, "distribution": [{"downloadURL": u, "mediaType": "text/csv"}]}
            for t, u in offers
        ]
    }


@pytest.mark.parametrize(
    ("address", "value"),
    [
        ("https://a.example/a.csv?token=cmd:sh -c 'echo hidden-value'", "hidden-value"),
        ("https://a.example/a.csv?api_key=env:HIDDEN_VALUE", "HIDDEN_VALUE"),
        ("https://a.example/a.csv?api%5Fkey=%65nv:HIDDEN_VALUE", "HIDDEN_VALUE"),
        ("https://a.example/a.csv?sig=hidden-value", "hidden-value"),
        ("https://me:hidden-value@a.example/a.csv", "hidden-value"),
        ("file:///inbox/hidden-value.csv", "hidden-value"),
        ("ftp://a.example/hidden-value.csv", "hidden-value"),
        ("https://a.example/hidden-value/{day}.csv", "hidden-value"),
        ("https://[hidden-value/a.csv", "hidden-value"),
    ],
)
def test_an_address_that_is_more_than_a_web_address_is_left_out_and_never_repeated(
    kfm: Kfm, ws: Path, catalogue: Callable[..., None], address: str, value: str
) -> None:
    catalogue("dcat", listing(("Bad", address), ("Good", "https://a.example/good.csv")))
    said = kfm("discover", "--catalogues", "--json")
    assert (said.code, [d["dataset_id"] for d in said.json["drafts"]]) == (0, ["found_good"])
    assert [o["name"] for o in said.json["left_out"]] == ["bad"]
    shown = kfm("discover", "--catalogues")
    assert "1 left out" in shown.out and "left out: bad. The " in shown.out
    assert value not in said.out + said.err + shown.out + shown.err
    assert not [
        p for p in (ws / "data").rglob("*") if p.is_file() and value.encode() in p.read_bytes()
    ]
    assert kfm("discover", "--adopt", "found_bad").code == 2


def test_an_older_draft_with_a_reference_is_not_adopted(kfm: Kfm, ws: Path) -> None:
    folder = ws / "data" / "work" / "_discovered" / "found_old" / "0"
    folder.mkdir(parents=True)
    source = {
        "kind": "http_file",
        "url": "https://a.example/a.csv?api_key=env:HOME",
        "format": "csv",
    }
    (folder / "registry.json").write_text(
        json.dumps({"dataset_id": "found_old", "title": "Old", "source": source})
    )
    said = kfm("discover", "--adopt", "found_old")
    assert said.code == 2 and "refers to a secret" in said.err
    assert not list((ws / "data" / "registry").glob("found_old*"))


def test_what_a_catalogue_says_does_not_steer_the_terminal(
    kfm: Kfm, ws: Path, catalogue: Callable[..., None]
) -> None:
    catalogue("dcat", listing(("Fish\x1b]0;x\x07 \u202egpj", "https://a.example/\u202efish.csv")))
    said = kfm("discover", "--catalogues")
    assert said.code == 0 and "found_fish" in said.out
    assert not {"\x1b", "\x07", "\u202e"} & set(said.out + said.err)
    assert "https://a.example/%E2%80%AEfish.csv" in said.out


def test_offers_of_one_title_become_drafts_with_ids_of_their_own(
    kfm: Kfm, ws: Path, catalogue: Callable[..., None]
) -> None:
    wells = [
        ("Wells", "https://a.example/1.csv"),
        ("Wells", "https://a.example/2.csv"),
        ("Колодцы", "https://a.example/3.csv"),
    ]
    catalogue("dcat", listing(*wells))
    drafts = kfm("discover", "--catalogues", "--json").json["drafts"]
    by_url = {d["source_url"]: d["dataset_id"] for d in drafts}
    assert len(set(by_url.values())) == 3 and "found_wells" not in by_url.values()
    catalogue("dcat", listing(*reversed(wells)))
    again = kfm("discover", "--catalogues", "--json").json["drafts"]
    assert ({d["source_url"]: d["dataset_id"] for d in again}, [d["new"] for d in again]) == (
        by_url,
        [False] * 3,
    )
    said = kfm("discover", "--adopt", by_url["https://a.example/2.csv"])
    assert said.code == 0 and "https://a.example/2.csv" in said.out
    assert "kfm propose" in said.out


def test_a_name_that_is_drafted_or_registered_for_another_address_is_not_taken_over(
    kfm: Kfm, ws: Path, catalogue: Callable[..., None]
) -> None:
    catalogue("dcat", listing(("Wells", "https://a.example/1.csv")))
    first = kfm("discover", "--catalogues")
    assert (
        "https://a.example/1.csv" in first.out and "kfm discover --adopt found_wells" in first.err
    )
    catalogue("dcat", listing(("Wells", "https://b.example/1.csv")))
    other = kfm("discover", "--catalogues", "--json").json["drafts"][0]["dataset_id"]
    assert other.startswith("found_wells_")
    assert "https://a.example/1.csv" in kfm("discover", "--adopt", "found_wells").out
    assert [d["dataset_id"] for d in kfm("discover", "--catalogues", "--json").json["drafts"]] == [
        other
    ]


def test_a_title_of_any_length_gives_an_id_that_can_be_adopted(
    kfm: Kfm, catalogue: Callable[..., None]
) -> None:
    catalogue(
        "dcat",
        listing(
            ("W" * 300, "https://a.example/1.csv"),
            ("W" * 301, "https://a.example/2.csv"),
            ("V" * 300, "https://v.example/"),
        ),
    )
    for draft in kfm("discover", "--catalogues", "--json").json["drafts"]:
        assert kfm("discover", "--adopt", draft["dataset_id"]).code == 0


def test_a_finding_is_told_without_an_exit_code(kfm: Kfm) -> None:
    said = kfm("discover", "ks_earthquakes", "--upstream", "sample")
    assert said.code == 0 and "proposed" in said.out
    assert "exit" not in said.err


def test_a_changed_dataset_becomes_one_proposal_and_nothing_official(kfm: Kfm, ws: Path) -> None:
    first = kfm("discover", "ks_earthquakes", "--upstream", "sample", "--json")
    assert (first.code, first.json["datasets"][0]["state"]) == (0, "PROPOSED")
    second = kfm("discover", "ks_earthquakes", "--upstream", "sample", "--json")
    assert (second.code, second.json["datasets"][0]["state"]) == (0, "NOOP")
    assert len(list((ws / "data" / "work" / "ks_earthquakes" / "proposals").iterdir())) == 1
    assert not list((ws / "data" / "catalog" / "channels").glob("ks_earthquakes/*"))
    proposal = next((ws / "data" / "work" / "ks_earthquakes" / "proposals").iterdir())
    assert {"dcat.json", "stac.json", "prov.json"} <= {p.name for p in proposal.iterdir()}


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("dcat", {"dataset": []}),
        ("stac", {"links": []}),
        ("arcgis", []),
        ("dcat", "<html>"),
        ("stac", {"links": "x", "collections": [1, None]}),
    ],
)
def test_what_is_no_catalogue_is_refused_and_drafts_nothing(
    kfm: Kfm, ws: Path, catalogue: Callable[..., None], kind: str, document: object
) -> None:
    catalogue(kind, document)
    said = kfm("discover", "--catalogues", "--json")
    assert (said.code, said.json["drafts"]) == (1, [])
    assert "kfm.yml" in said.err
    assert not (ws / "data" / "work" / "_discovered").exists()


def test_a_catalogue_on_another_network_is_not_asked(kfm: Kfm, ws: Path) -> None:
    (ws / "kfm.yml").write_text(
        (ws / "kfm.yml").read_text()
        + "catalogues: [{url: 'http://169.254.169.254/latest', kind: dcat}]\n"
    )
    assert kfm("discover", "--catalogues", "--json").code == 3


def test_an_arcgis_service_offers_its_layers(kfm: Kfm, catalogue: Callable[..., None]) -> None:
    catalogue("arcgis", {"layers": [{"id": 0, "name": "Wells"}, {"id": 3, "name": "Roads"}]})
    drafts = kfm("discover", "--catalogues", "--json").json["drafts"]
    assert [
        (d["dataset_id"], d["source_url"].rpartition("/")[2], d["licence"]) for d in drafts
    ] == [
        ("found_wells", "0", None),
        ("found_roads", "3", None),
    ]


@pytest.mark.needs_shared
@pytest.mark.skipif(
    not SHARED.exists(), reason="not run: the recordings are not beside this repository"
)
def test_the_recorded_landing_page_of_a_stac_api_offers_its_collections(
    kfm: Kfm, catalogue: Callable[..., None]
) -> None:
    landing = json.loads(
        (SHARED / "data" / "stac" / "api" / "planetary-computer.landing.json").read_text()
    )
    children = [link for link in landing["links"] if link["rel"] == "child"]
    catalogue("stac", landing)
    drafts = kfm("discover", "--catalogues", "--json").json["drafts"]
    assert len(drafts) == len(children) > 100
    assert "found_naip" in {d["dataset_id"] for d in drafts}
