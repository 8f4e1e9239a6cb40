"""Bundles: everything that proves a version in one file, checked without workspace and network; no
flipped byte goes unseen.
"""

import datetime as dt
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from kfm.access.references import Ref
from kfm.channel.generations import Channel
from kfm.cli import main
from kfm.evidence.captures import checksums
from kfm.keys.approvals import terms_digest
from kfm.keys.attest import provenance
from kfm.keys.key_folder import KeyFolder
from kfm.keys.private_key import new_private
from kfm.keys.trust import unwrap
from kfm.keys.witness import witness_statement
from kfm.model import canonical, ids
from kfm.model.approval import Recorded, Terms
from kfm.model.channel import GenerationPredicate
from kfm.model.errors import Denied
from kfm.model.paths import approvals_path
from kfm.model.verdict import REQUIRED
from kfm.samples.upstream import SampleUpstream
from kfm.upkeep.bundle import bundle, verify_bundle
from kfm.zones.local import LocalZone
from tests.given.verbs import Said

NOW = dt.datetime.now(dt.UTC)
Verify = Callable[..., Said]


TERMS = Terms(
    dataset_id="trees", approvals=0, sensitivity="public", policy_label="public", care_label=None, licence="CC0-1.0", custodian=None, release=""
)  # fmt: skip


def looked_at(number: int) -> dict[str, Any]:
    """What a receipt says of the promotion to a generation."""
    asked = {"decision_id": "1", "policy_digest": "sha256:" + "0" * 64, "engine": "embedded"}
    return {
        "generation": number,
        "lease": f"1.{number}",
        "gates": dict.fromkeys(REQUIRED, "pass"),
        "policy": asked,
    }


class Publisher:
    """A workspace with two versions of one dataset, written by hand."""

    def __init__(self, folder: Path, now: dt.datetime = NOW) -> None:
        self.folder, self.data, self.root = folder, LocalZone(folder / "data"), LocalZone(folder)
        self.keys = KeyFolder(folder / "keys", now=lambda: now)
        self.keys.new()
        self.suppressed: dict[str, str] = {}
        self.refs: list[Ref] = []

    @property
    def world(self) -> Any:
        head = SimpleNamespace(suppressed=self.suppressed, held={})
        store = SimpleNamespace(transaction=lambda work: head)
        return SimpleNamespace(
            data=self.data, root=self.root, keys=self.keys, store=store, channel=self.channel
        )

    def channel(self, dataset_id: str) -> Channel:
        return Channel(self.data, self.keys, dataset_id)

    def promote(self, rows: bytes) -> Ref:
        artifacts = {"trees.parquet": ids.digest(rows), "small.parquet": ids.digest(b"")}
        full = ids.version_digest(artifacts, "t1", "1.0.0")
        folder, run_id, number = (
            f"processed/trees/{ids.version_id(full)}",
            ids.new_run_id(),
            len(self.refs) + 1,
        )
        records = {
            "dcat.json": b'{"@type": "dcat:Dataset"}\n',
            "stac.json": b'{"type": "Feature"}\n',
        }
        listed = artifacts | {name: ids.digest(raw) for name, raw in records.items()}
        built = {"id": f"kfm://builder/{self.keys.signer}", "version": {"kfm": "1"}}
        asked = {"transform_hash": "t1", "updater_version": "1.0.0"}
        records["attestation.json"] = self.keys.sign(
            provenance(listed, parameters=asked, dependencies=[], builder=built)
        )
        listed["attestation.json"] = ids.digest(records["attestation.json"])
        files = {
            "trees.parquet": rows,
            "small.parquet": b"",
            **records,
            "checksums.sha256": checksums(listed),
        }
        self.data.create_all({f"{folder}/{name}": raw for name, raw in files.items()})
        prov = canonical.dumps({"entity": {run_id: {}}})
        self.data.create(f"catalog/prov/trees/run_{run_id}.json", prov)
        agreed = self.agreed(run_id, full, number)
        self.data.create(approvals_path("trees", run_id), agreed)
        sealed = {"prov.json": ids.digest(prov), "approvals.json": ids.digest(agreed)}
        receipt = canonical.dumps(
            {"run_id": run_id, "provenance": {"files": sealed}, "promotion": looked_at(number)}
        )
        self.root.create(f"receipts/ingest.pull_source/2026/01/02/{run_id}.json", receipt)
        before = self.data.read(self.channel("trees").path(number - 1)) if number > 1 else None
        made = self.channel("trees").append(
            GenerationPredicate(
                dataset_id="trees", generation=number, kind="promote", version_id=ids.version_id(full), version_digest=full,
                receipts_digest=ids.digest(receipt), run_id=run_id, token=f"1.{number}", prev=before and ids.digest(before), reason="manual",
                terms_digest=terms_digest([TERMS]), approvals_digest=ids.digest(agreed),
            )
        )  # fmt: skip
        assert made
        self.refs.append(Ref("trees", ids.version_id(full), full, number))
        return self.refs[-1]

    def agreed(self, run_id: str, full: str, number: int) -> bytes:
        said = {
            "dataset_id": "trees",
            "run_id": run_id,
            "version_digest": full,
            "base_generation": number - 1,
            "terms": terms_digest([TERMS]),
        }
        found = Recorded(
            dataset_id="trees", run_id=run_id, version_digest=full, generation=number, at="2026-01-02T00:00:00Z", terms=(TERMS,), asked=(),
            canary=False, signed=said, approvals=(), acceptances=(), grants=(),
        )  # fmt: skip
        return canonical.dumps(msgspec.to_builtins(found))

    def bundle(self, ref: Ref, witness: dict[str, bytes] | None = None) -> bytes:
        return b"".join(bundle(self.world, ref, witness))


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    found = Publisher(tmp_path / "ws")
    found.promote(bytes(range(256)) * 3)
    found.promote(b"second" * 50)
    return found


