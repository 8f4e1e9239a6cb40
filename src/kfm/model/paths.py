"""Where the bytes of a dataset lie: one table with what an erasure does in each place, and a
function for every path. No other module spells one.
"""

from typing import Literal, NamedTuple

__all__ = [
    "PLACES",
    "Place",
    "acts_folder",
    "all_tiles_folder",
    "announcement_path",
    "announcements_folder",
    "approvals_folder",
    "approvals_path",
    "artifacts_path",
    "aside_path",
    "backfill_path",
    "batches_path",
    "capture_folder",
    "captures_folder",
    "channel_folder",
    "collection_path",
    "dcat_path",
    "derived_folder",
    "derived_path",
    "erasure_path",
    "gc_folder",
    "gc_plan_path",
    "generation_path",
    "hold_path",
    "holds_folder",
    "indexes_folder",
    "item_folder",
    "item_path",
    "items_folder",
    "items_path",
    "latest_path",
    "lock_path",
    "log_path",
    "noops_folder",
    "noops_path",
    "notice_path",
    "part_folder",
    "parts_folder",
    "pins_path",
    "place_of",
    "precise_path",
    "proposal_path",
    "proposals_folder",
    "pull_path",
    "pulls_folder",
    "prov_folder",
    "prov_path",
    "qa_path",
    "quarantine_folder",
    "quarantine_path",
    "raw_folder",
    "raw_path",
    "receipt_path",
    "receipts_folder",
    "registry_path",
    "released_folder",
    "released_path",
    "rule_path",
    "run_folder",
    "run_path",
    "runs_folder",
    "search_path",
    "session_path",
    "sessions_folder",
    "stac_folder",
    "tagged_path",
    "token_path",
    "tokens_folder",
    "version_folder",
    "version_path",
    "version_tiles_folder",
    "versions_folder",
    "withdrawals_folder",
    "work_folder",
]

Erased = Literal["all", "but the official version", "what names it", "its sources", "never"]


class Place(NamedTuple):
    """A folder (it ends with a slash) or a file below `data/` or below the workspace; `{id}` is the
    dataset.
    """

    zone: Literal["data", "root"]
    path: str
    erased: Erased
    holds: str


# The longest path that fits is the place of a file. Whatever is new below work/ is erased until
# somebody says here that it stays.
PLACES = (
    Place("data", "raw/{id}/", "never", "the list of captures, rendered from what is there"),
    Place("data", "raw/{id}/captures/", "all", "captures"),
    Place("data", "processed/{id}/", "but the official version", "versions"),
    Place(
        "data",
        "work/{id}/",
        "all",
        "runs, parts, proposals, assemblies, quarantine, indexes, tiles and whatever else is"
        " worked on",
    ),
    Place("data", "work/{id}/acts/", "never", "what people are about to do"),
    Place(
        "data",
        "work/{id}/erasures/",
        "never",
        "that something was erased, when and by whose authority",
    ),
    Place("data", "work/{id}/withdrawals/", "never", "rules that keep withdrawn records out"),
    Place(
        "data", "work/{id}/holds/", "but the official version", "versions that a person said stay"
    ),
    Place(
        "data",
        "work/{id}/derived/",
        "but the official version",
        "where what a withdrawal left comes from",
    ),
    Place("data", "catalog/channels/{id}/", "never", "what was official, by commitment"),
    Place("data", "catalog/dcat/{id}.json", "never", "rendered from the head"),
    Place("data", "catalog/stac/{id}/", "never", "rendered from the head"),
    Place(
        "data", "catalog/stac/{id}/items/", "but the official version", "one item for each version"
    ),
    Place(
        "data", "catalog/prov/{id}/", "but the official version", "where each version comes from"
    ),
    Place("data", "catalog/approvals/{id}/", "never", "who agreed to each version, by digest"),
    Place("data", "published/", "never", "links to what everybody may have now"),
    Place("data", "registry/", "never", "what is registered, and what proves it may be"),
    Place("root", "ledger/locks/", "never", "who holds a lease"),
    Place("root", "ledger/logs/", "never", "lines about runs and jobs; they hold no record"),
    Place(
        "root",
        "ledger/quarantine/",
        "what names it",
        "damaged rows, journals and parts; stores that were set aside",
    ),
    Place("root", "ledger/pulls/", "what names it", "pull requests of proposals"),
    Place("root", "ledger/notices/", "what names it", "messages that wait to be sent"),
    Place(
        "root",
        "inbox/",
        "its sources",
        "files that people brought; what holds more than was erased goes when it is asked for",
    ),
    Place("root", "keys/readers/", "never", "who may ask the reader by which token, by digest"),
    Place("root", "artifacts", "never", "a link to what the newest run said"),
    Place("root", "releases/{id}/", "never", "what was announced"),
    Place("root", "releases/", "never", "what runs here, signed under a version"),
    Place("root", "receipts/", "never", "what was done, by digest or commitment"),
)


