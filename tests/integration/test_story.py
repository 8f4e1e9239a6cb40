"""How a layer was produced, told from evidence alone: complete, each sentence with a file that
shows it, and nothing that is held back.
"""

import base64
import hashlib
import json
import re
import socket
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from playwright.sync_api import sync_playwright

from kfm.cli.init import make_workspace
from kfm.story.stage import address_of
from kfm.testing import Upstream
from tests.brought import browser
from tests.given import layers
from tests.given.layers import LAYER, SURVEY, VISITED, VISITS, make_layer, quietly
from tests.given.sites import sites
from tests.given.verbs import Kfm, had

ROOT = Path(__file__).parents[2]
FORMS = ("text", "markdown", "html", "json")


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Kfm, Path]:
    """The three stages, official; their sources are gone by the time anybody asks."""
    ws = tmp_path_factory.mktemp("layer") / "ws"
    make_workspace(ws, sample=False, allow_loopback=True)
    kfm = quietly(ws)
    with Upstream() as up:
        make_layer(kfm, ws, up)
    return kfm, ws


def told(kfm: Kfm, ref: str) -> Any:
    said = kfm("story", ref, "--json")
    assert said.code == 0, said.err
    return said.json


def plainly(text: str) -> str:
    """A sentence without what differs from day to day."""
    text = re.sub(r"\d{1,2} [A-Z][a-z]{2} \d{4}, \d\d:\d\d UTC", "{when}", text)
    text = re.sub(r"http://127\.0\.0\.1:\d+", "{up}", text)
    text = re.sub(r"(\d\d:){2}\d\d UTC", "{at}", text)
    text = re.sub(r"\b[0-9a-f]{8,12}…", "{key}", text)
    return re.sub(r"\bv[0-9a-f]{32}\b", "{version}", text).replace("(2026)", "{year}")


def sentences(story: Any, name: str) -> list[str]:
    section = next((s for s in story["sections"] if s["id"] == name), {"sentences": []})
    return [plainly(one["text"]) for one in section["sentences"]]


GENERALISED = (
    "Each place became a hexagonal cell of H3 resolution 4, about 1,770 km² large, and a row is shown"
    " only where at least 5 records stand behind it."
)
NOT_PUBLIC = (
    "Its records are not public (sensitive-location); only what its own release shows leaves the"
    " restricted side."
)
NATION = layers.CUSTODIAN

# written by hand, from what was done in tests/given/layers.py
EXPECTED = {
    "summary": [
        "“Finds by cell” is kept as the dataset finds_by_cell. This is its generation 1, official since {when}.",
        "Where finds are dense, by cell.",
        "It holds 61 rows with 3 columns.",
        f"It does not show where a single record lies. {GENERALISED}",
    ],
    "asked": [
        "A person asked for it by hand.",
        "The updater join.finds_by_cell, version 1.0.0, did the work with kfm 0.1.0.",
    ],
    "sources": [
        "Nothing was fetched from outside. It was made from Visited sites (visited@1) and Periods (periods@1)."
    ],
    "chain": [
        f"Site survey (survey@1) came from {{up}}/survey.geojson and is official since {{when}}. {NOT_PUBLIC}",
        "Visits to sites (visits@1) came from {up}/visits.csv and is official since {when}. Of 502 records"
        " that were read, 500 were kept.",
        f"Visited sites (visited@1) was made from survey and visits and is official since {{when}}. {NOT_PUBLIC}",
        "Periods (periods@1) came from {up}/periods.csv and is official since {when}. Of 3 records that"
        " were read, 3 were kept.",
        "Finds by cell (finds_by_cell@1) was made from visited and periods.",
    ],
    "refused": [
        "How many records were read, refused or left out is not told, because even counts can give"
        " something away. Inside they were counted: the gate that asks whether every record is"
        " accounted for let it pass."
    ],
    "steps": [
        "The plan and the journal of the run are sealed, because they speak of records that are not"
        " public. What was done to the records by rule is told here.",
        "Only the listed columns leave (period); every other column stays inside.",
        GENERALISED,
    ],
    "people": [
        f"Its terms ask for 2 approvals by stewards of {NATION}.",
        "R. Stone, steward, agreed to exactly these bytes on {when}, with the key {key}: “Seen by R. Stone”.",
        "M. Reyes, steward, agreed to exactly these bytes on {when}, with the key {key}: “Seen by M. Reyes”.",
        "Generation 1 was signed with the builder key {key} (“workspace”).",
    ],
    "governance": [
        f"{NATION} answers for it. Only its stewards may speak for it.",
        "It may be used under the licence CC-BY-4.0.",
        "It is labelled sensitive-location: places may be shown only when they are generalised.",
        "The community's own statement (CARE label) is “Generalised only”.",
        "Its labels, and those of what it is made from, demand that places are generalised. No gate lets"
        " it pass before that is done.",
        "Places are shown as H3 cells of resolution 4, about 1,770 km² each.",
        "Held back: every column but period, every exact place and rows that fewer than 5 records stand"
        f" behind. Authority: the label sensitive-location, set in the registry; {NATION} answers for it.",
    ],
    "change": ["It is the first version: there is nothing to compare it with."],
    "since": [],
    "cite": [f"{NATION} {{year}}. Finds by cell, version {{version}}. CC-BY-4.0. kfm://dataset/finds_by_cell@{{version}}"],
}  # fmt: skip


