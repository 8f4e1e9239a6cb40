"""Offline bundles: a version with everything that proves it, in one deterministic zip that needs
neither workspace nor network to verify.
"""

import datetime as dt
import hashlib
import mmap
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from kfm.access.boundary import Opened
from kfm.channel.generations import lift_problem, order_problem, version_kept_out
from kfm.evidence.captures import parse_checksums
from kfm.evidence.folder_check import Verified, note_unapproved, note_uncompared, note_unrecorded
from kfm.evidence.receipts import find_receipt
from kfm.keys.approvals import check_recorded, last_terms, unapproved, unrecorded
from kfm.keys.attest import check_attestation
from kfm.keys.trust import (
    BadRoot,
    Head,
    Trust,
    UnfitRoot,
    led_to,
    load_root,
    named_signers,
    out_of_step,
)
from kfm.keys.witness import check_witnesses
from kfm.model import (
    ATTESTATION,
    Denied,
    GenerationPredicate,
    IntegrityError,
    Json,
    KfmError,
    RootAt,
    UsageError,
    canonical,
    ids,
    is_record,
    origins_of,
)
from kfm.model.paths import approvals_path, prov_path, version_folder
from kfm.upkeep.after_withdrawal import verify_left
from kfm.upkeep.proofs import missing_proofs
from kfm.world.world import World
from kfm.zones.base import Zone, check_path

__all__ = ["About", "BundleReport", "bundle", "verify_bundle"]

