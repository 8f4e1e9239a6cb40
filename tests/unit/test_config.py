"""Configuration: the same in YAML and JSON, unknown keys refused with their path, no bombs, no
secrets.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from kfm.cli.init import make_workspace
from kfm.fetch.base import FetchRequest
from kfm.model.dataset import Source
from kfm.model.errors import UsageError
from kfm.workspace import config
from kfm.workspace.config import load_dataset, load_updater, load_workspace, parse
from kfm.workspace.in_words import where_in

GOOD = {
    "dataset_id": "toy",
    "title": "Toy",
    "licence": "CC0-1.0",
    "sensitivity": "public",
    "policy_label": "public",
    "source": {"kind": "http_file", "url": "https://example.org/x.csv", "format": "csv"},
    "business_key": ["id"],
    "schema": [{"name": "id", "type": "string"}],
}


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    make_workspace(tmp_path, sample=False)
    return tmp_path


def register(ws: Path, text: str, name: str = "toy.yml") -> None:
    (ws / "data" / "registry" / name).write_text(text)


def test_yaml_and_json_say_the_same(ws: Path) -> None:
    register(ws, json.dumps(GOOD), "toy.json")
    from_json = load_dataset(ws, "toy")
    (ws / "data" / "registry" / "toy.json").unlink()
    for text in (json.dumps(GOOD), yaml.safe_dump(GOOD)):  # JSON is YAML
        register(ws, text)
        assert load_dataset(ws, "toy") == from_json


def test_an_entry_is_looked_through_again_only_when_it_says_something_else(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(config, "_check_kind", lambda entry, name: seen.append(entry.title))
    for title in ("Checked once", "Checked once", "Checked again", "Checked once"):
        register(ws, json.dumps({**GOOD, "title": title}))
        assert getattr(load_dataset(ws, "toy"), "title", None) == title
    assert seen == ["Checked once", "Checked again"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"title": 7}, "`title`"),
        ({"surprise": 1}, "surprise"),
        ({"source": {**GOOD["source"], "surprise": 1}}, "in `source`"),
        ({"source": {**GOOD["source"], "format": "xml"}}, "source.format"),
        ({"drivers": ["geojson", "json"]}, "`drivers` lets nobody read csv"),
        ({"extent": {"bbox": [-99, 40, -94, 37]}}, "is no box"),
        ({"extent": {"bbox": [37, -99, 40, -94]}}, "is no box"),
        ({"sensitivity": "secret"}, "$.sensitivity"),
        ({"dataset_id": "other"}, "other"),
        ({"business_key": ["nope"]}, "nope"),
        ({"merge": "upsert", "business_key": []}, "upsert"),
        ({"partitions": ["a"]}, "partition"),
        ({"source": {**GOOD["source"], "url": "https://user:pw@example.org/x.csv"}}, ""),
        (
            {"source": {**GOOD["source"], "url": "https://example.org/x.csv?api_key=abcdef123"}},
            "api_key",
        ),
        ({"source": {**GOOD["source"], "url": "ftp://example.org/x.csv"}}, ""),
        ({"schema": [{"name": "id", "type": "string"}, {"name": "id", "type": "string"}]}, "twice"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_path(
    ws: Path, change: dict[str, object], said: str
) -> None:
    register(ws, json.dumps(GOOD | change))
    with pytest.raises(UsageError) as refused:
        load_dataset(ws, "toy")
    assert said in str(refused.value)
    assert "abcdef123" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2\n",
        "a: {b: 1, b: 2}\n",
        "a: &x [1]\nb: *x\n",
        "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
        "a: !!python/object/apply:os.system ['true']\n",
        "a: [1\n",
        "\x00",
        "base: &b {k: 1}\nc:\n  <<: *b\n",
        "[" * 5000,
    ],
)
def test_dangerous_or_broken_yaml_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text.encode(), "x.yml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('title: "a\nb: 1\n', "line 1, column 8: while scanning a quoted scalar; line 3, column 1: found unexpected end of"),
        ("a: 1\nb: 2\n\tc: 3\n", "while scanning for the next token; line 3, column 1: found character"),
    ],
)  # fmt: skip
def test_broken_yaml_is_refused_with_the_line_to_look_at(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text.encode(), "x.yml")
    assert refused.value.happened.startswith(f"x.yml is not readable YAML: {said}")
    assert "byte string" not in refused.value.happened


@pytest.mark.parametrize("number", [*range(256), 0x2028, 0xD7FF, 0xE000, 0xFEFF, 0xFFFE, 0x10FFFF])
def test_a_character_that_yaml_forbids_is_refused_and_no_other(number: int) -> None:
    def read(loader: type[yaml.SafeLoader]) -> str:
        try:
            return repr(loader(text.encode()).get_single_data())
        except yaml.YAMLError as error:
            return where_in(error)

    text = f"key: 'a{chr(number)}b'"
    try:
        found = repr(parse(text.encode(), "x.yml"))
    except UsageError as error:
        found = error.happened.removeprefix("x.yml is not readable YAML: ").removesuffix(".")
    assert found == read(yaml.SafeLoader)


def test_reading_yaml_in_a_new_process_leaves_the_library_as_it_was() -> None:
    code = """