def test_the_story_of_a_layer_of_three_stages_is_complete(layer: tuple[Kfm, Path]) -> None:
    story = told(layer[0], LAYER)
    for name, wanted in EXPECTED.items():
        assert sentences(story, name) == wanted, name
    gates = sentences(story, "gates")
    assert gates[0].startswith("Twelve gates were asked; all of them let it pass.")
    assert len(gates) == 13 and set(story["gates"].values()) == {"pass"}
    assert {s["id"] for s in story["sections"]} == {*EXPECTED, "gates", "verify"} - {"since"}


def test_a_story_is_a_record_with_its_chain_its_updater_and_its_governance(
    layer: tuple[Kfm, Path],
) -> None:
    """One call gives the producing updaters, the chain from raw to derived and what governs it."""
    story = told(layer[0], LAYER)
    schema = json.loads((ROOT / "schemas/model/story-node.json").read_text())
    jsonschema_rs.validator_for(schema).validate(story)
    assert story["node_id"] == "kfm://story/finds_by_cell/1"
    produced = story["produced"]
    assert (produced["updater_id"], produced["updater_version"]) == ("join.finds_by_cell", "1.0.0")
    assert produced["trigger"] == "on-demand" and produced["last_success_at"]
    assert produced["started_at"] is None, "when private records were read stays inside"
    told_ = [(link["kind"], link["name"].rpartition("/")[2]) for link in story["chain"]]
    assert told_ == [
        ("raw", "survey.geojson"),
        ("harmonised", "survey"),
        ("raw", "visits.csv"),
        ("harmonised", "visits"),
        ("derived", "visited"),
        ("raw", "periods.csv"),
        ("harmonised", "periods"),
        ("derived", "finds_by_cell"),
    ]
    assert story["chain"][4]["inputs"] == ["survey@1", "visits@1"]
    assert story["chain"][4]["updater_id"] == "join.visited"
    assert story["chain"][0]["digest"].startswith("hmac-sha256:"), "a commitment, no digest"
    governance = story["governance"]
    assert governance["care_label"] == "Generalised only" and governance["h3_resolution"] == 4
    assert governance["custodian"] == NATION and governance["discharged"] == ["generalise"]
    assert [one["name"] for one in story["agreed"]] == list(layers.STEWARDS)
    assert all(one["at"] and len(one["key"]) == 32 for one in story["agreed"])


@pytest.mark.parametrize("name", [LAYER, VISITS, VISITED])
def test_each_claim_opens_a_file_whose_digest_verifies(layer: tuple[Kfm, Path], name: str) -> None:
    kfm, ws = layer
    story = told(kfm, name)
    proofs = {p["n"]: p for p in story["evidence"]}
    for proof in proofs.values():
        raw = (ws / proof["path"]).read_bytes()
        assert proof["digest"] == f"sha256:{hashlib.sha256(raw).hexdigest()}", proof
        if "named_by" in proof:
            assert proof["digest"][7:] in said_in(ws / proofs[proof["named_by"]]["path"]), proof
    claims = [one for section in story["sections"] for one in section["sentences"]]
    assert len(claims) > 20 and all(one["evidence"] for one in claims)
    assert {n for one in claims for n in one["evidence"]} <= proofs.keys()
    assert story["produced"]["receipt"] in {p["path"] for p in proofs.values()}


def said_in(path: Path) -> str:
    """The text of a file; of a signed one, what was signed."""
    found = path.read_text()
    if path.suffix == ".json" and "payload" in (document := json.loads(found)):
        return base64.b64decode(document["payload"]).decode()
    return found


