"""Whether the files of what is official are there at all. What their bytes are, `kfm verify` looks."""

from kfm.evidence.version_records import read_facts
from kfm.model import Generation
from kfm.model.paths import version_path
from kfm.world.world import World

__all__ = ["missing_file"]

_RECORDS = ("version.json", "checksums.sha256")


def missing_file(world: World, head: Generation | None) -> str:
    """One that the version of a generation has not; empty: nothing is missing, or there is none."""
    if head is None or head.version_id is None:
        return ""
    where = head.dataset_id, head.version_id

    def is_gone(name: str) -> bool:
        return not world.data.exists(version_path(*where, name))

    if gone := next(filter(is_gone, _RECORDS), ""):
        return gone
    return next(filter(is_gone, read_facts(world.data, *where).artifacts), "")
