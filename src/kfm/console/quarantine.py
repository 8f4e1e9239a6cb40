"""Work what was set aside: say what a row should have been, leave it out, or have it worked again."""

import re
from collections.abc import Iterator

from litestar.handlers import HTTPRouteHandler

from kfm.cli.jobs import Wish, asked
from kfm.cli.quarantine_decide import accept, fix
from kfm.console.act import Doing, Done, Form, acts
from kfm.console.review import REVIEWS
from kfm.jobs.replay import REPLAY
from kfm.model import LedgerRow
from kfm.reader.door import BadQuestion, Hidden, whole_number

__all__ = ["ROUTES"]

_RUN = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_SET = "set."  # how the fields of columns begin
_PAIR = re.compile(r"(column|value)(\.[0-9]{1,3})?")


@acts("/quarantine/{run_id:str}/accept", "leave out what was set aside", REVIEWS)
def leave_out(doing: Doing) -> Done:
    """What was set aside stays out, or a capture is taken without it."""
    row = _run(doing)
    number = _row(doing) if doing.form.text("row") else None
    found = accept(doing.call, row.run_id, number, doing.form.text("reason"), doing.name)
    return _decided(row, found.said)


@acts("/quarantine/{run_id:str}/fix", "correct what was set aside", REVIEWS)
def correct(doing: Doing) -> Done:
    """Say what a row should have been. A field that is left as it is says nothing."""
    row = _run(doing)
    sets = [
        f"{name.removeprefix(_SET)}={value.strip()}"
        for name, value in doing.form.items()
        if name.startswith(_SET) and value.strip()
    ]
    for column, value in _pairs(doing.form):
        sets.append(f"{column}={value}")
    found = fix(doing.call, row.run_id, _row(doing), sets, doing.form.text("reason"), doing.name)
    return _decided(row, found.said)


def _pairs(form: Form) -> Iterator[tuple[str, str]]:
    """Columns and what is right in each, `column` and `value`, `column.2` and `value.2` and so on;
    no value says that there is none.
    """
    names = set[str]()
    for field in sorted(filter(_PAIR.fullmatch, form)):
        name = field.replace("value", "column")
        column, value = form.text(name, 200), form.text(name.replace("column", "value"))
        if field == name:
            if column in names:
                raise BadQuestion(f"{column[:60]!r} is corrected twice.", field)
            names |= {column} - {""}
            if column:
                yield column, value
        elif value and not column:
            raise BadQuestion(f"Which column is {value[:60]!r} of?", name)


@acts("/quarantine/{run_id:str}/replay", "ask for a replay")
def replay(doing: Doing) -> Done:
    """Have a capture worked again with what was decided."""
    row = _run(doing)
    wish = Wish(REPLAY, row.dataset_id, {"run_id": row.run_id})
    put = asked(doing.call, wish, doing.by)
    return Done(done="replay", at="/queue", dataset_id=row.dataset_id, what=put.job.job_id)


def _run(doing: Doing) -> LedgerRow:
    run_id = doing.parts["run_id"]
    if not _RUN.fullmatch(run_id):
        raise Hidden
    found: LedgerRow | None = doing.asking.world.store.read(lambda tx: tx.runs.get(run_id))
    if found is None:
        raise Hidden
    return found


def _row(doing: Doing) -> int:
    found = whole_number(doing.form.text("row"))
    if found is None:
        raise BadQuestion("row is the number of a row.", "row")
    return found


def _decided(row: LedgerRow, said: str) -> Done:
    at = f"/quarantine/{row.run_id}"
    return Done(done="decided", at=at, dataset_id=row.dataset_id, what=said)


ROUTES: tuple[HTTPRouteHandler, ...] = (leave_out, correct, replay)
