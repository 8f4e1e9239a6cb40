"""A story as Markdown: the files that show each sentence are footnotes."""

import re
from collections.abc import Iterator

from kfm.diff.base import plain
from kfm.story.node import Proof, Section, Sentence, Story

__all__ = ["markdown"]

_SIGNS = re.compile(r"([\\`*_\[\]<>|~#])")


def markdown(story: Story) -> str:
    """The whole document."""
    return "\n".join(_lines(story)) + "\n"


def _lines(story: Story) -> Iterator[str]:
    yield "# How this layer was produced"
    yield ""
    yield f"{_text(story.title)}, generation {story.generation}. Permanent address `{story.node_id}`."
    for section in story.sections:
        yield ""
        yield f"## {section.title}"
        yield ""
        yield from _section(section)
    yield ""
    yield "## Evidence"
    yield ""
    yield "Files below the workspace. Whoever doubts a sentence opens its file and computes the digest."
    yield ""
    for proof in story.evidence:
        yield _footnote(proof)


def _section(section: Section) -> Iterator[str]:
    if section.when:
        yield f"*{section.when}*"
        yield ""
    if section.listed:
        yield from (f"- {_sentence(one)}" for one in section.sentences)
    else:
        yield " ".join(map(_sentence, section.sentences))
    if section.commands:
        yield ""
        yield "```sh"
        yield from section.commands
        yield "```"


def _sentence(one: Sentence) -> str:
    return _text(one.text) + "".join(f"[^{n}]" for n in one.evidence)


def _footnote(proof: Proof) -> str:
    by = f", named by {proof.named_by}" if proof.named_by is not None else ""
    shows = f" ({_text(proof.shows)}{by})" if proof.shows else ""
    return f"[^{proof.n}]: {_text(proof.what)}{shows}: `{plain(proof.path)}`, `{proof.digest}`"


def _text(text: str) -> str:
    """Text of others as text and nothing else."""
    return _SIGNS.sub(r"\\\1", plain(text))
