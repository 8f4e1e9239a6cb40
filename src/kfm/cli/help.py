"""Show the commands, or one of them."""

from kfm.cli.answer import Answer, Call
from kfm.cli.help_pages import man_page, page_of
from kfm.cli.spec import verbs
from kfm.cli.suggestions import no_command, no_verb

__all__ = ["Page", "page"]


class Page(Answer, frozen=True, kw_only=True):
    """A page of help, or the manual page."""

    page: str

    def tell(self, call: Call) -> None:
        print(self.page, end="")


def page(call: Call, words: list[str], all: bool, man: bool) -> Page:
    if man:
        from kfm import __version__

        return Page(page=man_page(__version__))
    found = page_of(words, all)
    if found is None:
        raise no_verb(*words[:2]) if verbs(words[0]) else no_command(words[0])
    return Page(page=found)
