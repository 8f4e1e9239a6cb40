"""What the pages of stories, lineage, search and this place itself tell."""

import shlex
from urllib.parse import quote

from kfm.model import KfmError, rfc3339
from kfm.pages import addresses
from kfm.pages.about import AboutPage
from kfm.pages.focus import FocusPage
from kfm.pages.gather.asks import Asks
from kfm.pages.lineage import LineagePage
from kfm.pages.search import Named, SearchPage
from kfm.pages.story import StoryPage
from kfm.reader.about import around
from kfm.reader.ask import Focus
from kfm.story.figure import figure
from kfm.story.node import Story
from kfm.upkeep.search import search

__all__ = ["about_page", "focus_page", "lineage_page", "search_page", "story_page"]

_HITS = 20
_DEPTH = 6


def story_page(asks: Asks, story: Story) -> StoryPage:
    """Of what the reader answers about how a version was made."""
    text = f"{story.dataset_id}@{story.generation}"
    ref = asks.known(text)
    generalised = story.governance.h3_resolution is not None
    return StoryPage(
        address=addresses.story(ref.dataset_id, ref.version_id),
        title=f"How {story.title} was produced",
        command=f"kfm story {text}",
        story=story,
        opens=asks.opens(ref, story.evidence),
        figure=figure(story.governance.min_records or 1) if generalised else "",
    )


def focus_page(focus: Focus) -> FocusPage:
    where = addresses.ask(focus.dataset_id, focus.version_id)
    text = f"{focus.dataset_id}@{focus.generation}"
    return FocusPage(
        address=f"{where}?q={quote(focus.asked)}" if focus.asked else where,
        title=f"Ask about {focus.title}",
        command=f"kfm ask {text} {shlex.quote(focus.asked) if focus.asked else ''}".rstrip(),
        focus=focus,
    )


def lineage_page(asks: Asks, what: str) -> LineagePage:
    return LineagePage(
        address=addresses.lineage(what),
        title=f"Lineage of {what}",
        command=f"kfm lineage show {what}",
        what=what,
        walk=around(asks.asking, what, _DEPTH, _DEPTH),
    )


def search_page(asks: Asks, q: str) -> SearchPage:
    words = q.lower().split()
    names = []
    for name in asks.workspace.registered() if words else ():
        entry = asks.workspace.readable(name)
        if entry is None or asks.seen(name) is None:
            continue
        text = f"{name} {entry.title} {entry.description}".lower()
        if all(word in text for word in words):
            names.append(Named(dataset_id=name, title=entry.title, description=entry.description))
    return SearchPage(
        address=f"/search?q={quote(q)}" if q else "/search",
        title="Search",
        command=f"kfm search {q}" if q else "kfm search WORDS",
        q=q,
        datasets=tuple(names),
        found=search(asks.world, q, asks.workspace.registered(), _HITS, asks.reader)
        if words
        else None,
    )


def about_page(asks: Asks) -> AboutPage:
    trust = None
    try:
        trust = asks.world.keys.trust()
    except KfmError:
        pass  # `kfm verify` says what is wrong with it
    names = [] if asks.is_copy else asks.workspace.registered()
    seen = sum(asks.seen(name) is not None for name in names)
    keys = {} if trust is None else {k.name: ", ".join(k.roles) for k in trust.keys.values()}
    return AboutPage(
        address="/about",
        title="About",
        command="kfm keys list",
        datasets=seen,
        root=trust.fingerprint if trust is not None else None,
        root_version=trust.version if trust is not None else 0,
        expires=rfc3339(trust.expires) if trust is not None else "",
        keys=keys,
        policy_digest=asks.world.policy_digest,
    )