_LOCAL, _ENTRY, _END = (
    struct.Struct("<4s5H3I2H"),
    struct.Struct("<4s6H3I5H2I"),
    struct.Struct("<4s4H2IH"),
)
_DAY = 0x21  # 1 January 1980, the first a zip can name
_MEMBER = re.compile(
    r"bundle\.json|receipt\.json|prov\.json|root/\d{4}\.json|channel/\d{8}\.json|approvals/\d{8}\.json|version/.+|witness/[a-z0-9_]+/\d{8}\.json"
)
Members = Mapping[str, Callable[[], bytes]]


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`bundle.json`."""

    format: Literal[1] = 1
    dataset_id: str
    version_id: str
    generation: int
    root: str


# ---- the zip: stored, sorted, without times, so that equal members give equal bytes --------------
def _header(name: bytes, crc: int, size: int) -> bytes:
    return _LOCAL.pack(b"PK\3\4", 20, 0x800, 0, 0, _DAY, crc, size, size, len(name), 0) + name


def _directory(entries: list[tuple[bytes, int, int, int]], start: int) -> bytes:
    """The listing after the members: (name, crc, size, offset) each."""
    listed = [
        _ENTRY.pack(
            b"PK\1\2",
            0x314,
            20,
            0x800,
            0,
            0,
            _DAY,
            crc,
            size,
            size,
            len(name),
            0,
            0,
            0,
            0,
            0o100644 << 16,
            offset,
        )
        + name
        for name, crc, size, offset in entries
    ]
    size = sum(map(len, listed))
    return b"".join([*listed, _END.pack(b"PK\5\6", 0, 0, len(listed), len(listed), size, start, 0)])


def _pack(members: Members) -> Iterator[bytes]:
    entries, offset = [], 0
    for name in sorted(members):
        content = members[name]()
        if offset + len(content) > 0xF000_0000 or len(members) > 0xFFF0:
            raise UsageError(
                "A bundle holds at most 4 GB.",
                expected="a smaller version",
                remedy="Hand out the files with `kfm get`.",
            )
        entries.append((name.encode(), zlib.crc32(content), len(content), offset))
        head = _header(name.encode(), zlib.crc32(content), len(content))
        yield head
        yield content
        offset += len(head) + len(content)
    yield _directory(entries, offset)


def _unpack(data: memoryview, wrong: Callable[[str, str], None]) -> dict[str, memoryview]:
    """The members, and whether packing them again gives exactly `data`."""
    found: dict[str, memoryview] = {}
    entries: list[tuple[bytes, int, int, int]] = []
    offset, last = 0, ""
    while bytes(data[offset : offset + 4]) == b"PK\3\4" and len(data) >= offset + _LOCAL.size:
        fields = _LOCAL.unpack(data[offset : offset + _LOCAL.size])
        start = offset + _LOCAL.size + fields[9]
        raw_name, content = (
            bytes(data[offset + _LOCAL.size : start]),
            data[start : start + fields[8]],
        )
        name, crc = raw_name.decode(errors="backslashreplace"), zlib.crc32(content)
        if bytes(data[offset:start]) != _header(raw_name, crc, len(content)):
            wrong(name, "its bytes are not those that were packed")
        if not _MEMBER.fullmatch(name) or name <= last or not _plain(name):
            wrong(name, "it does not belong in a bundle, or not here")
        found[name], last = content, name
        entries.append((raw_name, crc, len(content), offset))
        offset = start + len(content)
    rest, listing = data[offset:], _directory(entries, offset)
    if len(rest) != len(listing) or bytes(rest) != listing:
        differs = next(
            (i for i, (a, b) in enumerate(zip(rest, listing)) if a != b),
            min(len(rest), len(listing)),
        )
        ends = [sum(_ENTRY.size + len(e[0]) for e in entries[: i + 1]) for i in range(len(entries))]
        where = next(
            (
                entries[i][0].decode(errors="backslashreplace")
                for i, end in enumerate(ends)
                if differs < end
            ),
            "the end of the zip",
        )
        wrong(
            where if bytes(rest[:4]) == b"PK\1\2" or not last else f"what follows {last}",
            "the listing of the zip does not match its members",
        )
    return found


def _digest(raw: memoryview) -> str:
    return "sha256:" + hashlib.sha256(raw).hexdigest()


def _plain(name: str) -> bool:
    try:
        return bool(check_path(name))
    except UsageError:
        return False


# ---- making --------------------------------------------------------------------------------------
def bundle(
    world: World, ref: "Opened", witness: Mapping[str, bytes] | None = None
) -> Iterator[bytes]:
    """The bytes of the bundle of a version that may be handed out. Raises `Denied` when the version
    was withdrawn, has no attestation, or the workspace no root.
    """
    assert ref.generation is not None
    trust = world.keys.require_trust()
    head = world.store.transaction(lambda tx: world.channel(ref.dataset_id).head(tx))
    kept = version_kept_out(head, ref.version_id)
    folder = version_folder(ref.dataset_id, ref.version_id)
    if kept is not None and kept.how == "suppressed":
        raise Denied(
            f"{ref.version_id} was withdrawn.",
            expected="a version that may be shown",
            remedy=f"See `kfm explain {ref.dataset_id}@{kept.generation}`.",
        )
    if not world.data.exists(f"{folder}/attestation.json"):
        raise Denied(
            f"{ref.version_id} has no attestation.",
            expected="attestation.json in the version",
            remedy=f"Publish it again with `kfm run {ref.dataset_id} --force --reason attest`.",
        )
    channel = world.channel(ref.dataset_id)
    chain = [channel.predicate(n) for n in range(1, ref.generation + 1)]
    maker = _maker(chain, ref.version_id)
    if maker is None:
        raise IntegrityError(
            f"No generation made {ref.version_id} official.",
            expected="one in the channel",
            remedy="Run `kfm verify`.",
        )
    _check_left(world, chain, maker)
    members: dict[str, Callable[[], bytes]] = {
        f"root/{n:04}.json": _of(world.root, f"keys/root/{n:04}.json")
        for n in range(1, trust.version + 1)
    }
    # what leads from it to a pinned head proves what a retired key signed
    last = max([ref.generation, *trust.pinned(ref.dataset_id)])
    if any(not world.data.exists(channel.path(n)) for n in range(ref.generation + 1, last + 1)):
        raise IntegrityError(
            f"The channel of {ref.dataset_id} ends before generation {last}, at which a key was"
            " taken out of use.",
            expected="every generation up to that one",
            remedy="Restore data/catalog/channels from a backup or a mirror.",
        )
    members |= {
        f"channel/{n:08}.json": _of(world.data, channel.path(n)) for n in range(1, last + 1)
    }
    members |= {
        f"approvals/{g.generation:08}.json": _of(world.data, _approvals_of(world, g))
        for g in chain
        if g is not None and g.approvals_digest
    }
    members |= {
        "version/" + path.removeprefix(folder + "/"): _of(world.data, path)
        for path in world.data.names(folder)
    }
    if maker.kind == "promote":
        members |= {"receipt.json": _of(world.root, _receipt(world, maker))}
        prov = prov_path(ref.dataset_id, maker.run_id)
        members |= {"prov.json": _of(world.data, prov)} if world.data.exists(prov) else {}
    members |= {
        f"witness/{name}": _given(raw)
        for name, raw in _about_channel(witness, ref.dataset_id, ref.generation).items()
    }
    about = About(
        dataset_id=ref.dataset_id,
        version_id=ref.version_id,
        generation=ref.generation,
        root=trust.fingerprint,
    )
    members["bundle.json"] = _given(canonical.dumps(msgspec.to_builtins(about)) + b"\n")
    return _pack(members)


def _check_left(
    world: World, chain: Sequence[GenerationPredicate | None], maker: GenerationPredicate
) -> None:
    """A withdrawal took away only, while what there was before it can be looked at: who gets the
    bundle cannot.
    """
    found = Verified()
    verify_left(
        world.data,
        maker.dataset_id,
        {g.generation: g for g in chain if g is not None and g.generation <= maker.generation},
        [],
        found,
    )
    wrong = [
        p
        for p in found.problems
        if p["where"].startswith(version_folder(maker.dataset_id, maker.version_id) + "/")
    ]
    if maker.kind == "withdraw" and wrong:
        raise Denied(
            f"{wrong[0]['where']}: {wrong[0]['what']}.",
            expected="a withdrawal that takes away only",
            remedy="`kfm verify` lists it.",
        )


def _given(raw: bytes) -> Callable[[], bytes]:
    return lambda: raw


def _about_channel(
    witness: Mapping[str, bytes] | None, dataset_id: str, generation: int
) -> dict[str, bytes]:
    """Of what a witness signed, what is about this channel, up to this generation."""
    return {
        name: raw
        for name, raw in (witness or {}).items()
        if name <= f"{dataset_id}/{generation:08}.json" and name.startswith(f"{dataset_id}/")
    }


def _of(zone: Zone, path: str) -> Callable[[], bytes]:
    return lambda: zone.read(path)


def _maker(
    chain: Sequence[GenerationPredicate | None], version_id: str
) -> GenerationPredicate | None:
    """The generation this version came with: the last that promoted it, else the first that names
    it.

    No run makes what a withdrawal leaves, so its generation names no receipt: that one, signed, and
    the attestation of the version prove it.
    """
    named = [
        g
        for g in chain
        if g is not None and g.version_id == version_id and g.kind in ("promote", "withdraw")
    ]
    return next((g for g in reversed(named) if g.kind == "promote"), named[0] if named else None)


def _approvals_of(world: World, promoted: GenerationPredicate) -> str:
    path = approvals_path(promoted.dataset_id, promoted.run_id)
    if not world.data.exists(path):
        raise Denied(
            f"The record of the approvals of generation {promoted.generation} is missing.",
            expected=path,
            remedy=(
                "`kfm resume` brings what the last run left; else restore it from a backup or a"
                " mirror."
            ),
        )
    return path


def _receipt(world: World, promoted: GenerationPredicate) -> str:
    found = find_receipt(world.root, promoted.run_id)
    if found is None:
        what, remedy = (
            f"The receipt of run {promoted.run_id} is missing.",
            "Restore it from a backup or a mirror.",
        )
        raise Denied(what, expected=f"{promoted.run_id}.json below receipts/", remedy=remedy)
    return found


# ---- verifying -----------------------------------------------------------------------------------
@dataclass
class BundleReport(Verified):
    """What a bundle says about itself, and what is wrong with it."""

    about: About | None = None
    root: str = ""
    expired: bool = False
    trust: Trust | None = None
    digests: dict[int, str] = field(default_factory=dict)  # of the generations inside
    signer: str = ""  # the key of the newest of them
    # how its data were obtained; nothing for live ones
    origin: list[str] = field(default_factory=list)

    def failed(self, where: str, error: KfmError) -> None:
        self.wrong(where, error.happened, 3 if error.exit_code == 3 else 6)


def verify_bundle(
    data: bytes | mmap.mmap, now: dt.datetime, witness: Mapping[str, bytes] | None = None
) -> BundleReport:
    """Check every byte of a bundle (`data` is any buffer): structure, root, channel, version,
    attestation, receipt, lineage, witnesses.
    """
    report = BundleReport()
    members = _unpack(memoryview(data), report.wrong)
    report.files = len(members)
    trust = _root(members, report, now)
    about = _about(members, report)
    if trust is None or about is None:
        return report
    chain = _channel(members, about, trust, report)
    maker = _maker([g for n, g in chain.items() if n <= about.generation], about.version_id)
    current = chain.get(about.generation)
    if current is None or maker is None or current.version_id != about.version_id:
        report.wrong(
            "channel", f"generation {about.generation} does not make {about.version_id} official"
        )
        return report
    earlier = [g for n, g in chain.items() if n < maker.generation and g.kind == "promote"]
    named = _receipt_and_prov(members, maker, earlier[-1] if earlier else None, report)
    _approvals(
        members, {n: g for n, g in chain.items() if n <= about.generation}, maker, trust, report
    )
    _version(members, current, trust, named, report)
    report.digests = {n: _digest(members[f"channel/{n:08}.json"]) for n in chain}
    inside = {
        name.removeprefix("witness/"): bytes(raw)
        for name, raw in members.items()
        if name.startswith("witness/")
    }
    for files in (inside, _about_channel(witness, about.dataset_id, about.generation)):
        check_witnesses(
            files,
            trust,
            lambda dataset_id, n: report.digests.get(n) if dataset_id == about.dataset_id else None,
            lambda w, *what: report.wrong(f"witness/{w}", *what),
        )
    return report


def _about(members: Mapping[str, memoryview], report: BundleReport) -> About | None:
    try:
        report.about = msgspec.json.decode(members["bundle.json"], type=About)
    except (KeyError, msgspec.DecodeError, UnicodeDecodeError) as error:
        report.wrong(
            "bundle.json",
            (
                "it is missing"
                if isinstance(error, KeyError)
                else "it is not readable, or needs a newer kfm"
            ),
        )
        return None
    if report.root and report.about.root != report.root:
        report.wrong("bundle.json", "it names another root than the one inside")
    return report.about


def _root(
    members: Mapping[str, memoryview], report: BundleReport, now: dt.datetime
) -> Trust | None:
    files = {
        int(name[5:9]): bytes(raw)
        for name, raw in members.items()
        if re.fullmatch(r"root/\d{4}\.json", name)
    }
    try:
        trust = load_root(files)
    except KfmError as error:
        report.failed(error.path if isinstance(error, BadRoot | UnfitRoot) else "root", error)
        return None
    report.root, report.expired, report.trust = trust.fingerprint, trust.expired(now), trust
    return trust


def _channel(
    members: Mapping[str, memoryview], about: About, trust: Trust, report: BundleReport
) -> dict[int, GenerationPredicate]:
    """Every generation from the first to the one the bundle is about, or to a pinned head: signed,
    numbered, each continuing the one before.
    """
    names, prev = [n for n in members if n.startswith("channel/")], None
    found: dict[int, GenerationPredicate] = {}
    before: RootAt | None = None
    pasts: dict[str, set[str]] = {}

    def past(head: Head) -> set[str]:
        if head.digest not in pasts:
            pasts[head.digest] = led_to(
                head,
                lambda n: (
                    bytes(members[name]) if (name := f"channel/{n:08}.json") in members else None
                ),
            )
        return pasts[head.digest]

    for number, name in enumerate(names, 1):
        raw = bytes(members[name])
        try:
            document, key = trust.verified_by(raw, past=past)
            predicate = msgspec.convert(document["predicate"], GenerationPredicate)
        except KfmError as error:
            report.failed(name, error)
            break
        except msgspec.ValidationError:
            report.wrong(name, "it is not a generation")
            break
        if (predicate.generation, predicate.dataset_id, predicate.prev, name) != (
            number,
            about.dataset_id,
            prev,
            f"channel/{number:08}.json",
        ):
            report.wrong(name, "it does not continue the generation before it")
            break
        why = out_of_step(trust, predicate.root, before)
        # what comes later only leads to a pinned head, and brings no records
        if why is None and number <= about.generation:
            why = _lift_problem(members, found, predicate, trust) or order_problem(found, predicate)
        if why is not None:
            report.wrong(name, why)
            break
        prev, before, found[number], report.signer = (
            ids.digest(raw),
            predicate.root,
            predicate,
            key.keyid,
        )
    wanted = max([about.generation, *trust.pinned(about.dataset_id)])
    if len(names) != wanted:
        report.wrong("channel", f"it has {len(names)} generations of {wanted}")
    early = sum(p.root is None for p in found.values())
    if early:
        report.notes.append(f"{early} generations were made before root versions were recorded")
    return found


def _lift_problem(
    members: Mapping[str, memoryview],
    chain: Mapping[int, GenerationPredicate],
    made: GenerationPredicate,
    trust: Trust,
) -> str | None:
    def record(promoted: GenerationPredicate) -> bytes | None:
        name = f"approvals/{promoted.generation:08}.json"
        return bytes(members[name]) if name in members else None

    if made.lifts is None:
        return None
    earlier = [chain[n] for n in sorted(chain, reverse=True)]
    return lift_problem(
        trust,
        made,
        lambda n: bytes(members[f"channel/{n:08}.json"]),
        lambda: last_terms(earlier, record),
    )


def _approvals(
    members: Mapping[str, memoryview],
    chain: Mapping[int, GenerationPredicate],
    maker: GenerationPredicate,
    trust: Trust,
    report: BundleReport,
) -> None:
    """Enough people agreed to each promoted generation; without the records of the earlier ones a
    loosened entry could not be told.
    """

    def wrong(number: int, what: str, code: int) -> None:
        report.wrong(f"approvals/{number:08}.json", what, code)

    records = {
        int(name[10:18]): bytes(raw)
        for name, raw in members.items()
        if re.fullmatch(r"approvals/\d{8}\.json", name)
    }
    for number in sorted(records):
        if number not in chain or not chain[number].approvals_digest:
            wrong(number, "no generation names it", 6)
    builders = {n: named_signers(bytes(members[f"channel/{n:08}.json"])) for n in chain}
    attestation = members.get("version/attestation.json")
    with suppress(KfmError):  # said where it is looked at
        builders[maker.generation] |= (
            named_signers(bytes(attestation)) if attestation is not None else frozenset()
        )
    note_unrecorded(report, maker.dataset_id, unrecorded(chain, maker.dataset_id, trust, wrong))
    check_recorded(chain, records, builders, trust, wrong)
    if maker.kind == "withdraw":
        note_uncompared(
            report, maker.dataset_id, maker.generation, "the version before it is not in the bundle"
        )
    if maker.generation in unapproved(chain, records):
        # what lay in the version before it is not in here
        note_unapproved(report, maker.dataset_id, maker.generation)


def _receipt_and_prov(
    members: Mapping[str, memoryview],
    maker: GenerationPredicate,
    before: GenerationPredicate | None,
    report: BundleReport,
) -> dict[str, str]:
    """The receipt is the one the generation names, the lineage the one the receipt names. Returns
    what it vouches for: name -> digest.
    """
    if maker.kind == "withdraw":  # nothing signed speaks of either
        for name in {"receipt.json", "prov.json"} & set(members):
            report.wrong(name, "it does not belong to a version that a withdrawal left")
        return {}
    if "receipt.json" not in members or _digest(members["receipt.json"]) != maker.receipts_digest:
        report.wrong(
            "receipt.json", "it is missing, or not the receipt the generation was signed with"
        )
        return {}
    prov = _digest(members["prov.json"]) if "prov.json" in members else None
    receipt = msgspec.json.decode(members["receipt.json"])
    for why in missing_proofs(receipt, maker, before):
        report.wrong("receipt.json", why, 3)
    named: dict[str, str] = receipt["provenance"]["files"]
    if named.get("approvals.json", "") != maker.approvals_digest:
        report.wrong("receipt.json", "it names other approvals than the generation")
    if named.get("prov.json") != prov:
        report.wrong(
            "prov.json",
            "it is missing" if prov is None else "it is not the lineage that the receipt sealed",
        )
    return named


def _version(
    members: Mapping[str, memoryview],
    current: GenerationPredicate,
    trust: Trust,
    named: Mapping[str, str],
    report: BundleReport,
) -> None:
    """Files against checksums.sha256, both against the attestation, all against the digest the
    generation signed.
    """
    files = {
        name.removeprefix("version/"): _digest(raw)
        for name, raw in members.items()
        if name.startswith("version/")
    }
    try:
        listed = parse_checksums(bytes(members["version/checksums.sha256"]))
    except (KeyError, UnicodeDecodeError):
        report.wrong("version/checksums.sha256", "it is missing or not readable")
        return
    for path in sorted({*listed, *files} - {"checksums.sha256"}):
        if listed.get(path) != files.get(path):
            why = (
                "listed, but missing"
                if path not in files
                else (
                    "present, but not listed"
                    if path not in listed
                    else "its bytes do not match its digest"
                )
            )
            report.wrong(f"version/{path}", why)
    artifacts = {path: digest for path, digest in listed.items() if not is_record(path)}
    attestation = members.get("version/attestation.json")
    if attestation is None:
        report.wrong("version/attestation.json", "it is missing", 3)
        return
    if named.get(ATTESTATION, _digest(attestation)) != _digest(attestation):
        report.wrong(
            "version/attestation.json", "it is not the attestation that the receipt sealed"
        )
        return
    try:
        expected = {path: digest for path, digest in listed.items() if path != ATTESTATION}
        document = check_attestation(bytes(attestation), trust, expected, {named.get(ATTESTATION)})
        asked = document["predicate"]["buildDefinition"]["externalParameters"]
        full = ids.version_digest(
            artifacts, str(asked["transform_hash"]), str(asked["updater_version"])
        )
        report.origin = _origin(document, members.get("version/version.json"))
    except KfmError as error:
        report.failed("version/attestation.json", error)
        return
    except (KeyError, TypeError, AttributeError):
        report.wrong("version/attestation.json", "it does not say how the version was made")
        return
    if full != current.version_digest or ids.version_id(full) != current.version_id:
        report.wrong("version", "its contents are not those the generation was signed for")


def _origin(attestation: Json, facts: memoryview | None) -> list[str]:
    """How the data were obtained, by what the version says and what was signed about its inputs: a
    version keeps what it goes on with.
    """
    inputs = attestation["predicate"]["buildDefinition"].get("resolvedDependencies", ())
    return origins_of(
        (d.get("annotations", {}) for d in inputs),
        canonical.loads(bytes(facts)).get("origin", ()) if facts is not None else (),
    )
