"""The trust root: a chain that holds or is refused, keys that are sound or are refused, and changes
that survive a crash.
"""

import base64
import datetime as dt
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization as ser
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from kfm.keys.key_folder import KeyFolder
from kfm.keys.trust import (
    PAYLOAD_TYPE,
    Head,
    UnknownSigner,
    acceptable,
    ed25519_verify,
    keyid_of,
    led_to,
    load_root,
    out_of_step,
    pae,
    statement,
)
from kfm.model import canonical, ids
from kfm.model.channel import RootAt
from kfm.model.errors import Denied, IntegrityError, KfmError, UsageError

P = 2**255 - 19
NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
SMALL = [
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    # the neutral element with a sign
    "0100000000000000000000000000000000000000000000000000000000000080",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # y = p, which is 0
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # y = p + 1, which is 1
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
]


class Signer:
    """A key, and a root written by hand with it."""

    def __init__(self) -> None:
        self.key = Ed25519PrivateKey.generate()
        self.public = self.key.public_key().public_bytes(ser.Encoding.Raw, ser.PublicFormat.Raw)
        self.keyid = keyid_of(self.public)

    def listed(
        self, name: str = "me", roles: tuple[str, ...] = ("root", "builder")
    ) -> dict[str, Any]:
        return {
            "keyid": self.keyid,
            "public": base64.b64encode(self.public).decode(),
            "name": name,
            "roles": list(roles),
        }


def root_of(version: int, keys: list[dict[str, Any]], by: list[Signer], **more: Any) -> bytes:
    predicate = {
        "version": version,
        "expires": "2030-01-01T00:00:00Z",
        "threshold": {"root": 1, "builder": 1},
        "keys": keys,
        "revoked": [],
    }
    return sealed(statement("root", "kfm://root", "0" * 64, {**predicate, **more}), by)


def sealed(document: dict[str, Any], by: list[Signer]) -> bytes:
    body = canonical.dumps(document)
    sigs = [
        {"keyid": s.keyid, "sig": base64.b64encode(s.key.sign(pae(PAYLOAD_TYPE, body))).decode()}
        for s in by
    ]
    return canonical.dumps(
        {
            "payload": base64.b64encode(body).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": sigs,
        }
    )


def generation(number: int, dataset_id: str = "trees", prev: bytes | None = None) -> dict[str, Any]:
    said = {
        "dataset_id": dataset_id,
        "generation": number,
        "version_id": "v1",
        "prev": ids.digest(prev) if prev is not None else None,
    }
    return statement("generation", f"kfm://dataset/{dataset_id}", "0" * 64, said)


def chain(keys: KeyFolder, length: int) -> list[bytes]:
    """Generations 1 to `length`, each naming the one before."""
    found: list[bytes] = []
    for number in range(1, length + 1):
        found.append(keys.sign(generation(number, prev=found[-1] if found else None)))
    return found


def along(files: list[bytes]) -> Any:
    """What a channel that holds `files` says leads to a pinned head."""
    return lambda head: led_to(
        head, lambda number: files[number - 1] if number <= len(files) else None
    )


@pytest.fixture
def keys(tmp_path: Path) -> KeyFolder:
    found = KeyFolder(tmp_path / "keys", now=lambda: NOW)
    found.new()
    return found


# ---- keys ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("point", SMALL)
def test_a_key_of_small_order_or_with_a_second_spelling_is_refused(point: str) -> None:
    public = bytes.fromhex(point)
    assert not acceptable(public)
    # R = neutral, S = 0: fits any message under the neutral element
    forged = (1).to_bytes(32, "little") + bytes(32)
    assert not ed25519_verify(public, b"anything", forged)


def test_a_sound_key_verifies_and_a_larger_s_does_not() -> None:
    one = Signer()
    good = one.key.sign(b"text")
    again = good[:32] + (
        int.from_bytes(good[32:], "little") + 2**252 + 27742317777372353535851937790883648493
    ).to_bytes(32, "little")
    assert ed25519_verify(one.public, b"text", good)
    assert not ed25519_verify(one.public, b"text", again)
    assert not ed25519_verify(one.public, b"other", good)
    assert not ed25519_verify(one.public[:31], b"text", good) and not ed25519_verify(
        one.public, b"text", good[:63]
    )


