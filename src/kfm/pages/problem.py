"""The pages of what is not answered: what happened, why, what to do."""

from kfm.pages.html import el
from kfm.pages.layout import Frame, Page, document
from kfm.pages.parts import Message, State, head, message

__all__ = ["ProblemPage", "problem_page", "render"]

_TITLES = {
    400: "That cannot be understood",
    401: "Nobody knows this token",
    403: "That is not for you",
    404: "Nothing is here",
    405: "That cannot be done here",
    408: "That came too slowly",
    409: "That was refused",
    413: "That is too large",
    429: "Too much at once",
    451: "This was public, and may not be shown now",
    500: "A fault of ours",
    503: "Not now",
}
_WHY = {
    400: "An address whose question has the form that docs/reader.md describes.",
    401: "A token that a steward gave out and that has not run out.",
    403: "A form of this very page, sent by somebody whose role lets them do it.",
    404: "An address that exists, and something that may be shown to you.",
    451: "A licence, a label and rules that let it out today.",
    500: "An answer, or a reason why there is none.",
    503: "A workspace that can be read.",
}
_NEXT = {
    400: "Go back, or ask for the list: `kfm status` prints the same.",
    401: "Leave the token out to read what is public, or ask the steward for another.",
    403: "Go back and load the page again, or ask whoever runs this place.",
    404: "Look through the list of datasets; `kfm status` prints the same.",
    405: "Go back to the page that the form is on.",
    408: "Send it again.",
    409: "Load the page again: it says how things are now.",
    429: "Wait a moment, then try again.",
    451: "Ask the custodian of the dataset. Versions that were handed out before stay verifiable.",
    500: "Try again. If it stays, the operator finds it by the number below; `kfm doctor` looks for"
    " damage.",
    503: "Wait a moment and load the page again; `kfm doctor` says what has to be mended.",
}
_STATES: dict[int, State] = {
    451: "denied", 403: "denied", 401: "denied", 409: "denied", 429: "late", 500: "failed",
}  # fmt: skip


class ProblemPage(Page, frozen=True, kw_only=True):
    """Why there is no answer."""

    status: int
    said: Message
    number: str = ""  # of the request, by which an operator finds it
    see: str = ""  # where an operator is told more


def problem_page(
    status: int,
    said: str,
    address: str,
    number: str = "",
    see: str = "",
    *,
    expected: str = "",
    remedy: str = "",
) -> ProblemPage:
    """What is told of it; nothing that was withheld is in it."""
    return ProblemPage(
        address=address,
        title=_TITLES.get(status, "That is not answered here"),
        command="kfm status",
        status=status,
        said=Message(
            happened=said,
            expected=expected or _WHY.get(status, ""),
            remedy=remedy or _NEXT.get(status, _NEXT[404]),
        ),
        number=number,
        see=see,
    )


def render(page: ProblemPage, frame: Frame) -> str:
    kind = _STATES.get(page.status, "none")
    number = el("p", "Request ", el("code", page.number), class_="hint") if page.number else None
    return document(
        page,
        frame,
        head(page.title),
        el(
            "div",
            message(kind, f"Answer {page.status}", page.said),
            number,
            el(
                "p",
                el("a", "Why it is not published", class_="btn primary", href=page.see)
                if page.see
                else None,
                el("a", "All datasets", class_="btn", href="/datasets"),
                " ",
                el("a", "Search", class_="btn", href="/search"),
                (" ", el("a", "Sign in", class_="btn", href="/login"))
                if page.status in (401, 403)
                else None,
                class_="actions",
            ),
            class_="stack narrow",
        ),
    )
