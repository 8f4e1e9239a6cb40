"""What a person writes: the workspace file, a dataset's registry entry and an updater's
configuration.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from kfm.model.canonical import Json
from kfm.model.ids import DATASET_ID_PATTERN, ID_PATTERN
from kfm.model.kinds import FORMAT, FORMATS, KINDS, NAME, PLAIN, kind_of

__all__ = [
    "Aggregate",
    "AlertChannel",
    "Alerts",
    "Canary",
    "Catalogue",
    "Change",
    "Column",
    "DatasetEntry",
    "EnergyFactors",
    "Extent",
    "Github",
    "HostLimits",
    "Location",
    "Notify",
    "Packed",
    "Past",
    "Polite",
    "PoolLimits",
    "Quality",
    "Release",
    "Runners",
    "Slo",
    "Source",
    "TelemetryTargets",
    "UpdaterConfig",
    "UpdaterSource",
    "Webhooks",
    "WorkspaceConfig",
    "change_limits",
    "spelled",
]

DatasetId = Annotated[str, msgspec.Meta(pattern=f"^{DATASET_ID_PATTERN}$")]
Identifier = Annotated[str, msgspec.Meta(pattern=f"^{ID_PATTERN}$")]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Length = Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]{0,6}[smhdw]$")]
Range = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\d/(\d{4}-\d\d-\d\d|\.\.)$")]
# of these two whoever reads an entry says what there is: packages may offer more
KindName = Annotated[str, msgspec.Meta(pattern=f"^{NAME}$", examples=[*PLAIN, *KINDS])]
Format = Annotated[str, msgspec.Meta(pattern=f"^({FORMAT})?$", examples=[*FORMATS])]
Sensitivity = Literal["public", "restricted", "sensitive-location", "aggregate-only"]


class HostLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a host is asked, by all processes of a workspace together."""

    concurrency: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4  # requests at once
    per_second: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 5.0


class Polite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of live hosts; this machine is not limited unless it is named."""

    default: HostLimits = HostLimits()
    hosts: dict[str, HostLimits] = {}


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A list of upstream resources that `kfm discover` reads."""

    url: Text
    kind: Literal["stac", "dcat", "arcgis"]
    hosts: tuple[str, ...] = ()  # beside that of `url`
    # of the ids drafts get
    prefix: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*$")] = "found_"
    only: tuple[str, ...] = ()  # names of the resources that are wanted; empty: all


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of a pool may run at once, on all machines together."""

    slots: Annotated[int, msgspec.Meta(ge=1, le=10_000)]


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whom the job `notify` tells, beside ledger/notices.jsonl."""

    # the variable that holds the address
    webhook: Annotated[str, msgspec.Meta(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*)?$")] = ""


class Runners(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `kfm runner render` writes into the files of other orchestrators."""

    # NAME@sha256:DIGEST: whatever runs in a container
    image: str = ""
    # who must agree to changes, as CODEOWNERS names people and teams
    owners: tuple[
        Annotated[str, msgspec.Meta(pattern=r"^@?[A-Za-z0-9][A-Za-z0-9._/@+-]*$")], ...
    ] = ()
    # the file with hashes that CI installs kfm from, where it is not there yet
    install: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*$")] = (
        "requirements.lock"
    )
    # the label of the GitHub runners that reach the data
    runs_on: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "self-hosted"
    # where Flux and Argo CD find this repository
    repository: Annotated[str, msgspec.Meta(pattern=r"^((https|ssh)://[!-~]+)?$")] = ""
    branch: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")] = "main"
    namespace: Annotated[str, msgspec.Meta(pattern=r"^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$")] = "kfm"
    # of systemd: where the programs lie, where the workspace lies, and who works there
    programs: Annotated[str, msgspec.Meta(pattern=r"^/[A-Za-z0-9_./-]+$")] = "/opt/kfm/bin"
    place: Annotated[str, msgspec.Meta(pattern=r"^/[A-Za-z0-9_./-]+$")] = "/srv/kfm"
    user: Annotated[str, msgspec.Meta(pattern=r"^[a-z_][a-z0-9_-]{0,30}$")] = "kfm"


class Github(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The repository that proposals become pull requests of, and how it is reached."""

    # owner/name; empty: that of GITHUB_REPOSITORY in Actions
    repository: Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9-]+/[A-Za-z0-9._-]+)?$")] = ""
    # empty: GitHub's own, or that of GITHUB_API_URL in Actions
    api: Annotated[str, msgspec.Meta(pattern=r"^(https?://[!-~]+)?$")] = ""
    # where the token is; it goes to the API's host alone
    token: Annotated[str, msgspec.Meta(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|credential:.+)$")] = (
        "env:GITHUB_TOKEN"
    )
    # keep one comment up to date in the pull request that a run in Actions is for
    comments: bool = False


