"""The questions that can be asked of a dataset, and which of them some words mean."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["QUESTIONS", "Meant", "Question", "example_of", "meant"]


@dataclass(frozen=True)
class Question:
    """One question, the words that speak for it, and how it is put."""

    id: str
    text: str
    strong: frozenset[str]
    weak: frozenset[str]
    example: str  # `example_of` puts the columns of a dataset into it


def _q(id: str, text: str, strong: str, weak: str, example: str) -> Question:
    return Question(id, text, frozenset(strong.split()), frozenset(weak.split()), example)


QUESTIONS = (
    _q("from", "Where does it come from?", "where source sources origin upstream", "from come comes fetched made", "where does it come from"),
    _q("touched", "Who touched it?", "who touched whom approved signed people", "by asked agreed", "who touched it"),
    _q("rule", "Which rule let it out, and which held something back?", "rule rules policy gate gates allowed withheld", "let held back which checked", "which rule let it out"),
    _q("had", "Which version had this row?", "version versions generation had contained held_it", "which row rows", "which version had {key}"),
    _q("missing", "Why is it missing?", "missing gone absent lost disappeared vanished refused", "why not there removed", "why is {row} missing"),
    _q("changed", "When did it change?", "when changed change changes updated", "last did since", "when did {cell} change"),
    _q("fresh", "How fresh is it?", "fresh stale old current recent late date", "how up to newest", "how fresh is it"),
    _q("use", "May I use it?", "use licence license may reuse share cite publish", "can i under", "may I use it"),
)  # fmt: skip


def example_of(question: Question, key: Sequence[str], columns: Iterable[str]) -> str:
    """How a question is put to a dataset with this key and these columns; VALUE stands for what a
    row has there.
    """
    pairs = " ".join(f"{name}=VALUE" for name in key or ("COLUMN",))
    row = "VALUE" if len(key) == 1 else pairs
    other = next((name for name in columns if name not in key), "")
    cell = f"the {other} of {row}" if other else row
    return question.example.format(key=pairs, row=row, cell=cell)


_FILLERS = frozenset(
    [
        "a",
        "an",
        "and",
        "any",
        "are",
        "at",
        "be",
        "been",
        "did",
        "do",
        "does",
        "for",
        "has",
        "have",
        "he",
        "her",
        "his",
        "how",
        "i",
        "in",
        "is",
        "it",
        "its",
        "me",
        "my",
        "of",
        "on",
        "one",
        "or",
        "our",
        "she",
        "so",
        "that",
        "the",
        "their",
        "them",
        "there",
        "they",
        "this",
        "to",
        "us",
        "was",
        "we",
        "were",
        "what",
        "which",
        "why",
        "will",
        "with",
        "you",
        "your",
        "row",
        "rows",
        "record",
        "records",
        "value",
        "values",
        "cell",
        "column",
        "key",
        "data",
        "dataset",
        "layer",
    ]
)


@dataclass(frozen=True)
class Meant:
    """The question that words mean, and the words that are left: a key, a column."""

    question: Question
    left: tuple[str, ...]


def meant(text: str) -> Meant | None:
    """What is asked; None: nothing that can be answered here, or two things at once."""
    words = re.findall(r"[^\s?!,;“”\"']+", text)
    plain = [word.lower().rstrip(".:") for word in words]
    scores = [(3 * len(q.strong & {*plain}) + len(q.weak & {*plain}), q) for q in QUESTIONS]
    best = max(score for score, _ in scores)
    found = [q for score, q in scores if score == best]
    # a person before a time: "who changed it" asks for somebody
    chosen = next((q for q in found if q.id == "touched"), found[0])
    if not best or (len(found) > 1 and chosen.id != "touched"):
        return None
    spoken = chosen.strong | chosen.weak | _FILLERS
    left = (w.rstrip(".:") for w, p in zip(words, plain) if "=" in w or p not in spoken)
    return Meant(chosen, tuple(left))
