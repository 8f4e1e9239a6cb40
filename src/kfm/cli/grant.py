"""Grant the use of a dataset, or list its grants. A grant names a person, a purpose, the steward
who signs and the day it ends.
"""

import datetime as dt

import msgspec
from msgspec import UNSET

from kfm.acts.reconsider import reconsider
from kfm.cli.answer import Answer, Call, answering
from kfm.cli.approve import signer_of
from kfm.cli.terminal import show, table, write
from kfm.grants.grant import Grant, grants_of, write_grant
from kfm.grants.permit import Permit, write_permit
from kfm.model import DatasetEntry, UsageError, rfc3339
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Granted", "Grants", "ShownColumn", "day_of", "give", "grants", "show_column"]


class Held(Grant, frozen=True, kw_only=True):
    """A grant and whether it counts."""

    state: str  # valid, expired, or why it does not count


class Grants(Answer, frozen=True, kw_only=True):
    """The grants of a dataset, or of all."""

    grants: list[Held]

    def tell(self, call: Call) -> None:
        heads = ("dataset", "person", "for", "steward", "until", "state")
        cells = [
            (g.dataset_id, g.person, g.purpose, g.steward, g.expires[:10], g.state)
            for g in self.grants
        ]
        for line in table(heads, cells) if cells else ():
            show(line)
        write("1 grant" if len(cells) == 1 else f"{len(cells)} grants")


class Granted(Grant, Answer, frozen=True, kw_only=True):
    """A grant that was signed now."""

    status: str
    path: str

    def tell(self, call: Call) -> None:
        write(
            f"{self.steward} grants {self.person} the use of {self.dataset_id} for {self.purpose}"
            f" until {self.expires[:10]}"
        )


class ShownColumn(Permit, Answer, frozen=True, kw_only=True):
    """A column that a steward shows although something was found in it."""

    status: str
    path: str
    judged_again: int

    def tell(self, call: Call) -> None:
        write(
            f"{self.person} shows {self.column} of {self.dataset_id} although it has {self.value}:"
            f" {self.reason}"
        )


def grants(call: Call, dataset: str | None) -> Grants:
    workspace = open_workspace(call.workspace)
    if dataset is not None:
        workspace.require(dataset)
    with open_world(workspace) as world:
        return Grants(
            grants=[
                Held(**msgspec.structs.asdict(grant), state=state)
                for name in ([dataset] if dataset is not None else workspace.registered())
                for grant, state in grants_of(world, name)
            ]
        )


def give(
    call: Call, dataset: str, to: str | None, purpose: str, expires: str | None, key: str | None
) -> Granted:
    workspace = open_workspace(call.workspace)
    workspace.require(dataset)
    person, purpose = (to or "").strip(), purpose.strip()
    if not person or not purpose or not expires:
        raise UsageError(
            "A grant names person, purpose and end.",
            expected="--to, --purpose and --expires",
            remedy="Add them.",
        )
    with open_world(workspace) as world:
        until = day_of(expires, world.clock.now())
        signer = signer_of(world, workspace, key)
        grant = Grant(
            dataset_id=dataset, person=person, purpose=purpose, steward=signer.name, expires=until
        )
        path = write_grant(world, grant, signer)
    return answering(Granted, grant, status="granted", path=path)


def show_column(
    call: Call, dataset: str, show: str, despite: str | None, reason: str, key: str | None
) -> ShownColumn:
    """A steward's word that a column is shown, with the reason; what waited for it is judged
    again.
    """
    workspace = open_workspace(call.workspace)
    _check_named(workspace.require(dataset), show)
    given = {"--despite WHAT": despite is not None, "--reason": reason.strip()}
    if lacking := [flag for flag, there in given.items() if not there]:
        raise UsageError(
            f"To show {show} takes {' and '.join(lacking)}.",
            expected=f"kfm grant column {dataset} {show} --despite WHAT --reason …",
            remedy=(
                "Say what was found in it and why it is shown all the same; `kfm explain deny"
                f" {dataset}` and `kfm dataset check {dataset}` print the whole command."
            ),
        )
    with open_world(workspace) as world:
        signer = signer_of(world, workspace, key)
        permit = Permit(
            dataset_id=dataset,
            about="column",
            column=show,
            value=despite or "",
            person=signer.name,
            reason=reason.strip(),
            made_at=rfc3339(world.clock.now()),
        )
        path = write_permit(world, permit, signer)
        again = reconsider(world, dataset)
    return answering(ShownColumn, permit, status="shown", path=path, judged_again=again)


def _check_named(entry: DatasetEntry, column: str) -> None:
    """What is not shown at all stays withheld whatever somebody says of it."""
    release = entry.release
    listed = release.show if release is not None and release.show is not UNSET else ()
    if column not in listed:
        raise UsageError(
            f"`release.show` of {entry.dataset_id} does not name {column}, so it stays withheld.",
            expected=f"a column that it names ({', '.join(listed) or 'it names none'})",
            remedy=(
                f"Add it to `release.show` in data/registry/{entry.dataset_id}.yml first, or name"
                " one of these."
            ),
        )


def day_of(text: str, now: dt.datetime) -> str:
    """The end that a person names, which is still to come. Raises `UsageError`."""
    try:
        given = dt.datetime.fromisoformat(text)
        day = (given if given.tzinfo else given.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{text!r} is not a day.",
            expected="such as 2027-06-30",
            remedy="Write the last day it holds, as year-month-day.",
        ) from error
    if day <= now:
        raise UsageError(
            f"{text} has passed.",
            expected="a day after today",
            remedy="A grant that has ended lets nobody do anything.",
        )
    return rfc3339(day)