class EnergyFactors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the energy of a run is told by. Nothing is invented: without `g_per_kwh` no carbon is."""

    # of a busy core, where the processor does not count by itself
    watts_per_core: Annotated[float, msgspec.Meta(gt=0, le=1000)] | None = None
    watts_source: str = ""  # who states it
    g_per_kwh: Annotated[float, msgspec.Meta(ge=0, le=5000)] | None = None
    region: str = ""
    g_source: str = ""


class AlertChannel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to tell people; exactly one of these."""

    webhook: Annotated[
        str, msgspec.Meta(pattern=r"^(|env:[A-Za-z_][A-Za-z0-9_]*|https?://[!-~]+)$")
    ] = ""
    # smtp://HOST:PORT?from=a%40example.org&to=b%40example.org, or env:NAME of it
    mail: Annotated[
        str, msgspec.Meta(pattern=r"^(|env:[A-Za-z_][A-Za-z0-9_]*|smtps?://[!-~]+)$")
    ] = ""
    command: tuple[Text, ...] = ()  # a program and its words; it gets the message as JSON

    def __post_init__(self) -> None:
        if sum(map(bool, (self.webhook, self.mail, self.command))) != 1:
            raise ValueError("Expected exactly one of webhook, mail, command")


class Alerts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is told when a dataset is stale, fails, or burns its error budget too fast."""

    channels: dict[Identifier, AlertChannel] = {}
    to: tuple[Identifier, ...] = ()  # not stated: every channel that `then_to` does not name
    then_to: tuple[Identifier, ...] = ()  # who else is told when it lasts
    after: Text = "1h"  # how long until they are


class TelemetryTargets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where telemetry is sent beside its files."""

    # the base address of an OpenTelemetry collector (OTLP over HTTP), or env:NAME
    otlp: Annotated[
        str, msgspec.Meta(pattern=r"^(|env:[A-Za-z_][A-Za-z0-9_]*|https?://[!-~]+)$")
    ] = ""
    energy: EnergyFactors = EnergyFactors()


