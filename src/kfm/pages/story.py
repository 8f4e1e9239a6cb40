"""The page of a story: how a layer was produced, each sentence with the files that show it."""

from collections.abc import Mapping

from kfm.pages import addresses
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Crumb, Frame, Page, document
from kfm.pages.parts import chip, command, digest, head, label_chip, state
from kfm.pages.words import moment, plural
from kfm.story.node import Proof, Section, Sentence, Story

__all__ = ["StoryPage", "render"]


class StoryPage(Page, frozen=True, kw_only=True):
    """How one generation was produced."""

    story: Story
    opens: dict[str, str]  # where the bytes of a digest are had
    figure: str  # an invented picture of what generalising does; empty: nothing was generalised


def render(page: StoryPage, frame: Frame) -> str:
    story = page.story
    words = sum(len(one.text.split()) for s in story.sections for one in s.sentences)
    facts: list[Inside] = [
        state("new", "Signed, digests compared", sign="pass"),
        el("span", "official since ", moment(story.produced.official_at, "an unknown time")),
        label_chip(story.governance.sensitivity),
        chip(story.governance.licence or "no licence stated"),
        plural(max(1, round(words / 200)), "minute") + " to read",
    ]
    lede = (
        f"{story.title}, generation {story.generation}. Written from the records of what was done;"
        " each number names a file that shows it."
    )
    cited: set[int] = set()
    sections = [_section(s, page, cited) for s in story.sections]
    return document(
        page,
        frame,
        head("How this layer was produced", lede, facts),
        el(
            "div",
            el("article", sections, class_="story"),
            el("aside", _evidence(page, cited), aria_label="Evidence"),
            class_="two read",
        ),
        here="/datasets",
        crumbs=(
            Crumb("Datasets", "/datasets"),
            Crumb(story.dataset_id, addresses.dataset(story.dataset_id)),
            Crumb(
                f"generation {story.generation}",
                addresses.version(story.dataset_id, story.generation),
            ),
            Crumb("story"),
        ),
    )


def _section(section: Section, page: StoryPage, cited: set[int]) -> Html:
    told = [_sentence(one, cited) for one in section.sentences]
    body = (
        el("ul", (el("li", one) for one in told))
        if section.listed
        else el("p", ((one, " ") for one in told))
    )
    drawn = Html(page.figure) if section.id == "summary" and page.figure else None
    name = f"h-{section.id}"
    return el(
        "section",
        el(
            "h2",
            el("span", section.when, class_="when") if section.when else None,
            section.title,
            id=name,
        ),
        body,
        drawn,
        map(command, section.commands),
        aria_labelledby=name,
    )


def _sentence(one: Sentence, cited: set[int]) -> list[Inside]:
    return [one.text, Html("&#8288;"), [_ref(n, cited) for n in one.evidence]]


def _ref(number: int, cited: set[int]) -> Html:
    """A link to a file; where it is cited first, the file links back."""
    first = None if number in cited else f"r{number}"
    cited.add(number)
    return el(
        "a",
        f"[{number}]",
        class_="ref",
        href=f"#e{number}",
        id=first,
        aria_label=f"Evidence {number}",
    )


def _evidence(page: StoryPage, cited: set[int]) -> Html:
    return el(
        "section",
        el("h2", "Evidence"),
        el(
            "p",
            el("small", "Whoever doubts a sentence opens its file and computes the digest."),
        ),
        el(
            "ol",
            (_proof(p, p.n in cited, page.opens) for p in page.story.evidence),
            class_="evidence",
        ),
        class_="card",
    )


def _proof(proof: Proof, cited: bool, opens: Mapping[str, str]) -> Html:
    at, path = opens.get(proof.digest), el("code", proof.path)
    return el(
        "li",
        el("b", str(proof.n)),
        el(
            "span",
            el("a", proof.what, href=f"#r{proof.n}") if cited else proof.what,
            el("br"),
            el("span", proof.shows, class_="quiet"),
            el("br") if proof.shows else None,
            el("a", path, href=at) if at else path,
            " ",
            digest(proof.digest, f"digest of {proof.what}"),
        ),
        id=f"e{proof.n}",
    )