import re
from kfm.workspace.config import parse
compiled = re.compile
assert parse(b"a: 2026-01-01", "x.yml")["a"].year == 2026
assert re.compile is compiled
import yaml
assert yaml.safe_load("a: [1, 2.5, yes, é, 2026-01-01T00:00:00Z]")["a"][:4] == [1, 2.5, True, "é"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_oversized_file_is_refused() -> None:
    with pytest.raises(UsageError, match="1 MiB"):
        parse(b"a" * (1 << 20) + b"a", "x.yml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nope"):
        load_updater(tmp_path / "nope.yml")


@pytest.mark.parametrize(
    "text", ["format: 2\n", "lease_seconds: 0\n", "unknown: 1\n", "lease_seconds: soon\n"]
)
def test_a_wrong_workspace_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "kfm.yml").write_text(text)
    with pytest.raises(UsageError, match=r"kfm\.yml"):
        load_workspace(tmp_path)


@pytest.mark.parametrize("key", ["licence", "sensitivity", "policy_label", "token"])
def test_an_updater_configuration_cannot_bring_its_own_evidence(tmp_path: Path, key: str) -> None:
    plain = {
        "dataset_id": "toy",
        "pipeline_version": "1",
        "sources": [{"source_id": "s", "source_url": "https://e.org/x", "format": "csv"}],
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(plain))
    assert load_updater(file).dataset_id == "toy"
    file.write_text(json.dumps(plain | {key: "public"}))
    with pytest.raises(UsageError, match=key):
        load_updater(file)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("cadence: real-time\ninterval: 2m\n", None),
        ("cadence: real-time\n", None),
        ("cadence: static\n", None),
        ("cadence: 24h\n", None),
        ("cadence: 0 6 * * *\n", None),
        ("cadence: real-time\ninterval: 30s\n", "every 30s"),
        ("cadence: real-time\ninterval: 6m\n", "every 6m"),
        ("cadence: 10s\n", "every 10s"),
        ("cadence: daily\ninterval: 2m\n", "belongs to"),
        ("cadence: sometimes\n", "cadence is 'sometimes'"),
    ],
)
def test_a_cadence_is_known_and_real_time_means_one_to_five_minutes(
    tmp_path: Path, words: str, fault: str | None
) -> None:
    folder = tmp_path / "data" / "registry"
    folder.mkdir(parents=True)
    (folder / "x.yml").write_text(
        "dataset_id: x\ntitle: X\nsource: {url: 'https://a.example/x.csv', format: csv}\n" + words
    )
    if fault is None:
        assert load_dataset(tmp_path, "x") is not None
        return
    with pytest.raises(UsageError, match=fault):
        load_dataset(tmp_path, "x")


def test_what_nobody_states_is_four_gib_a_capture_an_hour_a_step_and_64_mib_a_record() -> None:
    source, asked = Source(url="https://example.org/x"), FetchRequest(url="x", hosts=())
    assert (source.capture_limit, source.step_limit) == (4_294_967_296, 3_600)
    assert source.record_limit == 67_108_864
    assert (asked.max_bytes, asked.max_seconds) == (4_294_967_296, 3_600)
    stated = Source(url=source.url, max_bytes=5, max_step="2m", max_record_bytes=2048)
    assert (stated.capture_limit, stated.step_limit, stated.record_limit) == (5, 120, 2048)
