"""What a page lets its viewer decide or ask for: a run, a proposal, what was set aside, a job."""

from collections.abc import Sequence

from kfm.cli.jobs import Job
from kfm.cli.quarantine import OneAside, ShownRow
from kfm.console.act import OPERATES
from kfm.console.review import REVIEWS
from kfm.pages import addresses
from kfm.pages.forms import button, field, form, may
from kfm.pages.html import Html, Inside, el
from kfm.pages.layout import Frame
from kfm.pages.parts import command, section, with_commands

__all__ = ["aside_forms", "job_forms", "proposal_forms", "run_form"]

_COLUMNS, _MOST_COLUMNS = 5, 100  # of a row that a form corrects at once


def run_form(frame: Frame, dataset_id: str) -> Html | None:
    """Ask for a run of a dataset."""
    if not may(frame, OPERATES):
        return None
    action = f"{addresses.dataset(dataset_id)}/run"
    return form(frame, action, button("Ask for a run"), class_="inline")


def job_forms(frame: Frame, job: Job) -> Html | None:
    """Try a job again that was put aside, or end one."""
    if not may(frame, OPERATES):
        return None
    act, word = ("retry", "Retry") if job.state == "ended" else ("cancel", "Cancel")
    label = (word, el("span", f" {job.job_type} {job.dataset_id} {job.job_id[:8]}", class_="vh"))
    return form(frame, f"/queue/{job.job_id}/{act}", button(label), class_="inline")


# ---- a proposal ----------------------------------------------------------------------------------
def proposal_forms(frame: Frame, number: int, exact: str) -> Inside:
    """Say yes or no with one's own key: in this browser, or where the key lies. `exact`: the digest
    that the page shows, which is to be the one that is signed.
    """
    if not may(frame, REVIEWS):
        return None
    return (
        el("h3", "Sign with a key"),
        _statement(frame, number, exact),
        el("h3", "Bring a signed word"),
        _brought(frame, number),
    )


def _statement(frame: Frame, number: int, exact: str) -> Html:
    """Without scripts it gives the statement as a file; with them a key signs it here."""
    return el(
        "form",
        field(
            "name",
            "Your name, as your key has it",
            id="sign-name",
            value=frame.who if frame.role and frame.who != "On this machine" else None,
            required=True,
            maxlength=200,
            autocomplete="name",
        ),
        field(
            "reason",
            "Reason",
            hint="It is signed with your word. A rejection needs one.",
            id="sign-reason",
            tag="textarea",
            maxlength=2000,
            rows=3,
        ),
        el(
            "div",
            el("label", "Your key, a .key file", for_="sign-key"),
            el(
                "p",
                "It is read by this page and is never sent.",
                class_="hint",
                id="sign-key-hint",
            ),
            # without a name it is part of no form
            el(
                "input",
                type="file",
                id="sign-key",
                class_="field",
                accept=".key,.pem",
                aria_describedby="sign-key-hint",
            ),
            id="sign-here",
            hidden=True,
        ),
        el(
            "p",
            button("Approve", kind="primary", name="verdict", value="approve"),
            " ",
            button("Reject", kind="danger", name="verdict", value="reject"),
            class_="actions",
        ),
        el("p", role="status", id="sign-said", class_="hint"),
        el(
            "p",
            "You get the statement as a file. Sign it where your key lies:",
            class_="hint",
            id="sign-there",
        ),
        command(f"kfm keys sign proposal-{number}-approve.json --key FILE"),
        action=f"/proposals/{number}/word",
        method="get",
        class_="form",
        id="sign",
        data_exact=exact,
    )


def _brought(frame: Frame, number: int) -> Html:
    return form(
        frame,
        f"/proposals/{number}/word",
        field(
            "envelope",
            with_commands("What `kfm keys sign` printed"),
            tag="textarea",
            id="bring-text",
            rows=4,
            spellcheck="false",
            maxlength=65_536,
        ),
        field("file", "Or the file that holds it", type="file", id="bring-file"),
        el("p", button("Bring it")),
        upload=True,
        id="bring",
    )


# ---- what was set aside --------------------------------------------------------------------------
def aside_forms(frame: Frame, one: OneAside) -> Inside:
    """Correct a row, leave it out, or have it worked again."""
    at = f"/quarantine/{one.run_id}"
    parts: list[Inside] = []
    open_yet = one.state in ("open", "fixed", "accepted") and one.current
    if may(frame, REVIEWS) and open_yet:
        if one.rows and not one.private:
            parts.append(_correct(frame, at, one.rows, one.columns))
        if any(line.startswith("kfm quarantine accept") for line in one.next):
            parts.append(_leave_out(frame, at, one))
    if may(frame, OPERATES) and any(line.startswith("kfm quarantine replay") for line in one.next):
        parts.append(
            section(
                "replay",
                "Work it again",
                form(
                    frame,
                    f"{at}/replay",
                    el("p", "Upstream is not asked; the capture is worked with what was decided."),
                    el("p", button("Ask for a replay", kind="primary")),
                ),
            )
        )
    return el("div", parts, class_="forms") if parts else None


def _reason(name: str) -> Html:
    return field("reason", "Reason", hint="It is recorded.", id=name, required=True, maxlength=2000)


def _correct(frame: Frame, at: str, rows: Sequence[ShownRow], columns: Sequence[str]) -> Html:
    """Several columns of a row at once: it is corrected as a whole, and the last word counts."""
    own = list(dict.fromkeys(name for row in rows for name in (*row.blank, *row.columns)))
    known = own or columns  # a source that connector code reads has columns of its own
    many = min(_MOST_COLUMNS, max(_COLUMNS, *(len(row.blank) for row in rows)))
    return section(
        "correct",
        "Correct a row",
        form(
            frame,
            f"{at}/fix",
            field("row", "Row", id="fix-row", type="number", min=1, value=rows[0].n, required=True),
            el("datalist", [el("option", value=name) for name in known], id="fix-columns"),
            _cell(1),
            el(
                "details",
                el("summary", "More columns of this row"),
                el("div", map(_cell, range(2, many + 1)), class_="form"),
            ),
            _reason("fix-reason"),
            el("p", button("Correct it")),
        ),
    )


def _cell(number: int) -> Inside:
    """A column, and what is right in it."""
    first = number == 1
    end, of = ("", "") if first else (f".{number}", f" {number}")
    hint = "As it would stand in the source; nothing means that there is no value."
    where = "" if first else f"-{number}"
    return (
        field(
            f"column{end}",
            f"Column{of}",
            id=f"fix-column{where}",
            required=first,
            maxlength=200,
            list="fix-columns",
        ),
        field(
            f"value{end}",
            f"What is right{of and f' in column{of}'}",
            hint=hint if first else "",
            id=f"fix-value{where}",
            maxlength=2000,
        ),
    )


def _leave_out(frame: Frame, at: str, one: OneAside) -> Html:
    capture = one.kind == "capture"
    told = (
        "The capture is taken as it is, without the records that cannot be used."
        if capture
        else "Rows that are left out are in no version, and are not asked about again."
    )
    row = field(
        "row", "Row", hint="Nothing: every row that is still open.", id="out-row", type="number",
        min=1,
    )  # fmt: skip
    return section(
        "leave",
        "Take it as it is" if capture else "Leave it out",
        form(
            frame,
            f"{at}/accept",
            el("p", told),
            None if capture else row,
            _reason("out-reason"),
            el("p", button("Take it" if capture else "Leave it out")),
        ),
    )
