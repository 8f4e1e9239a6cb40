"""intended_acts: what a person is about to do to a channel, durable before ★; what is owed once it is there
is done by whoever comes next.
"""

from contextlib import suppress

import msgspec
from msgspec.structs import replace

from kfm.evidence.append_times import keep_moment
from kfm.evidence.run_end import follow_up
from kfm.model import Fenced, GenerationPredicate, canonical, ids
from kfm.model.paths import acts_folder, aside_path
from kfm.store.base import Tx
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = [
    "Act",
    "after",
    "check_erased",
    "drop",
    "erasing",
    "meant",
    "owed",
    "pinned",
    "set_aside",
    "settle",
    "torn",
]


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """`work/<id>/acts/<generation>-<sum>.json`: the generation a person means to append. The sum is
    that of the predicate: twice is once.
    """

    at: str
    predicate: GenerationPredicate
    # an erasure: files that people brought and it destroys, too; when each was written
    inbox: dict[str, int] | msgspec.UnsetType = msgspec.UNSET

    @property
    def erases(self) -> bool:
        return any(rule.get("erased") for rule in self.predicate.suppress)

    @property
    def path(self) -> str:
        told = canonical.dumps(msgspec.to_builtins(self.predicate))
        return f"{acts_folder(self.predicate.dataset_id)}/{self.predicate.generation:08}-{ids.digest(told)[7:23]}.json"


def drop(world: World, act: Act) -> None:
    """Nothing is owed for it any more: it is done, or another took its number."""
    world.data.remove(act.path)


def meant(zone: Zone, dataset_id: str) -> list[Act]:
    """Every act that was intended and is not over. One that cannot be read keeps no other from
    being finished: see `torn`.
    """
    return [act for act in _read(zone, dataset_id).values() if act is not None]


def _read(zone: Zone, dataset_id: str) -> dict[str, Act | None]:
    """path -> the act; None: it is damaged."""
    found: dict[str, Act | None] = {}
    for path in zone.names(acts_folder(dataset_id)):
        with suppress(FileNotFoundError):  # over, by now
            raw = zone.read(path)
            try:
                found[path] = msgspec.json.decode(raw, type=Act)
            except (msgspec.DecodeError, UnicodeDecodeError):
                found[path] = None
    return found


def torn(zone: Zone, dataset_id: str) -> list[str]:
    """Acts that cannot be read."""
    return [path for path, act in _read(zone, dataset_id).items() if act is None]


def set_aside(world: World, dataset_id: str) -> list[str]:
    """Move acts that cannot be read to ledger/quarantine; which they were. An erasure among them is
    told by the channel.
    """
    found = torn(world.data, dataset_id)
    for path in found:
        raw = world.data.read(path)
        world.root.create(
            aside_path(f"act-{dataset_id}-{ids.digest(raw)[7:23]}-{path.rpartition('/')[2]}"), raw
        )
        world.data.remove(path)
    return found


def pinned(zone: Zone, dataset_id: str, head: int) -> set[str]:
    """Versions that somebody is about to make official."""
    acts = (act.predicate for act in meant(zone, dataset_id))
    return {
        told.version_id for told in acts if told.version_id is not None and told.generation > head
    }


def owed(world: World, dataset_id: str) -> list[Act]:
    """The acts whose generation is there. One whose number another took is dropped; one whose
    number is free may still happen.
    """
    found = []
    for act in meant(world.data, dataset_id):
        made = world.channel(dataset_id).predicate(act.predicate.generation)
        # the root it was made under is named as it is appended
        if made is not None and replace(made, root=None) == act.predicate:
            found.append(act)
        elif made is not None:
            drop(world, act)
    return found


def settle(world: World, dataset_id: str) -> list[str]:
    """What an act leaves to do after ★: the moment it happened, and the jobs that follow from
    another version. Repeatable.

    What an erasure owes is done by `finish_erasure`.
    """
    done = []
    for act in (a for a in owed(world, dataset_id) if not a.erases):
        world.store.transaction(lambda tx: after(tx, world, act))
        drop(world, act)
        done.append(f"{act.predicate.kind} {act.predicate.generation}")
    return done


def erasing(world: World, dataset_id: str) -> list[Act]:
    """Erasures that are owed: their generation is there, their bytes may be."""
    return (
        [act for act in owed(world, dataset_id) if act.erases]
        if meant(world.data, dataset_id)
        else []
    )


def check_erased(world: World, dataset_id: str) -> None:
    """Nothing else begins while an erasure is owed: it destroys what it finds, and that must not be
    something new.
    """
    if found := erasing(world, dataset_id):
        raise Fenced(
            f"The erasure by generation {found[0].predicate.generation} of {dataset_id} is not"
            " finished.",
            expected="nothing left of what was withdrawn",
            remedy="`kfm resume` finishes it.",
        )


def after(tx: Tx, world: World, act: Act) -> None:
    """The part of an act that the store remembers."""
    made = act.predicate
    world.channel(made.dataset_id).head(tx)
    keep_moment(tx, made.dataset_id, made.generation, act.at)
    if made.version_id is not None:
        follow_up(tx, world, made.dataset_id, None)
