"""The public pages as a copy shows them: nothing in them is asked of a server or tells of now."""

from collections.abc import Callable

from kfm.pages.gather.asks import Asks
from kfm.pages.gather.stories import about_page
from kfm.pages.layout import Page
from kfm.pages.routes import PUBLIC, Kind, hang, parts_of
from kfm.pages.site.index import COPY
from kfm.reader.door import Asking, Hidden
from kfm.reader.html_pages import Hung, Shown
from kfm.reader.route import reads

__all__ = ["copy_pages"]


def copy_pages() -> Hung:
    """What hangs on the reader that a copy is asked of."""
    routes = [r for r in hang().routes if "/about" not in getattr(r, "paths", ())]
    return Hung(pages={kind.name: _shown(kind) for kind in PUBLIC}, routes=[*routes, _about])


@reads("/about", page="about")
def _about(asking: Asking) -> Page:
    """The reader counts what is published there, which is not what is in the copy."""
    return about_page(Asks(asking, copy=True))


def _shown(kind: Kind) -> Callable[[Shown], str]:
    def page(shown: Shown) -> str:
        found = shown.found
        if kind.gather is None:
            raise Hidden  # it is asked of a server alone
        if not isinstance(found, Page):
            parts = parts_of(kind.path, shown.path)
            found = kind.gather(Asks(shown.asking, copy=True), {}, *parts)
        return kind.render(found, COPY)

    return page
