"""Who asks: nobody in particular, whoever a token or a session stands for, or who works at this
machine. Who says who they are is that, and no more.
"""

from typing import Literal, NamedTuple

import msgspec

from kfm.access.boundary import NOBODY, Reader
from kfm.grants.session import session_of
from kfm.grants.token import BEGINS, ROLES, holder_of
from kfm.model import ids
from kfm.reader.oidc import Issued, Issuers, looks_issued
from kfm.reader.settings import settings_of
from kfm.workspace.folder import Workspace
from kfm.world.world import World

__all__ = ["ANYBODY", "UNCLAIMED", "Claim", "Vouched", "Viewer", "viewer_of", "vouched_by"]

_SCHEME = "bearer "
How = Literal["", "token", "issuer", "session", "here"]


class Viewer(msgspec.Struct, frozen=True):
    """Who a request is answered for, and how they showed it."""

    reader: Reader = NOBODY
    how: How = ""
    until: str = ""  # of a session: when it ends

    @property
    def is_named(self) -> bool:
        return self.reader.name is not None

    @property
    def role(self) -> str:
        """The highest of its roles; who works at this machine may everything."""
        if self.how == "here":
            return ROLES[-1]
        return next((role for role in reversed(ROLES) if role in self.reader.roles), "")

    def may(self, role: str) -> bool:
        """Whether it may what a role may."""
        return bool(self.role) and ROLES.index(self.role) >= ROLES.index(role)


ANYBODY = Viewer()
_HERE = Viewer(how="here")


class Claim(NamedTuple):
    """What a request shows of who asks."""

    authorization: str | None = None
    session: str = ""  # of its cookie
    here: bool = False  # asked on this machine, where the console is for who works at it

    @property
    def digest(self) -> str:
        """What stands for the secret that is shown, where it is counted; empty: none is."""
        shown = self.authorization if self.authorization is not None else self.session
        return ids.digest(shown.encode(errors="replace")) if shown else ""


UNCLAIMED = Claim()


class Vouched(NamedTuple):
    """Whom a token stands for, until when; by the digest of the token, or by an issuer's word."""

    person: str
    roles: tuple[str, ...]
    expires: str
    token: str = ""
    issuer: str = ""
    read_as: str = ""  # how its roles were read, as a digest


def viewer_of(
    world: World, workspace: Workspace, claim: Claim, issuers: Issuers | None = None
) -> Viewer | None:
    """Who asks; None: it names somebody, and nobody can tell whom. A session that has ended is
    nobody's.
    """
    said = claim.authorization
    if said is None:
        found = _by_session(world, workspace, claim.session) if claim.session else None
        return found or (_HERE if claim.here else ANYBODY)
    if not said.lower().startswith(_SCHEME):
        return None
    holder = vouched_by(world, workspace, said[len(_SCHEME) :].strip(), issuers)
    if holder is None:
        return None
    return Viewer(Reader(holder.person, holder.roles), "issuer" if holder.issuer else "token")


def vouched_by(
    world: World, workspace: Workspace, secret: str, issuers: Issuers | None = None
) -> Vouched | None:
    """Whom a token stands for: one of ours, or one of the issuer that kfm.yml trusts."""
    if secret.startswith(BEGINS):
        token = holder_of(world, secret)
        if token is None:
            return None
        return Vouched(token.person, token.roles, token.expires, ids.digest(secret.encode()))
    if issuers is None or not workspace.config.serve or not looks_issued(secret):
        return None
    trusted = settings_of(workspace).oidc
    if trusted is None:
        return None
    loopback = workspace.config.allow_loopback
    found: Issued | None = issuers.vouched(secret, trusted, world.clock.now(), loopback=loopback)
    if found is None:
        return None
    return Vouched(
        found.person,
        found.roles,
        found.expires,
        issuer=found.issuer,
        read_as=trusted.reads_roles,
    )


def _by_session(world: World, workspace: Workspace, secret: str) -> Viewer | None:
    found = session_of(world, secret)
    if found is None:
        return None
    if found.issuer:  # is it still believed, and does its word give the same roles?
        trusted = settings_of(workspace).oidc
        if trusted is None or trusted.issuer != found.issuer:
            return None
        if trusted.reads_roles != found.read_as:
            return None
    return Viewer(Reader(found.person, found.roles), "session", found.expires)
