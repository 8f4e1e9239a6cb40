"""projection: what is shown, archived and announced after a generation exists; all of it repeatable, none of it read to decide."""

from typing import Any

from kfm import canonical
from kfm.catalog.dcat import render_dcat
from kfm.channel import projected_generation
from kfm.model.ledger import Generation
from kfm.raw import parse_checksums
from kfm.receipts import finish
from kfm.world import World

__all__ = ["deliver", "project", "tick"]


def project(world: World, dataset_id: str, log: Any = None) -> None:
    """Render what is shown from the head generation; never read to decide."""
    head: Generation | None = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    if head is None or not head.generation:
        return
    entry = world.registry(dataset_id)
    folder = f"processed/{dataset_id}/{head.version_id}"
    listed = parse_checksums(world.data.read(f"{folder}/checksums.sha256")) if head.version_id else {}
    sizes = {path: world.data.local(f"{folder}/{path}").stat().st_size for path in listed}
    content = render_dcat(dataset_id, entry, head, listed, sizes)
    path = f"catalog/dcat/{dataset_id}.json"
    if not world.data.exists(path) or world.data.read(path) != content:
        publisher = world.publish(log) if log is not None else world.publisher
        publisher.update_metadata(path, content)


def deliver(world: World, dataset_id: str) -> int:
    """External effects of committed generations: at least once, with a key the receiver can use."""
    sent = 0
    for row in world.store.read(lambda tx: tx.index.outbox()):
        if row.dataset_id != dataset_id:
            continue
        found = world.channel(dataset_id).predicate(row.generation)
        if found is None:
            continue  # not committed yet
        if found.run_id == row.run_id:
            world.publisher.publish_release(f"{dataset_id}/{row.generation:08}", canonical.loads(row.payload.encode())["assets"])
            sent += 1
        state = "delivered" if found.run_id == row.run_id else "dropped"
        world.store.transaction(lambda tx, row=row, state=state: tx.index.mark_outbox(row.run_id, row.generation, state))
    return sent


def tick(world: World, dataset_id: str) -> list[str]:
    """Do what a crash after ★ may have left: projections, archives, deliveries. Repeatable."""
    done = []
    head = world.store.transaction(lambda tx: world.channel(dataset_id).head(tx))
    if head.generation and projected_generation(world.data, dataset_id) != head.generation:
        project(world, dataset_id)
        done.append("projection")
    for row in world.store.read(lambda tx: tx.runs.unarchived(dataset_id)):
        finish(world, row.run_id)
        done.append(f"archive {row.run_id}")
    if deliver(world, dataset_id):
        done.append("outbox")
    return done
