"""Proposals as pull requests: preview, attest, promote.

A pull request shows what every gate said of a candidate. A merge is the trigger and no more: what it is
about is compared again, and the engine promotes only what gates and signed approvals let through.
"""

import msgspec

from kfm.evidence.proposal import count, run_of
from kfm.extras.github.branches import base_branch, differing, keep_branch
from kfm.extras.github.checks import Check, keep_checks
from kfm.extras.github.client import Hub
from kfm.extras.github.comments import keep_comment
from kfm.extras.github.evidence import Shown, branch_of, folder_of_proposal, shown
from kfm.extras.github.pulls import Pull, close_pull, keep_pull, pull_at, touched
from kfm.jobs.promote_here import promote_run
from kfm.model import Denied, IntegrityError, KfmError, LedgerRow, Verdict, canonical
from kfm.model.paths import pull_path, pulls_folder
from kfm.world.outcome import Outcome
from kfm.world.world import World

__all__ = ["Record", "Requested", "promote", "propose", "sync"]

_WORDS = {"pass": "success", "review": "neutral", "deny": "failure"}
PROMOTION = "kfm/promotion"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """`ledger/pulls/<run_id>.json`: the pull request of a proposal."""

    repository: str
    pull: int
    branch: str
    dataset_id: str
    run_id: str
    proposal: int


