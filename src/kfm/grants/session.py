"""Sessions: a token shown once, and for some hours a cookie stands for it. Only the digest of a
session is kept, and it ends with the token that began it.
"""

import contextlib
import datetime as dt
import secrets

import msgspec

from kfm.grants.token import holder_by
from kfm.keys.approvals import in_time
from kfm.model import KfmError, ids, rfc3339
from kfm.model.paths import session_path, sessions_folder
from kfm.world.world import World

__all__ = ["Session", "begin_session", "end_session", "is_secret", "session_of", "until"]

_LENGTH = 43  # characters of a secret: 256 bits
_MOST = 16  # sessions of one token or person; the oldest ends for another


class Session(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`keys/readers/sessions/<digest>.json`: whom a cookie stands for, until when."""

    person: str
    roles: tuple[str, ...]
    token: str = ""  # the digest of the token it was begun with; empty: an issuer's word
    issuer: str = ""  # who said so
    read_as: str = ""  # how roles were read from its word, as a digest
    expires: str
    made_at: str


def begin_session(world: World, asked: Session) -> str:
    """Begin a session, and return its secret: always a new one, whatever was shown before."""
    _make_room(world, asked)
    secret = secrets.token_urlsafe(32)
    world.root.create(_path(secret), msgspec.json.encode(asked) + b"\n")
    return secret


def session_of(world: World, secret: str) -> Session | None:
    """Whom a cookie stands for; None: nobody, or not any more. A digest is looked up, not
    compared. What its token may is asked anew.
    """
    if not is_secret(secret):
        return None
    found = _read(world, _path(secret))
    if found is None or not in_time(found.expires, world.clock.now()):
        return None
    if not found.token:
        return found
    token = holder_by(world, found.token)
    if token is None:
        return None
    return msgspec.structs.replace(found, person=token.person, roles=token.roles)


def end_session(world: World, secret: str) -> None:
    """End it now."""
    if is_secret(secret):
        with contextlib.suppress(FileNotFoundError):
            world.root.remove(_path(secret))


def is_secret(text: str) -> bool:
    """Whether it has the form of one of our secrets."""
    plain = text.replace("-", "a").replace("_", "a")
    return len(text) == _LENGTH and plain.isascii() and plain.isalnum()


def until(now: dt.datetime, hours: int, at_most: str) -> str:
    """When a session ends that is begun now."""
    end = rfc3339(now + dt.timedelta(hours=hours))
    return end if in_time(at_most, dt.datetime.fromisoformat(end)) else at_most


def _make_room(world: World, asked: Session) -> None:
    """Remove what has ended, and the oldest of who has many."""
    mine = []
    for path in world.root.names(sessions_folder()):
        found = _read(world, path)
        if found is None or not in_time(found.expires, world.clock.now()):
            _remove(world, path)
        elif (found.person, found.token) == (asked.person, asked.token):
            mine.append((found.made_at, path))
    for _, path in sorted(mine)[: -(_MOST - 1)]:
        _remove(world, path)


def _remove(world: World, path: str) -> None:
    with contextlib.suppress(KfmError, OSError):
        world.root.remove(path)


def _read(world: World, path: str) -> Session | None:
    try:
        return msgspec.json.decode(world.root.read(path), type=Session)
    except (KfmError, OSError, msgspec.DecodeError):
        return None


def _path(secret: str) -> str:
    return session_path(ids.digest(secret.encode()))
