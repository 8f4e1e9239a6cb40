"""projection: what is shown, archived and announced after a generation exists; all of it
repeatable, none of it read to decide.
"""

from collections.abc import Sequence
from contextlib import suppress

from kfm.catalog.base import Described
from kfm.catalog.dcat import dcat
from kfm.catalog.stac import stac_collection, stac_item
from kfm.evidence.intended_acts import erasing, settle
from kfm.evidence.receipts import finish
from kfm.evidence.version_records import describe, previous_versions, read_facts, version_listing
from kfm.model import DatasetEntry, Denied, Generation, IntegrityError, LedgerRow, Source, canonical
from kfm.model.paths import (
    approvals_path,
    collection_path,
    dcat_path,
    derived_path,
    item_path,
    proposal_path,
    prov_path,
    stac_folder,
)
from kfm.store.base import Store
from kfm.world.publisher.base import Publisher
from kfm.world.run_log import RunLog
from kfm.world.world import World
from kfm.zones.base import Zone

__all__ = [
    "ABOUT_PROCESSED",
    "catalog_files",
    "deliver",
    "project",
    "shown_version",
    "stale_records",
    "tick",
]


ABOUT_PROCESSED = "processed/README.md"
_ABOUT = """# data/processed: every version that was ever official

One folder per dataset, one per version in it. **This is the archive, not what is published.** What is official now is what the last generation
in `data/catalog/channels/<dataset>/` names; a version that is not named there may have been rolled back, or withdrawn.

Withdrawn records lie on in the older versions here: a withdrawal stops handing them out, and every command refuses them (`kfm get`, `bundle`,
`diff`, `cite`, `search` and `rebuild` ask first). So do not serve, sync or share this folder as it is. Hand files out with `kfm get` or `kfm bundle`.

`kfm gc` removes what retention no longer keeps; `kfm withdraw … --erase` destroys the bytes for good.
"""


def project(world: World, dataset_id: str, log: RunLog | None = None) -> None:
    """Render what is shown from the head generation; never read to decide. DCAT comes last: its
    generation says that all is there.
    """
    head: Generation | None = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    if head is None or not head.generation:
        return
    publisher = world.publish(log) if log is not None else world.publisher
    if not world.data.exists(ABOUT_PROCESSED):
        world.data.create(ABOUT_PROCESSED, _ABOUT.encode())
    shown = shown_version(world, head)
    files = catalog_files(world, shown)
    _evidence(world, dataset_id, publisher)
    world.latest.show(world, dataset_id)
    for path in [
        p
        for p in world.data.names(stac_folder(dataset_id))
        if p not in files and p not in _items(world.data, shown)
    ]:
        world.data.remove(path)  # withdrawn, or no longer spatial
    for path, content in sorted(
        files.items(), key=lambda f: ("/dcat/" in f[0], "collection" in f[0], f[0])
    ):
        if not world.data.exists(path) or world.data.read(path) != content:
            publisher.update_metadata(path, content)


def _evidence(world: World, dataset_id: str, publisher: Publisher) -> None:
    """PROV and approvals of every run that made a generation; what a run proposed is shown only
    once it is official.
    """
    for row in world.store.read(lambda tx: tx.index.generations(dataset_id)):
        source = proposal_path(dataset_id, row.run_id, "prov.json")
        target = prov_path(dataset_id, row.run_id)
        if row.kind == "withdraw":
            source = derived_path(dataset_id, row.version_id)
            target = prov_path(dataset_id, f"withdrawal_{row.generation}")
        if (
            row.kind in ("promote", "withdraw")
            and not world.data.exists(target)
            and world.data.exists(world.lies(source))
        ):
            with suppress(Denied):  # sealed, and its key is gone: it is not shown
                publisher.update_metadata(target, world.kept(source))
        agreed, target = (
            proposal_path(dataset_id, row.run_id, "approvals.json"),
            approvals_path(dataset_id, row.run_id),
        )
        if row.kind == "promote" and not world.data.exists(target) and world.data.exists(agreed):
            publisher.update_metadata(target, world.data.read(agreed))


def shown_version(
    world: World,
    head: Generation,
    entry: DatasetEntry | None = None,
    known: Sequence[Generation] = (),
    told: frozenset[str] = frozenset(),
) -> Described:
    """The head as catalogs show it; a withdrawn dataset has no version and keeps its name.

    `entry` and `known`, the generations up to it, tell how an earlier one was shown; `told`:
    versions that were still there then.
    """
    dataset_id = head.dataset_id
    entry = (
        entry
        or world.registry(dataset_id)
        or DatasetEntry(dataset_id=dataset_id, title=dataset_id, source=Source(format="csv"))
    )
    previous = previous_versions(
        world.data, world.store, dataset_id, str(head.version_id), known, told
    )
    if head.version_id is None:
        return describe(entry, None, generation=head.generation, previous=previous)
    row = _maker(world.store, head)
    _, records = version_listing(world.data, dataset_id, head.version_id)
    return describe(
        entry,
        read_facts(world.data, dataset_id, head.version_id),
        generation=head.generation,
        previous=previous,
        modified=row.timestamp if row is not None else None,
        records=records,
    )


