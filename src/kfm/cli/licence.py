"""Ask for a licence, record the one that was given, or sign that a dataset may be public although
its licence says less.
"""

from pathlib import Path

from kfm.acts.reconsider import reconsider
from kfm.cli.answer import Answer, Call
from kfm.cli.approve import signer_of
from kfm.cli.call import again
from kfm.cli.terminal import write
from kfm.gates.mandatory import check_licence, is_spdx
from kfm.grants.permit import Permit, write_permit
from kfm.model import DatasetEntry, UsageError, ids, restrictions, rfc3339
from kfm.model.paths import registry_path
from kfm.workspace.config import change_entry
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World

__all__ = ["Allowed", "Letter", "Recorded", "allow", "letter", "record"]


class Letter(Answer, frozen=True, kw_only=True):
    """What to write to the source."""

    dataset_id: str
    letter: str

    def tell(self, call: Call) -> None:
        write(self.letter)


class Recorded(Answer, frozen=True, kw_only=True):
    """A licence that was given, and where its proof is kept."""

    status: str
    dataset_id: str
    licence: str
    proof: str

    def tell(self, call: Call) -> None:
        write(
            f"{self.dataset_id} is {self.licence}, proof kept as data/registry/{self.proof}\n\nNext "
            f" {again(call, f'run {self.dataset_id}')}"
        )


class Allowed(Answer, frozen=True, kw_only=True):
    """What may be public although its licence, or the records themselves, say less."""

    status: str
    paths: list[str]
    permits: list[Permit]
    judged_again: int

    def tell(self, call: Call) -> None:
        first = self.permits[0]
        what = (
            f"records with {first.column}={first.value}"
            if first.about == "records"
            else f"data under {', '.join(p.licence for p in self.permits)}"
        )
        write(
            f"{first.person} signed that {what} of {first.dataset_id} may be public\n\nNext "
            f" {again(call, f'run {first.dataset_id}')}"
        )


def letter(call: Call, dataset: str) -> Letter:
    workspace = open_workspace(call.workspace)
    entry = workspace.require(dataset)
    with open_world(workspace) as world:
        rows = world.store.read(lambda tx: tx.runs.recent(dataset, 1))
    seen = rows[0].timestamp[:10] if rows else None
    return Letter(dataset_id=dataset, letter=_letter(entry, seen))


def record(call: Call, dataset: str, licence: str, proof: Path) -> Recorded:
    workspace = open_workspace(call.workspace)
    workspace.require(dataset)
    check_licence(licence)
    with open_world(workspace) as world:
        kept, _ = _keep_proof(world, dataset, proof)
        change_entry(workspace.path, dataset, {"licence": licence, "licence_proof": kept})
        world.latest.follow(world)
    return Recorded(status="recorded", dataset_id=dataset, licence=licence, proof=kept)


def _keep_proof(world: World, dataset_id: str, path: Path) -> tuple[str, str]:
    """(where the proof is kept below data/registry, its digest)."""
    try:
        proof = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}.",
            expected="the proof",
            remedy="Check the path.",
        ) from error
    kept = f"proofs/{dataset_id}-{ids.digest(proof)[7:23]}{path.suffix}"
    world.data.create(registry_path(kept), proof)
    return kept, ids.digest(proof)


def allow(
    call: Call,
    dataset: str,
    proof: Path | None,
    records: str | None,
    reason: str,
    key: str | None,
) -> Allowed:
    """Sign permits for every licence that needs one, or for the records with one value; what waited
    for it is judged again.
    """
    workspace = open_workspace(call.workspace)
    entry = workspace.require(dataset)
    if not reason.strip():
        raise UsageError(
            "A permit needs a reason.",
            expected='--reason "…"',
            remedy="Say why; it is signed with it.",
        )
    column, sep, value = (records or "").partition("=")
    if records is not None and not (sep and column):
        raise UsageError(
            "--records is not COLUMN=VALUE.",
            expected="--records access=restricted",
            remedy="Name the column and the value that says it.",
        )
    with open_world(workspace) as world:
        stated = _restricted(world, dataset)
        if records is None and not stated:
            raise UsageError(
                f"{dataset} needs no permit: {entry.licence or 'no licence'} is registered.",
                expected="a licence that does not let everybody use and pass it on",
                remedy=f"`kfm gates {dataset}` says what else keeps it from being published.",
            )
        signer = signer_of(world, workspace, key)
        said = {
            "dataset_id": dataset,
            "person": signer.name,
            "reason": reason.strip(),
            "made_at": rfc3339(world.clock.now()),
        }
        if proof is not None:
            said["proof"] = _keep_proof(world, dataset, proof)[1]
        if records is not None:
            permits = [Permit(about="records", column=column, value=value, **said)]
        else:
            permits = [Permit(about="licence", licence=licence, **said) for licence in stated]
        return Allowed(
            status="allowed",
            paths=[write_permit(world, permit, signer) for permit in permits],
            permits=permits,
            judged_again=reconsider(world, dataset),
        )


def _restricted(world: World, dataset_id: str) -> list[str]:
    """The licences of a dataset and what it is made from that do not let everybody use it."""
    stated = (e.licence for e in world.family(dataset_id))
    return list(dict.fromkeys(s for s in stated if s and is_spdx(s) and restrictions(s)))


def _lasting(address: str) -> str:
    """As much of an address as is the same for every run: without what each fills in."""
    path, _, query = address.partition("?")
    head, brace, _ = path.partition("{")
    if brace:
        return head[: head.rindex("/") + 1]
    fields = [field for field in query.split("&") if field and "{" not in field]
    return f"{path}?{'&'.join(fields)}" if fields else path


def _letter(entry: DatasetEntry, seen: str | None) -> str:
    where = _lasting(entry.source.url or "") or ", ".join(entry.source.datasets)
    last = f"It was last read on {seen}. " if seen else ""
    return f"""To: {entry.custodian or "the publisher of " + entry.title}
Subject: Under which licence may {entry.title} be used?

We keep the dataset "{entry.title}" fresh from

  {where}

{last}We find no licence stated there. Without one nobody may publish it, so it stays unpublished.

Would you tell us the licence, as an SPDX identifier (for example CC0-1.0 or CC-BY-4.0), and the page that states it?
A reply to this letter is enough; it is kept with the dataset as proof.
"""
