"""What the page of who one is tells."""

from kfm.pages.gather.asks import Asks
from kfm.pages.login import LoginPage
from kfm.reader.settings import settings_of
from kfm.reader.visit import Visit

__all__ = ["login_page"]


def login_page(asks: Asks) -> LoginPage:
    visit = Visit.now()
    visit.expect()
    viewer, trusted = visit.asking.viewer, settings_of(asks.workspace).oidc
    return LoginPage(
        address="/login",
        title="Who you are",
        command="kfm grant tokens",
        person=viewer.reader.name,
        role=viewer.role,
        how=viewer.how,
        until=viewer.until,
        issuer=trusted.issuer if trusted is not None else "",
    )
