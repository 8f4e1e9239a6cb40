"""What the documents of a version say, taken out of them."""

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from kfm.model import (
    Books,
    DatasetEntry,
    GenerationPredicate,
    Json,
    KfmError,
    Receipt,
    Recorded,
    Terms,
    Verdict,
    canonical,
)
from kfm.story.node import Agreed
from kfm.world.world import World

__all__ = [
    "agreed_of",
    "books_of",
    "format_of",
    "moment_of",
    "terms_of",
    "title_of",
    "verdicts_of",
]


def title_of(raw: Mapping[str, bytes], entry: DatasetEntry) -> str:
    told = canonical.loads(raw["dcat"]).get("title") if "dcat" in raw else None
    return told if isinstance(told, str) else entry.title


def format_of(raw: Mapping[str, bytes]) -> str:
    """What the files of a capture are called by, in the words of the run's own record."""
    spec = msgspec.json.decode(raw["run_record"]).get("spec") or {}
    return str(((spec.get("registry") or {}).get("source") or {}).get("format") or "")


def moment_of(text: str) -> str:
    """What upstream calls the time of its last change, as RFC 3339; empty where it is none."""
    with suppress(ValueError):
        found = dt.datetime.strptime(text, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=dt.UTC)
        return found.strftime("%Y-%m-%dT%H:%M:%SZ")
    return ""


def books_of(report: Json) -> Books | None:
    checks = (report.get("sections") or {}).get("schema", ())
    value = next((c["value"] for c in checks if c["check"] == "books"), None)
    return msgspec.convert(value, Books) if value else None


def verdicts_of(manifest: Json, receipt: Receipt | None) -> tuple[Verdict, ...]:
    """The verdict of every gate; where its words are not told, the word alone."""
    if manifest:
        return tuple(msgspec.convert(v, Verdict) for v in manifest["verdicts"])
    if receipt is None:
        return ()
    seen = receipt.promotion.gates if receipt.promotion else {}
    return tuple(
        Verdict(gate=d.gate, note=d.reason if seen.get(d.gate) == "review" else "")
        for d in receipt.provenance.policy_decisions
    )


def terms_of(recorded: Recorded | None, entry: DatasetEntry) -> Terms:
    """What was asked of whoever published; of a generation from before that was recorded, what the
    registry says now.
    """
    if recorded is not None and recorded.terms:
        return recorded.terms[0]
    return Terms(
        dataset_id=entry.dataset_id,
        approvals=entry.approvals,
        sensitivity=entry.sensitivity,
        policy_label=entry.policy_label,
        care_label=entry.care_label,
        licence=entry.licence,
        custodian=entry.custodian,
        release="",
    )


def agreed_of(
    world: World, recorded: Recorded | None, made: GenerationPredicate
) -> tuple[Agreed, ...]:
    """Whose signed words the generation names, each verified against the keys of then."""
    trust = world.keys.trust()
    if recorded is None or trust is None:
        return ()
    then, found = trust.as_of(made.dataset_id, made.generation), list[Agreed]()
    for kind, role, envelopes in (
        ("", "approver", recorded.approvals),
        ("operator", "builder", recorded.acceptances),
        ("grantor", "approver", recorded.grants),
    ):
        for envelope in envelopes:
            with suppress(KfmError, msgspec.ValidationError):
                document, key = then.verified_by(msgspec.json.encode(envelope), role)
                said = document["predicate"]
                at, reason = said.get("made_at"), said.get("reason") or said.get("purpose") or ""
                word = kind or ("steward" if "steward" in key.roles else "approver")
                found.append(Agreed(name=key.name, role=word, key=key.keyid, at=at, reason=reason))
    return tuple(sorted(found, key=lambda one: one.at or ""))
