"""Answer one of the fixed questions about a dataset from evidence, or say that it cannot be known."""

import msgspec

from kfm.access.references import dataset_of
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.call import again, reader_of
from kfm.cli.terminal import say, show, write
from kfm.story.answers import Answered, answer
from kfm.story.questions import QUESTIONS, example_of
from kfm.story.text import evidence_lines, sentence_lines
from kfm.workspace.folder import open_workspace
from kfm.workspace.targets import rebuilt_target
from kfm.workspace.wiring import open_world

__all__ = ["Listed", "Said", "asked"]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One question that can be put, and how."""

    question: str
    example: str


class Listed(Answer, frozen=True, kw_only=True):
    """The questions that can be asked."""

    dataset_id: str
    questions: tuple[Asked, ...]

    def tell(self, call: Call) -> None:
        for one in self.questions:
            write(f"  {one.question}")
            write(f'      kfm ask {self.dataset_id} "{one.example}"')


class Said(Answered, Answer, frozen=True, kw_only=True):
    """What evidence answers."""

    def tell(self, call: Call) -> None:
        if not self.known:
            write("Evidence does not say all of it.")
        for line in sentence_lines(self.answer, 100):
            show(line, data=True)
        write("")
        for line in evidence_lines(self.evidence):
            show(line, data=True)
        if self.receipt:
            write(f"\nReceipt  {self.receipt}")
        for command in self.next:
            say(again(call, command.removeprefix("kfm ")))


def asked(call: Call, ref: str, words: list[str], reader: str | None) -> Listed | Said:
    workspace = open_workspace(call.workspace)
    dataset_id = dataset_of(ref)
    if not words:
        entry = workspace.require(dataset_id)
        columns = [column.name for column in entry.schema]
        told = tuple(
            Asked(question=q.text, example=example_of(q, entry.business_key, columns))
            for q in QUESTIONS
        )
        return Listed(dataset_id=dataset_id, questions=told)
    with open_world(workspace, asks=True) as world:
        if not world.data.exists(world.channel(dataset_id).path(1)):
            workspace.require(dataset_id)  # a typing mistake gets the nearest name
        found = answer(
            world, ref, " ".join(words), reader_of(reader), lambda r: rebuilt_target(workspace, r)
        )
    return answering(Said, found)
