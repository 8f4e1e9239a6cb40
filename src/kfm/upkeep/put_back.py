"""put_back: missing files of what was made official, from bytes that lie elsewhere in the workspace: the
table among the parts of its run, its records with its proposal. Nothing counts that the signed
generation and its attestation do not name.
"""

import base64
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from kfm.evidence.captures import checksums, parse_checksums
from kfm.evidence.intended_acts import erasing
from kfm.evidence.removed import removed_versions
from kfm.evidence.version_records import facts_in
from kfm.judge.intact import check_vouched
from kfm.model import (
    ATTESTATION,
    Candidate,
    Generation,
    GenerationPredicate,
    KfmError,
    LedgerRow,
    ids,
    is_record,
)
from kfm.model.paths import proposal_path, receipt_path, run_path, version_path
from kfm.release.by_rule import candidate_of
from kfm.world.world import World

__all__ = ["put_back", "spare_files"]

_LISTING, _FACTS = "checksums.sha256", "version.json"
# evidence that is missing, too, or says something else
_UNTOLD = (KfmError, OSError, ValueError, KeyError, TypeError)


def spare_files(world: World, dataset_id: str) -> dict[str, bytes | Path]:
    """Each missing file of versions that were official, and of which nothing was taken away since,
    that is held elsewhere here, by where it belongs.
    """
    found: dict[str, bytes | Path] = {}
    if erasing(world, dataset_id):
        return found
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    gone, channel = removed_versions(world.data, dataset_id), world.channel(dataset_id)
    for made in reversed(rows):
        with suppress(*_UNTOLD):  # then a backup is needed
            signed = channel.predicate(made.generation)
            if signed is None or any(rule.get("erased") for rule in signed.suppress):
                break
            own = made.kind == "promote" and made.version_id not in gone
            if own and not _is_whole(world, made):
                row = _run(world, made.run_id)
                if row is not None:
                    found |= _Spare(world, made, row, signed).files()
    return found


def _is_whole(world: World, made: Generation) -> bool:
    """Whether no file that the folder lists is missing; nobody looks at the bytes."""
    where = partial(version_path, made.dataset_id, made.version_id)
    if not world.data.exists(where(_LISTING)):
        return False
    listed = parse_checksums(world.data.read(where(_LISTING)))
    return all(world.data.exists(where(name)) for name in listed)


def _run(world: World, run_id: str) -> LedgerRow | None:
    row: LedgerRow | None = world.store.read(lambda tx: tx.runs.get(run_id))
    return row


def put_back(world: World, files: dict[str, bytes | Path]) -> None:
    """The list of all comes last: without it the folder is none."""
    last = {path: each for path, each in files.items() if path.endswith(f"/{_LISTING}")}
    world.data.create_all({path: each for path, each in files.items() if path not in last})
    world.data.create_all(last)


class _Spare:
    """What lies elsewhere of one version."""

    def __init__(
        self, world: World, head: Generation, row: LedgerRow, signed: GenerationPredicate
    ) -> None:
        self._world, self._head, self._row, self._signed = world, head, row, signed
        self._candidate: Candidate | None = candidate_of(world, head.dataset_id, row.run_id)

    def files(self) -> dict[str, bytes | Path]:
        """Raises one of `_UNTOLD`."""
        raw = self._record(ATTESTATION, self._sealed_attestation())
        listed = _named_in(raw)
        facts = facts_in(self._record(_FACTS, listed[_FACTS]), _FACTS)
        data = {name: digest for name, digest in listed.items() if not is_record(name)}
        full = ids.version_digest(data, facts.transform_hash, facts.updater_version)
        if full != self._signed.version_digest:
            return {}
        check_vouched(self._world, self._head.dataset_id, self._head.version_id, raw, listed)
        whole = {**listed, ATTESTATION: ids.digest(raw)}
        found: dict[str, bytes | Path] = {}
        for name, digest in whole.items():
            if not self._world.data.exists(self._at(name)):
                with suppress(KfmError, OSError):  # the others may be there
                    found[self._at(name)] = self._spare(name, digest)
        if not self._world.data.exists(self._at(_LISTING)):
            found[self._at(_LISTING)] = checksums(whole)
        return found

    def _at(self, name: str) -> str:
        return version_path(self._head.dataset_id, self._head.version_id, name)

    def _sealed_attestation(self) -> str:
        """The digest of the one attestation that the receipt of the generation names."""
        record = run_path(self._row.dataset_id, self._row.run_id, "run_record.json")
        started = msgspec.json.decode(self._world.data.read(record))["started_at"]
        raw = self._world.root.read(receipt_path(self._row.run_id, started))
        if ids.digest(raw) != self._signed.receipts_digest:
            raise ValueError("another receipt")
        return str(msgspec.json.decode(raw)["provenance"]["files"][ATTESTATION])

    def _record(self, name: str, digest: str) -> bytes:
        """A record as it lies in the folder, or as it was proposed."""
        if self._world.data.holds(self._at(name), digest):
            return self._world.data.read(self._at(name))
        return self._proposed(name, digest)

    def _proposed(self, name: str, digest: str) -> bytes:
        raw = self._world.kept(proposal_path(self._row.dataset_id, self._row.run_id, name))
        if ids.digest(raw) != digest:
            raise FileNotFoundError(name)
        return raw

    def _spare(self, name: str, digest: str) -> bytes | Path:
        if is_record(name):
            return self._proposed(name, digest)
        artifact = self._candidate.artifacts[name] if self._candidate is not None else {}
        at = artifact.get("from", "")
        if "at_rest" in artifact or not at or not self._world.data.holds(at, digest):
            raise FileNotFoundError(name)
        return self._world.data.local(at)


def _named_in(raw: bytes) -> dict[str, str]:
    """The files that an attestation names, each with its digest."""
    envelope = msgspec.json.decode(raw, type=dict[str, object])
    statement = msgspec.json.decode(base64.b64decode(str(envelope["payload"]), validate=True))
    return {each["name"]: f"sha256:{each['digest']['sha256']}" for each in statement["subject"]}
