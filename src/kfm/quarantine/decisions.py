"""decisions: what people decided about what was set aside; never changed, only followed by
another.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

import msgspec

from kfm.keys.commitments import SEALED
from kfm.model import Denied, IntegrityError, LedgerRow, rfc3339
from kfm.model.paths import quarantine_folder, quarantine_path
from kfm.quarantine.refused import Row
from kfm.world.target import Target
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = ["Decision", "corrections", "decide", "decisions", "is_hidden", "is_lifted"]


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """`work/<id>/quarantine/<run_id>/decisions/<number>.json`: what a person decided; never
    changed, only followed by another.
    """

    number: int
    dataset_id: str
    run_id: str
    verdict: Literal["fix", "accept"]
    by: str
    at: str
    reason: str
    # accept: the capture is taken although too many of its records are unusable
    capture: bool = False
    rows: tuple[int, ...] = ()  # numbers in rows.jsonl
    # digests of those records as they came; of a private dataset none
    records: tuple[str, ...] = ()
    sets: dict[str, str | None] = {}  # fix: column -> the text that is right

    @property
    def told(self) -> str:
        """In a line: what was decided, by whom, why."""
        right = ", ".join(f"{c} = {'nothing' if v is None else v}" for c, v in self.sets.items())
        return f"{self.verdict} by {self.by}: {right}{right and '; '}{self.reason}"


def decisions(
    zone: Zone, dataset_id: str, read: Callable[[str], bytes] | None = None
) -> list[Decision]:
    """Every decision on a dataset, oldest first; `read` opens those that are sealed, and without it
    they are left out.
    """
    found: list[tuple[str, Decision]] = []
    at = run = ""
    for path in zone.names(quarantine_folder(dataset_id)):
        if "/decisions/" not in path or (path.endswith(SEALED) and read is None):
            continue
        try:
            raw = read(path.removesuffix(SEALED)) if read is not None else zone.read(path)
            decision = msgspec.json.decode(raw, type=Decision)
        except Denied:
            continue  # its key is missing, and with it everything it could be about
        except msgspec.MsgspecError as error:
            raise IntegrityError(
                f"{path} is damaged.",
                expected="a person's decision",
                remedy="Restore it from a backup.",
            ) from error
        # a clock that went back reorders nothing
        at = max(at, decision.at) if run == decision.run_id else decision.at
        run = decision.run_id
        found.append((at, decision))
    return [d for _, d in sorted(found, key=lambda f: (f[0], f[1].run_id, f[1].number))]


def corrections(zone: Zone, dataset_id: str) -> dict[str, dict[str, str | None]]:
    """What people corrected and nobody took back: digest of a record -> column -> text."""
    found: dict[str, dict[str, str | None]] = {}
    for decision in decisions(zone, dataset_id):
        for record in decision.records:
            if decision.verdict == "fix":
                found[record] = decision.sets
            else:
                found.pop(record, None)
    return found


def is_lifted(world: World, target: Target, input_hash: str) -> bool:
    """Whether a person took exactly this input in spite of the share of its unusable records, or of
    what it lost.
    """
    runs = {d.run_id for d in decisions(world.data, target.dataset_id, world.kept) if d.capture}
    rows = [world.store.read(lambda tx: tx.runs.get(run)) for run in sorted(runs)]
    return any(r is not None and r.input_hash == input_hash for r in rows)


def decide(
    world: World,
    row: LedgerRow,
    verdict: Literal["fix", "accept"],
    rows: Iterable[Row],
    *,
    by: str,
    reason: str,
    sets: Mapping[str, str | None] | None = None,
    capture: bool = False,
) -> tuple[Decision, bool]:
    """Write a decision down, and whether it is a new one: the same word on the same rows is not
    written twice.
    """
    chosen, private = list(rows), is_hidden(world, row.dataset_id)
    wanted = Decision(
        number=0,
        dataset_id=row.dataset_id,
        run_id=row.run_id,
        verdict=verdict,
        by=by,
        at=rfc3339(world.clock.now()),
        reason=reason,
        capture=capture,
        rows=tuple(r.n for r in chosen),
        records=() if private else tuple(dict.fromkeys(r.digest for r in chosen)),
        sets=dict(sets or {}),
    )
    while True:
        before = [
            d for d in decisions(world.data, row.dataset_id, world.kept) if d.run_id == row.run_id
        ]
        about = [d for d in before if (d.capture if capture else set(d.rows) & set(wanted.rows))]
        if about and _said(about[-1]) == _said(wanted):
            return about[-1], False
        number = 1 + max((d.number for d in before), default=0)
        made = msgspec.structs.replace(wanted, number=number)
        path = quarantine_path(row.dataset_id, row.run_id, f"decisions/{number:04}.json")
        if world.keep(path, msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n"):
            return made, True  # else another person was faster: theirs comes first


def _said(decision: Decision) -> tuple[object, ...]:
    return decision.verdict, decision.capture, decision.rows, decision.sets


def is_hidden(world: World, dataset_id: str) -> bool:
    """Whether nothing of its records may be shown; of a dataset nobody registered nothing is known,
    so nothing is shown.
    """
    return world.registry(dataset_id) is None or world.is_withheld(dataset_id)
