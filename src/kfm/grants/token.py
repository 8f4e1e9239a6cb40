"""Tokens: how somebody whom grants name shows over a network who they are. Only the digest of a
token is kept, so nobody who reads the workspace can use one.
"""

import contextlib
import secrets

import msgspec

from kfm.keys.approvals import in_time
from kfm.model import KfmError, ids
from kfm.model.paths import token_path, tokens_folder
from kfm.world.world import World

__all__ = [
    "BEGINS",
    "ROLES",
    "Token",
    "holder_by",
    "holder_of",
    "new_token",
    "revoke_token",
    "tokens",
]

BEGINS = "kfm_"  # so that whoever finds one knows what it is
# each may what those before it may
ROLES = ("reader", "engineer", "steward", "admin")
_LONGEST = 200


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`keys/readers/<digest>.json`: whom a token stands for, until when."""

    person: str
    roles: tuple[str, ...] = ("reader",)
    expires: str
    made_at: str


def new_token(world: World, token: Token) -> str:
    """Make a token, and return it: nobody can tell it again."""
    secret = BEGINS + secrets.token_urlsafe(32)
    world.root.create(_path(secret), msgspec.json.encode(token) + b"\n")
    return secret


def holder_of(world: World, secret: str) -> Token | None:
    """Whom a token stands for; None: nobody, or not any more. Who guesses learns nothing from how
    long it takes: a digest is looked up, not compared.
    """
    if not secret.startswith(BEGINS) or len(secret) > _LONGEST or not secret.isascii():
        return None
    return holder_by(world, ids.digest(secret.encode()))


def holder_by(world: World, digest: str) -> Token | None:
    """The same, by the digest of the token."""
    try:
        found = msgspec.json.decode(world.root.read(token_path(digest)), type=Token)
    except (KfmError, OSError, msgspec.DecodeError):
        return None
    return found if in_time(found.expires, world.clock.now()) else None


def tokens(world: World) -> dict[str, Token]:
    """Every token by its digest, ended ones too."""
    found = {}
    for path in world.root.names(tokens_folder()):
        with contextlib.suppress(KfmError, OSError, msgspec.DecodeError):
            token = msgspec.json.decode(world.root.read(path), type=Token)
            found[path.rpartition("/")[2].removesuffix(".json")] = token
    return found


def revoke_token(world: World, digest: str) -> None:
    """End a token now."""
    world.root.remove(token_path(digest))


def _path(secret: str) -> str:
    return token_path(ids.digest(secret.encode()))