def test_it_is_told_the_same_without_a_network_and_with_the_source_gone(
    layer: tuple[Kfm, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kfm, _ = layer
    before = {form: kfm("story", LAYER, "--format", form).out for form in FORMS}

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a story asks nobody")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert {form: kfm("story", LAYER, "--format", form).out for form in FORMS} == before
    assert all(before.values())
    public = told(kfm, VISITS)  # plan and journal of the run, without running it again
    assert sentences(public, "steps")[0].startswith("A plan of six steps was fixed")
    assert len(sentences(public, "steps")) == 9


def test_nothing_that_is_held_back_is_told_in_any_form(layer: tuple[Kfm, Path]) -> None:
    kfm, ws = layer
    raw = layers.survey()
    hidden = [hashlib.sha256(raw).hexdigest(), hashlib.md5(raw).hexdigest(), str(len(raw))]
    for site in sites()[::50]:
        hidden += [site["properties"]["name"], site["properties"]["site_no"]]
        hidden += [str(abs(n)) for n in site["geometry"]["coordinates"]]
    hidden += ["keeper@example.org", "office@example.org", str(Path.home())]
    sealed = list((ws / "data").rglob("*.sealed"))
    hidden += [hashlib.sha256(p.read_bytes()).hexdigest() for p in sealed]
    for name in (LAYER, VISITED, SURVEY, VISITS):
        for form in FORMS:
            said = kfm("story", name, "--format", form)
            assert said.code == 0
            # commands on a terminal name the workspace as the caller did
            words = [*hidden, *([str(ws)] if form != "text" else [])]
            found = [word for word in words if word in said.out + said.err]
            assert found == [], (name, form)


def test_the_commands_it_prints_can_be_pasted(
    layer: tuple[Kfm, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kfm, ws = layer
    monkeypatch.chdir(tmp_path)
    for name in (LAYER, VISITS):
        story = told(kfm, name)
        commands = [c for section in story["sections"] for c in section.get("commands", ())]
        assert len(commands) >= 4 and f"kfm cite {name}@1" in commands
        for command in commands:
            words = command.removeprefix("kfm ").split()
            given = [str(ws / w) if w.startswith("receipts/") else w for w in words]
            assert kfm(*given).code == 0, command


def test_a_public_dataset_says_what_was_refused_each_step_and_what_changed(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    layers.serve(up)
    layers.register_layer(ws, up)
    assert kfm("run", VISITS).code == 0
    up.files["/visits.csv"] = layers.visits(490).replace(b"14XX0005,5", b"14XX0005,99")
    asked = ("run", VISITS, "--force", "--reason", "the county called, ask jane@example.org")
    assert kfm(*asked).code == 0
    story = told(kfm, VISITS)
    assert sentences(story, "asked")[:2] == [
        "A person asked for it by hand on {when}.",
        "The reason that was given: “the county called, ask <e-mail>”.",
    ]
    assert sentences(story, "sources") == [
        "kfm asked {up}/visits.csv on {when} and was given 5.4 KB.",
        "The bytes were kept as they came, before anything else was done.",
    ]
    assert sentences(story, "refused") == [
        "492 records were read: 490 became rows, 1 was set aside and 1 was left out by rule.",
        "Set aside, 1: a value is not of the kind its column holds (rule type).",
        "Left out, 1: the same record was there more than once (rule duplicate).",
        "Nothing else went missing: the books balance.",
    ]
    assert story["set_aside"] == {"type": 1} and story["dropped"] == {"duplicate": 1}
    steps = sentences(story, "steps")
    assert steps[0] == (
        "A plan of six steps was fixed when its input had passed every check; its hash is {key}"
    )
    assert [re.search(r"step (\w+)\)", s)[1] for s in steps[1:]] == [  # type: ignore[index]
        "capture", "check", "transform", "pin", "assemble", "version", "lineage", "channel",
    ]  # fmt: skip
    assert sentences(story, "change") == [
        "Against visits@1: 10 rows were removed and 1 row was changed; the rows went from 500 to 490.",
        "What changed in them: visits in 1 row.",
    ]
    assert (story["changed"]["removed"], story["changed"]["touched"]) == (10, {"visits": 1})
    assert sentences(story, "governance")[-1] == "Nothing is held back."
    assert kfm("run", VISITS).code == 0, "nothing changed"
    assert "Upstream was last looked at on {when}; nothing had changed." in sentences(
        told(kfm, VISITS), "asked"
    )
    first = told(kfm, f"{VISITS}@1")
    assert sentences(first, "since") == ["It is not the newest: generation 2 is official now."]
    assert kfm("rollback", VISITS, "--reason", "too few").code == 0
    back = told(kfm, VISITS)
    assert sentences(back, "since") == [
        "On {when} generation 3 went back to this version. The reason that was given: “too few”."
    ]
    assert back["produced"]["run_id"] == first["produced"]["run_id"]
    assert sentences(back, "change")[0].startswith("Against visits@2: 10 rows were added")


def test_what_a_withdrawal_left_is_told_with_its_authority(
    kfm: Kfm, ws: Path, up: Upstream
) -> None:
    layers.serve(up)
    layers.register_layer(ws, up)
    assert kfm("run", VISITS).code == 0
    asked = ("--record", "site_no=14XX0007", "--yes", "--reason", "asked for by its owner")
    assert kfm("withdraw", VISITS, *asked, "--authority", "District Court").code == 0
    story = told(kfm, VISITS)
    assert sentences(story, "asked") == [
        "No run made it: it is what generation 2 left of the version before."
    ]
    assert "on the authority of District Court" in sentences(story, "since")[0]
    assert "14XX0007" not in json.dumps(story)
    assert kfm("story", f"{VISITS}@1").code == 3, "what was withdrawn is not told of"


def test_evidence_that_was_changed_is_not_told_from(kfm: Kfm, ws: Path) -> None:
    assert kfm("run", "ks_earthquakes").code == 0
    story = told(kfm, "ks_earthquakes")
    assert len(story["evidence"]) > 10
    for proof in story["evidence"]:
        path = ws / proof["path"]
        raw, mode = path.read_bytes(), path.stat().st_mode
        at = raw.index(b'":') - 1 if b'":' in raw else 7  # inside a name, or a digest
        path.chmod(0o644)
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert kfm("story", "ks_earthquakes").code in (3, 6), proof["path"]
        path.write_bytes(raw)
        path.chmod(mode)
    assert kfm("story", "ks_earthquakes").code == 0


def test_the_page_asks_nobody_for_anything_and_fits_every_window(
    layer: tuple[Kfm, Path], tmp_path: Path
) -> None:
    page = tmp_path / "story.html"
    assert layer[0]("story", LAYER, "--format", "html", "-o", str(page)).code == 0
    text = page.read_text()
    assert "<script" not in text and "style=" not in text.replace("<style>", "")
    links = re.findall(r'(?:href|src)="([^"]*)"', text)
    assert all(link.startswith(("#", "data:")) for link in links)
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids)) and {i[1:] for i in links if i.startswith("#")} <= {*ids}
    program = had(browser)
    with sync_playwright() as play:
        shown = play.chromium.launch(
            executable_path=str(program.program),
            args=["--no-sandbox"],
            env={k: str(v) for k, v in program.environment.items()},
        )
        for width, scheme in ((1280, "light"), (390, "dark"), (320, "light")):
            tab = shown.new_context(
                viewport={"width": width, "height": 800},
                color_scheme=scheme,  # type: ignore[arg-type]
            ).new_page()
            asked: list[str] = []
            said: list[str] = []
            tab.on("request", lambda request, asked=asked: asked.append(request.url))
            tab.on("console", lambda message, said=said: said.append(message.text))
            tab.goto(page.as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            assert asked == [page.as_uri()] and said == []
            dark = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (dark == "rgb(20, 24, 26)") == (scheme == "dark")
        shown.close()


def test_each_map_story_and_search_answer_names_the_receipt_behind_it(kfm: Kfm, ws: Path) -> None:
    name = "ks_earthquakes"
    assert kfm("run", name).code == 0
    for job in ("transform.build_tiles", "index.build_embeddings"):
        assert kfm("worker", "run-job", job, "--dataset", name).code == 0
    (tiles,) = (ws / "data" / "work" / name / "tiles").rglob("tiles.json")
    hit = kfm("search", "kansas", "earthquake", "--dataset", name, "--json").json["hits"][0]
    answered = kfm("ask", name, "where from", "--json").json
    named = {
        json.loads(tiles.read_text())["receipt"],
        hit["citation"]["receipt"],
        told(kfm, name)["produced"]["receipt"],
        answered["receipt"],
    }
    assert len(named) == 1
    receipt = json.loads((ws / named.pop()).read_text())
    assert (
        receipt["dataset_id"] == name
        and hit["citation"]["version_id"] in receipt["outputs"][0]["id"]
    )


def test_text_of_others_stays_text_in_every_form(kfm: Kfm, ws: Path, up: Upstream) -> None:
    layers.serve(up)
    layers.register_layer(ws, up)
    entry = ws / "data" / "registry" / f"{VISITS}.yml"
    entry.write_text(
        entry.read_text().replace("Visits to sites", "'<b>Visits</b> *of* [all](x) \\e[31m'")
    )
    assert kfm("run", VISITS).code == 0
    page = kfm("story", VISITS, "--format", "html").out
    assert "<b>Visits" not in page and "&lt;b&gt;Visits" in page
    assert (
        r"\<b\>Visits\</b\> \*of\* \[all\](x)" in kfm("story", VISITS, "--format", "markdown").out
    )


@pytest.mark.parametrize(
    "record", [{}, {"window": None}, {"window": "a/b"}, {"window": 3, "partition": ""}]
)
def test_where_no_record_says_which_window_was_asked_the_address_is_the_declared_one(
    record: dict[str, Any],
) -> None:
    declared = "https://upstream.example/x?since={since}"
    assert address_of(declared, record) == declared
