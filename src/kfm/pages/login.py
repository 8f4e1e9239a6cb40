"""The page of who one is: sign in with a token, see as whom one is known, sign out."""

from kfm.pages.forms import button, field, form
from kfm.pages.html import Inside, el
from kfm.pages.layout import Frame, Page, document
from kfm.pages.parts import card, head, kv
from kfm.pages.words import moment

__all__ = ["LoginPage", "render"]

_MAY = {
    "reader": "Read what is published, as far as grants and labels let you.",
    "engineer": "See how things are run, and ask for runs and replays.",
    "steward": "See how things are run, ask for runs, and decide what waits.",
    "admin": "Everything.",
}


class LoginPage(Page, frozen=True, kw_only=True):
    """Who whoever asks is known as."""

    person: str | None
    role: str
    how: str
    until: str
    issuer: str = ""  # whose tokens are believed beside our own


def render(page: LoginPage, frame: Frame) -> str:
    parts: list[Inside] = []
    if page.how:
        parts.append(card("You are", _you(page), _out(page, frame)))
    if page.how != "session":
        parts.append(card("Sign in with a token", _sign_in(page, frame)))
    lede = "What is public is shown to everybody. A token shows more to whom it was given."
    return document(page, frame, head("Who you are", lede), el("div", parts, class_="stack narrow"))


def _you(page: LoginPage) -> Inside:
    who = page.person or ("whoever works at this machine" if page.how == "here" else "")
    return kv(
        (
            ("Name", who),
            ("Role", page.role),
            ("You may", _MAY.get(page.role, "")),
            ("Until", moment(page.until) if page.until else ""),
        )
    )


def _out(page: LoginPage, frame: Frame) -> Inside:
    return form(frame, "/logout", el("p", button("Sign out"))) if page.how == "session" else None


def _sign_in(page: LoginPage, frame: Frame) -> Inside:
    hint = "It begins with kfm_ and was shown once, when it was made."
    if page.issuer:
        hint = f"One that begins with kfm_, or one that {page.issuer} gave you."
    return form(
        frame,
        "/login",
        field(
            "token",
            "Token",
            hint=hint,
            type="password",
            required=True,
            autocomplete="off",
            spellcheck="false",
            maxlength=8192,
        ),
        el("p", button("Sign in", kind="primary")),
        el(
            "p",
            "It is sent to this server once; a cookie that scripts cannot read stands for it"
            " until you sign out, the token ends, or some hours have passed.",
            class_="hint",
        ),
    )