def place_of(zone: str, path: str, dataset_id: str) -> Place | None:
    """The place a file lies in; None: the table does not know it."""
    fitting = [
        p for p in PLACES if p.zone == zone and path.startswith(p.path.format(id=dataset_id))
    ]
    return max(fitting, key=lambda p: len(p.path), default=None)


# ---- raw: what upstream gave
def raw_folder(dataset_id: str) -> str:
    return f"raw/{dataset_id}"


def raw_path(dataset_id: str, name: str) -> str:
    """A list of the captures, beside them."""
    return f"raw/{dataset_id}/{name}"


def captures_folder(dataset_id: str) -> str:
    return f"raw/{dataset_id}/captures"


def capture_folder(dataset_id: str, capture_id: str) -> str:
    return f"raw/{dataset_id}/captures/{capture_id}"


# ---- work: what is worked on
def work_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}"


def parts_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/parts"


def part_folder(dataset_id: str, digest: str) -> str:
    """Where a part lies, by its digest."""
    return f"work/{dataset_id}/parts/{digest.removeprefix('sha256:')[:32]}"


def pins_path(dataset_id: str, digest: str) -> str:
    """The parts that an assembly pins."""
    return f"work/{dataset_id}/assemblies/{digest.removeprefix('sha256:')[:32]}.json"


def proposals_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/proposals"


def proposal_path(dataset_id: str, run_id: str, name: str = "proposal.json") -> str:
    return f"work/{dataset_id}/proposals/{run_id}/{name}"


def runs_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/runs"


def run_folder(dataset_id: str, run_id: str) -> str:
    return f"work/{dataset_id}/runs/{run_id}"


def run_path(dataset_id: str, run_id: str, name: str) -> str:
    """One record of a run."""
    return f"work/{dataset_id}/runs/{run_id}/{name}"


def noops_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/noops"


def noops_path(dataset_id: str, day: str, digest: str) -> str:
    """Runs that changed nothing, a day in one file."""
    return f"work/{dataset_id}/noops/{day}.{digest[7:23]}.jsonl"


def quarantine_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/quarantine"


def quarantine_path(dataset_id: str, run_id: str, name: str = "") -> str:
    """What one run set aside: its folder, or a file in it."""
    return f"work/{dataset_id}/quarantine/{run_id}{name and '/' + name}"


def acts_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/acts"


def erasure_path(dataset_id: str, generation: int) -> str:
    return f"work/{dataset_id}/erasures/{generation:08}.json"


def withdrawals_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/withdrawals"


def rule_path(dataset_id: str, commitment: str) -> str:
    """The rule that keeps withdrawn records out, by what the channel says of it."""
    return f"work/{dataset_id}/withdrawals/{commitment.rpartition(':')[2][:32]}.json"


def derived_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/derived"


def derived_path(dataset_id: str, version_id: str | None) -> str:
    """Where what a withdrawal left comes from."""
    return f"work/{dataset_id}/derived/{version_id}.json"


def precise_path(dataset_id: str, version_id: str | None) -> str:
    """Where it is written down which sealed records a version was released from."""
    return f"work/{dataset_id}/precise/{version_id}.json"


def holds_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/holds"


def hold_path(dataset_id: str, version_id: str) -> str:
    return f"work/{dataset_id}/holds/{version_id}.json"


def gc_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/gc"


def gc_plan_path(dataset_id: str, run_id: str, end: str = ".json") -> str:
    return f"work/{dataset_id}/gc/{run_id}{end}"


def backfill_path(dataset_id: str, backfill_id: str, name: str) -> str:
    return f"work/{dataset_id}/backfills/{backfill_id}/{name}"


def batches_path(dataset_id: str, backfill_id: str) -> str:
    """What the runner of a connector writes down of a backfill."""
    return f"work/{dataset_id}/backfills/{backfill_id}.json"


def qa_path(dataset_id: str, name: str) -> str:
    return f"work/{dataset_id}/qa/{name}.json"


def indexes_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/index"


def search_path(dataset_id: str, version_id: str, name: str) -> str:
    return f"work/{dataset_id}/index/{version_id}/{name}"


def items_path(dataset_id: str) -> str:
    """Where and when each version is, for who looks for one."""
    return f"work/{dataset_id}/index/items.json"