def _maker(store: Store, head: Generation) -> LedgerRow | None:
    """The run that made the head; None when its row is lost or damaged, which is said elsewhere."""
    try:
        found: LedgerRow | None = store.read(
            lambda tx: (
                tx.runs.get(head.run_id)
                if head.run_id
                else tx.runs.maker_of(head.dataset_id, head.version_id or "")
            )
        )
    except IntegrityError:
        return None
    return found


def _items(data: Zone, shown: Described, told: frozenset[str] = frozenset()) -> list[str]:
    """The STAC items of this and every earlier version that may be shown."""
    if shown.bbox is None or shown.version_id is None:
        return []
    earlier = ((v, item_path(shown.dataset_id, v)) for v in shown.previous)
    return [
        item_path(shown.dataset_id, shown.version_id),
        *(path for v, path in earlier if v in told or data.exists(path)),
    ]


def stale_records(world: World, head: Generation) -> list[str]:
    """Catalog records that are missing or are not what the head generation renders."""
    if not head.generation:
        return []
    found = [
        p
        for p, raw in catalog_files(world, shown_version(world, head)).items()
        if not world.data.exists(p) or world.data.read(p) != raw
    ]
    made = world.store.read(lambda tx: tx.index.generations(head.dataset_id))
    runs = [
        path(head.dataset_id, g.run_id)
        for g in made
        for name, path in (("prov.json", prov_path), ("approvals.json", approvals_path))
        if g.kind == "promote"
        and world.data.exists(world.lies(proposal_path(head.dataset_id, g.run_id, name)))
    ]
    runs += [
        prov_path(head.dataset_id, f"withdrawal_{g.generation}")
        for g in made
        if g.kind == "withdraw"
        and world.data.exists(world.lies(derived_path(head.dataset_id, g.version_id)))
    ]
    return found + [p for p in runs if not world.data.exists(p)]


def catalog_files(
    world: World, shown: Described, told: frozenset[str] = frozenset()
) -> dict[str, bytes]:
    """Path below data/ -> bytes of every record the head generation renders."""
    files = {dcat_path(shown.dataset_id): dcat(shown)}
    if shown.bbox is not None and shown.version_id is not None:
        versions = [path.rsplit("/", 2)[-2] for path in _items(world.data, shown, told)]
        files[collection_path(shown.dataset_id)] = stac_collection(shown, versions)
        files[item_path(shown.dataset_id, shown.version_id)] = stac_item(shown, versions)
    return files


def deliver(world: World, dataset_id: str, own: RunLog | None = None) -> int:
    """External effects of committed generations: at least once, with a key the receiver can use;
    `own`: the log of the run at work.
    """
    sent = 0
    for row in world.store.read(lambda tx: tx.outbox.waiting()):
        if row.dataset_id != dataset_id:
            continue
        found = world.channel(dataset_id).predicate(row.generation)
        if found is None:
            continue  # not committed yet
        if found.run_id == row.run_id:
            log = own if own is not None and own.run_id == row.run_id else world.log(dataset_id)
            if log is not own:
                log.bind(row.run_id)  # the trace of that run goes on, whoever delivers
            world.publish(log).publish_release(
                f"{dataset_id}/{row.generation:08}", canonical.loads(row.payload.encode())["assets"]
            )
            sent += 1
        state = "delivered" if found.run_id == row.run_id else "dropped"
        world.store.transaction(lambda tx: tx.outbox.mark(row.run_id, row.generation, state))
    return sent


def tick(world: World, dataset_id: str) -> list[str]:
    """Do what a crash after ★ may have left: projections, archives, deliveries. Repeatable."""
    done = settle(world, dataset_id)
    if erasing(world, dataset_id):
        # who finishes it renders what is left; until then nothing is made of what is to go
        return done
    head = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    if head.generation and stale_records(world, head):
        project(world, dataset_id)
        done.append("projection")
    if world.latest.show(world, dataset_id):
        done.append("latest")
    for row in world.store.read(lambda tx: tx.runs.unarchived(dataset_id)):
        finish(world, row.run_id)
        done.append(f"archive {row.run_id}")
    if deliver(world, dataset_id):
        done.append("outbox")
    return done
