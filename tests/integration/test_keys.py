"""Keys and witnesses from the command line: what an operator, an approver and an archive do."""

import base64
import hashlib
import json
import os
import pty
import select
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from kfm.channel.roots import record_root
from kfm.cli import main
from kfm.cli.approve import signer_of
from kfm.keys.key_folder import KeyFolder
from kfm.keys.private_key import read_private
from kfm.keys.trust import Trust, unwrap
from kfm.model.errors import Denied, UsageError
from kfm.samples.upstream import SampleUpstream
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from tests.given.verbs import Said, need_tool, tree

Kfm = Callable[..., Said]
QUAKES = "ks_earthquakes"
MADE_ELSEWHERE = """
const {privateKey, publicKey} = require("crypto").generateKeyPairSync("ed25519"), fs = require("fs")
fs.writeFileSync(process.argv[1], privateKey.export({type: "pkcs8", format: "pem"}))
fs.writeFileSync(process.argv[2], publicKey.export({type: "spki", format: "pem"}))
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def listed(kfm: Kfm) -> dict[str, dict[str, Any]]:
    return {k["keyid"]: k for k in kfm("keys", "list", "--json").json["keys"]}


def signer(ws: Path, number: int) -> str:
    return str(
        json.loads((ws / f"data/catalog/channels/{QUAKES}/{number:08}.json").read_bytes())[
            "signatures"
        ][0]["keyid"]
    )


def test_a_new_key_is_enrolled_and_its_private_half_is_private(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    made = kfm("keys", "new", "--name", "R. Stone", "--json").json
    file = ws / "keys/people/r-stone.key"
    assert (
        Path(made["private"]) == file
        and file.stat().st_mode & 0o777 == 0o600
        and file.with_suffix(".pub").exists()
    )
    said = kfm(
        "keys",
        "new",
        "--name",
        "State Archive",
        "--role",
        "witness",
        "--out",
        str(tmp_path / "a.key"),
    )
    assert said.code == 0 and str(tmp_path / "a.key") in said.out and "back it up" in said.out
    assert "PRIVATE" not in said.out + said.err
    assert {k["name"]: k["roles"] for k in listed(kfm).values()} == {
        "workspace root": ["root"], "workspace": ["builder"], "R. Stone": ["approver"], "State Archive": ["witness"],
    }  # fmt: skip
    before = tree(ws / "keys")
    assert kfm("keys", "new", "--name", "R. Stone").code == 2
    assert (
        kfm("keys", "new", "--name", "R. Stone", "--out", str(tmp_path / "again.key")).code == 2
    ), "the name is taken"
    assert kfm("keys", "new").code == 2
    assert tree(ws / "keys") == before and not (tmp_path / "again.key").exists()


def test_a_key_made_where_there_is_no_workspace_is_enrolled_by_its_public_half(
    kfm: Kfm,
    ws: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KFM_WORKSPACE", raising=False)
    assert main(["keys", "new", "--name", "Ann", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["private"], made["public"]) == ("ann.key", "ann.pub") and (
        tmp_path / "ann.key"
    ).stat().st_mode & 0o777 == 0o600
    assert main(["keys", "new", "--name", "Ann"]) == 2 and main(["keys", "list"]) == 2
    said = kfm("keys", "enrol", "ann.pub", "--name", "Ann", "--json").json
    assert (said["fingerprint"], said["keyid"]) == (made["fingerprint"], made["keyid"]), (
        "what both compare"
    )
    (root,) = [k for k in listed(kfm).values() if "root" in k["roles"]]
    assert (
        said["enrolled"].startswith(f"by {root['name']} ({root['keyid'][:8]}…) at 20")
        and listed(kfm)[said["keyid"]]["enrolled"] == said["enrolled"]
    )
    assert (
        "by another channel"
        in kfm(
            "keys", "enrol", "ann.pub", "--name", "Ann", "--role", "steward", "--for", "The Museum"
        ).out
    )
    assert (
        listed(kfm)[said["keyid"]]
        | {"roles": ["approver", "steward"], "custodians": ["The Museum"]}
        == listed(kfm)[said["keyid"]]
    )
    assert (
        kfm(
            "keys", "enrol", "ann.pub", "--name", "Ann", "--role", "steward", "--for", "The Museum"
        ).code
        == 2
    ), "nothing new"


def test_an_ssh_key_is_enrolled_and_signs(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    private = Ed25519PrivateKey.generate()
    (tmp_path / "id_ed25519").write_bytes(
        private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    )
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    (tmp_path / "id_ed25519.pub").write_bytes(public + b" ann@example.org\n")
    made = kfm("keys", "enrol", str(tmp_path / "id_ed25519.pub"), "--name", "Ann", "--json").json
    told = (
        base64.b64encode(hashlib.sha256(base64.b64decode(public.split()[1])).digest())
        .decode()
        .rstrip("=")
    )
    assert made["fingerprint"] == f"SHA256:{told}", "as ssh-keygen -l says it"
    assert KeyFolder(ws / "keys").person(tmp_path / "id_ed25519").keyid == made["keyid"]
    (tmp_path / "rsa.pub").write_bytes(b"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAQQC7 ann\n")
    assert kfm("keys", "enrol", str(tmp_path / "rsa.pub"), "--name", "Ben").code == 2
    locked = private.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    (tmp_path / "locked.key").write_bytes(locked)
    with pytest.raises(Denied, match="without a passphrase"):
        KeyFolder(ws / "keys").person(tmp_path / "locked.key")


def test_the_only_key_signs_when_somebody_at_a_terminal_says_it_is_theirs(
    kfm: Kfm, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kfm("keys", "new", "--name", "R. Stone")
    monkeypatch.delenv("KFM_KEY", raising=False)
    world = SimpleNamespace(keys=KeyFolder(ws / "keys"))
    for answer, signs in ((b"y\n", True), (b"\n", False), (b"\x04", False)):
        ours, theirs = pty.openpty()
        os.write(ours, answer)
        with (
            os.fdopen(os.dup(theirs)) as keyboard,
            os.fdopen(theirs, "w") as screen,
            monkeypatch.context() as terminal,
        ):
            terminal.setattr("sys.stdin", keyboard)
            terminal.setattr("sys.stderr", screen)
            if signs:
                assert signer_of(world, open_workspace(ws), None).name == "R. Stone"
            else:
                with pytest.raises(UsageError, match="Nothing was signed"):
                    signer_of(world, open_workspace(ws), None)
            screen.flush()
            said = b""
            # what was typed is shown, too, and may come by itself
            while b"Sign as R. Stone, SHA256:" not in said:
                assert select.select([ours], [], [], 30)[0], said
                said += os.read(ours, 4096)
        os.close(ours)


def test_a_public_key_made_elsewhere_is_enrolled(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    need_tool("node")
    private, public = tmp_path / "ann.key", tmp_path / "ann.pub"
    subprocess.run(["node", "-e", MADE_ELSEWHERE, private, public], check=True, capture_output=True)
    keyid = kfm("keys", "enrol", str(public), "--name", "Ann", "--json").json["keyid"]
    person = KeyFolder(ws / "keys").person(private)
    assert (person.keyid, person.name) == (keyid, "Ann")
    (tmp_path / "plain.pub").write_bytes(base64.b64encode(person.public) + b"\n")
    assert kfm("keys", "enrol", str(tmp_path / "plain.pub"), "--name", "Ann again").code == 2, (
        "one key, one person"
    )
    (tmp_path / "bad.pub").write_text("not a key")
    assert kfm("keys", "enrol", str(tmp_path / "bad.pub"), "--name", "Bad").code == 2
    (tmp_path / "weak.pub").write_bytes(base64.b64encode(bytes(32)))
    assert kfm("keys", "enrol", str(tmp_path / "weak.pub"), "--name", "Weak").code == 3


def test_rotate_then_revoke_keeps_history_and_the_new_key_signs(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    assert kfm("run", QUAKES).code == 0
    old, root = signer(ws, 1), kfm("keys", "list", "--json").json["root"]
    new = kfm("keys", "rotate", "--json").json
    assert new["retired"] == [old]
    sample.control(QUAKES, revision=1)
    assert kfm("run", QUAKES).code == 0
    assert (signer(ws, 1), signer(ws, 2)) == (old, new["keyid"])
    assert kfm("verify", "--root", root).code == 0
    assert kfm("keys", "revoke", old, "--reason", "stolen laptop").code == 0
    assert kfm("verify", "--root", root, "--json").json["verdict"] == "verified"
    states = {k: v["state"] for k, v in listed(kfm).items() if v["name"] == "workspace"}
    assert states == {old: "revoked", new["keyid"]: "active"}
    assert kfm("keys", "revoke", new["keyid"], "--reason", "again").code == 3, (
        "somebody must be left to sign"
    )
    assert kfm("keys", "revoke", "nobody", "--reason", "x").code == 2
    sample.control(QUAKES, revision=2)
    assert kfm("run", QUAKES).code == 0


def test_a_version_attested_by_a_retired_or_revoked_key_becomes_official_again(
    kfm: Kfm, sample: SampleUpstream
) -> None:
    """Upstream goes A, B, A, B while the key is replaced in between."""
    kfm("run", QUAKES)
    sample.control(QUAKES, revision=1)
    kfm("run", QUAKES)
    old = kfm("keys", "rotate", "--json").json["retired"][0]
    for revision, change in ((0, ("revoke", old, "--reason", "stolen")), (1, ("renew",))):
        sample.control(QUAKES, revision=revision)
        assert kfm("run", QUAKES).code == 0 and kfm("verify").code == 0
        assert kfm("keys", *change).code == 0
    assert kfm("verify", "--json").json["generations"] == 4


def test_a_generation_signed_by_a_revoked_key_is_refused(kfm: Kfm, ws: Path) -> None:
    kfm("run", QUAKES)
    channel = ws / f"data/catalog/channels/{QUAKES}"
    thief = KeyFolder(ws / "keys")
    document = unwrap((channel / "00000001.json").read_bytes())
    document["predicate"]["generation"] = 2
    forged = thief.sign(document)
    kfm("keys", "rotate")
    assert kfm("keys", "revoke", thief_id(forged), "--reason", "stolen").code == 0
    (channel / "00000002.json").write_bytes(forged)
    said = kfm("get", QUAKES, "-o", str(ws / "out"))
    assert said.code == 3 and "revoked: stolen" in " ".join(said.err.split())


def thief_id(raw: bytes) -> str:
    return str(json.loads(raw)["signatures"][0]["keyid"])


def test_a_damaged_root_is_six_and_an_unknown_one_three(kfm: Kfm, ws: Path) -> None:
    kfm("run", QUAKES)
    root = ws / "keys/root/0001.json"
    whole = root.read_bytes()
    assert kfm("verify", "--root", "sha256:" + "0" * 64).code == 3
    assert kfm("verify", "--root", "oops").code == 2
    root.write_bytes(whole.replace(b'"payload":"', b'"payload":"A', 1))
    assert kfm("verify").code == 6 and kfm("keys", "list").code == 6 and kfm("doctor").code == 6
    root.write_bytes(whole)
    assert kfm("verify", "--pin", "--json").json["verdict"] == "verified"
    assert kfm("verify", "--json").json["verdict"] == "verified", "pinned at first use"


def test_a_root_that_was_cut_back_is_six_everywhere_and_nothing_is_signed_by_it(
    kfm: Kfm, ws: Path, sample: SampleUpstream, tmp_path: Path
) -> None:
    """Whoever has the old key deletes the version of the root that took it out of use."""
    kfm("run", QUAKES)
    kfm("keys", "rotate")
    newest, aside = ws / "keys/root/0002.json", tmp_path / "0002.json"
    newest.rename(aside)
    sample.control(QUAKES, revision=1)
    before = tree(ws, without=("ledger", "data/work", "receipts"))
    for command in (
        ("run", QUAKES), ("verify",), ("doctor",), ("reindex",), ("get", QUAKES, "-o", str(tmp_path / "out")), ("keys", "renew"),
        ("rollback", QUAKES, "--reason", "x"), ("keys", "root", "adopt"),
    ):  # fmt: skip
        assert kfm(*command).code == 6, command
    assert tree(ws, without=("ledger", "data/work", "receipts")) == before
    assert "root.damaged" in [f["code"] for f in kfm("doctor", "--json").json["findings"]]
    aside.rename(newest)
    assert kfm("run", QUAKES).code == 0 and kfm("verify").code == 0
    newest.rename(aside)
    (ws / "ledger").rename(tmp_path / "ledger")  # the generations name the root too
    assert kfm("reindex").code == 6 and kfm("verify").code == 6
    shutil.rmtree(ws / "ledger")
    (tmp_path / "ledger").rename(ws / "ledger")
    aside.rename(newest)
    assert kfm("reindex").code == 0
    newest.rename(aside)
    assert kfm("verify").code == 6, "a rebuilt store knows it as well"


def test_generations_from_before_roots_were_recorded_are_told_as_such_and_none_comes_after(
    kfm: Kfm, ws: Path, sample: SampleUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as older:  # a kfm that named no root
        older.setattr(Trust, "at", None)
        assert kfm("run", QUAKES).code == 0
    assert (
        "root"
        not in unwrap((ws / f"data/catalog/channels/{QUAKES}/00000001.json").read_bytes())[
            "predicate"
        ]
    )
    said = kfm("verify", "--json")
    assert said.code == 3 and "names no root" in said.json["problems"][0]["what"], (
        "the root says that all of it was recorded by then"
    )
    monkeypatch.setattr(Trust, "floor_of", lambda *_: None)  # nor did its root say so
    said = kfm("verify", "--json")
    assert (said.code, said.json["problems"]) == (0, [])
    assert (
        f"1 generations of {QUAKES} were made before root versions were recorded"
        in said.json["notes"]
    )
    with open_world(open_workspace(ws)) as world:
        recorded = record_root(world)
        assert (
            recorded is not None and recorded == record_root(world) == world.keys.require_trust().at
        )
    sample.control(QUAKES, revision=1)
    assert kfm("run", QUAKES).code == 0 and kfm("verify").code == 0
    sample.control(QUAKES, revision=2)
    with pytest.MonkeyPatch.context() as older:
        older.setattr(Trust, "at", None)
        older.setattr("kfm.channel.generations.check_root", lambda *_: None)
        assert kfm("run", QUAKES).code == 6, "one that names a root is before it"
    assert kfm("verify").code == 0 and kfm("run", QUAKES).code == 0


def test_a_proposal_that_waited_while_the_key_was_replaced_is_published_and_proved(
    kfm: Kfm, ws: Path, sample: SampleUpstream, tmp_path: Path
) -> None:
    """Its attestation is by the old key; the generation, by the new one, vouches for it, also once
    the old key is revoked.
    """
    with (ws / f"data/registry/{QUAKES}.yml").open("a") as entry:
        entry.write("approvals: 1\n")
    kfm("keys", "new", "--name", "Ann")
    assert kfm("run", QUAKES).code == 7
    (old,) = kfm("keys", "rotate", "--json").json["retired"]
    assert kfm("approve", "1", "--key", "Ann").code == 0 and kfm("promote", "1").code == 0
    for number in (1, 2):
        assert kfm("verify").code == 0, number
        for handed in ("bundle", "get"):
            into = str(tmp_path / f"{number}.{handed}")
            assert kfm(handed, QUAKES, "-o", into).code == 0, (handed, number)
        kfm("keys", "revoke", old, "--reason", "stolen")
    for number, revision in ((2, 1), (3, 0)):  # another version, then the first one once more
        sample.control(QUAKES, revision=revision)
        assert (
            kfm("run", QUAKES).code == 7 and kfm("approve", str(number), "--key", "Ann").code == 0
        )
        assert kfm("promote", str(number)).code == 0
    assert kfm("verify").code == 0


def test_what_a_stolen_key_says_of_a_version_does_not_count_once_it_is_revoked(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    """The data are the same, what is said of them is not; what the key said before still counts."""
    kfm("run", QUAKES)
    thief = read_private(ws / f"keys/{KeyFolder(ws / 'keys').signer}.key")
    (old,) = kfm("keys", "rotate", "--json").json["retired"]
    kfm("keys", "revoke", old, "--reason", "stolen")
    assert kfm("get", QUAKES, "-o", str(tmp_path / "whole")).code == 0
    folder = next((ws / f"data/processed/{QUAKES}").glob("v*"))
    facts, attestation, checksums = (
        folder / name for name in ("version.json", "attestation.json", "checksums.sha256")
    )
    kept = facts.read_bytes(), attestation.read_bytes()
    digests = [hashlib.sha256(raw).hexdigest() for raw in kept]
    told = json.loads(kept[0]) | {"rows": 1}
    forged = [json.dumps(told, separators=(",", ":"), sort_keys=True).encode()]
    document = json.dumps(unwrap(kept[1])).replace(
        digests[0], hashlib.sha256(forged[0]).hexdigest()
    )
    forged.append(thief.sign(json.loads(document)))
    listed = checksums.read_text()
    for path, raw, digest in zip((facts, attestation), forged, digests, strict=True):
        listed = listed.replace(digest, hashlib.sha256(raw).hexdigest())
        path.chmod(0o644)
        path.write_bytes(raw)
    checksums.chmod(0o644)
    checksums.write_text(listed)
    said = kfm("get", QUAKES, "-o", str(tmp_path / "forged"))
    assert said.code == 6 and "attestation.json" in said.err, said.err
    assert not (tmp_path / "forged").exists() and kfm("verify").code == 6


def test_an_attestation_that_no_generation_named_does_not_count_once_its_key_is_revoked(
    kfm: Kfm, ws: Path, sample: SampleUpstream
) -> None:
    """A promote that was stopped before its generation, or whoever has the key, left it among the
    official versions.
    """
    assert kfm("run", QUAKES).code == 0
    with (ws / f"data/registry/{QUAKES}.yml").open("a") as entry:
        entry.write("approvals: 1\n")
    kfm("keys", "new", "--name", "Ann")
    sample.control(QUAKES, revision=1)
    assert kfm("run", QUAKES).code == 7
    waits = max((ws / f"data/work/{QUAKES}/proposals").iterdir())
    left = (
        ws
        / f"data/processed/{QUAKES}"
        / json.loads((waits / "candidate.json").read_bytes())["version_id"]
    )
    left.mkdir()
    shutil.copy(waits / "attestation.json", left)
    (old,) = kfm("keys", "rotate", "--json").json["retired"]
    assert kfm("keys", "revoke", old, "--reason", "stolen").code == 0
    shutil.rmtree(left)
    kfm("approve", "2", "--key", "Ann")
    said = kfm("promote", "2")
    assert said.code == 3 and "revoked: stolen" in " ".join(said.out.split())
    assert kfm("verify").code == 0, "what was official stays so"


def test_a_new_root_is_gone_by_only_once_it_is_adopted(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    kfm("run", QUAKES)
    (ws / "keys/root").rename(tmp_path / "lost")
    assert kfm("verify").code == 6 and kfm("run", QUAKES).code == 6
    assert kfm("keys", "renew").code == 0, "the first version of another root"
    assert kfm("verify").code == 6 and kfm("run", QUAKES, "--force", "--reason", "x").code == 6
    first, again = kfm("keys", "root", "adopt"), kfm("keys", "root", "adopt")
    assert (first.code, again.code) == (0, 0)
    assert "will refuse" in first.err and "will refuse" not in again.err, "it is the same root"
    assert kfm("run", QUAKES, "--force", "--reason", "x").code == 0 and kfm("verify").code == 0


def test_the_doctor_says_when_the_root_key_lies_beside_the_builders_until_it_is_exported(
    kfm: Kfm, ws: Path, tmp_path: Path
) -> None:
    said = kfm("doctor", "--json")
    (beside,) = said.json["advice"]
    assert (said.code, said.json["findings"], beside["code"]) == (0, [], "root.beside")
    assert "keys export-root" in beside["remedy"] and (ws / beside["where"]).is_file()
    assert "root.beside" in kfm("doctor").out and "nothing to mend" in kfm("doctor").out
    safe = tmp_path / "safe.key"
    assert (
        kfm("keys", "root", "export").code == 2
        and kfm("keys", "root").code == 2
        and kfm("keys", "renew", "x", "y").code == 2
    )
    assert kfm("keys", "root", "export", str(tmp_path / "none" / "x")).code == 2
    assert kfm("keys", "root", "export", str(safe), "--json").json["name"] == "workspace root"
    assert safe.stat().st_mode & 0o777 == 0o600 and kfm("doctor", "--json").json["advice"] == []
    assert kfm("keys", "root", "export", str(tmp_path / "more.key")).code == 3, (
        "it is not here any more"
    )
    for change in (("rotate",), ("renew",), ("new", "--name", "Ann")):
        assert (
            kfm("keys", *change).code == 3
            and kfm("keys", *change, "--root-key", str(tmp_path / "no")).code == 2
        )
        assert kfm("keys", *change, "--root-key", str(safe)).code == 0
    assert kfm("verify").code == 0


def test_an_expired_root_is_renewed(kfm: Kfm, ws: Path) -> None:
    kfm("run", QUAKES)
    KeyFolder(ws / "keys").renew(-1)
    said = kfm("verify", "--json")
    assert (said.code, said.json["verdict"]) == (3, "expired root")
    assert "keys renew" in kfm("verify").err and "expired" in kfm("keys", "list").out
    assert kfm("keys", "renew").code == 0
    assert kfm("verify").code == 0


def test_a_backup_brings_back_every_key_and_says_none(
    kfm: Kfm, ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFE", "correct horse")
    kfm("keys", "new", "--name", "R. Stone")
    for name in ("nests", "nests.salt"):
        (ws / "keys/data").mkdir(exist_ok=True)
        (ws / "keys/data" / name).write_text("5e" * 32)
    before, file = tree(ws / "keys"), tmp_path / "keys.bak"
    said = kfm("keys", "backup", "-o", str(file), "--passphrase", "env:SAFE")
    assert (
        said.code == 0
        and "horse" not in said.out + said.err
        and file.stat().st_mode & 0o777 == 0o600
    )
    assert b"PRIVATE" not in file.read_bytes() and b"5e5e" not in file.read_bytes()
    assert kfm("keys", "backup", "-o", str(file), "--passphrase", "env:SAFE").code == 2
    shutil.rmtree(ws / "keys")
    monkeypatch.setenv("WRONG", "incorrect")
    assert kfm("keys", "restore", str(file), "--passphrase", "env:WRONG").code == 6
    assert kfm("keys", "restore", str(file), "--passphrase", "env:UNSET").code == 2
    assert kfm("keys", "restore", str(file), "--passphrase", "env:SAFE").code == 0
    assert tree(ws / "keys") == before
    assert all(f.stat().st_mode & 0o777 == 0o600 for f in (ws / "keys").rglob("*.key"))
    (ws / "keys/data/nests").unlink()  # as an erasure does
    said = kfm("keys", "restore", str(file), "--passphrase", "env:SAFE", "--json")
    assert (
        said.json["restored"] == []
        and "erased" in said.err
        and not (ws / "keys/data/nests").exists()
    )
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(bytes(damaged))
    assert kfm("keys", "restore", str(file), "--passphrase", "env:SAFE").code == 6


def test_a_restore_never_replaces_a_key(
    kfm: Kfm, ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFE", "x")
    kfm("keys", "backup", "-o", str(tmp_path / "b"), "--passphrase", "env:SAFE")
    next((ws / "keys").glob("*.pub")).write_text("other")
    before = tree(ws / "keys")
    assert kfm("keys", "restore", str(tmp_path / "b"), "--passphrase", "env:SAFE").code == 2
    assert tree(ws / "keys") == before


# ---- witnesses -----------------------------------------------------------------------------------
def test_a_witness_signs_what_is_new_and_names_rewritten_history(
    kfm: Kfm, ws: Path, sample: SampleUpstream, tmp_path: Path
) -> None:
    kfm("run", QUAKES)
    kfm("keys", "new", "--name", "Archive", "--role", "witness")
    folder = str(tmp_path / "w")
    assert kfm("witness", "check", folder).code == 3, "nothing there is no proof"
    assert kfm("witness", "sign", "--key", "Archive", "-o", folder, "--json").json["signed"] == 1
    sample.control(QUAKES, revision=1)
    kfm("run", QUAKES)
    assert (
        kfm(
            "witness", "sign", "--key", "Archive", "--channel", QUAKES, "-o", folder, "--json"
        ).json["signed"]
        == 1
    )
    assert kfm("witness", "sign", "--key", "Archive", "-o", folder, "--json").json["signed"] == 0
    assert kfm("witness", "check", folder, "--json").json == {"agreed": 2, "problems": []}
    assert kfm("verify", "--witness", folder).code == 0
    file = ws / f"data/catalog/channels/{QUAKES}/00000002.json"
    document = unwrap(file.read_bytes())
    document["predicate"]["reason"] = "rewritten"
    file.unlink()
    file.write_bytes(KeyFolder(ws / "keys").sign(document))  # by the operator, who holds the key
    said = kfm("witness", "check", folder, "--json")
    assert said.code == 6 and said.json["problems"][0]["where"] == f"{QUAKES}/00000002.json"
    assert "history was rewritten" in said.json["problems"][0]["what"]
    assert kfm("witness", "sign", "--key", "Archive", "-o", folder).code == 6
    said = kfm("verify", "--witness", folder, "--json")
    assert said.code == 6 and said.json["verdict"] == "damaged"


def test_only_an_enrolled_witness_counts(kfm: Kfm, ws: Path, tmp_path: Path) -> None:
    kfm("run", QUAKES)
    kfm("keys", "new", "--name", "R. Stone")
    assert kfm("witness", "sign", "--key", "R. Stone", "-o", str(tmp_path / "w")).code == 3
    assert kfm("witness", "sign", "--key", "Nobody", "-o", str(tmp_path / "w")).code == 3
    assert (
        kfm("witness", "sign", "-o", str(tmp_path / "w")).code == 2
        and kfm("witness", "check").code == 2
    )
    from kfm.keys.private_key import new_private
    from kfm.keys.witness import witness_statement

    stranger = new_private(tmp_path / "s.key", "")
    target = tmp_path / f"w/{QUAKES}/00000001.json"
    target.parent.mkdir(parents=True)
    target.write_bytes(stranger.sign(witness_statement(QUAKES, 1, "sha256:0", "sha256:0")))
    assert kfm("witness", "check", str(tmp_path / "w")).code == 3
