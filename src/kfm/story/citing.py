"""Sentences with the files that show them, before the files have numbers; and the numbering."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kfm.story.node import Proof, Section, Sentence
from kfm.story.stage import File

__all__ = ["Draft", "Shelf"]


@dataclass
class Draft:
    """What is said of one thing, in the order it is said."""

    when: str = ""
    listed: bool = False  # each sentence is an item of a list
    commands: tuple[str, ...] = ()
    said: list[tuple[str, tuple[File, ...]]] = field(default_factory=list)

    def say(self, text: str, *files: File) -> None:
        """Say a sentence that these files show. What nothing shows is not said."""
        if files:
            self.said.append((text, files))


class Shelf:
    """Gives every file a number when it is first cited."""

    def __init__(self) -> None:
        self._numbers: dict[File, int] = {}

    def section(self, name: str, title: str, draft: Draft) -> Section:
        """A draft with numbers."""
        return Section(
            id=name,
            title=title,
            when=draft.when,
            listed=draft.listed,
            commands=draft.commands,
            sentences=self.sentences(draft.said),
        )

    def sentences(self, said: Iterable[tuple[str, Sequence[File]]]) -> tuple[Sentence, ...]:
        return tuple(
            Sentence(text=text, evidence=tuple(dict.fromkeys(map(self._number, files))))
            for text, files in said
        )

    def _number(self, file: File) -> int:
        return self._numbers.setdefault(file, len(self._numbers) + 1)

    def proofs(self) -> tuple[Proof, ...]:
        """Every file that was cited, and those that name their digests, in the order of their
        numbers.
        """
        left = list(self._numbers)
        while left:
            by = left.pop(0).named_by
            if by is not None and by not in self._numbers:
                self._number(by)
                left.append(by)
        return tuple(
            Proof(
                n=n,
                what=file.what,
                path=file.path,
                digest=file.digest,
                named_by=self._numbers[file.named_by] if file.named_by is not None else None,
                shows=file.shows,
            )
            for file, n in self._numbers.items()
        )
