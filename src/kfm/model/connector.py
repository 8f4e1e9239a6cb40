"""What a connector says of its source, and the receipt each of its stages leaves."""

from typing import Annotated, Literal

import msgspec

from kfm.model.canonical import Json

__all__ = ["ABILITIES", "Ability", "Capabilities", "Stage", "StageReceipt"]

Ability = Literal["incremental", "backfillable", "paged", "change_token"]
Stage = Literal["ingest", "transform", "validate", "promote", "backfill"]
ABILITIES: dict[str, str] = {  # what a connector may declare -> what it promises with it
    "incremental": "a run may be given a window, and only that window is asked for",
    "backfillable": "any past window may be asked for again",
    "paged": "`acquire` follows pages until there is no next one",
    "change_token": "`change_token(ask)` answers cheaply whether upstream has something new",
}


class Capabilities(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `discover(ctx)` returns: what is known of upstream before anything is asked. Finding it
    out writes nothing.
    """

    endpoints: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]  # addresses, without secrets
    formats: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]  # csv, geojson, …
    # where a credential is, never itself
    auth: Annotated[str, msgspec.Meta(pattern=r"^(none|(env|file|cmd):.+)$")] = "none"
    rate_limits: dict[str, str] = {}  # host -> in words, such as "120 per minute"
    abilities: tuple[Ability, ...] = ()


class StageReceipt(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """`work/<id>/runs/<run_id>/<stage>_receipt.json`: what one stage did, and with what it was
    called.
    """

    stage: Stage
    dataset_id: str
    dataset_id_from: Literal["flag", "config", "folder"]
    run_id: str
    # of the run after this stage: CLAIMED, PROPOSED, COMMITTED, NOOP, REJECTED, FAILED, SUPERSEDED
    state: str
    exit_code: int
    started_at: str
    finished_at: str
    spec_hash: str
    partition: str = ""
    reason: str = ""
    spec_file_hash: str | None = None  # of the file --spec names
    window: str = ""
    upstream: str = "live"
    version_id: str | None = None
    generation: int | None = None
    files: tuple[str, ...] = ()  # what it wrote or relies on, below its zone roots
    zones: dict[str, str] = {}  # zone -> the folder given for it; empty: the workspace's own
    batches: tuple[Json, ...] = ()  # backfill: {window, state, run_id, …}
    next: str = ""
    dry_run: bool = False
