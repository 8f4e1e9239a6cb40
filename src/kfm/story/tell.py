"""Makes the story of a version: sections of sentences, each with the files that show it."""

from collections.abc import Callable, Iterator

import msgspec

from kfm.diff.base import Diff
from kfm.story import how_made, why_official
from kfm.story.citing import Draft, Shelf
from kfm.story.how_made import Telling
from kfm.story.node import Changed, Governance, Link, Produced, Story, node_id
from kfm.story.stage import Input, Stage
from kfm.story.words import trigger_words

__all__ = ["cleaned", "tell"]

SECTIONS: tuple[tuple[str, str, Callable[[Telling], Draft]], ...] = (
    ("summary", "In short", how_made.summary),
    ("asked", "Who asked for it, and what did the work", how_made.asked),
    ("sources", "What came from where, and when", how_made.sources),
    ("chain", "The way from the sources to this layer", how_made.chain),
    ("refused", "What was left out, and why", how_made.refused),
    ("steps", "What was done, step by step", how_made.steps),
    ("gates", "What was checked", why_official.gates),
    ("people", "Who agreed", why_official.people),
    ("governance", "Who may use it, and what is held back", why_official.governance),
    ("change", "What changed since the version before", why_official.change),
    ("since", "What happened to it since", why_official.since),
    ("verify", "Check it yourself", why_official.verify),
    ("cite", "How to cite it", why_official.cite),
)


def tell(telling: Telling, clean: Callable[[str], str]) -> Story:
    """The story. `clean` takes e-mail addresses, machine paths and secrets out of a text."""
    stage, shelf = telling.stage, Shelf()
    drafts = [(name, title, make(telling)) for name, title, make in SECTIONS]
    sections = tuple(shelf.section(*draft) for draft in drafts if draft[2].said)
    story = Story(
        node_id=node_id(stage.dataset_id, stage.signed.generation),
        dataset_id=stage.dataset_id,
        title=stage.title,
        generation=stage.signed.generation,
        version_id=stage.facts.version_id,
        version_digest=stage.facts.version_digest,
        address=f"kfm://dataset/{stage.dataset_id}@{stage.facts.version_id}",
        root=telling.root,
        private=stage.private,
        produced=_produced(stage),
        chain=tuple(_chain(stage)),
        books=_counts(stage),
        set_aside=dict(stage.set_aside) if stage.books is not None else None,
        dropped=dict(stage.books.dropped) if stage.books is not None else None,
        gates={v.gate: v.word for v in stage.verdicts},
        agreed=stage.agreed,
        governance=_governance(stage),
        changed=_changed(telling.diff),
        sections=sections,
        evidence=shelf.proofs(),
        cite=telling.cite,
    )
    return cleaned(story, clean)


S = msgspec.Struct


def cleaned(record: Story, clean: Callable[[str], str]) -> Story:
    """A record with every text of it cleaned."""
    return msgspec.convert(_texts(msgspec.to_builtins(record), clean), Story)


def _texts(value: object, clean: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(k): _texts(v, clean) for k, v in value.items()}
    return [_texts(v, clean) for v in value] if isinstance(value, list | tuple) else value


def _counts(stage: Stage) -> dict[str, int] | None:
    books = stage.books
    if books is None or books.gone:
        return None
    return {
        "read": books.read,
        "written": books.written,
        "unchanged": books.unchanged,
        "set_aside": books.quarantined,
        "dropped": sum(books.dropped.values()),
    }


def _produced(stage: Stage) -> Produced:
    receipt, lineage = stage.receipt, stage.lineage
    trigger = (
        lineage.trigger_type if lineage is not None else receipt.reason if receipt else "withdraw"
    )
    transform = receipt.provenance.transforms[0] if receipt is not None else {}
    newest = stage.last_success[0] if stage.last_success is not None else stage.official_at
    file = stage.files.get("receipt")
    return Produced(
        run_id=stage.made.run_id,
        updater_id=transform.get("id", "kfm.withdraw"),
        updater_version=transform.get("version", stage.facts.updater_version),
        trigger=trigger_words(trigger)[0] if receipt is not None else "withdrawal",
        asked_because=receipt.request_reason if receipt is not None else stage.made.reason,
        started_at=receipt.started_at if receipt is not None and not stage.private else None,
        official_at=stage.official_at,
        last_success_at=newest,
        plan_hash=stage.plan_hash,
        receipt=file.path if file is not None else "",
        receipt_digest=file.digest if file is not None else "",
    )


def _chain(stage: Stage) -> Iterator[Link]:
    """Every address and every dataset on the way, nearest to the sources first."""
    told = set[str]()
    for one in (*how_made.ancestors(stage), stage):
        for given in one.inputs:
            name = given.dataset_id or given.uri
            if given.stage is None and name not in told:
                told.add(name)
                yield _unopened(given) if given.dataset_id else _raw(given, one)
        yield _link(one)


def _raw(given: Input, used_by: Stage) -> Link:
    return Link(
        kind="raw",
        name=given.uri,
        title="",
        generation=None,
        version_id=None,
        run_id=None,
        updater_id=None,
        updater_version=None,
        inputs=(),
        sensitivity=used_by.terms.sensitivity,
        digest=given.digest,
        note="a commitment stands for its digest" if used_by.private else "",
    )


def _unopened(given: Input) -> Link:
    return Link(
        kind="harmonised",
        name=given.dataset_id,
        title="",
        generation=None,
        version_id=None,
        run_id=None,
        updater_id=None,
        updater_version=None,
        inputs=(),
        sensitivity=None,
        digest=given.digest,
        note=given.note,
    )


def _link(one: Stage) -> Link:
    produced = _produced(one)
    derived = any(given.dataset_id for given in one.inputs) or one.receipt is None
    return Link(
        kind="derived" if derived else "harmonised",
        name=one.dataset_id,
        title=one.title,
        generation=one.signed.generation,
        version_id=one.facts.version_id,
        run_id=produced.run_id or None,
        updater_id=produced.updater_id,
        updater_version=produced.updater_version,
        inputs=tuple(
            given.stage.ref if given.stage is not None else given.dataset_id or given.uri
            for given in one.inputs
        ),
        sensitivity=one.terms.sensitivity,
        digest=produced.receipt_digest or None,
        note="",
    )


def _governance(stage: Stage) -> Governance:
    steps = {step.get("step"): step for step in stage.facts.steps}
    generalised = steps.get("h3_generalise") or steps.get("aggregate") or {}
    return Governance(
        custodian=stage.terms.custodian,
        owners=why_official.owners_of(stage),
        licence=stage.terms.licence,
        rights=stage.entry.rights,
        sensitivity=stage.terms.sensitivity,
        policy_label=stage.terms.policy_label,
        care_label=stage.terms.care_label,
        obligations=why_official.obligations_of(stage),
        discharged=tuple(s["discharges"] for s in stage.facts.steps if s.get("discharges")),
        h3_resolution=stage.facts.h3_resolution,
        min_records=generalised.get("min_records"),
        shown=tuple((steps.get("show") or {}).get("columns", ())),
        withheld=why_official.withheld_of(stage),
        authority=why_official.authority_of(stage),
        approvals_needed=stage.terms.approvals,
    )


def _changed(diff: Diff | None) -> Changed | None:
    if diff is None:
        return None
    return Changed(
        since=diff.a,
        rows_before=diff.rows_a,
        rows_after=diff.rows_b,
        added=diff.added,
        removed=diff.removed,
        changed=diff.changed,
        moved=diff.moved,
        columns_added=diff.columns.added,
        columns_removed=diff.columns.removed,
        touched=diff.touched,
    )
