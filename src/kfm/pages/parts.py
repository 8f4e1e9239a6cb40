"""What pages are put together from: a state, a digest, a command, a table, a message of three
parts. Names are those of the style sheet.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from kfm.pages.html import Html, Inside, Value, el, join

__all__ = [
    "Message",
    "State",
    "bar",
    "big",
    "card",
    "chip",
    "command",
    "copy",
    "digest",
    "empty",
    "glyph",
    "head",
    "kv",
    "label_chip",
    "message",
    "section",
    "short",
    "spark",
    "state",
    "table",
    "td",
    "th",
    "with_commands",
]

State = Literal["new", "noop", "late", "failed", "denied", "wait", "run", "none", "pass"]


def glyph(kind: State | str) -> Html:
    return el("svg", el("use", href=f"#s-{kind}"), aria_hidden="true")


def state(kind: State, word: Inside, *, sign: str = "") -> Html:
    """A state: glyph, word and colour."""
    return el(
        "span",
        el("span", glyph(sign or kind), class_="g"),
        word,
        class_="state",
        data_state="new" if kind == "pass" else kind,
    )


def chip(text: str, kind: str = "") -> Html:
    return el("span", text, class_=f"chip {kind}".strip())


def label_chip(label: str | None) -> Html:
    """A sensitivity or policy label; only `public` looks open."""
    return chip(label or "no label", "public" if label == "public" else "label")


def copy(exact: str, what: str) -> Html:
    return el(
        "button",
        el("svg", el("use", href="#i-copy"), aria_hidden="true"),
        class_="copy",
        type="button",
        data_copy=exact,
        aria_label=f"Copy {what}",
    )


def short(exact: str) -> str:
    """The beginning of a digest or of an id."""
    bare = exact.removeprefix("sha256:")
    if len(bare) == 36 and bare.count("-") == 4:  # its first digits are its moment
        return f"{bare[:8]}…{bare[-4:]}"
    if "/" in bare:  # a path
        return f"…{bare[-14:]}"
    return bare if len(bare) <= 12 else f"{bare[:9]}…"


def digest(exact: str | None, what: str = "digest", *, href: str | None = None) -> Html | str:
    """Short on screen, exact on copy."""
    if not exact:
        return ""
    code = el("code", short(exact), title=exact)
    return el(
        "span", el("a", code, href=href) if href else code, copy(exact, what), class_="digest"
    )


def command(text: str) -> Html:
    """A command that can be pasted. A flag never breaks after its hyphens."""
    words = text.split(" ")
    pieces: list[Inside] = []
    for n, word in enumerate(words):
        pieces += [" " if n else "", el("span", word) if word.startswith("--") else word]
    return el("div", el("code", pieces), copy(text, f"command: {text}"), class_="cmd")


def head(
    title: Inside, lede: Inside = None, facts: Iterable[Inside] = (), actions: Inside = None
) -> Html:
    """The title, one sentence, one line of facts, at most two actions."""
    told = [fact if isinstance(fact, Html) else el("span", fact) for fact in facts if fact]
    return el(
        "div",
        el(
            "div",
            el("h1", title),
            el("p", lede, class_="lede") if lede else None,
            el("p", (join(fact, " ") for fact in told), class_="facts") if told else None,
        ),
        el("div", actions, class_="actions") if actions else None,
        class_="head",
    )


def section(name: str, title: Inside, *inside: Inside, aside: Inside = None) -> Html:
    """A part of a page under its own heading."""
    heading = el("h2", title, id=name)
    top = (
        el("header", heading, el("small", aside) if not isinstance(aside, Html) else aside)
        if aside
        else heading
    )
    return el("section", top, *inside, class_="section", aria_labelledby=name)


def card(title: str, *inside: Inside, id: str | None = None) -> Html:
    return el("section", el("h2", title), *inside, class_="card", id=id)


def kv(rows: Iterable[tuple[Inside, Inside]], *, tight: bool = True) -> Html:
    """Keys and values; what has no value is left out."""
    told = ((el("dt", key), el("dd", value)) for key, value in rows if value not in (None, ""))
    return el("dl", told, class_="kv tight" if tight else "kv")


def big(rows: Iterable[tuple[Inside, Inside]]) -> Html:
    """Headline numbers."""
    return el("div", (el("div", el("b", a), el("span", b)) for a, b in rows), class_="card big")


def th(text: Inside, *, num: bool = False, scope: str = "col", **more: Value) -> Html:
    return el("th", text, scope=scope, class_="num" if num else None, **more)


def td(text: Inside, *, head: str = "", num: bool = False, class_: str = "") -> Html:
    """A cell; on a phone `head` is repeated before it."""
    style = " ".join(filter(None, ("num" if num else "", class_)))
    return el("td", text, data_h=head or None, class_=style or None)


def table(
    labelled_by: str, heads: Sequence[Html], rows: Iterable[Inside], *, style: str = "cards flow"
) -> Html:
    """A table that scrolls in its box, and turns into cards on a phone."""
    return el(
        "div",
        el(
            "table",
            el("thead", el("tr", heads)),
            el("tbody", rows),
            class_=f"table {style}".strip(),
        ),
        class_="scroll",
        role="group",
        aria_labelledby=labelled_by,
        tabindex="0",
    )


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What happened, why, what to do."""

    happened: str
    expected: str = ""
    remedy: str = ""


def message(kind: State, word: str, said: Message, *, named: str = "What happened") -> Html:
    """A message of three parts; commands in the last are shown to be pasted."""
    rows = [
        el("div", el("dt", title), el("dd", with_commands(text)))
        for title, text in (
            (named, said.happened),
            ("What was expected", said.expected),
            ("What to do next", said.remedy),
        )
        if text
    ]
    return el(
        "section", state(kind, word), el("dl", rows), class_="say", data_state=kind, aria_label=word
    )


def with_commands(text: str) -> Html:
    """A sentence in which `back quotes` are code."""
    pieces = text.split("`")
    return join(*(el("code", p) if n % 2 else p for n, p in enumerate(pieces)))


def empty(sentence: str, next_command: str = "") -> Html:
    """Nothing is there: what that means, and one command that changes it."""
    return el(
        "div",
        el("p", with_commands(sentence)),
        command(next_command) if next_command else None,
        class_="card quiet-empty",
    )


# ---- small pictures ------------------------------------------------------------------------------
def bar(shares: Sequence[tuple[State, int]], words: str) -> Html:
    """Shares of a whole side by side."""
    whole = sum(n for _, n in shares) or 1
    at, drawn = 0.0, []
    for kind, many in shares:
        wide = 100 * many / whole
        drawn.append(
            el("rect", x=f"{at:.2f}", y="0", width=f"{wide:.2f}", height="8", data_state=kind)
        )
        at += wide
    return el(
        "svg",
        drawn,
        class_="bar",
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        role="img",
        aria_label=words,
    )


def spark(counts: Sequence[int], words: str) -> Html | str:
    """How many lie in each of equal steps, as small columns."""
    top = max(counts, default=0)
    if not top:
        return ""
    wide = 96 / len(counts)
    drawn = (
        el(
            "rect",
            x=f"{n * wide:.1f}",
            y=f"{22 - 22 * many / top:.1f}",
            width=f"{max(1.0, wide - 1):.1f}",
            height=f"{22 * many / top:.1f}",
        )
        for n, many in enumerate(counts)
    )
    return el(
        "svg", drawn, class_="mini columns", viewBox="0 0 96 22", role="img", aria_label=words
    )