# ---- the chain -----------------------------------------------------------------------------------
def test_a_first_root_names_the_workspace_key(keys: KeyFolder, tmp_path: Path) -> None:
    trust = keys.trust()
    assert trust is not None and trust.version == 1
    assert trust.fingerprint == ids.digest((tmp_path / "keys/root/0001.json").read_bytes())
    assert {(k.name, k.roles) for k in trust.keys.values()} == {
        ("workspace", ("builder",)),
        ("workspace root", ("root",)),
    }, "two keys"
    (root,) = trust.holders("root")
    assert trust.keys[keys.signer].roles == ("builder",) and list(keys.root_keys()) == [
        tmp_path / f"keys/root-keys/{root.keyid}.key"
    ]
    assert not trust.expired(NOW + dt.timedelta(days=729)) and trust.expired(
        NOW + dt.timedelta(days=731)
    )
    assert oct((tmp_path / f"keys/{keys.signer}.key").stat().st_mode & 0o777) == "0o600"


def test_every_flipped_byte_of_a_root_is_damage_or_changes_its_fingerprint(
    keys: KeyFolder, tmp_path: Path
) -> None:
    keys.renew(3)
    whole = {n: (tmp_path / f"keys/root/{n:04}.json").read_bytes() for n in (1, 2)}
    seen = 0
    for number in whole:
        for position in range(0, len(whole[number]), 7):
            raw = bytearray(whole[number])
            raw[position] ^= 1
            try:
                found = load_root({**whole, number: bytes(raw)})
            except IntegrityError:
                seen += 1
            else:
                at = whole[number][position - 40 : position + 40]
                assert found.fingerprint != ids.digest(whole[1]) or b"keyid" in at, (
                    "only a hint may change unseen"
                )
    assert seen > 100


def test_a_gap_a_replay_and_a_foreign_successor_are_damage() -> None:
    one, two = Signer(), Signer()
    first, second = (
        root_of(1, [one.listed()], [one]),
        root_of(2, [one.listed(), two.listed("two", ("approver",))], [one]),
    )
    assert load_root({1: first, 2: second}).version == 2
    for files, word in (
        ({1: first, 3: second}, "missing"),
        ({2: second}, "missing"),
        ({1: first, 2: second, 3: second}, "version 2"),
        ({1: first, 2: root_of(2, [two.listed()], [two])}, "version before"),
        ({1: first, 2: root_of(2, [two.listed()], [one])}, "its own root keys"),
        ({1: sealed(generation(1), [one])}, "not a root"),
        ({1: b"{}"}, "not a DSSE envelope"),
    ):
        with pytest.raises(IntegrityError, match=word):
            load_root(files)


def test_a_new_root_key_takes_over_when_old_and_new_sign() -> None:
    one, two = Signer(), Signer()
    files = {1: root_of(1, [one.listed()], [one]), 2: root_of(2, [two.listed()], [one, two])}
    assert set(load_root(files).keys) == {two.keyid}
    files[3] = root_of(3, [one.listed()], [one])
    with pytest.raises(IntegrityError, match="version before"):
        load_root(files)