@pytest.fixture
def verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Verify:
    """`kfm verify` far from any workspace, with a home of its own."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KFM_WORKSPACE", raising=False)
    monkeypatch.chdir(tmp_path / "home")

    def call(raw: bytes, *args: str) -> Said:
        (tmp_path / "some.kfm").write_bytes(raw)
        capsys.readouterr()
        code = main(["verify", str(tmp_path / "some.kfm"), *args])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


def fingerprint(publisher: Publisher) -> str:
    trust = publisher.keys.trust()
    assert trust is not None
    return trust.fingerprint


def test_the_verdict_depends_on_whose_root_it_is(
    publisher: Publisher, verify: Verify, tmp_path: Path
) -> None:
    raw, root = publisher.bundle(publisher.refs[1]), fingerprint(publisher)
    assert verify(raw, "--json").json == {
        "verdict": "consistent, signer unknown", "root": root, "problems": [], "files": 14, "origin": [],
        "dataset_id": "trees", "version_id": publisher.refs[1].version_id, "generation": 2,
    }  # fmt: skip
    known = verify(raw, "--root", root)
    assert known.code == 0 and known.out.splitlines()[-1].startswith("verified;")
    assert (
        verify(raw).out.splitlines()[-1].startswith("consistent, signer unknown;")
        and verify(raw).code == 0
    )
    foreign = verify(raw, "--root", "sha256:" + "0" * 64, "--pin", "--json")
    assert (foreign.code, foreign.json["verdict"]) == (3, "foreign root")
    assert verify(raw, "--json").json["verdict"] == "consistent, signer unknown", (
        "a foreign root is not pinned"
    )
    assert verify(raw, "--pin").code == 0
    assert verify(raw, "--json").json["verdict"] == "verified"
    assert json.loads((tmp_path / "home/.config/kfm/roots.json").read_text())["roots"].keys() == {
        root
    }
    other = Publisher(tmp_path / "other")
    assert (
        verify(other.bundle(other.promote(b"x")), "--json").json["verdict"]
        == "consistent, signer unknown"
    )


def test_a_root_older_than_the_one_that_was_seen_is_refused(
    publisher: Publisher, verify: Verify, tmp_path: Path
) -> None:
    """Whoever has a revoked key hands out a bundle whose root ends before the revocation."""
    first = publisher.bundle(publisher.refs[1])
    thief, root = (
        publisher.keys.person(next((publisher.folder / "keys").glob("*.key"))),
        fingerprint(publisher),
    )
    publisher.keys.rotate()
    publisher.keys.revoke(thief.keyid, "stolen", {})
    newest = publisher.bundle(publisher.refs[1])
    digest = publisher.keys.require_trust().digests[3]
    document = unwrap(members_of(first)["channel/00000002.json"])
    document["predicate"]["reason"] = "invented"
    forged = repacked(first, **{"channel/00000002.json": thief.sign(document)})
    assert verify(forged, "--root", root, "--json").json["verdict"] == "verified", (
        "nothing inside says otherwise: only who has seen more knows"
    )
    assert verify(forged, "--root", digest, "--json").json["verdict"] == "foreign root", (
        "the publisher told the digest of version 3"
    )
    assert verify(newest, "--root", digest, "--json").json["verdict"] == "verified"
    # a version that was seen under --root is remembered like a pinned one
    for pinned in ((), ("--pin",)):
        assert verify(newest, "--root", root, *pinned).code == 0
        for args in ((), ("--root", root), ("--pin",)):
            for raw in (forged, first):
                said = verify(raw, *args, "--json")
                assert (said.code, said.json["verdict"], said.json["problems"][0]["where"]) == (
                    6,
                    "older root",
                    "root",
                ), args
    assert verify(newest, "--json").json["verdict"] == "verified"
    file = tmp_path / "home/.config/kfm/roots.json"
    kept = json.loads(file.read_text())["roots"][root]
    assert (kept["version"], kept["digest"]) == (3, digest)
    other = KeyFolder(publisher.folder / "keys")
    (publisher.folder / "keys/root/0003.json").unlink()
    other.renew()
    other.renew()
    said = verify(publisher.bundle(publisher.refs[1]), "--json")
    assert (said.code, said.json["verdict"]) == (6, "older root") and "not the one" in said.json[
        "problems"
    ][0]["what"], "another version 3"
    # as an older kfm pinned it
    file.write_text(json.dumps({"roots": {root: {"since": "2026-01-01"}}}))
    assert verify(newest, "--json").json["verdict"] == "verified"
    assert json.loads(file.read_text())["roots"][root] == {
        "since": "2026-01-01",
        "version": 3,
        "digest": digest,
    }
    assert verify(first).code == 6


def test_a_channel_that_was_seen_is_not_rewritten_and_an_earlier_state_is_noted(
    publisher: Publisher, verify: Verify
) -> None:
    """By the publisher, who holds every key."""
    first, second = (publisher.bundle(ref) for ref in publisher.refs)
    assert verify(second, "--pin").code == 0
    said = verify(first, "--json")
    assert (said.code, said.json["notes"]) == (
        0,
        ["generation 2 was seen here before: this is an earlier state of the channel"],
    )
    document = unwrap(members_of(second)["channel/00000002.json"])
    document["predicate"]["reason"] = "rewritten"
    said = verify(
        repacked(second, **{"channel/00000002.json": publisher.keys.sign(document)}), "--json"
    )
    assert (said.code, said.json["problems"][0]["where"]) == (
        6,
        "channel",
    ) and "rewritten" in said.json["problems"][0]["what"]
    assert (
        verify(publisher.bundle(publisher.promote(b"third"))).code == 0
        and verify(second, "--json").json["notes"]
    )


def test_a_bundle_is_the_same_bytes_every_time_and_a_plain_zip(
    publisher: Publisher, tmp_path: Path
) -> None:
    raw = publisher.bundle(publisher.refs[0])
    assert raw == publisher.bundle(publisher.refs[0])
    (tmp_path / "b.zip").write_bytes(raw)
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert all(
            i.date_time == (1980, 1, 1, 0, 0, 0) and i.compress_type == zipfile.ZIP_STORED
            for i in archive.infolist()
        )
    assert names == sorted(names) and {n.split("/")[0] for n in names} == {
        "approvals", "bundle.json", "channel", "prov.json", "receipt.json", "root", "version",
    }  # fmt: skip
    assert [n for n in names if n.startswith("channel/")] == ["channel/00000001.json"], (
        "only up to the generation it is about"
    )


def spans(raw: bytes) -> dict[str, tuple[int, int]]:
    import io

    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return {
            i.filename: (i.header_offset + 30 + len(i.filename), i.file_size)
            for i in archive.infolist()
        }


def test_a_flipped_byte_in_any_member_is_named(publisher: Publisher, verify: Verify) -> None:
    raw = publisher.bundle(publisher.refs[1])
    seen = 0
    for name, (start, size) in spans(raw).items():
        for position in {start, start + size // 2, start + size - 1} if size else ():
            bad = bytearray(raw)
            bad[position] ^= 0x01
            report = verify_bundle(bytes(bad), NOW)
            assert report.exit_code == 6 and name in {p["where"] for p in report.problems}, (
                name,
                position,
                report.problems,
            )
            seen += 1
    assert seen > 30
    said = verify(bytes(bad), "--root", fingerprint(publisher), "--pin", "--json")
    assert (said.code, said.json["verdict"]) == (6, "damaged") and said.json["problems"]
    assert verify(raw, "--json").json["verdict"] == "consistent, signer unknown", (
        "a damaged bundle is not pinned"
    )


def test_a_flipped_byte_anywhere_is_damage(publisher: Publisher) -> None:
    raw = publisher.bundle(publisher.refs[1])
    chance = random.Random(7)
    headers = [p for start, _ in spans(raw).values() for p in range(start - 45, start) if p >= 0]
    for position in [
        *chance.sample(range(len(raw)), 200),
        *headers,
        *range(len(raw) - 200, len(raw)),
    ]:
        bad = bytearray(raw)
        bad[position] ^= 1 << chance.randrange(8)
        report = verify_bundle(bytes(bad), NOW)
        assert report.exit_code == 6 and all(p["where"] and p["what"] for p in report.problems), (
            position
        )


@pytest.mark.parametrize("bad", [b"", b"PK", b"not a bundle", b"PK\x03\x04" + bytes(40)])
def test_what_is_no_bundle_is_damage(verify: Verify, bad: bytes) -> None:
    assert verify(bad).code == 6


def test_a_shortened_or_lengthened_bundle_is_damage(publisher: Publisher) -> None:
    raw = publisher.bundle(publisher.refs[0])
    for bad in (raw[:-1], raw[: len(raw) // 2], raw + b"\0", raw + raw):
        assert verify_bundle(bad, NOW).exit_code == 6


def repacked(raw: bytes, **changes: Any) -> bytes:
    """A forger's bundle: members replaced (None: left out), every checksum of the zip made
    right.
    """
    from kfm.upkeep.bundle import _pack

    members = {name: raw[start : start + size] for name, (start, size) in spans(raw).items()}
    for name, content in changes.items():
        members.pop(name, None)
        if content is not None:
            members[name] = content
    return b"".join(_pack({name: (lambda c=c: c) for name, c in members.items()}))  # type: ignore[misc]


def test_a_repacked_forgery_is_named(publisher: Publisher, tmp_path: Path) -> None:
    raw = publisher.bundle(publisher.refs[1])
    assert repacked(raw) == raw
    other = Publisher(tmp_path / "other")
    theirs = other.bundle(other.promote(b"second" * 50))
    member = {name: theirs[start : start + size] for name, (start, size) in spans(theirs).items()}
    mine = {name: raw[start : start + size] for name, (start, size) in spans(raw).items()}
    forgeries: list[tuple[dict[str, Any], str, int]] = [
        ({"version/trees.parquet": b"forged"}, "version/trees.parquet", 6),
        ({"version/trees.parquet": None}, "version/trees.parquet", 6),
        ({"version/more.parquet": b"more"}, "version/more.parquet", 6),
        ({"version/dcat.json": b"{}"}, "version/dcat.json", 6),
        (
            {"version/attestation.json": member["version/attestation.json"]},
            "version/attestation.json",
            6,
        ),
        ({"version/checksums.sha256": None}, "version/checksums.sha256", 6),
        ({"channel/00000001.json": None}, "channel/00000002.json", 6),
        ({"channel/00000002.json": None}, "channel", 6),
        ({"channel/00000001.json": member["channel/00000001.json"]}, "channel/00000001.json", 6),
        ({"channel/00000002.json": mine["channel/00000001.json"]}, "channel/00000002.json", 6),
        ({"channel/00000003.json": mine["channel/00000001.json"]}, "channel/00000003.json", 6),
        ({"receipt.json": member["receipt.json"]}, "receipt.json", 6),
        ({"receipt.json": None}, "receipt.json", 6),
        ({"prov.json": member["prov.json"]}, "prov.json", 6),
        ({"prov.json": None}, "prov.json", 6),
        ({"root/0001.json": member["root/0001.json"]}, "bundle.json", 6),
        ({"root/0001.json": None}, "root", 3),
        ({"bundle.json": None}, "bundle.json", 6),
        (
            {"bundle.json": mine["bundle.json"].replace(b'"generation":2', b'"generation":[]')},
            "bundle.json",
            6,
        ),
        (
            {"bundle.json": mine["bundle.json"].replace(b'"generation":2', b'"generation":1')},
            "channel",
            6,
        ),
        ({"raw/trees.csv": b"x"}, "raw/trees.csv", 6),
        ({"version/../../x": b"x"}, "version/../../x", 6),
    ]
    for change, where, code in forgeries:
        report = verify_bundle(repacked(raw, **change), NOW)
        assert report.exit_code == code and where in {p["where"] for p in report.problems}, (
            change.keys(),
            report.problems,
        )
    whole = {"version/trees.parquet": b"forged", "version/checksums.sha256": mine["version/checksums.sha256"].replace(
        ids.digest(b"second" * 50)[7:].encode(), ids.digest(b"forged")[7:].encode())}  # fmt: skip
    assert "version/attestation.json" in {
        p["where"] for p in verify_bundle(repacked(raw, **whole), NOW).problems
    }


def test_contents_attested_but_never_promoted_are_found(publisher: Publisher) -> None:
    """The builder signed both; the generation was signed for the other one."""
    first, second = (publisher.bundle(ref) for ref in publisher.refs)
    swap = {
        name: first[start : start + size]
        for name, (start, size) in spans(first).items()
        if name.startswith("version/")
    }
    report = verify_bundle(repacked(second, **swap), NOW)
    assert {p["where"] for p in report.problems} == {"version"}


def test_an_expired_root_is_denied(tmp_path: Path, verify: Verify) -> None:
    old = Publisher(tmp_path / "old", NOW - dt.timedelta(days=1000))
    raw = old.bundle(old.promote(b"x"))
    said = verify(raw, "--root", fingerprint(old), "--json")
    assert (said.code, said.json["verdict"]) == (3, "expired root")
    KeyFolder(old.folder / "keys").renew()
    assert (
        verify(old.bundle(old.refs[0]), "--root", fingerprint(old), "--json").json["verdict"]
        == "verified"
    )


def test_after_rotation_and_revocation_old_versions_still_verify(publisher: Publisher) -> None:
    old = publisher.keys.signer
    publisher.keys.rotate()
    publisher.promote(b"third")
    assert [verify_bundle(publisher.bundle(ref), NOW).problems for ref in publisher.refs] == [
        [],
        [],
        [],
    ]
    publisher.keys.revoke(old, "stolen", {})
    assert [verify_bundle(publisher.bundle(ref), NOW).problems for ref in publisher.refs] == [
        [],
        [],
        [],
    ]


def test_an_attestation_that_a_revoked_key_signs_later_is_refused(publisher: Publisher) -> None:
    """A thief with the old key may not describe an old version anew."""
    ref, old = publisher.refs[0], publisher.keys.signer
    raw = publisher.bundle(ref)
    start, size = spans(raw)["version/attestation.json"]
    document = unwrap(raw[start : start + size])
    document["predicate"]["buildDefinition"]["externalParameters"]["more"] = "forged"
    forged = publisher.keys.sign(document)
    publisher.keys.rotate()
    publisher.keys.revoke(old, "stolen", {})
    raw = publisher.bundle(ref)
    start, size = spans(raw)["version/checksums.sha256"]
    lines = [
        line
        for line in raw[start : start + size].decode().splitlines()
        if "attestation" not in line
    ]
    listing = (
        "\n".join(
            sorted(
                [*lines, f"{ids.digest(forged)[7:]}  attestation.json"], key=lambda line: line[66:]
            )
        )
        + "\n"
    )
    change = {"version/attestation.json": forged, "version/checksums.sha256": listing.encode()}
    report = verify_bundle(repacked(raw, **change), NOW)
    assert (report.exit_code, report.problems[0]["where"]) == (3, "version/attestation.json")
    assert "revoked: stolen" in report.problems[0]["what"] and not verify_bundle(raw, NOW).problems


def members_of(raw: bytes) -> dict[str, bytes]:
    return {name: raw[start : start + size] for name, (start, size) in spans(raw).items()}


@pytest.mark.parametrize("change", ["rotated", "revoked"])
def test_an_old_key_invents_nothing_below_the_generation_it_was_pinned_at(
    publisher: Publisher, tmp_path: Path, change: str
) -> None:
    """Whoever has the key signs another generation 1: with data of its own, or with a receipt and
    lineage around the true data.
    """
    thief = publisher.keys.person(next((publisher.folder / "keys").glob("*.key")))
    publisher.keys.rotate()
    if change == "revoked":
        publisher.keys.revoke(thief.keyid, "stolen", {})
    true = publisher.bundle(publisher.refs[0])
    assert not verify_bundle(true, NOW).problems
    members = members_of(true)
    assert sorted(n for n in members if n.startswith("channel/")) == [
        f"channel/0000000{n}.json" for n in (1, 2)
    ], "up to the pinned head"

    prov = b'{"entity": {"invented": {}}}'
    receipt = canonical.dumps(
        {
            "run_id": "invented",
            "provenance": {"files": {"prov.json": ids.digest(prov)}},
            "promotion": looked_at(1),
        }
    )
    document = unwrap(members["channel/00000001.json"])
    document["predicate"]["receipts_digest"] = ids.digest(receipt)
    around = {
        "channel/00000001.json": thief.sign(document),
        "receipt.json": receipt,
        "prov.json": prov,
    }

    artifacts = {"trees.parquet": ids.digest(b"invented")}
    full = ids.version_digest(artifacts, "t1", "1.0.0")
    asked = {"transform_hash": "t1", "updater_version": "1.0.0"}
    attested = thief.sign(
        provenance(
            artifacts,
            parameters=asked,
            dependencies=[],
            builder={"id": f"kfm://builder/{thief.keyid}"},
        )
    )
    document["predicate"] |= {"version_id": ids.version_id(full), "version_digest": full}
    about = json.loads(members["bundle.json"]) | {"version_id": ids.version_id(full)}
    whole = {name: None for name in members if name.startswith("version/")} | around
    whole |= {"version/trees.parquet": b"invented", "version/attestation.json": attested, "channel/00000001.json": thief.sign(document),
              "version/checksums.sha256": checksums(artifacts | {"attestation.json": ids.digest(attested)}),
              "bundle.json": canonical.dumps(about) + b"\n"}  # fmt: skip
    for forged in (around, whole):
        # with and without what leads to the pinned head
        for cut in ({}, {"channel/00000002.json": None}):
            report = verify_bundle(repacked(true, **(forged | cut)), NOW)
            assert report.exit_code and "channel/00000001.json" in {
                p["where"] for p in report.problems
            }, report.problems
    late = verify_bundle(repacked(true, **{"channel/00000002.json": None}), NOW)
    assert late.exit_code and late.problems, "what leads to the pinned head belongs to the bundle"


def resigned(publisher: Publisher, **roots: Any) -> None:
    """The channel signed again by its own key, each generation with the root that is said: as an
    operator, or an older kfm, could.
    """
    before = None
    for number in range(1, len(publisher.refs) + 1):
        file = publisher.folder / "data" / publisher.channel("trees").path(number)
        document = unwrap(file.read_bytes())
        document["predicate"] |= {
            "prev": before and ids.digest(before),
            "root": roots.get(f"g{number}"),
        }
        if document["predicate"]["root"] is None:
            del document["predicate"]["root"]
        before = publisher.keys.sign(document)
        file.unlink()
        file.write_bytes(before)


@pytest.mark.parametrize(
    ("kind", "why"), [("void", "does not repeat"), ("rollback", "never official")]
)
def test_a_generation_that_brings_a_version_by_another_name_is_damage(
    publisher: Publisher, kind: str, why: str
) -> None:
    raw = publisher.bundle(publisher.refs[1])
    document = unwrap((publisher.folder / "data" / publisher.channel("trees").path(2)).read_bytes())
    document["predicate"] |= {"kind": kind}
    report = verify_bundle(
        repacked(raw, **{"channel/00000002.json": publisher.keys.sign(document)}), NOW
    )
    assert (
        report.exit_code == 6
        and report.problems[0]["where"] == "channel/00000002.json"
        and why in report.problems[0]["what"]
    )


def test_a_generation_names_the_root_it_was_made_under_and_roots_only_go_forward(
    publisher: Publisher,
) -> None:
    first = publisher.keys.require_trust().at
    publisher.keys.renew()
    second = publisher.keys.require_trust().at
    publisher.promote(b"third")
    one, two = (
        json.loads(json.dumps({f: getattr(at, f) for f in ("fingerprint", "version", "digest")}))
        for at in (first, second)
    )
    named = [publisher.channel("trees").unverified(n).root for n in (1, 2, 3)]
    assert named == [first, first, second]
    raw = publisher.bundle(publisher.refs[2])
    assert not verify_bundle(raw, NOW).problems
    cut = verify_bundle(repacked(raw, **{"root/0002.json": None}), NOW)
    assert (cut.exit_code, cut.problems[0]["where"]) == (
        6,
        "channel/00000003.json",
    ) and "root version 2" in cut.problems[0]["what"]
    for roots, where in (
        ({"g1": one, "g2": one, "g3": two}, None),
        # the root says that this channel began after all that was recorded
        ({}, "approvals/00000001.json"),
        ({"g3": two}, "approvals/00000001.json"),
        ({"g2": one, "g3": two}, "approvals/00000001.json"),
        ({"g2": one}, "channel/00000003.json"),  # a later one without, after one with
        ({"g1": two, "g2": two, "g3": one}, "channel/00000003.json"),
        ({"g3": {**two, "digest": "sha256:" + "0" * 64}}, "channel/00000003.json"),
    ):
        resigned(publisher, **roots)
        report = verify_bundle(publisher.bundle(publisher.refs[2]), NOW)
        assert [p["where"] for p in report.problems][:1] == ([] if where is None else [where]), (
            roots,
            report.problems,
        )
        assert report.exit_code == (
            0 if where is None else 3 if where.startswith("approvals") else 6
        )
        early = (
            [f"{3 - len(roots)} generations were made before root versions were recorded"]
            if len(roots) < 3
            else []
        )
        assert report.exit_code == 6 or report.notes == early


def test_witnesses_travel_with_a_bundle_or_beside_it(
    publisher: Publisher, verify: Verify, tmp_path: Path
) -> None:
    archive = new_private(tmp_path / "a.key", "")
    publisher.keys.enrol(archive.public, "Archive", ["witness"])
    digests = {
        n: ids.digest(publisher.data.read(publisher.channel("trees").path(n))) for n in (1, 2)
    }
    seen = {
        f"trees/{n:08}.json": archive.sign(witness_statement("trees", n, d, fingerprint(publisher)))
        for n, d in digests.items()
    }
    raw = publisher.bundle(
        publisher.refs[0], {**seen, "birds/00000001.json": b"of another channel"}
    )
    assert [n for n in spans(raw) if n.startswith("witness/")] == ["witness/trees/00000001.json"]
    assert not verify_bundle(raw, NOW).problems
    lying = archive.sign(
        witness_statement("trees", 1, "sha256:" + "1" * 64, fingerprint(publisher))
    )
    report = verify_bundle(publisher.bundle(publisher.refs[0], {"trees/00000001.json": lying}), NOW)
    assert report.exit_code == 6 and "history was rewritten" in report.problems[0]["what"]
    for name, content in {**seen, "trees/00000001.json": lying}.items():
        (tmp_path / "w" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "w" / name).write_bytes(content)
    said = verify(publisher.bundle(publisher.refs[0]), "--witness", str(tmp_path / "w"), "--json")
    assert said.code == 6 and said.json["problems"][0]["where"] == "witness/trees/00000001.json"


def test_what_may_not_be_shown_or_proved_is_not_bundled(publisher: Publisher) -> None:
    ref = publisher.refs[1]
    publisher.suppressed = {ref.version_id: "3"}
    with pytest.raises(Denied, match="withdrawn"):
        publisher.bundle(ref)
    publisher.suppressed = {}
    (publisher.folder / f"data/processed/trees/{ref.version_id}/attestation.json").unlink()
    with pytest.raises(Denied, match="no attestation"):
        publisher.bundle(ref)
    (publisher.folder / "keys/root/0001.json").unlink()
    with pytest.raises(Denied, match="no trust root"):
        publisher.bundle(ref)


def test_from_run_to_bundle_to_verify(
    kfm: Callable[..., Said], verify: Verify, sample: SampleUpstream, ws: Path, tmp_path: Path
) -> None:
    file, again, dataset = tmp_path / "q.kfm", tmp_path / "r.kfm", "ks_earthquakes"
    kfm("run", dataset)
    made = kfm("bundle", dataset, "-o", str(file), "--json").json
    assert made["digest"] == ids.digest(file.read_bytes()) and made["generation"] == 1
    said = verify(file.read_bytes(), "--root", made["root"], "--json")
    assert (said.code, said.json["verdict"], said.json["problems"]) == (0, "verified", [])
    assert (made["origin"], said.json["origin"]) == (["sample"], ["sample"])
    assert "not from upstream itself: sample" in verify(file.read_bytes()).out, (
        "invented data say so to whoever gets them"
    )
    sample.control(dataset, revision=1)
    kfm("run", dataset)
    assert kfm("keys", "rotate").code == 0
    assert kfm("rollback", dataset, "--to", f"{dataset}@1", "--reason", "wrong").code == 0
    made = kfm("bundle", dataset, "-o", str(again), "--json").json
    assert (
        made["generation"] == 3
        and verify(again.read_bytes(), "--root", made["root"], "--json").json["verdict"]
        == "verified"
    )
    assert kfm("bundle", f"{dataset}@1", "-o", str(again)).code == 0, (
        "an earlier generation, after a rotation"
    )
    assert kfm("bundle", "ks_earthquake", "-o", str(again)).code == 2
    KeyFolder(ws / "keys").renew(-1)
    assert (
        kfm("bundle", dataset, "-o", str(tmp_path / "late.kfm")).code == 3
        and not (tmp_path / "late.kfm").exists()
    )
    kfm("keys", "renew")
    data = next((ws / f"data/processed/{dataset}/{made['version_id']}").glob("*.parquet"))
    whole = data.read_bytes()
    data.unlink()
    data.write_bytes(whole[:-1] + b"x")
    before = again.read_bytes()
    said = kfm("bundle", dataset, "-o", str(again))
    assert said.code == 6 and data.name in said.err and again.read_bytes() == before, (
        "what is damaged is not handed out"
    )
    assert not list(tmp_path.glob(".*.part"))


def test_what_a_withdrawal_left_is_bundled_without_the_receipt_no_run_wrote(
    kfm: Callable[..., Said], verify: Verify, sample: SampleUpstream, tmp_path: Path
) -> None:
    file, dataset = tmp_path / "left.kfm", "ks_earthquakes"
    kfm("run", dataset)
    kfm("bundle", dataset, "-o", str(file))
    receipt = repacked_member(file.read_bytes(), "receipt.json")
    left = kfm(
        "withdraw",
        "--yes",
        dataset,
        "--record",
        "event_id=ks202500000",
        "--reason",
        "asked",
        "--json",
    ).json
    made = kfm("bundle", dataset, "-o", str(file), "--json")
    assert (made.code, made.json["version_id"], made.json["generation"]) == (
        0,
        left["version_id"],
        2,
    )
    raw = file.read_bytes()
    said = verify(raw, "--root", made.json["root"], "--json")
    assert (said.code, said.json["verdict"], said.json["problems"]) == (0, "verified", [])
    for change, where in (
        ({"receipt.json": receipt}, "receipt.json"),
        ({"prov.json": b"{}"}, "prov.json"),
        ({"version/attestation.json": None}, "version/attestation.json"),
        ({"channel/00000002.json": None}, "channel"),
    ):
        assert where in {
            p["where"] for p in verify_bundle(repacked(raw, **change), NOW).problems
        }, change.keys()
    sample.control(dataset, revision=1)
    assert kfm("run", dataset).code == 0
    assert kfm("rollback", dataset, "--to", f"{dataset}@2", "--reason", "wrong").code == 0
    again = kfm("bundle", dataset, "-o", str(file), "--json")
    assert (again.json["version_id"], again.json["generation"]) == (left["version_id"], 4), (
        "gone back to, it is official again"
    )
    assert (
        verify(file.read_bytes(), "--root", again.json["root"], "--json").json["verdict"]
        == "verified"
    )
    assert kfm("bundle", f"{dataset}@1", "-o", str(file)).code == 3, (
        "what holds the record is not handed out"
    )


def repacked_member(raw: bytes, name: str) -> bytes:
    start, size = spans(raw)[name]
    return raw[start : start + size]
