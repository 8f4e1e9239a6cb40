"""What the demo writes, under the judges others wrote."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.given.verbs import SHARED

from kfm.keys.key_folder import KeyFolder

pytestmark = [
    pytest.mark.needs_shared,
    pytest.mark.skipif(
        not SHARED.exists(), reason="not run: the shared schemas are not beside this repository"
    ),
    pytest.mark.filterwarnings("ignore"),  # theirs, not ours
]
SCHEMAS = SHARED / "schemas"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The demo, with its proposal approved and promoted, so that a released dataset is among the
    outputs.
    """
    folder = tmp_path_factory.mktemp("demo") / "ws"

    def kfm(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kfm", *args], capture_output=True, text=True, check=False
        )

    made = kfm("demo", "--dir", str(folder), "--json")
    assert made.returncode == 0, made.stderr
    states = {o["dataset_id"]: o["state"] for o in json.loads(made.stdout)["first"]}
    assert states["ks_wells"] == "REJECTED" and states["ks_sites"] == "PROPOSED"
    (number,) = [
        p["proposal"]
        for p in json.loads(kfm("-w", str(folder), "review", "--json").stdout)["proposals"]
    ]
    for step in (
        [
            "keys",
            "new",
            "--name",
            "Steward",
            "--role",
            "steward",
            "--for",
            "Sample Heritage Office",
        ],
        ["approve", str(number), "--key", "Steward"],
        ["promote", str(number)],
    ):
        assert kfm("-w", str(folder), *step).returncode == 0, step
    return folder


def test_every_file_is_valid(demo: Path) -> None:
    command = [
        sys.executable,
        str(SHARED / "conformance" / "check.py"),
        "outputs",
        str(demo / "data"),
        "--show",
        "50",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seen, verdict = done.stdout.splitlines()[:2]
    assert done.returncode == 0 and verdict.endswith(" passed, 0 failed"), done.stdout + done.stderr
    counts = json.loads(seen.replace("'", '"'))
    assert (
        counts["dcat"] >= 8
        and counts["prov-json"] >= 4
        and counts["openlineage"] == 4
        and counts["dsse"] >= 8
        and counts["stac collection"] == 2
        and counts["stac item"] >= 4
    )


@pytest.mark.parametrize("shapes", [["dcat-ap-3.0.1/shacl-modular/shapes.ttl", "dcat-ap-3.0.1/shacl-modular/range.ttl"], ["dcat-us-3/shacl/dcat-us_3.0_shacl_shapes.ttl"]], ids=["ap", "us"])  # fmt: skip
def test_dcat_meets_both_profiles(demo: Path, shapes: list[str]) -> None:
    import pyshacl
    import rdflib

    rules = rdflib.Graph()
    for name in shapes:
        rules.parse(SCHEMAS / "dcat" / name)
    records = [
        *(demo / "data" / "catalog" / "dcat").iterdir(),
        *(demo / "data" / "processed").rglob("dcat.json"),
    ]
    assert len(records) == 8
    for path in records:
        graph = rdflib.Graph().parse(data=path.read_text(), format="json-ld")
        conforms, _, text = pyshacl.validate(graph, shacl_graph=rules, allow_warnings=True)
        assert conforms, f"{path.name}: {text}"


def test_pystac_and_stac_valid_agree(demo: Path) -> None:
    import pystac
    from pystac.validation.stac_validator import JsonSchemaSTACValidator
    from stac_validator.stac_validator import StacValidate

    listed = json.loads((SCHEMAS / "index.json").read_text())
    local = {url: path for url, path in listed.items() if path.startswith("stac/")}
    judge = JsonSchemaSTACValidator()
    judge.schema_cache |= {
        url: json.loads((SCHEMAS / path).read_text()) for url, path in local.items()
    }
    collections = sorted((demo / "data" / "catalog" / "stac").glob("*/collection.json"))
    assert len(collections) == 2
    for path in collections:
        collection = pystac.Collection.from_file(str(path))
        assert collection.validate(judge)
        (item,) = collection.get_items()
        assert item.validate(judge)
        assert all(Path(str(asset.get_absolute_href())).is_file() for asset in item.assets.values())
        their = StacValidate(
            str(path), schema_map={url: str(SCHEMAS / p) for url, p in local.items()}
        )
        assert their.run(), their.message


def test_the_prov_library_reads_every_run(demo: Path) -> None:
    from prov.model import ProvDocument

    files = list((demo / "data" / "catalog" / "prov").rglob("*.json"))
    assert len(files) == 4
    for path in files:
        document = ProvDocument.deserialize(content=path.read_text(), format="json")
        assert document == ProvDocument.deserialize(
            content=document.serialize(format="json"), format="json"
        )


def test_securesystemslib_verifies_every_signed_file(demo: Path) -> None:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import SSlibKey

    keys = KeyFolder(demo / "keys")
    built = [
        *(demo / "data" / "catalog" / "channels").rglob("*.json"),
        *(demo / "data" / "processed").rglob("attestation.json"),
    ]
    roots = [*(demo / "keys" / "root").iterdir()]
    assert len(built) + len(roots) == 10
    (root_key,) = keys.root_keys()
    for file, signed in ((demo / "keys" / f"{keys.signer}.key", built), (root_key, roots)):
        private: Any = load_pem_private_key(file.read_bytes(), None)
        public = SSlibKey.from_crypto(private.public_key(), keyid=file.stem)
        for path in signed:
            assert file.stem in Envelope.from_dict(json.loads(path.read_text())).verify(
                [public], 1
            ), path
