"""The end of a file is evidence: a text of lines whose last one lacks its line break may have been
cut off.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from kfm.connectors.base import LINES, Refusal, ends_open, refusal_of_cut
from kfm.fetch.base import Fetched
from kfm.model import Json, LedgerRow, Source
from kfm.model.paths import capture_folder
from kfm.run.answers import capture_name
from kfm.world.target import Target
from kfm.world.world import World

__all__ = ["OPEN", "Ending"]

OPEN = "open_end"  # the member of a captured source that says so
_LOOKED_AT = 20  # official runs in which an earlier capture of the same source is looked for


def _lines(source: Source) -> bool:
    """Whether records end with their line; in other formats, and in what is packed, the structure
    tells where the end is.
    """
    return (
        source.format in LINES
        and source.packing is None
        and (source.format != "json" or source.records == ".")
    )


class Ending:
    """Judges how the files of one capture end, by how earlier captures of the same sources did."""

    def __init__(self, world: World, target: Target) -> None:
        self._world, self._target = world, target
        self.refused: Refusal | None = None
        # source ids of files that end without a line break and were taken
        self.open: set[str] = set()

    def checked(
        self, source_id: str, path: Path, answer: Fetched, again: Callable[[Path], Fetched]
    ) -> Fetched:
        """The answer whose bytes lie at `path` now, with a warning where its end is odd.

        Where earlier captures had the line break, the source is read once more: what ends alike
        under a length that upstream stated is what upstream says, and the guard on change looks at
        it; anything else is refused as cut off.
        """
        if answer.status != 200 or not _lines(self._target.entry.source) or not ends_open(path):
            return answer
        if self._ended_before(source_id) is not True:
            self.open.add(source_id)
            return _warned(
                answer,
                "It does not end with a line break; if it was cut off, its last record is wrong.",
            )
        newer = again(path)
        if not ends_open(path):
            return _warned(
                newer,
                "The first answer ended inside its last line; it was read again, and this one is"
                " whole.",
            )
        self.open.add(source_id)
        if newer.sized and newer.digest == answer.digest:
            return _warned(
                newer,
                "It ends without the line break that earlier captures had, twice and under a length"
                " that upstream states.",
            )
        self.refused = self.refused or refusal_of_cut(
            source_id, "its last line has no end, as those of earlier captures had"
        )
        return newer

    def _ended_before(self, source_id: str) -> bool | None:
        """Whether the last official capture of this source ended with a line break; None: there is
        none.
        """
        target = self._target
        rows: list[LedgerRow] = self._world.store.read(
            lambda tx: tx.runs.committed(target.dataset_id, target.partition, _LOOKED_AT)
        )
        for row in rows:
            sources: list[Json] = msgspec.json.decode(row.source_metadata)
            found = next(
                (s for s in sources if s.get("source_id") == source_id and s.get("digest")), None
            )
            if found is not None:
                return not found.get(OPEN) and not self._kept_open(row, sources, source_id)
        return None

    def _kept_open(self, row: LedgerRow, sources: list[Json], source_id: str) -> bool:
        """What the bytes themselves say, where they are still here in plain: captures of earlier
        versions carry no mark.
        """
        names = {
            f"{s['source_id']}.{self._target.entry.source.format}": s["digest"] for s in sources
        }
        capture = capture_name(self._world, row.dataset_id, names)
        path = f"{capture_folder(row.dataset_id, capture)}/{source_id}.{self._target.entry.source.format}"
        return self._world.data.exists(path) and ends_open(self._world.data.local(path))


def _warned(answer: Fetched, sentence: str) -> Fetched:
    return msgspec.structs.replace(answer, warnings=(*answer.warnings, sentence))
