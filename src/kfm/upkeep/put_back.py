"""put_back: missing files of what was made official, from bytes that lie elsewhere in the workspace:
the table among the parts of its run, its records with its proposal. Nothing counts that the signed
generation, its receipt and its attestation do not name, and nothing of what was erased, withdrawn or
removed comes back.
"""

from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from kfm.access.references import withdrawn
from kfm.channel.generations import version_kept_out
from kfm.evidence.captures import checksums, parse_checksums
from kfm.evidence.intended_acts import erasing
from kfm.evidence.receipts import find_receipt
from kfm.evidence.removed import removed_versions
from kfm.evidence.version_records import facts_in
from kfm.judge.intact import check_vouched
from kfm.keys.trust import unwrap
from kfm.model import ATTESTATION, Generation, GenerationPredicate, KfmError, ids, is_record
from kfm.model.paths import proposal_path, version_path
from kfm.release.by_rule import candidate_of, open_table
from kfm.upkeep.retention import alone
from kfm.world.world import World
from kfm.zones.base import hash_file

__all__ = ["put_back", "spare_files"]

_LISTING, _FACTS = "checksums.sha256", "version.json"
# evidence that is missing, too, or says something else
_UNTOLD = (KfmError, OSError, ValueError, KeyError, TypeError, msgspec.MsgspecError)


def put_back(world: World, dataset_id: str) -> list[str]:
    """Put back what can be; nobody erases or removes anything of the dataset meanwhile. Raises
    `Fenced` where somebody is at it, and what the zone raises.
    """
    with alone(world, dataset_id):
        files = spare_files(world, dataset_id)
        # the list of all comes last: without it the folder is none
        last = {path: each for path, each in files.items() if path.endswith(f"/{_LISTING}")}
        world.data.create_all({path: each for path, each in files.items() if path not in last})
        world.data.create_all(last)
    return list(files)


def spare_files(world: World, dataset_id: str) -> dict[str, bytes | Path]:
    """Each missing file of a version that was made official, and that is held elsewhere here, by
    where it belongs.
    """
    found: dict[str, bytes | Path] = {}
    if erasing(world, dataset_id):
        return found
    channel = world.channel(dataset_id)
    head: Generation = world.store.transaction(lambda tx: channel.head(tx))
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    out = {str(row.version_id) for row in rows if withdrawn(head, row) is not None}
    out |= removed_versions(world.data, dataset_id)
    for number in range(head.generation, 0, -1):
        signed = channel.predicate(number)  # behind one that cannot be read nothing is known
        if signed is None or any(rule.get("erased") for rule in signed.suppress):
            break
        version_id = str(signed.version_id)
        own = signed.kind == "promote" and version_id not in out
        if own and version_kept_out(head, version_id) is None:
            with suppress(*_UNTOLD):  # then a backup is needed
                found |= _Spare(world, signed, version_id).files()
    return found


class _Spare:
    """What lies elsewhere of one version."""

    def __init__(self, world: World, signed: GenerationPredicate, version_id: str) -> None:
        self._world, self._signed = world, signed
        self._at = partial(version_path, signed.dataset_id, version_id)

    def files(self) -> dict[str, bytes | Path]:
        """Raises one of `_UNTOLD`."""
        if self._is_whole():
            return {}
        raw = self._record(ATTESTATION, self._sealed_attestation())
        subjects = unwrap(raw)["subject"]
        listed = {each["name"]: f"sha256:{each['digest']['sha256']}" for each in subjects}
        facts = facts_in(self._record(_FACTS, listed[_FACTS]), _FACTS)
        data = {name: digest for name, digest in listed.items() if not is_record(name)}
        full = ids.version_digest(data, facts.transform_hash, facts.updater_version)
        if full != self._signed.version_digest:
            return {}
        check_vouched(self._world, self._signed.dataset_id, self._signed.version_id, raw, listed)
        whole = {**listed, ATTESTATION: ids.digest(raw)}
        found: dict[str, bytes | Path] = {}
        missing = [name for name in whole if not self._world.data.exists(self._at(name))]
        for name in missing:
            with suppress(*_UNTOLD):  # the others may be there
                found[self._at(name)] = self._spare(name, whole[name])
        if len(found) == len(missing) and not self._world.data.exists(self._at(_LISTING)):
            found[self._at(_LISTING)] = checksums(whole)
        return found

    def _is_whole(self) -> bool:
        """Whether no file that the folder lists is missing; nobody looks at the bytes."""
        if not self._world.data.exists(self._at(_LISTING)):
            return False
        listed = parse_checksums(self._world.data.read(self._at(_LISTING)))
        return all(self._world.data.exists(self._at(name)) for name in listed)

    def _sealed_attestation(self) -> str:
        """The digest of the one attestation that the receipt of the generation names."""
        path = find_receipt(self._world.root, self._signed.run_id)
        raw = self._world.root.read(str(path))
        if ids.digest(raw) != self._signed.receipts_digest:
            raise ValueError("another receipt")
        return str(msgspec.json.decode(raw)["provenance"]["files"][ATTESTATION])

    def _record(self, name: str, digest: str) -> bytes:
        """A record as it lies in the folder, or as it was proposed."""
        if self._world.data.holds(self._at(name), digest):
            return self._world.data.read(self._at(name))
        return self._proposed(name, digest)

    def _proposed(self, name: str, digest: str) -> bytes:
        raw = self._world.kept(proposal_path(self._signed.dataset_id, self._signed.run_id, name))
        if ids.digest(raw) != digest:
            raise FileNotFoundError(name)
        return raw

    def _spare(self, name: str, digest: str) -> bytes | Path:
        if is_record(name):
            return self._proposed(name, digest)
        world, dataset_id = self._world, self._signed.dataset_id
        candidate = candidate_of(world, dataset_id, self._signed.run_id)
        artifact = candidate.artifacts[name] if candidate is not None else {}
        if artifact.get("digest") != digest:
            raise FileNotFoundError(name)
        # kept as long as this world is open: what is sealed at rest is opened into it
        scratch = world.opened.enter_context(world.data.scratch())
        path = open_table(world, dataset_id, artifact, scratch)
        if hash_file(path).digest != digest:
            raise FileNotFoundError(name)
        return path
