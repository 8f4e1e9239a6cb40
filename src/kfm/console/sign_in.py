"""Sign in and out: a token is shown once, and a cookie stands for it."""

import datetime as dt

from litestar.handlers import HTTPRouteHandler

from kfm.access.boundary import Reader
from kfm.console.act import Doing, Done, TooMany, acts
from kfm.grants.session import Session, begin_session, end_session, until
from kfm.model import ids, rfc3339
from kfm.reader.door import BadQuestion, Stranger
from kfm.reader.settings import settings_of
from kfm.reader.viewer import Viewer, vouched_by

__all__ = ["ROUTES"]

_LONGEST = 8192  # characters of a token


@acts("/login", "login", role="", fields={"token": _LONGEST})
def login(doing: Doing) -> Done:
    """Let in whoever a token stands for. A session that was shown ends; the new one is new."""
    visit, asking, world = doing.visit, doing.asking, doing.asking.world
    secret = doing.form.text("token", _LONGEST)
    if not secret:
        raise BadQuestion("No token was given.", "token")
    limits, shown = visit.at.limits, ids.digest(secret.encode(errors="replace"))
    visit.wait_s = limits.too_many_guesses(visit.client)
    if visit.wait_s:
        raise TooMany
    found = vouched_by(world, asking.workspace, secret, visit.at.issuers)
    if found is None:
        limits.failed(visit.client, shown)
        raise Stranger
    now = world.clock.now()
    expires = until(now, settings_of(asking.workspace).session_hours, found.expires)
    session = Session(
        person=found.person,
        roles=found.roles,
        token=found.token,
        issuer=found.issuer,
        read_as=found.read_as,
        expires=expires,
        made_at=rfc3339(now),
    )
    end_session(world, asking.claim.session)
    secret = begin_session(world, session)
    left = dt.datetime.fromisoformat(expires) - now
    visit.let_in(secret, int(left.total_seconds()))
    asking.viewer = Viewer(Reader(found.person, found.roles), "session", expires)
    return Done(done="in", at="/", what=found.person)


@acts("/logout", "logout", role="")
def logout(doing: Doing) -> Done:
    """End the session that is shown."""
    end_session(doing.asking.world, doing.asking.claim.session)
    doing.visit.let_out()
    return Done(done="out", at="/login")


ROUTES: tuple[HTTPRouteHandler, ...] = (login, logout)