def unfit(one: Signer) -> list[tuple[str, bytes]]:
    small = bytes.fromhex(SMALL[4])
    weak = {
        "keyid": keyid_of(small),
        "public": base64.b64encode(small).decode(),
        "name": "weak",
        "roles": ["builder"],
    }
    public, letters = (
        one.listed()["public"],
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    )
    # the same bytes, spelt otherwise
    loose = {**one.listed(), "public": public[:-2] + letters[letters.index(public[-2]) + 1] + "="}
    return [
        ("small order", root_of(1, [one.listed(), weak], [one])),
        (
            "listed twice",
            root_of(1, [one.listed(), {**one.listed("two"), "keyid": "0" * 32}], [one]),
        ),
        ("another id", root_of(1, [{**one.listed(), "keyid": "0" * 32}], [one])),
        ("not canonical", root_of(1, [loose], [one])),
        (
            "0 keys must sign as root",
            root_of(1, [one.listed()], [one], threshold={"root": 0, "builder": 1}),
        ),
        (
            "2 keys must sign as root",
            root_of(1, [one.listed()], [one], threshold={"root": 2, "builder": 1}),
        ),
        (
            "3 keys must sign as witness",
            root_of(1, [one.listed()], [one], threshold={"root": 1, "builder": 1, "witness": 3}),
        ),
        ("unknown role", root_of(1, [one.listed(roles=("root", "builder", "king"))], [one])),
        ("not a time", root_of(1, [one.listed()], [one], expires="soon")),
        ("no time zone", root_of(1, [one.listed()], [one], expires="2030-01-01T00:00:00")),
    ]


@pytest.mark.parametrize("case", range(10))
def test_a_well_signed_root_that_is_not_acceptable_is_denied(case: int) -> None:
    word, raw = unfit(Signer())[case]
    with pytest.raises(Denied, match=word) as caught:
        load_root({1: raw})
    assert "`kfm keys" in caught.value.remedy


def test_two_of_two_means_two_different_keys() -> None:
    one, two = Signer(), Signer()
    both = [one.listed(), two.listed("two")]
    need = {"root": 2, "builder": 2}
    load_root({1: root_of(1, both, [one, two], threshold=need)})
    with pytest.raises(IntegrityError, match="its own root keys"):
        load_root({1: root_of(1, both, [one, one], threshold=need)})
    trust = load_root({1: root_of(1, both, [one, two], threshold=need)})
    assert trust.verified_by(sealed(generation(1), [one, two]))[0]["predicate"]["generation"] == 1
    with pytest.raises(Denied, match="1 of 2"):
        trust.verified_by(sealed(generation(1), [one, one]))


