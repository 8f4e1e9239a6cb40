"""Who asks: nobody in particular, or whoever a bearer token stands for."""

import msgspec

from kfm.grants.token import holder_of
from kfm.reading.boundary import NOBODY, Reader
from kfm.world.world import World

__all__ = ["ANYBODY", "Viewer", "viewer_of"]

_SCHEME = "bearer "


class Viewer(msgspec.Struct, frozen=True):
    """Who a request is answered for."""

    reader: Reader = NOBODY

    @property
    def is_named(self) -> bool:
        return self.reader.name is not None


ANYBODY = Viewer()


def viewer_of(world: World, authorization: str | None) -> Viewer | None:
    """Who asks, by the header of the request; None: it names somebody, and nobody can tell whom."""
    if authorization is None:
        return ANYBODY
    if not authorization.lower().startswith(_SCHEME):
        return None
    token = holder_of(world, authorization[len(_SCHEME) :].strip())
    return None if token is None else Viewer(Reader(token.person, token.roles))