class Slo(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What a dataset promises: how long a run takes, how many may fail, and over which time that is
    counted. How old it may be is `freshness` of its entry.
    """

    latency: Text = "10m"
    success: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.99
    fresh: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.99  # of the time
    period: Text = "30d"


class Webhooks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where we are told that something changed; who may, is in pipelines/orchestration/webhooks."""

    # HOST:PORT, or unix:PATH; beyond this machine only behind something that speaks TLS
    listen: Text = "127.0.0.1:8787"


class WorkspaceConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`kfm.yml`: marks a folder as a workspace."""

    format: Literal[1] = 1
    # sqlite:///…; jsonl:///ledger/ledger.jsonl where SQLite may keep no file; postgresql://…; env:NAME
    store: str = "sqlite:///ledger/idempotency.sqlite"
    zones: str = "file:///data"
    # opa:PATH of the binary; or a server
    policy: Annotated[str, msgspec.Meta(pattern=r"^(embedded|opa:.+|http://.+)$")] = "embedded"
    allow_loopback: bool = False
    lease_seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 15
    # Mail or address of whoever answers for these requests; every upstream is told.
    contact: Annotated[
        str, msgspec.Meta(pattern=r"^(https?://[!-'*-~]+|[!-'*-?A-~]+@[!-'*-?A-~]+)?$")
    ] = ""
    polite: Polite = Polite()
    notify: Notify = Notify()
    github: Github = Github()
    telemetry: TelemetryTargets = TelemetryTargets()
    webhooks: Webhooks = Webhooks()
    alerts: Alerts = Alerts()
    # who may sign in at `kfm serve`, and how often may be asked
    serve: Json = {}
    # where `kfm discover` looks for what is not registered yet
    catalogues: tuple[Catalogue, ...] = ()
    pools: dict[Identifier, PoolLimits] = {}  # a pool that is not named is not limited
    # What registry entries name as `credential:NAME`; a file or a command is named here alone, for
    # a dataset's registrar runs nothing.
    credentials: dict[
        Identifier,
        Annotated[str, msgspec.Meta(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|(file|cmd):.+)$")],
    ] = {}
    # Who outside is told of every generation that becomes official, by name: neo4j://HOST:PORT,
    # openlineage+http://HOST/PATH, openlineage+file:///FOLDER, github://OWNER/REPOSITORY; or of what
    # webhooks tell: github+dispatch://OWNER/REPOSITORY; or env:NAME of a variable that holds the
    # address.
    receivers: dict[
        Identifier,
        Annotated[
            str, msgspec.Meta(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|[a-z][a-z0-9+]*://[!-~]+)$")
        ],
    ] = {}
    # Whether recordings may answer (`--upstream replay`): a folder with REPLAY.json, or true for
    # the one that KFM_REPLAY names.
    replay: str | bool = False
    # nothing here is from an agency: the sample upstream answers for every host
    sample: bool = False
    runners: Runners = Runners()


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column of a dataset's schema."""

    name: Text
    type: Literal["string", "integer", "number", "boolean", "timestamp", "date", "geometry", "json"]
    nullable: bool = True
    unit: str | None = None
    # free: control and direction characters may stand in its cells
    text: Literal["free"] | UnsetType = UNSET
    # the least value that can be true: a number, or a moment or day as RFC 3339
    min: float | str | UnsetType = UNSET
    max: float | str | UnsetType = UNSET  # the greatest
    # values that upstream writes where it has none
    sentinels: tuple[float | str, ...] | UnsetType = UNSET


class Packed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the bytes of a source are packed in, and how far they may grow."""

    by: Literal["gzip", "zip", "zstd"]
    # zip only: the file that is wanted, by its name in the archive or a pattern such as *.csv; None:
    # the only one there is
    member: Text | None = None
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 4 * 2**30  # of one file, unpacked
    # times that it may grow; what is below 1 MiB unpacked may grow further
    max_ratio: Annotated[int, msgspec.Meta(ge=1)] = 200


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a dataset comes from.

    `{since}`, `{until}`, `{day}` and `{partition}` in `url` are filled at run time; query fields
    whose value stays empty are left out.
    `{day}` is the first day of the window, as 20260131; without a window it is today.
    """

    kind: KindName = "http_file"
    url: str = ""  # every kind but join
    urls: tuple[str, ...] = ()  # more addresses of the same kind, read after `url`
    format: Format = ""  # what the bytes are; empty: the one format of `kind`
    # what this kind of source wants to know; its page in docs/sources says what there is
    options: Json = {}
    datasets: tuple[DatasetId, ...] = ()  # join only: the datasets whose newest records are joined
    join_on: tuple[str, ...] = ()  # join only: the columns they have in common
    encoding: str | None = None  # None: a byte order mark or UTF-8
    hosts: tuple[str, ...] = ()  # beside the host of `url`, which is always allowed
    # JSON only: dotted path to the array of records; None: the document itself or its only array
    records: str | None = None
    # a ring of longitude and latitude; rows outside are dropped by rule
    area: tuple[tuple[float, float], ...] = ()
    time_column: str | None = None  # rows outside the window are dropped by rule
    recheck: str = "24h"  # at least this often the whole body is fetched; 0 = always
    # values may be references: env:NAME, or credential:NAME of kfm.yml, never secrets themselves
    headers: dict[str, str] = {}
    # of one capture, all its files together; not stated: 4 GiB
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] | UnsetType = UNSET
    # of one record; not stated: 64 MiB
    max_record_bytes: Annotated[int, msgspec.Meta(ge=1024)] | UnsetType = UNSET
    # of one step; not stated: 1h
    max_step: Annotated[str, msgspec.Meta(pattern=r"^[1-9][0-9]*(s|m|h)$")] | UnsetType = UNSET
    # fewer rows than this: PARTIAL, not promotable
    completeness: Annotated[int, msgspec.Meta(ge=0)] = 0
    # the files come packed, `format` says what is inside; not stated: they are what they are
    packed: Literal["gzip", "zip", "zstd"] | Packed | UnsetType = UNSET

    @property
    def packing(self) -> Packed | None:
        """What the files are packed in."""
        if self.packed is UNSET:
            return None
        return self.packed if isinstance(self.packed, Packed) else Packed(by=self.packed)

    @property
    def capture_limit(self) -> int:
        """The most bytes of one capture."""
        return 4 * 2**30 if self.max_bytes is UNSET else self.max_bytes

    @property
    def record_limit(self) -> int:
        """The most bytes of one record."""
        return 64 * 2**20 if self.max_record_bytes is UNSET else self.max_record_bytes

    @property
    def step_limit(self) -> int:
        """The most seconds of one step."""
        return (
            3600
            if self.max_step is UNSET
            else int(self.max_step[:-1]) * {"s": 1, "m": 60, "h": 3600}[self.max_step[-1]]
        )


