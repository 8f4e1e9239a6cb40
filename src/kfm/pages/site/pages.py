"""The public pages as a copy shows them: nothing in them is asked of a server or tells of now."""

from collections.abc import Callable

from kfm.pages.gather.asks import Asks
from kfm.pages.gather.stories import about_page
from kfm.pages.layout import Page
from kfm.pages.routes import PUBLIC, Kind, html_pages, parts_of
from kfm.pages.site.index import COPY
from kfm.reader.door import Asking
from kfm.reader.html_pages import HtmlPages, Shown
from kfm.reader.route import reads

__all__ = ["copy_pages"]


def copy_pages() -> HtmlPages:
    """The pages of the reader that a copy is asked of."""
    routes = [r for r in html_pages().routes if "/about" not in getattr(r, "paths", ())]
    return HtmlPages(pages={kind.name: _shown(kind) for kind in PUBLIC}, routes=[*routes, _about])


@reads("/about", page="about")
def _about(asking: Asking) -> Page:
    """The reader counts what is published there, which is not what is in the copy."""
    return about_page(Asks(asking, copy=True))


def _shown(kind: Kind) -> Callable[[Shown], str]:
    def page(shown: Shown) -> str:
        found, asks = shown.found, Asks(shown.asking, copy=True)
        if kind.told is not None:
            found = kind.told(asks, found)
        elif not isinstance(found, Page):
            assert kind.gather is not None  # else it is told of what the reader answers
            found = kind.gather(asks, {}, *parts_of(kind.path, shown.path))
        return kind.render(found, COPY)

    return page