# ---- verifying -----------------------------------------------------------------------------------
def test_who_signed_decides_between_denied_and_damaged(keys: KeyFolder) -> None:
    signed = keys.sign(generation(1))
    assert keys.verify(signed)["predicate"]["generation"] == 1
    assert keys.verified_by(signed)[1].name == "workspace"
    plain = msgspec.json.decode(signed)
    with pytest.raises(Denied, match="unsigned"):
        keys.verify(msgspec.json.encode({**plain, "signatures": []}))
    with pytest.raises(UnknownSigner):
        keys.verify(sealed(generation(1), [Signer()]))
    plain["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
    with pytest.raises(IntegrityError, match="does not fit"):
        keys.verify(msgspec.json.encode(plain))
    with pytest.raises(Denied, match="no approver"):
        keys.verify(signed, "approver")


def test_an_older_folder_without_a_root_still_verifies_and_signs(
    keys: KeyFolder, tmp_path: Path
) -> None:
    signed = keys.sign(generation(1))
    (tmp_path / "keys/root/0001.json").unlink()
    older = KeyFolder(tmp_path / "keys")
    assert older.trust() is None
    assert older.verify(signed) and older.verify(older.sign(generation(2)))
    with pytest.raises(UnknownSigner):
        older.verify(sealed(generation(1), [Signer()]))
    older.renew()
    assert older.trust() is not None and older.verify(signed)


def test_a_root_is_read_again_only_when_it_changed(
    keys: KeyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed, calls = keys.sign(generation(1)), []
    monkeypatch.setattr(
        "kfm.keys.trust_folder.load_root", lambda files: calls.append(1) or load_root(files)
    )
    for _ in range(20):
        keys.verify(signed)
    assert not calls
    keys.renew()
    keys.verify(signed)
    used = len(calls)
    keys.verify(signed)
    assert used and len(calls) == used


def test_an_ended_root_still_verifies_history(tmp_path: Path) -> None:
    old = KeyFolder(tmp_path / "keys", now=lambda: NOW - dt.timedelta(days=2000))
    old.new()
    trust = old.trust()
    assert trust is not None and trust.expired(NOW)
    assert old.verify(old.sign(generation(1)))


# ---- changes -------------------------------------------------------------------------------------
def put(tmp_path: Path, number: int, raw: bytes) -> None:
    path = tmp_path / f"data/catalog/channels/trees/{number:08}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)


def test_after_a_rotation_old_history_verifies_and_only_the_new_key_signs(
    keys: KeyFolder, tmp_path: Path
) -> None:
    history = chain(keys, 3)
    for number, raw in enumerate(history[:2], 1):
        put(tmp_path, number, raw)
    kept = tmp_path / "data/processed/trees/v1/attestation.json"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(keys.sign(statement("other", "x", "0" * 64, {})))
    said_later = keys.sign(statement("other", "y", "0" * 64, {}))
    old = keys.signer
    new = keys.rotate()
    assert keys.signer == new != old
    past = along(history)
    assert [bool(keys.verify(raw, past=past)) for raw in history[:2]] == [True, True]
    assert keys.verified_by(kept.read_bytes())[1].state == "retired", (
        "what it said about versions that were there stays good"
    )
    for late in (history[2], keys_sign(tmp_path, old, generation(1, "birds")), said_later):
        with pytest.raises(Denied, match="retired: rotated"):
            keys.verify(late, past=past)
    assert keys.verify(said_later, named={ids.digest(said_later)}), (
        "a generation that verifies vouches for it"
    )
    assert keys.verified_by(keys.sign(generation(3)))[1].keyid == new
    assert KeyFolder(tmp_path / "keys").rotate() != new


@pytest.mark.parametrize("change", ["rotate", "revoke"])
def test_a_key_out_of_use_cannot_invent_a_generation_below_its_pinned_head(
    keys: KeyFolder, tmp_path: Path, change: str
) -> None:
    """A number is no proof: whoever has the old key can sign any number."""
    history, old = chain(keys, 3), keys.signer
    for number, raw in enumerate(history, 1):
        put(tmp_path, number, raw)
    keys.rotate()
    if change == "revoke":
        keys.revoke(old, "stolen", {})
    assert all(keys.verify(raw, past=along(history)) for raw in history)
    for number in (1, 2, 3):
        before = history[number - 2] if number > 1 else None
        invented = keys_sign(
            tmp_path,
            old,
            generation(number, prev=before)
            | {"subject": [{"name": "x", "digest": {"sha256": "1" * 64}}]},
        )
        forged = [*history[: number - 1], invented, *history[number:]]
        for past in (along(forged), along(history), along([])):
            with pytest.raises(Denied, match=r"retired: rotated|revoked: stolen"):
                keys.verify(invented, past=past)
        after = keys_sign(tmp_path, old, generation(number + 1, prev=invented))
        with pytest.raises(Denied):
            keys.verify(
                invented,
                past=along([*history[: number - 1], invented, after, *history[number + 1 :]]),
            )
    with pytest.raises(Denied):
        keys.verify(history[0], past=along([history[0]]))  # what leads to the head must be shown


def test_roots_only_go_forward(keys: KeyFolder, tmp_path: Path) -> None:
    one = keys.require_trust()
    keys.renew()
    two, other = (
        keys.require_trust(),
        RootAt(fingerprint="sha256:other", version=7, digest="sha256:7"),
    )
    assert one.at is not None and two.at is not None and (one.at.version, two.at.version) == (1, 2)
    for trust, named, before, word in (
        (two, two.at, one.at, None),
        (two, one.at, one.at, None),
        (two, one.at, None, None),  # the first that names one
        (two, None, None, None),  # before roots were recorded
        (two, two.at, other, None),  # the root was replaced, and nothing goes back to the old one
        (two, one.at, two.at, "root version 1"),
        (two, None, one.at, "names no root"),
        (two, other, two.at, "another root"),
        (one, two.at, one.at, "is not here"),
        (None, one.at, None, "is not here"),
        (
            two,
            RootAt(fingerprint=two.fingerprint, version=2, digest="sha256:2"),
            one.at,
            "another one here",
        ),
    ):
        said = out_of_step(trust, named, before)
        assert (said is None) if word is None else (said is not None and word in said), (
            named,
            before,
            said,
        )


def keys_sign(tmp_path: Path, keyid: str, document: dict[str, Any]) -> bytes:
    """As a thief would who has an old key file."""
    one = Signer()
    key: Any = ser.load_pem_private_key((tmp_path / f"keys/{keyid}.key").read_bytes(), None)
    one.key, one.keyid = key, keyid
    return sealed(document, [one])


def test_a_process_that_signs_while_another_rotates_uses_the_new_key(
    keys: KeyFolder, tmp_path: Path
) -> None:
    before = keys.signer
    KeyFolder(tmp_path / "keys").rotate()
    assert keys.signer != before
    assert keys.verify(keys.sign(generation(1)))


def test_a_generation_signed_just_before_the_rotation_is_pinned_too(keys: KeyFolder) -> None:
    raced = keys.sign(generation(1))
    answers = [{}, {"trees": Head(generation=1, digest=ids.digest(raced))}]
    keys.rotate(lambda: answers.pop(0))
    assert keys.verify(raced)


def test_after_a_revocation_old_history_verifies_and_new_signatures_do_not(
    keys: KeyFolder, tmp_path: Path
) -> None:
    history = chain(keys, 2)
    forged = [keys.sign(generation(n) | {"extra": 1}) for n in (1, 2, 3)]
    attested = keys.sign(statement("other", "x", "0" * 64, {}))
    old = keys.signer
    heads = {"trees": {"generation": 2, "digest": ids.digest(history[1])}}
    with pytest.raises(Denied, match="must sign as") as caught:
        keys.revoke(old, "stolen", heads)
    assert "`kfm keys rotate`" in caught.value.remedy
    for number, raw in enumerate(history, 1):
        put(tmp_path, number, raw)
    sealed_then = tmp_path / "data/processed/trees/v1/attestation.json"
    sealed_then.parent.mkdir(parents=True)
    sealed_then.write_bytes(keys.sign(statement("other", "y", "0" * 64, {})))
    keys.rotate()
    keys.revoke(old, "stolen", {"trees": {"generation": 9, "digest": "sha256:0"}})
    assert all(keys.verify(raw, past=along(history)) for raw in history)
    for late in (*forged, attested):
        with pytest.raises(Denied, match="revoked: stolen"):
            keys.verify(late, past=along(history))
    assert keys.verified_by(sealed_then.read_bytes())[1].keyid == old, "it was there before"
    with pytest.raises(UsageError, match="revoked already"):
        keys.revoke(old, "again", {})


def test_a_person_signs_until_revoked(keys: KeyFolder, tmp_path: Path) -> None:
    from kfm.keys.private_key import new_private

    made = new_private(tmp_path / "keys/people/r-stone.key", "")
    with pytest.raises(Denied, match="not enrolled"):
        keys.person("R. Stone")
    keys.enrol(made.public, "R. Stone", ["approver"])
    signed = keys.person("R. Stone").sign(statement("approval", "x", "0" * 64, {}))
    assert (
        keys.verified_by(signed, "approver")[1].name
        == keys.person(tmp_path / "keys/people/r-stone.key").name
        == "R. Stone"
    )
    with pytest.raises(Denied, match="no builder"):
        keys.verify(signed)
    keys.revoke(made.keyid, "left", {})
    with pytest.raises(Denied, match="revoked"):
        keys.person("R. Stone")
    with pytest.raises(Denied, match="revoked: left"):
        keys.verify(signed, "approver")
    with pytest.raises(Denied, match="not here"):
        keys.person("Nobody")


@pytest.mark.parametrize(
    ("name", "roles"),
    [("workspace", ["approver"]), ("", ["approver"]), ("Ann", []), ("Ann", ["retired-builder"])],
)
def test_a_taken_name_or_an_unknown_role_is_not_enrolled(
    keys: KeyFolder, name: str, roles: list[str]
) -> None:
    with pytest.raises(UsageError):
        keys.enrol(Signer().public, name, roles)
    with pytest.raises(Denied, match="no sound"):
        keys.enrol(bytes.fromhex(SMALL[0]), "Ann", ["approver"])


def test_without_the_root_key_nothing_changes(keys: KeyFolder, tmp_path: Path) -> None:
    (root,) = keys.root_keys()
    root.unlink()
    before = sorted(p.name for p in (tmp_path / "keys").rglob("*"))
    alone = KeyFolder(tmp_path / "keys")
    for change in (
        alone.renew,
        alone.rotate,
        lambda: alone.enrol(Signer().public, "Ann", ["approver"]),
    ):
        with pytest.raises(Denied, match="root keys that must sign") as caught:
            change()
        assert "`kfm keys restore" in caught.value.remedy and "--root-key" in caught.value.remedy
    assert sorted(p.name for p in (tmp_path / "keys").rglob("*")) == before
    assert alone.verify(alone.sign(generation(1))), "what is published needs no root key"
    (tmp_path / f"keys/{keys.signer}.key").unlink()
    with pytest.raises(Denied, match="no signing key"):
        KeyFolder(tmp_path / "keys").sign(generation(1))


def test_the_root_key_leaves_and_comes_back_when_it_is_named(
    keys: KeyFolder, tmp_path: Path
) -> None:
    (file,) = keys.root_keys()
    content, safe = file.read_bytes(), tmp_path / "safe.key"
    with pytest.raises(UsageError, match="beside"):
        keys.export_root(tmp_path / "keys/people/x.key")
    safe.write_bytes(b"another")
    with pytest.raises(UsageError, match="exists"):
        keys.export_root(safe)
    safe.write_bytes(content)  # as a crash between the two halves of the move leaves it
    assert keys.export_root(safe).name == "workspace root"
    assert safe.read_bytes() == content and not file.exists() and not keys.root_keys()
    with pytest.raises(Denied, match="no root key here"):
        keys.export_root(tmp_path / "again.key")
    with pytest.raises(Denied, match="root keys that must sign"):
        keys.rotate()
    old = keys.signer
    named = KeyFolder(tmp_path / "keys", now=lambda: NOW, root_keys=[safe])
    assert named.rotate() != old and keys.require_trust().version == 2 and not keys.root_keys()
    assert oct(safe.stat().st_mode & 0o777) == "0o600"


def test_a_key_that_was_both_root_and_builder_goes_on_and_a_rotation_makes_two_of_it(
    tmp_path: Path,
) -> None:
    """As `kfm init` made it before."""
    one, folder = Signer(), tmp_path / "keys"
    (folder / "root").mkdir(parents=True)
    pem = one.key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption())
    (folder / f"{one.keyid}.key").write_bytes(pem)
    (folder / f"{one.keyid}.pub").write_bytes(base64.b64encode(one.public))
    (folder / "root/0001.json").write_bytes(root_of(1, [one.listed("workspace")], [one]))
    keys = KeyFolder(folder)
    history = keys.sign(generation(1))
    put(tmp_path, 1, history)
    keys.renew()
    assert keys.verify(history) and list(keys.root_keys()) == [folder / f"{one.keyid}.key"]
    with pytest.raises(Denied, match="both root and builder") as caught:
        keys.export_root(tmp_path / "safe.key")
    assert "`kfm keys rotate`" in caught.value.remedy
    keys.rotate()
    trust = keys.require_trust()
    assert (
        [k.keyid for k in trust.holders("root")]
        != [k.keyid for k in trust.holders("builder")]
        == [keys.signer]
    )
    assert trust.keys[one.keyid].state == "retired" and keys.verify(history)
    keys.export_root(tmp_path / "safe.key")
    assert not keys.root_keys() and keys.verify(keys.sign(generation(2)))
    keys = KeyFolder(folder, root_keys=[tmp_path / "safe.key"])
    keys.revoke(one.keyid, "stolen", {})
    assert keys.verify(history), "pinned when it was retired"


def test_a_lost_builder_key_is_replaced_with_another_root_key(
    keys: KeyFolder, tmp_path: Path
) -> None:
    from kfm.keys.private_key import new_private

    history = keys.sign(generation(1))
    put(tmp_path, 1, history)
    keys.enrol(new_private(tmp_path / "keys/people/safe.key", "").public, "Safe", ["root"])
    (tmp_path / f"keys/{keys.signer}.key").unlink()
    keys.rotate()
    assert keys.verify(history) and keys.verify(keys.sign(generation(2)))


def test_a_new_root_after_losing_the_old_one_keeps_history(keys: KeyFolder, tmp_path: Path) -> None:
    history, before = keys.sign(generation(1)), keys.trust()
    put(tmp_path, 1, history)
    (tmp_path / f"keys/{keys.signer}.key").unlink()
    (tmp_path / "keys/root").rename(tmp_path / "lost")
    fresh = KeyFolder(tmp_path / "keys", now=lambda: NOW)
    fresh.new()
    after = fresh.trust()
    assert before is not None and after is not None and after.fingerprint != before.fingerprint
    assert fresh.verify(history) and fresh.verify(fresh.sign(generation(2)))


# ---- crashes -------------------------------------------------------------------------------------
CHANGES: dict[str, Callable[[KeyFolder], Any]] = {
    "renew": lambda k: k.renew(),
    "rotate": lambda k: k.rotate(),
    "enrol": lambda k: k.enrol(
        bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
        "Ann",
        ["witness"],
    ),
}


class Killed(Exception):
    pass


@pytest.mark.parametrize("call", ["link", "fsync"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_dies_anywhere_leaves_a_usable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, call: str
) -> None:
    real, died = getattr(os, call), 0
    for nth in range(30):
        folder = tmp_path / f"{nth}" / "keys"
        KeyFolder(folder).new()
        signed, left = KeyFolder(folder).sign(generation(1)), [nth]
        put(tmp_path / f"{nth}", 1, signed)

        def dying(*args: Any, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return real(*args)

        monkeypatch.setattr(os, call, dying)
        try:
            CHANGES[change](KeyFolder(folder))
            finished = True
        except Killed:
            finished, died = False, died + 1
        monkeypatch.setattr(os, call, real)
        after = KeyFolder(folder)
        assert after.verify(signed) and after.verify(after.sign(generation(2)))
        after.renew()
        assert after.verify(signed) and after.verify(after.sign(generation(2)))
        if finished:
            assert died == nth > 0
            return
    pytest.fail("the change never finished")


@pytest.mark.parametrize("call", ["link", "fsync"])
def test_making_the_first_key_can_be_repeated_after_dying_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    real = getattr(os, call)
    for nth in range(30):
        folder, left = tmp_path / f"{nth}" / "keys", [nth]

        def dying(*args: Any, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return real(*args)

        monkeypatch.setattr(os, call, dying)
        try:
            KeyFolder(folder).new()
            finished = True
        except Killed:
            finished = False
        monkeypatch.setattr(os, call, real)
        after = KeyFolder(folder)
        if not any(folder.glob("*.key")):  # what `kfm init` asks
            after.new()
        assert after.verify(after.sign(generation(1)))
        if finished:
            assert nth >= 3, "public half, private half and root are each made whole"
            return
    pytest.fail("it never finished")


def test_two_changes_at_once_do_not_overwrite_each_other(
    keys: KeyFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def late(source: Any, target: Any) -> None:
        monkeypatch.setattr(os, "link", real)
        KeyFolder(tmp_path / "keys").renew(5)
        real(source, target)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(KfmError, match="same moment"):
        keys.renew(1)
    trust = keys.trust()
    assert trust is not None and trust.version == 2
