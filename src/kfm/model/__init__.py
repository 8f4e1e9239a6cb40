"""The words: records, identities, canonical JSON, clock, errors, paths.

Everything here is plain data and pure functions; it knows no file, no database and no other room.
"""

from importlib import import_module

# module -> its words that other rooms use, each loaded when somebody asks for one of them; what
# type checkers read is __init__.pyi
_WORDS = {
    "approval": "ACCEPT Approval Recorded Terms",
    "backfill": "BackfillPlan BackfillRow Bucket Estimate Grid PartRow Summary backfill_id grid_of plan_from",
    "candidate": "Candidate VersionFacts rows_in",
    "canonical": "Json",
    "change": "CHANGE FEW Measured",
    "channel": "GenerationPredicate Kind Lift Lifted RootAt",
    "clock": "Clock SystemClock rfc3339",
    "connector": "Capabilities StageReceipt",
    "content": "EVERYTHING InputKey KeptOut MadeKey Mark NameKey Place RuleKey VersionKey rules_in",
    "dataset": "Aggregate Canary Catalogue Column DatasetEntry HostLimits Location Polite Release Source UpdaterConfig WorkspaceConfig change_limits",
    "errors": "Denied Fenced IntegrityError KfmError MissingExtra Quarantined RunDamaged StepFailed StoreUnavailable UpstreamUnavailable UsageError",
    "freshness": "delta_minutes",
    "ids": "ID_PATTERN check_dataset_id check_id new_run_id",
    "interrupts": "STOPPED TERMINATED finishing stop_on_signals",
    "isolation": "Held",
    "job": "DATASET_URI Envelope FOREVER INGEST Input JobLine PROMOTE Request Signal Trace backoff_ms check_inputs",
    "journal": "Appending Assembled AssemblyPlanned Captured Capturing LineageKept LineageMeant PartDone Pinned Planned Replays Stopped Stored Transforming VersionKept VersionNamed",
    "kinds": "KINDS PLAIN kind_of known_kinds",
    "labels": "CARE_LABELS NEW_COLUMNS OBLIGATIONS is_private made_columns obligations release_steps",
    "ledger": "Generation HeadKey JobRow LedgerRow NoopRow OutboxRow Phase SAID_NO Token UNCHANGED WalRecord after_stamp believable denial_codes head_key_of is_older partition_lease stamps_of with_stamp",
    "licences": "restrictions",
    "limits": "limit_of stated_limits wrong_limits",
    "looks": "LOOKS looks_of looks_of_values shown_looks",
    "mapping": "CONVERSIONS MappedColumn Mapping column_names with_nulls",
    "masking": "Echo keep_secret masked",
    "media_types": "type_oddity",
    "origin": "SAMPLE origins_of recorded_as",
    "plan": "Plan SourceRef plan_hash",
    "proposal": "Proposal",
    "receipt": "IdempotencyState PolicyAsked PolicyDecision Promotion Provenance Receipt ReceiptError ReceiptInput ReceiptOutput RunManifest RunRecord ValidationReport",
    "schedule": "CADENCES Schedule VisitRow trigger_of without_emitter",
    "search": "Citation Found Hit IndexNote NotSearched",
    "staged": "ASSEMBLE Part Pins is_assembly",
    "transform": "Books ColumnProfile GONE TransformResult",
    "verdict": "Before Evidence Gate REQUIRED Reason Verdict denied judge_all",
    "version": "ATTESTATION is_record",
    "window": "bounds",
}
_WHERE = {word: module for module, words in _WORDS.items() for word in words.split()}
__all__ = [*_WHERE]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = found
    return found
