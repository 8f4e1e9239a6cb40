"""A zone whose first folders lie in places of their own: raw, work and processed wherever the
caller says.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kfm.zones.base import Stored
from kfm.zones.local import LocalZone

__all__ = ["MappedZone"]


class MappedZone(LocalZone):
    """`<name>/…` lies in `places[name]`; everything else below `root`."""

    def __init__(self, root: Path, places: Mapping[str, Path]) -> None:
        super().__init__(root)
        self._places = {name: LocalZone(place) for name, place in places.items()}

    def _at(self, path: str) -> tuple[LocalZone | None, str]:
        """The zone of its own that holds `path`, and its name there; None: it is ours."""
        name, _, rest = path.partition("/")
        return (self._places[name], rest) if rest and name in self._places else (None, path)

    def local(self, path: str) -> Path:
        zone, rest = self._at(path)
        return zone.local(rest) if zone else super().local(path)

    def create(self, path: str, content: bytes | Path) -> bool:
        zone, rest = self._at(path)
        return zone.create(rest, content) if zone else super().create(path, content)

    def create_all(self, files: Mapping[str, bytes | Path]) -> dict[str, Stored]:
        done: dict[str, Stored] = {}
        for name in sorted({path.partition("/")[0] for path in files}):
            part = {p: c for p, c in files.items() if p.partition("/")[0] == name}
            if name in self._places:
                stored = self._places[name].create_all(
                    {p.partition("/")[2]: c for p, c in part.items()}
                )
                done |= {f"{name}/{rest}": s for rest, s in stored.items()}
            else:
                done |= super().create_all(part)
        return done

    def replace(self, path: str, content: bytes) -> None:
        zone, rest = self._at(path)
        (zone.replace(rest, content) if zone else super().replace(path, content))

    def append(self, path: str, lines: bytes) -> None:
        zone, rest = self._at(path)
        (zone.append(rest, lines) if zone else super().append(path, lines))

    def remove_all(self, paths: Sequence[str]) -> None:
        for name in sorted({path.partition("/")[0] for path in paths}):
            part = [path for path in paths if path.partition("/")[0] == name]
            if name in self._places:
                self._places[name].remove_all([path.partition("/")[2] for path in part])
            else:
                super().remove_all(part)

    def names(self, prefix: str) -> Iterator[str]:
        name, _, rest = prefix.partition("/")
        if name in self._places:
            yield from (f"{name}/{found}" for found in self._places[name].names(rest or "."))
        else:
            yield from super().names(prefix)

    def temp(self) -> Path:
        return self._places["work"].temp() if "work" in self._places else super().temp()

    def leftovers(self) -> list[str]:
        return [
            left for zone in self._places.values() for left in zone.leftovers()
        ] + super().leftovers()

    def sweep(self) -> list[str]:
        return [gone for zone in self._places.values() for gone in zone.sweep()] + super().sweep()

    def close(self) -> None:
        for zone in self._places.values():
            zone.close()
        super().close()