def all_tiles_folder(dataset_id: str) -> str:
    return f"work/{dataset_id}/tiles"


def version_tiles_folder(dataset_id: str, version_id: str) -> str:
    return f"work/{dataset_id}/tiles/{version_id}"


# ---- processed and catalog: what is official. Who uses these opens it, see access/boundary.py
def versions_folder(dataset_id: str) -> str:
    return f"processed/{dataset_id}"


def version_folder(dataset_id: str, version_id: str | None) -> str:
    return f"processed/{dataset_id}/{version_id}"


def version_path(dataset_id: str, version_id: str | None, name: str) -> str:
    return f"processed/{dataset_id}/{version_id}/{name}"


def latest_path(dataset_id: str) -> str:
    """The address that leads to the official version while everybody may have it."""
    return f"published/{dataset_id}/latest"


def dcat_path(dataset_id: str) -> str:
    return f"catalog/dcat/{dataset_id}.json"


def stac_folder(dataset_id: str) -> str:
    return f"catalog/stac/{dataset_id}"


def collection_path(dataset_id: str) -> str:
    return f"catalog/stac/{dataset_id}/collection.json"


def items_folder(dataset_id: str) -> str:
    return f"catalog/stac/{dataset_id}/items"


def item_folder(dataset_id: str, version_id: str) -> str:
    return f"catalog/stac/{dataset_id}/items/{version_id}"


def item_path(dataset_id: str, version_id: str) -> str:
    return f"catalog/stac/{dataset_id}/items/{version_id}/{version_id}.json"


def prov_folder(dataset_id: str) -> str:
    return f"catalog/prov/{dataset_id}"


def prov_path(dataset_id: str, run_id: str) -> str:
    return f"catalog/prov/{dataset_id}/run_{run_id.removeprefix('run_')}.json"


def approvals_folder(dataset_id: str) -> str:
    return f"catalog/approvals/{dataset_id}"


def approvals_path(dataset_id: str, run_id: str) -> str:
    """Where the record of a run's approvals lies once its generation exists."""
    return f"catalog/approvals/{dataset_id}/run_{run_id}.json"


def channel_folder(dataset_id: str) -> str:
    return f"catalog/channels/{dataset_id}"


def generation_path(dataset_id: str, generation: int) -> str:
    return f"catalog/channels/{dataset_id}/{generation:08}.json"


def registry_path(name: str) -> str:
    """An entry of the registry, or what is kept beside it."""
    return f"registry/{name}"


# ---- the workspace itself
def receipts_folder(job_type: str) -> str:
    return f"receipts/{job_type}"


def receipt_path(run_id: str, started_at: str, job_type: str = "ingest.pull_source") -> str:
    return f"receipts/{job_type}/{started_at[:10].replace('-', '/')}/{run_id}.json"


def announcements_folder(dataset_id: str) -> str:
    return f"releases/{dataset_id}"


def announcement_path(dataset_id: str, generation: int) -> str:
    return f"releases/{dataset_id}/{generation:08}.json"


def tagged_path(tag: str) -> str:
    """What was announced under a tag: `<dataset>/<generation>`."""
    return f"releases/{tag}.json"


def released_folder(version: str) -> str:
    """What runs in a workspace, signed under a version."""
    return f"releases/{version}"


def released_path(version: str, file: str) -> str:
    return f"releases/{version}/{file}"


def artifacts_path() -> str:
    """The address that leads to what the newest run said."""
    return "artifacts"


def aside_path(name: str) -> str:
    """What was found damaged, set aside."""
    return f"ledger/quarantine/{name}"


def notice_path(notice_id: str) -> str:
    return f"ledger/notices/{notice_id}.json"


def pulls_folder() -> str:
    return "ledger/pulls"


def pull_path(run_id: str, end: str = ".json") -> str:
    """The pull request of a proposal."""
    return f"ledger/pulls/{run_id}{end}"


def log_path(file: str) -> str:
    return f"ledger/logs/{file}"


def lock_path(name: str) -> str:
    return f"ledger/locks/{name}"


def tokens_folder() -> str:
    return "keys/readers"


def token_path(digest: str) -> str:
    """Who a token stands for, by the digest of the token."""
    return f"keys/readers/{digest.removeprefix('sha256:')}.json"


def sessions_folder() -> str:
    return "keys/readers/sessions"


def session_path(digest: str) -> str:
    """Whom a cookie stands for, by the digest of the cookie."""
    return f"keys/readers/sessions/{digest.removeprefix('sha256:')}.json"