class Requested(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one proposal on GitHub."""

    dataset_id: str
    proposal: int
    pull: int | None = None
    url: str = ""
    state: str = ""  # open, closed, merged
    outcome: str = ""  # of the run, when it has ended or a merge was tried
    reason: str = ""
    exit_code: int = 0


def propose(hub: Hub, world: World, number: int, *, draft: bool = False) -> Requested:
    """Let a pull request show the proposal as it is now; nothing is done where it does already."""
    row = run_of(world, number)
    if row.state != "PROPOSED":
        raise Denied(
            f"Proposal {number} is {row.state}.",
            expected="a proposal that waits",
            remedy="`kfm review` lists them.",
        )
    seen, base = shown(world, row, number), base_branch(hub)
    title = f"{row.dataset_id}: version {str(row.version_id)[:9]} on generation {row.pinned}"
    mark = f"<!-- kfm:candidate {seen.candidate_digest} -->"
    folder, branch = folder_of_proposal(row), branch_of(row)
    sha = keep_branch(hub, branch, base, folder, seen.files, f"{title}\n\nproposal {number}")
    pull = keep_pull(hub, branch, base, title, f"{mark}\n{_body(row, number)}", draft=draft)
    _remember(hub, world, row, number, pull)
    if pull.state == "open":
        keep_checks(hub, sha, _checks(world, row, seen))
        keep_comment(hub, pull.number, "proposal", _comment(world, row, seen))
    return _requested(row, number, pull)


def sync(hub: Hub, world: World) -> list[Requested]:
    """Bring both sides together: what was merged is promoted, what ended is told, what waits has an
    open pull request. What may not be shown stays here, and is no failure.
    """
    done = promote(hub, world)
    at_hand = {each.proposal for each in done}
    waiting = world.store.read(lambda tx: tx.proposals.waiting())
    for number, row in waiting:
        if number in at_hand:
            continue
        try:
            done.append(propose(hub, world, number))
        except Denied as error:
            done.append(
                Requested(dataset_id=row.dataset_id, proposal=number, reason=error.happened)
            )
    return done


def promote(hub: Hub, world: World) -> list[Requested]:
    """Promote what was merged and tell what became of everything that has a pull request."""
    done = []
    waiting = {branch_of(row) for _, row in world.store.read(lambda tx: tx.proposals.waiting())}
    for record in _records(world, hub.place.full):
        row = world.store.read(lambda tx: tx.runs.get(record.run_id))
        pull = pull_at(hub, record.pull)
        if row is None or pull is None:
            continue
        if row.state == "SUPERSEDED" and not pull.merged and record.branch in waiting:
            # a newer candidate takes its place in the same pull request
            world.root.create(pull_path(row.run_id, ".told"), b"told\n")
        elif row.state != "PROPOSED":
            done.append(_tell_end(hub, world, row, record, pull))
        elif pull.merged:
            done.append(_merged(hub, world, row, record, pull))
    return done


# ---- after a merge -----------------------------------------------------------------------------
def _merged(hub: Hub, world: World, row: LedgerRow, record: Record, pull: Pull) -> Requested:
    try:
        _compare(hub, world, row, record, pull)
        outcome = promote_run(world, row)
    except (Denied, IntegrityError) as error:
        outcome = Outcome(
            dataset_id=row.dataset_id,
            run_id=row.run_id,
            state="REFUSED",
            reason=error.happened,
            exit_code=error.exit_code,
            remedy=error.remedy,
        )
    now = world.store.read(lambda tx: tx.runs.get(row.run_id)) or row
    if now.state != "PROPOSED":
        return _tell_end(hub, world, now, record, pull)
    _told(hub, pull, record, *_words_of(world, now, record, outcome))
    return _requested(now, record.proposal, pull, outcome)


def _compare(hub: Hub, world: World, row: LedgerRow, record: Record, pull: Pull) -> None:
    """The candidate in the branch is the one here, and nobody but us wrote the branch. Raises
    `Denied` with what differs.
    """
    folder = folder_of_proposal(row)
    if (pull.from_repository, pull.branch) != (hub.place.full, record.branch):
        raise _refused(f"#{pull.number} is not of our own branch.")
    if pull.base != base_branch(hub):
        raise _refused(f"#{pull.number} was merged into {pull.base}.")
    others = [name for name in touched(hub, pull.number) if not name.startswith(f"{folder}/")]
    if others:
        raise _refused(f"#{pull.number} also changes {others[0]}.")
    ours = shown(world, row, record.proposal).files
    for commit in (pull.head, str(pull.merge_commit)):
        if wrong := differing(hub, commit, folder, ours):
            raise _refused(f"{wrong[0]} in commit {commit[:12]} is not that of the candidate here.")


def _refused(why: str) -> Denied:
    return Denied(
        why,
        expected="a pull request that kfm wrote, about exactly the bytes that lie here",
        remedy="`kfm github propose` opens another one for what waits now.",
    )


def _words_of(
    world: World, row: LedgerRow, record: Record, outcome: Outcome
) -> tuple[str, str, str]:
    """Conclusion, title and text for a merge that made nothing official."""
    if outcome.state == "PROPOSED" and outcome.exit_code == 7:
        given, needed = count(world, row)
        title = f"merged, and waits for approvals: {given} of {needed}"
        text = (
            f"{title}. An approval on GitHub is no signature: `kfm approve {record.proposal} --key"
            " NAME` signs, then `kfm github promote` makes it official."
        )
        return "action_required", title, text
    reasons = [f"- {r['message']} {r['remedy']}" for r in outcome.reasons]
    text = "\n".join([f"Refused: {outcome.reason} {outcome.remedy}".strip(), *reasons])
    return "failure", f"refused: {outcome.reason}", text


def _tell_end(hub: Hub, world: World, row: LedgerRow, record: Record, pull: Pull) -> Requested:
    """A run that has ended is told once, and its pull request closed."""
    if row.state == "COMMITTED":
        made = world.store.read(lambda tx: tx.index.generations(row.dataset_id))
        number = next((g.generation for g in made if g.run_id == row.run_id), row.intent)
        words = ("success", f"official as generation {number}")
    else:
        words = ("failure", f"{row.state.lower()}: {row.reason or 'it has ended'}")
    _told(hub, pull, record, *words, f"{words[1][:1].upper()}{words[1][1:]}.")
    close_pull(hub, pull)
    world.root.create(pull_path(row.run_id, ".told"), b"told\n")
    code = 0 if row.state in ("COMMITTED", "SUPERSEDED") else Denied.exit_code
    done = _requested(row, record.proposal, pull)
    return msgspec.structs.replace(done, outcome=row.state, reason=words[1], exit_code=code)


def _told(hub: Hub, pull: Pull, record: Record, conclusion: str, title: str, text: str) -> None:
    """The reason as a check and as a comment."""
    check = Check(
        name=PROMOTION, conclusion=conclusion, title=title, about=record.run_id, text=text
    )
    keep_checks(hub, pull.head, [check])
    keep_comment(hub, pull.number, "promotion", text)


# ---- what is shown -----------------------------------------------------------------------------
def _checks(world: World, row: LedgerRow, seen: Shown) -> list[Check]:
    private = world.is_withheld(row.dataset_id)
    given, needed = count(world, row)
    enough = given >= needed
    return [
        *(_check(v, seen.candidate_digest, private) for v in seen.proposal.verdicts),
        Check(
            name="kfm/approvals",
            conclusion="success" if enough else "action_required",
            title=f"{given} of {needed} approvals",
            about=seen.candidate_digest,
        ),
    ]


def _check(verdict: Verdict, about: str, private: bool) -> Check:
    """Of a dataset that is not public the codes are told, which never quote a record."""
    why = [*verdict.reasons, *verdict.review]
    said = [r.code if private else f"{r.code}: {r.message} {r.remedy}" for r in why]
    title = "; ".join(r.code for r in why) or ("" if private else verdict.note)
    return Check(
        name=f"kfm/{verdict.gate}",
        conclusion=_WORDS[verdict.word],
        title=title or verdict.word,
        about=about,
        text="\n".join(said),
    )


def _body(row: LedgerRow, number: int) -> str:
    return (
        f"Proposal {number} of `{row.dataset_id}`. `proposals/` holds its evidence: digests,"
        " catalogs and verdicts.\n\nA merge promotes exactly these digests, compared again then."
        " Where people have to approve, their signatures count (`kfm approve"
        f" {number}`), not the buttons here."
    )


def _comment(world: World, row: LedgerRow, seen: Shown) -> str:
    private = world.is_withheld(row.dataset_id)
    given, needed = count(world, row)
    lines = ["| gate | says | |", "|---|---|---|"]
    for check in (_check(v, "", private) for v in seen.proposal.verdicts):
        note = check.title.replace("|", "/").replace("`", "'")
        lines.append(f"| {check.name.removeprefix('kfm/')} | {check.conclusion} | `{note}` |")
    rows = seen.rows or "Nothing is official yet, or the rows cannot be compared here."
    return "\n".join(
        [
            f"**{row.dataset_id}**, proposal {seen.number}, version `{row.version_id}`, on"
            f" generation {row.pinned}",
            "",
            *lines,
            "",
            rows,
            "",
            f"Candidate `{seen.candidate_digest}`, {given} of {needed} approvals.",
        ]
    )


# ---- what is remembered ------------------------------------------------------------------------
def _remember(hub: Hub, world: World, row: LedgerRow, number: int, pull: Pull) -> None:
    record = Record(
        repository=hub.place.full,
        pull=pull.number,
        branch=pull.branch,
        dataset_id=row.dataset_id,
        run_id=row.run_id,
        proposal=number,
    )
    world.root.replace(pull_path(row.run_id), canonical.dumps(msgspec.to_builtins(record)) + b"\n")


def _records(world: World, repository: str) -> list[Record]:
    """Pull requests whose end was not told yet."""
    found = []
    for path in world.root.names(pulls_folder()):
        if path.endswith(".json") and not world.root.exists(path.removesuffix(".json") + ".told"):
            try:
                record = msgspec.json.decode(world.root.read(path), type=Record)
            except (msgspec.DecodeError, KfmError, OSError):
                continue
            found += [record] if record.repository == repository else []
    return found


def _requested(
    row: LedgerRow, number: int, pull: Pull, outcome: Outcome | None = None
) -> Requested:
    return Requested(
        dataset_id=row.dataset_id,
        proposal=number,
        pull=pull.number,
        url=pull.url,
        state="merged" if pull.merged else pull.state,
        outcome=outcome.state if outcome is not None else "",
        reason=outcome.reason if outcome is not None else "",
        exit_code=outcome.exit_code if outcome is not None else 0,
    )
