"""A receiver that attaches every official version to a release of a repository: github://OWNER/NAME.

The release is called `dataset/generation`, so telling it twice changes nothing. Only what everybody may
have is attached; what is withdrawn later is taken back.
"""

from kfm.access.boundary import Opened, folder_of, may_hear
from kfm.access.references import withdrawn
from kfm.channel.generations import version_kept_out
from kfm.evidence.removed import removed_versions
from kfm.extras.github.client import Hub
from kfm.extras.github.opening import open_hub
from kfm.extras.github.releases import (
    MOST_BYTES,
    MOST_FILES,
    Asset,
    asset_names,
    keep_release,
    release_at,
    take_back,
)
from kfm.model import Denied, Generation, IntegrityError, StoreUnavailable
from kfm.model.paths import generation_path
from kfm.workspace.folder import open_workspace
from kfm.world.announcement import Announcement
from kfm.world.world import World
from kfm.zones.base import hash_file

__all__ = ["Releases", "open_receiver", "take_back_withdrawn"]


class Releases:
    """A repository's releases."""

    def __init__(self, address: str) -> None:
        self._address = address

    def tell(self, world: World, told: Announcement) -> None:
        """Attach the version; of what may not be handed out nothing is said at all."""
        if world.policy is None:
            raise StoreUnavailable(
                "Nobody can say here what may be handed out.",
                expected="the rules of the workspace",
                remedy="It is told by the next run or worker.",
            )
        try:
            opened = folder_of(world, f"{told.dataset_id}@{told.generation}")
        except Denied:
            if _not_for_everybody(world, told):
                return
            raise
        _check(opened, told)
        _attach(self._hub(world), world, opened, told)

    def take_back(self, world: World, dataset_id: str) -> None:
        take_back_withdrawn(self._hub(world), world, dataset_id)

    def close(self) -> None: ...

    def _hub(self, world: World) -> Hub:
        workspace = open_workspace(world.root.local("kfm.yml").parent)
        return open_hub(workspace, self._address, patient=False)


def open_receiver(address: str) -> Releases:
    return Releases(address)


def _not_for_everybody(world: World, told: Announcement) -> bool:
    """Whether it is no failure that it may not leave: it is private, or was withdrawn or removed
    since.
    """
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(told.dataset_id))
    meant = next((g for g in rows if g.generation == told.generation), None)
    return (
        world.is_withheld(told.dataset_id)
        or told.version_id in removed_versions(world.data, told.dataset_id)
        or (meant is not None and withdrawn(rows[-1], meant) is not None)
    )


def _check(opened: Opened, told: Announcement) -> None:
    """What is attached is what became official, byte for byte."""
    for path, digest in told.assets.items():
        found = opened.files.get(path)
        if found is None or opened.digests[path] != digest or hash_file(found).digest != digest:
            raise IntegrityError(
                f"{path} of {told.key} is not what became official.",
                expected=digest,
                remedy="Run `kfm verify`; restore it from a backup.",
            )


def _attach(hub: Hub, world: World, opened: Opened, told: Announcement) -> None:
    files = {path: Asset(file, opened.digests[path], path) for path, file in opened.files.items()}
    for label, file in (
        ("checksums.sha256", opened.files["version.json"].with_name("checksums.sha256")),
        ("generation.json", world.data.local(generation_path(told.dataset_id, told.generation))),
    ):
        files[label] = Asset(file, hash_file(file).digest, label)
    sizes = {path: asset.file.stat().st_size for path, asset in files.items()}
    kept = [path for path in sorted(files) if 0 < sizes[path] <= MOST_BYTES][:MOST_FILES]
    names = asset_names({path: files[path].digest for path in kept})
    keep_release(
        hub,
        told.key,
        f"{told.dataset_id}, generation {told.generation}",
        _words(world, opened, told, files, names),
        {names[path]: files[path] for path in kept},
    )


def _words(
    world: World,
    opened: Opened,
    told: Announcement,
    files: dict[str, Asset],
    names: dict[str, str],
) -> str:
    entry = world.registry(told.dataset_id)
    licence = entry.licence if entry is not None else None
    lines = [
        f"Version `{opened.version_id}` of `{told.dataset_id}`, official as generation"
        f" {told.generation}.",
        f"Licence: {licence or 'see the catalog'}.",
        "",
        "| file | asset | sha256 |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{path}` | {names.get(path) or 'not attached: too large'} |"
        f" `{files[path].digest.removeprefix('sha256:')}` |"
        for path in sorted(files)
    ]
    return "\n".join([*lines, "", "`sha256sum`, or `kfm verify` of the whole, compares them."])


def take_back_withdrawn(hub: Hub, world: World, dataset_id: str) -> list[str]:
    """Detach the files of every version that may no longer be handed out; the tags it was done
    for. What retention removed here stays where it was published.
    """
    rows: list[Generation] = world.store.read(lambda tx: tx.index.generations(dataset_id))
    done = []
    for row in (g for g in rows if g.kind == "promote"):
        tag = f"{dataset_id}/{row.generation:08}"
        if _may_stay(world, rows[-1], row) or (release := release_at(hub, tag)) is None:
            continue
        take_back(hub, release, "This version was withdrawn. Its files are no longer here.")
        done.append(tag)
    return done


def _may_stay(world: World, head: Generation, row: Generation) -> bool:
    out = version_kept_out(head, str(row.version_id))
    if withdrawn(head, row) is not None or (out is not None and out.how == "suppressed"):
        return False
    if row.version_id in removed_versions(world.data, row.dataset_id):
        return True
    try:
        folder_of(world, f"{row.dataset_id}@{row.generation}")
    except Denied:
        return False
    except IntegrityError:  # what is damaged here stays where it may be published
        return may_hear(world, row.dataset_id)
    return True