class Location(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which columns of a table say where a record is; GeoJSON needs none, its geometry does."""

    latitude: Text
    longitude: Text


class Aggregate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records become groups: one row per combination of `by` (and per H3 cell, when locations are
    generalised).
    """

    by: tuple[str, ...] = ()  # public columns; empty with H3: one row per cell
    collect: tuple[str, ...] = ()  # columns whose distinct values a group lists, sorted


class Release(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How records that may not be shown become a version that may. Each part discharges one
    obligation.
    """

    # the columns that leave, groups' included; every other one, and what upstream adds, does not
    show: tuple[str, ...] | UnsetType = UNSET
    # columns that are private: their values are looked for in what is shown
    withhold: tuple[str, ...] = ()
    # discharges `generalise`
    h3_resolution: Annotated[int, msgspec.Meta(ge=0, le=15)] | None = None
    aggregate: Aggregate | None = None  # discharges `aggregate`
    # k: a row that fewer records explain is not shown, nor its change
    min_records: Annotated[int, msgspec.Meta(ge=1)] = 5
    min_area_km2: Annotated[float, msgspec.Meta(ge=0)] = 0.0  # a cell smaller than this is refused


class Extent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where and when the records may lie; what lies outside is a finding of the quality gate."""

    bbox: tuple[float, float, float, float] | None = None  # west, south, east, north
    start: str | None = None  # RFC 3339
    end: str | None = None


class Quality(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds of the quality gate. Beyond a hard one promotion is denied; beyond a change it
    needs a person.
    """

    min_rows: Annotated[int, msgspec.Meta(ge=0)] = 1
    max_rows: Annotated[int, msgspec.Meta(ge=0)] | None = None
    max_null_share: dict[str, Share] = {}  # by column
    valid_geometry: bool = True
    # of growth against the last version, and read as `change.rows` where that is not stated
    max_row_change: Share | None = None
    max_null_change: Share | None = None  # of any column's share of nulls, in absolute terms


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much may change from one version to the next before a person must look; null: not looked
    at.
    """

    rows: Share | None = 0.2  # by which the number of rows falls
    cells: Share | None = 0.5  # of the rows that hold other values
    deletions: Share | None = 0.2  # of the rows that are removed or marked as deleted


class Canary(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another version of the updater, tried on some partitions: what it makes stays a proposal
    until it was compared and approved.
    """

    pipeline_version: Text
    partitions: tuple[Identifier, ...] = ()  # empty: the whole of a dataset that has none


class Past(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which past can be made up for, how it is cut, and how long that takes; `kfm backfill plan`
    goes by it.
    """

    # since/until, days of the time zone; `..` as the end: up to now
    ranges: Annotated[tuple[Range, ...], msgspec.Meta(min_length=1)]
    window: Length
    expected_runtime: Length  # of all of it, as a person expects it


class DatasetEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`data/registry/<dataset_id>.yml`: one registered stream."""

    dataset_id: DatasetId
    title: Text
    description: str = ""
    owners: tuple[str, ...] = ()  # "Name" or "Name <address>"
    custodian: str | None = None  # who answers for it; the publisher in catalogs
    licence: str | None = None  # an SPDX id; missing or NOASSERTION denies promotion
    rights: str | None = None  # attribution and terms, in words
    licence_proof: str | None = None  # the file that shows the licence was given
    sensitivity: Sensitivity | None = None
    policy_label: str | None = None
    care_label: str | None = None  # the community's statement, e.g. "Restricted / By Request"
    release: Release | None = None
    location: Location | None = None
    source: Source
    business_key: tuple[str, ...] = ()
    schema: tuple[Column, ...] = ()  # empty: taken from the first capture
    crs: Literal["OGC:CRS84", "EPSG:4326"] = "OGC:CRS84"
    extent: Extent | None = None
    time_zone: Text = "UTC"
    # real-time, daily, weekly, annual, static; or a length of time; or a cron line
    cadence: str | None = None
    interval: str | None = None  # real-time: how often upstream is asked, 1m to 5m
    revisit: tuple[str, ...] = ()
    freshness: str = "24h"
    pool: Identifier = "default"
    retention: str | None = None  # how long versions that are not official are kept; None: for ever
    quality: Quality = Quality()
    approvals: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0  # people who must approve each version
    # what is made from each new version: map tiles, a search index
    derive: tuple[Literal["tiles", "search"], ...] = ()
    # the formats whose readers may open the bytes: no other `source.format` is taken; empty: that one
    drivers: tuple[Identifier, ...] = ()
    merge: Literal["replace", "upsert", "partition"] = "replace"
    partitions: tuple[Identifier, ...] = ()
    max_quarantined: Share = 0.01
    pipeline_version: Text = "1.0.0"
    canary: Canary | None = None
    aliases: tuple[DatasetId, ...] = ()  # ids it had before
    retired: str | None = None  # why it is no longer run
    # not stated: as `Change` says, and only for tables that accumulate
    change: Change | UnsetType = UNSET
    # records that share a key and differ; not stated: refuse
    conflicts: Literal["refuse", "quarantine", "newest"] | UnsetType = UNSET
    # Its steps may run where the kernel cannot keep them from files and programs; not stated: only
    # shipped code on public data may.
    isolation: Literal["best_effort"] | UnsetType = UNSET
    # its past; or, as a text, why there is none to ask for
    backfill: Past | Text | UnsetType = UNSET
    slo: Slo | UnsetType = UNSET  # what its runs are measured by; not stated: as `Slo` says


class UpdaterSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One source of an updater's configuration."""

    source_id: Identifier
    source_url: Text
    format: Literal["csv", "json", "geojson"]


class UpdaterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `--config` file of `python -m updater run`."""

    dataset_id: DatasetId
    pipeline_version: Text
    sources: Annotated[tuple[UpdaterSource, ...], msgspec.Meta(min_length=1)]
    workspace: str | None = None
    window: str | None = None
    publisher: Literal["local", "noop", "trace", "github_actions"] = "local"


def spelled(entry: DatasetEntry) -> Json:
    """An entry as its digests are made of it. Keys that came later are UNSET where nobody states
    them, so they change no digest.
    """
    plain: Json = msgspec.to_builtins(entry)
    # what went without saying when the first digests were made
    plain["source"].setdefault("max_bytes", 64 * 2**30)
    return plain


def change_limits(entry: DatasetEntry) -> Change:
    """What may change before a person must look. Nothing is looked at where each answer stands for
    now alone, unless it is stated.
    """
    kind, options = kind_of(entry.source.kind), entry.source.options
    now_only = entry.cadence == "real-time" or (
        kind is not None
        and kind.snapshot
        and not (kind.lists and options.get(kind.lists[0]) == kind.lists[1])
    )
    # what accumulates is not retracted by one thin answer, however often asked
    deletions = Change().deletions if entry.merge == "upsert" else None
    usual = Change(rows=None, cells=None, deletions=deletions) if now_only else Change()
    stated = entry.change if entry.change is not UNSET else usual
    if entry.quality.max_row_change is not None and entry.change is UNSET:
        return msgspec.structs.replace(stated, rows=entry.quality.max_row_change)
    return stated
