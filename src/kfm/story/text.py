"""A story as lines for a terminal: sentences with the numbers of their files, then the files."""

import textwrap
from collections.abc import Iterator

from kfm.diff.base import plain
from kfm.story.node import Proof, Section, Sentence, Story

__all__ = ["evidence_lines", "sentence_lines", "text"]


def text(story: Story, *, width: int = 80) -> str:
    """The story in lines of at most `width` characters; a path, a digest and a command is never
    broken.
    """
    return "\n".join(_lines(story, width)) + "\n"


def _lines(story: Story, width: int) -> Iterator[str]:
    yield "How this layer was produced"
    yield f"{plain(story.title)}, generation {story.generation}    {story.node_id}"
    for section in story.sections:
        yield ""
        yield section.title
        yield from _section(section, width)
    yield ""
    yield "Evidence: files below the workspace, by the numbers above"
    yield from evidence_lines(story.evidence)


def _section(section: Section, width: int) -> Iterator[str]:
    if section.listed:
        for sentence in section.sentences:
            yield from sentence_lines([sentence], width, first="  · ", rest="    ")
    else:
        yield from sentence_lines(section.sentences, width)
    for command in section.commands:
        yield f"    {command}"


def sentence_lines(
    sentences: list[Sentence] | tuple[Sentence, ...],
    width: int,
    first: str = "  ",
    rest: str = "  ",
) -> list[str]:
    """Sentences as one paragraph, each with its numbers."""
    told = " ".join(f"{plain(one.text)} [{','.join(map(str, one.evidence))}]" for one in sentences)
    return textwrap.wrap(
        told,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def evidence_lines(evidence: tuple[Proof, ...]) -> Iterator[str]:
    """Each file with its digest and the file that names it."""
    for proof in evidence:
        by = f", named by [{proof.named_by}]" if proof.named_by is not None else ""
        shows = f": {proof.shows}" if proof.shows else ""
        yield f"  [{proof.n}] {plain(proof.what)}{shows}{by}"
        yield f"      {plain(proof.path)}"
        yield f"      {proof.digest}"
