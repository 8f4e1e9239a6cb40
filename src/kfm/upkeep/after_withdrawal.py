"""What withdrawals left: nothing that did not lie in the version before."""

from kfm.acts.withdrawal_check import Compared, taken_away
from kfm.evidence.captures import parse_checksums
from kfm.evidence.folder_check import Verified, note_unapproved, note_uncompared
from kfm.model import GenerationPredicate, is_record
from kfm.model.paths import version_path
from kfm.zones.base import Zone

__all__ = ["verify_left"]


def verify_left(
    zone: Zone,
    dataset_id: str,
    chain: dict[int, GenerationPredicate],
    alone: list[int],
    found: Verified,
) -> None:
    """What a withdrawal left lay in the version before it; `alone` are those whose new tables
    somebody should have approved.
    """
    for number, made in chain.items():
        if made.kind != "withdraw" or made.version_id is None:
            continue
        before = _tables(zone, dataset_id, chain[number - 1].version_id if number > 1 else None)
        left = _tables(zone, dataset_id, made.version_id)
        # None: one is gone, nobody can compare
        new = left.items() - before.items() if before is not None and left is not None else None
        for path in sorted(p for p, _ in new or () if before is not None and p not in before):
            where = version_path(dataset_id, made.version_id, path)
            found.wrong(
                where,
                f"generation {number} is a withdrawal, and the version before it has no such file",
                3,
            )
        earlier = chain[number - 1].version_id if number > 1 else None
        for path in sorted(
            p for p, _ in new or () if before is not None and p in before and earlier is not None
        ):
            told = (
                taken_away(zone, dataset_id, str(earlier), made.version_id, path)
                if path.endswith(".parquet")
                else Compared("it was changed")
            )
            if told.wrong:
                where = version_path(dataset_id, made.version_id, path)
                found.wrong(
                    where,
                    f"generation {number} is a withdrawal, and takes away only: {told.wrong}",
                    3,
                )
            elif told.not_compared:
                note_uncompared(found, dataset_id, number, told.not_compared)
        if new is None:
            note_uncompared(found, dataset_id, number, "the version before it is not here")
        if number in alone and (new is None or new):
            note_unapproved(found, dataset_id, number)


def _tables(zone: Zone, dataset_id: str, version_id: str | None) -> dict[str, str] | None:
    """The data of a version, path -> digest; None when it is not here or cannot be read, which is
    said elsewhere.
    """
    listing = version_path(dataset_id, version_id, "checksums.sha256")
    if version_id is None:
        return {}
    try:
        return (
            {p: d for p, d in parse_checksums(zone.read(listing)).items() if not is_record(p)}
            if zone.exists(listing)
            else None
        )
    except (UnicodeDecodeError, ValueError):
        return None
