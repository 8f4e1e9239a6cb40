"""Forms: what a page lets its viewer do. They work without scripts, and each carries by what it is
known for one of this viewer's.
"""

from kfm.grants.token import ROLES
from kfm.pages.html import Html, Inside, Value, el
from kfm.pages.layout import Frame

__all__ = ["button", "field", "form", "may"]


def may(frame: Frame, role: str) -> bool:
    """Whether whoever looks may do what a role may; what they may not is not offered."""
    return bool(frame.csrf) and frame.role in ROLES[ROLES.index(role) :]


def form(frame: Frame, action: str, *inside: Inside, upload: bool = False, **more: Value) -> Html:
    """A form that does something."""
    return el(
        "form",
        el("input", type="hidden", name="csrf", value=frame.csrf),
        *inside,
        action=action,
        method="post",
        enctype="multipart/form-data" if upload else None,
        **{"class_": "form", **more},
    )


def field(name: str, label: Inside, *, hint: str = "", tag: str = "input", **more: Value) -> Html:
    """A labelled field."""
    where = str(more.pop("id", "") or f"f-{name}")
    told = f"{where}-hint" if hint else None
    control = el(tag, id=where, name=name, class_="field", aria_describedby=told, **more)
    return el(
        "div",
        el("label", label, for_=where),
        el("p", hint, class_="hint", id=told) if hint else None,
        control,
    )


def button(label: Inside, *, kind: str = "", **more: Value) -> Html:
    return el("button", label, type="submit", class_=f"btn {kind}".strip(), **more)
