"""What a dataset keeps to work with: rules of withdrawals, sealed records, journals, parts."""

import msgspec

from kfm.evidence.folder_check import Verified, kind_of
from kfm.evidence.journal import check_chain
from kfm.model import Denied, Json, KfmError, WalRecord
from kfm.model.paths import parts_folder, precise_path, withdrawals_folder, work_folder
from kfm.release.by_rule import suppress_rules
from kfm.upkeep.named_files import decoded
from kfm.world.world import World

__all__ = ["verify_work"]


def verify_work(world: World, dataset_id: str, found: Verified) -> None:
    """Archived journals by their hash chains, parts by their names, raw indexes by what they list,
    rules by what was signed.
    """

    head = world.store.read(lambda tx: tx.index.last_generation(dataset_id))
    try:
        suppress_rules(world, dataset_id, head.suppressed if head is not None else {})
    except Denied as error:
        found.wrong(f"keys/data/{dataset_id}", error.happened, 3, "missing")
    except KfmError as error:
        found.wrong(withdrawals_folder(dataset_id), error.happened)
    precise = precise_path(dataset_id, head.version_id if head is not None else None)
    records: Json = {}
    if (
        world.data.exists(world.lies(precise))
        and world.vaults is not None
        and not world.vaults.has_key(dataset_id)
    ):
        found.wrong(
            f"keys/data/{dataset_id}", "the key of the sealed records is missing", 3, "missing"
        )
    elif world.data.exists(world.lies(precise)):
        try:
            records = decoded(world.kept(precise)) or {}
        except KfmError as error:
            found.wrong(world.lies(precise), error.happened, kind=kind_of(error))
    for stored in records.values():
        if not world.data.exists(stored["from"]):
            found.wrong(
                stored["from"],
                "the sealed records the official version was released from are missing",
                3,
                "missing",
            )
    for path in world.data.names(work_folder(dataset_id)):
        if path.endswith("/wal.jsonl"):
            found.files += 1
            try:
                check_chain(
                    [
                        msgspec.json.decode(line, type=WalRecord)
                        for line in world.data.read(path).splitlines()
                    ]
                )
            except (KfmError, msgspec.DecodeError, msgspec.ValidationError):
                found.wrong(path, "the archived journal is damaged")
        elif path.startswith(parts_folder(dataset_id) + "/"):
            found.files += 1
            stored = world.data.stat(path)
            if stored is None or not stored.digest.startswith(f"sha256:{path.split('/')[3]}"):
                found.wrong(path, "its bytes are not those it is named after")
