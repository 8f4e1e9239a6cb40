"""The pages that another room adds to the addresses of the reader.

    from kfm.reader.app import make_app
    from kfm.reader.html_pages import HtmlPages, Shown

    def dataset(shown: Shown) -> str:
        return template.render(shown.found)      # what the JSON twin holds, the very struct

    app = make_app(workspace, HtmlPages(pages={"dataset": dataset}, routes=[styles]))

A page is chosen by name, the `page=` of its route in this room, where the caller prefers text/html
to JSON and did not ask for the `.json` twin; an address without a page answers JSON. It is called in the
thread of the request while the workspace is open: what it asks further it asks of `shown.asking`, the
one door, and what that refuses raises. It returns the whole document, whose scripts, styles and images
are files of this reader: the content security policy lets nothing else in, nor anything inline.
`problem` is the page of everything that is not answered; `shown.found` is a `Problem` then.
`routes` are handlers of the room's own: made by `route.reads` where they ask for something of a
version (the function is given `asking`), else Litestar's.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from litestar.types import ControllerRouterHandler

from kfm.reader.door import Asking

__all__ = ["NO_PAGES", "HtmlPages", "Page", "Shown"]


class Shown(NamedTuple):
    """What a page is made of: what the JSON twin holds, and the request, which may ask for more."""

    found: object
    asking: Asking
    path: str  # without `.json`


Page = Callable[[Shown], str]  # the whole HTML document


class HtmlPages(NamedTuple):
    """What another room adds: pages by the name of their address, and routes of its own."""

    pages: Mapping[str, Page] = {}
    routes: Sequence[ControllerRouterHandler] = ()
    leave: Callable[[], None] = lambda: None  # the reader stops: what is still being told ends
    # addresses that only some may know of: that another method is meant would tell of them
    hidden: Sequence[re.Pattern[str]] = ()
    hidden_but_for: str = ""  # the role that may know of them

    def hides(self, path: str) -> bool:
        """Whether only some may know of an address; slashes too many lead to the same."""
        plain = re.sub("/+", "/", path).rstrip("/")
        return any(pattern.fullmatch(plain) for pattern in self.hidden)


NO_PAGES = HtmlPages()
