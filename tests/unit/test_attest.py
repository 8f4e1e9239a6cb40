"""Attestations and countersignatures: exactly these files, by the builder that is named, readable
by others.
"""

import base64
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.signer import CryptoSigner, SSlibKey

from kfm.keys.attest import check_attestation, provenance
from kfm.keys.key_folder import KeyFolder
from kfm.keys.private_key import new_private
from kfm.keys.trust import PAYLOAD_TYPE, unwrap
from kfm.keys.witness import check_witnesses, witness_statement
from kfm.model import ids
from kfm.model.errors import Denied, IntegrityError

FILES = {"trees.parquet": "sha256:" + "a" * 64, "dcat.json": "sha256:" + "b" * 64}


@pytest.fixture
def keys(tmp_path: Path) -> KeyFolder:
    found = KeyFolder(tmp_path / "keys")
    found.new()
    return found


def made(keys: KeyFolder, files: dict[str, str] = FILES, **builder: str) -> dict[str, Any]:
    return provenance(
        files,
        parameters={"transform_hash": "t", "updater_version": "1"},
        dependencies=[
            {"uri": "https://example.org/trees.csv", "digest": "sha256:" + "c" * 64},
            {"uri": "https://example.org/nests.csv", "commitment": "hmac-sha256:1"},
        ],
        builder={"id": f"kfm://builder/{keys.signer}", "version": {"kfm": "1"}, **builder},
    )


def test_provenance_has_the_shape_of_slsa_v1_and_says_nothing_about_the_run(
    keys: KeyFolder,
) -> None:
    found = made(keys)
    assert found == made(keys)
    assert (
        found["_type"] == "https://in-toto.io/Statement/v1"
        and found["predicateType"] == "https://slsa.dev/provenance/v1"
    )
    assert all(re.fullmatch("[0-9a-f]{64}", s["digest"]["sha256"]) for s in found["subject"])
    build = found["predicate"]["buildDefinition"]
    assert build["resolvedDependencies"] == [
        {"uri": "https://example.org/trees.csv", "digest": {"sha256": "c" * 64}},
        {"uri": "https://example.org/nests.csv", "annotations": {"commitment": "hmac-sha256:1"}},
    ]
    assert set(found["predicate"]) == {"buildDefinition", "runDetails"} and set(
        found["predicate"]["runDetails"]
    ) == {"builder"}


def test_an_attestation_holds_for_exactly_its_files(keys: KeyFolder) -> None:
    raw = keys.sign(made(keys))
    assert (
        check_attestation(raw, keys, FILES)["predicate"]["buildDefinition"]["externalParameters"][
            "updater_version"
        ]
        == "1"
    )
    for files, word in (
        ({**FILES, "more.parquet": "sha256:0"}, "does not name more.parquet"),
        ({"trees.parquet": FILES["trees.parquet"]}, "also names dcat.json"),
        ({**FILES, "trees.parquet": "sha256:" + "f" * 64}, "another digest for trees.parquet"),
    ):
        with pytest.raises(IntegrityError, match=word):
            check_attestation(raw, keys, files)


def test_an_attestation_by_another_than_it_names_does_not_hold(
    keys: KeyFolder, tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError, match="names the builder"):
        check_attestation(keys.sign(made(keys, id="kfm://builder/" + "0" * 32)), keys, FILES)
    with pytest.raises(IntegrityError, match="it is a kfm://"):
        check_attestation(
            keys.sign({**made(keys), "predicateType": "kfm://predicate/other/v1"}), keys, FILES
        )
    twice = made(keys)
    twice["subject"].append({**twice["subject"][0]})
    with pytest.raises(IntegrityError, match="twice"):
        check_attestation(keys.sign(twice), keys, FILES)
    with pytest.raises(IntegrityError, match="no SLSA"):
        check_attestation(keys.sign({**made(keys), "subject": [{"name": "x"}]}), keys, FILES)
    person = new_private(tmp_path / "p.key", "")
    keys.enrol(person.public, "Ann", ["approver"])
    with pytest.raises(Denied, match="no builder"):
        check_attestation(person.sign(made(keys, id=f"kfm://builder/{person.keyid}")), keys, FILES)


def test_securesystemslib_verifies_ours_and_we_theirs(keys: KeyFolder, tmp_path: Path) -> None:
    document = made(keys)
    raw = keys.sign(document)
    pem = (tmp_path / f"keys/{keys.signer}.key").read_bytes()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    private: Any = load_pem_private_key(pem, None)
    public = SSlibKey.from_crypto(private.public_key(), keyid=keys.signer)
    theirs = TheirEnvelope.from_dict(msgspec.json.decode(raw))
    assert set(theirs.verify([public], 1)) == {keys.signer}
    mine = TheirEnvelope(base64.b64decode(msgspec.json.decode(raw)["payload"]), PAYLOAD_TYPE, {})
    mine.sign(CryptoSigner(private, public))
    again = msgspec.json.format(msgspec.json.encode(mine.to_dict()), indent=4)
    assert check_attestation(again, keys, FILES) == document == unwrap(again)


# ---- witnesses -----------------------------------------------------------------------------------
def checked(
    keys: KeyFolder, files: dict[str, bytes], digests: dict[tuple[str, int], str]
) -> tuple[int, list[tuple[str, str, int]]]:
    wrong: list[tuple[str, str, int]] = []
    trust = keys.trust()
    assert trust is not None
    return check_witnesses(
        files, trust, lambda d, n: digests.get((d, n)), lambda *what: wrong.append(what)
    ), wrong


def test_a_witness_notices_a_rewritten_or_shortened_history(
    keys: KeyFolder, tmp_path: Path
) -> None:
    archive = new_private(tmp_path / "a.key", "")
    keys.enrol(archive.public, "Archive", ["witness"])
    trust = keys.trust()
    assert trust is not None
    now = {("trees", n): ids.digest(bytes([n])) for n in (1, 2)}
    files = {
        f"trees/{n:08}.json": archive.sign(
            witness_statement("trees", n, now["trees", n], trust.fingerprint)
        )
        for n in (1, 2)
    }
    assert checked(keys, files, now) == (2, [])
    agreed, wrong = checked(keys, files, {("trees", 1): "sha256:other"})
    assert agreed == 0 and [(w, c) for w, _, c in wrong] == [
        ("trees/00000001.json", 6),
        ("trees/00000002.json", 6),
    ]
    assert "history was rewritten" in wrong[0][1] and "is gone" in wrong[1][1]
    assert checked(keys, {"trees/00000002.json": files["trees/00000001.json"]}, now)[1][0][2] == 6
    other = archive.sign(witness_statement("trees", 1, now["trees", 1], "sha256:0"))
    assert "another root" in checked(keys, {"trees/00000001.json": other}, now)[1][0][1]


def test_only_a_known_witness_counts(keys: KeyFolder, tmp_path: Path) -> None:
    stranger = new_private(tmp_path / "s.key", "")
    said = witness_statement("trees", 1, "sha256:1", "sha256:2")
    for raw, word, code in (
        (stranger.sign(said), "not a witness", 3),
        (keys.sign(said), "no witness", 3),
        (b"junk", "not a DSSE envelope", 6),
    ):
        agreed, wrong = checked(keys, {"trees/00000001.json": raw}, {})
        assert agreed == 0 and word in wrong[0][1] and wrong[0][2] == code
