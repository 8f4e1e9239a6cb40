"""Whether what is official can be had: its records can be read and its files are there. What the
bytes of those are, `kfm verify` looks.
"""

from kfm.evidence.version_records import read_facts, version_listing
from kfm.model import Generation, IntegrityError
from kfm.model.paths import version_path
from kfm.world.world import World

__all__ = ["lacking"]


def lacking(world: World, head: Generation | None) -> str:
    """Which file of the version of a generation is missing or cannot be read, in words; empty: none,
    or there is no version.
    """
    if head is None or head.version_id is None:
        return ""
    where, name = (head.dataset_id, head.version_id), "version.json"
    try:
        facts = read_facts(world.data, *where)
        name = "checksums.sha256"
        data, records = version_listing(world.data, *where)
        if set(data) != set(facts.artifacts):
            raise ValueError("it lists other files")
    except FileNotFoundError:
        return f"{name} of the official version is missing"
    except (IntegrityError, ValueError, OSError):
        return f"{name} of the official version is damaged"
    names = (*data, *records)
    gone = next((name for name in names if not world.data.exists(version_path(*where, name))), "")
    return f"{gone} of the official version is missing" if gone else ""
