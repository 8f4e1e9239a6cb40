"""Print how to cite a version: it names exactly these bytes for ever."""

import msgspec

from kfm.access.boundary import cited
from kfm.access.references import dataset_of
from kfm.cli.answer import Answer, Call
from kfm.cli.call import emit, reader_of
from kfm.cli.terminal import write
from kfm.upkeep.citation import Form, quoted
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Citation", "cite"]


class Issued(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When, as CSL says it."""

    parts: list[list[int]] = msgspec.field(name="date-parts", default_factory=list)


class Citation(Answer, frozen=True, kw_only=True):
    """A citation as reference managers read it, CSL-JSON; in words it is printed in its form."""

    id: str
    type: str
    title: str
    publisher: str
    version: str
    issued: Issued
    address: str = msgspec.field(name="URL")
    license: str | None
    note: str


def cite(call: Call, ref: str, format: Form, reader: str | None) -> Citation:
    workspace = open_workspace(call.workspace)
    with open_world(workspace, asks=True) as world:
        entry = workspace.require(dataset_of(ref))
        found = quoted(world, entry, cited(world, ref, reader_of(reader)))
    answer = msgspec.convert(found.csl, Citation)
    if not call.json and format == "csl":
        emit(answer)
    elif not call.json:
        write(found.bibtex if format == "bibtex" else found.text(ref))
    return answer
