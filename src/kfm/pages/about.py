"""The page that says what this is and how to check it without trusting it."""

from kfm.pages.html import Html, el
from kfm.pages.layout import Frame, Page, document
from kfm.pages.parts import card, command, digest, empty, head, kv, section
from kfm.pages.words import plural

__all__ = ["AboutPage", "render"]


class AboutPage(Page, frozen=True, kw_only=True):
    """What this is, whose keys sign here, and what is promised."""

    datasets: int
    root: str | None  # the fingerprint that everything here is signed under
    root_version: int
    expires: str
    keys: dict[str, str]  # who signs, as what
    policy_digest: str


_PROMISES = (
    ("Every version", "is kept as it was published, and named by the digest of its bytes."),
    ("What is official", "is a signed chain: nobody can change what was, unseen."),
    ("Every version", "says where it came from, what made it, which rule let it out, who agreed."),
    ("What is sensitive", "is shown only as precisely as its community allows, here too."),
    ("What may not be shown", "is not counted, named or hinted at."),
)


def render(page: AboutPage, frame: Frame) -> str:
    promises = el("ul", (el("li", el("b", a), f" {b}") for a, b in _PROMISES), class_="plain")
    steps = (
        ("Ask the publisher for the fingerprint of the root, not this page.", ""),
        ("Take a version with everything that proves it.", "kfm bundle DATASET -o f.zip"),
        (
            "Check it anywhere, without a network.",
            f"kfm verify f.zip --root {page.root or 'sha256:…'}",
        ),
        ("Or check a version's page in this browser: it says file by file what it found.", ""),
    )
    return document(
        page,
        frame,
        head(
            "About, and how to check us",
            "kfm keeps public-interest datasets fresh and can prove every byte it publishes."
            + ("" if frame.copy else f" {_published(page.datasets)}"),
        ),
        el(
            "div",
            el(
                "div",
                section("promise", "What is promised", promises),
                section(
                    "check",
                    "Do not trust this page",
                    el(
                        "ol",
                        (
                            el("li", el("div", text, command(line) if line else None))
                            for text, line in steps
                        ),
                        class_="steps",
                    ),
                ),
                class_="stack",
            ),
            el("aside", _keys(page), aria_label="Keys"),
            class_="two",
        ),
        here="/about",
    )


def _published(many: int) -> str:
    return f"{plural(many, 'dataset is', 'datasets are')} published here."


def _keys(page: AboutPage) -> list[Html]:
    if page.root is None:
        return [empty("No key signs here yet.", "kfm keys list")]
    return [
        card(
            "Root of trust",
            kv(
                (
                    ("Fingerprint", digest(page.root, "fingerprint of the root")),
                    ("Version", str(page.root_version)),
                    ("Valid until", page.expires[:10]),
                    ("Rules", digest(page.policy_digest, "digest of the rules")),
                )
            ),
        ),
        card("Who signs", kv(page.keys.items())),
    ]
