"""Data: bring it in, now, later or for the past, and hand it out."""

from kfm.cli.spec.shared import CLOCK_OK, READER, SINCE, UNTIL, UPSTREAM, WAIT, WINDOW, why
from kfm.cli.spec.words import Command, Noun, given, option, switch

__all__ = ["COMMANDS", "NOUNS"]

NOUNS = {
    "export": Noun("make a copy of what is public, to be had without kfm"),
    "schedule": Noun("when data is asked for", usual="list"),
    "backfill": Noun(
        "past ranges in partitions, staged by workers, assembled into one version", usual="list"
    ),
}

_PLANNED = given(
    "what",
    "a plan in pipelines/orchestration/backfills, another file, or a dataset with the flags below",
    "NAME|FILE|DATASET",
)
_RANGE = (
    option(
        "--since",
        "of a dataset: start of the range, RFC 3339 or a day; default: the range that the registry"
        " states",
        "TIME",
    ),
    option("--until", "of a dataset: end of the range, exclusive", "TIME"),
    option(
        "--window",
        "of a dataset: length of one window; whole days are days of its time zone. Default: what the"
        " registry states, else 1d",
        "1d",
    ),
    option("--batch", "of a dataset: partitions per job", "N", kind="count", default=50),
    option(
        "--assemble-every",
        "of a dataset: a version after so many parts; default: one at the end",
        "N",
        kind="count",
    ),
    option("--pool", "of a dataset: the pool of its jobs; default: that of the registry", "POOL"),
    option("--concurrency", "of a dataset: jobs at once", "N", kind="count"),
    option("--per-second", "of a dataset: requests a second at the most", "N", kind="real"),
)
_INLINE = (switch("--inline", "work it in this process, without a worker"), UPSTREAM, CLOCK_OK)
_BEGUN = given("what", "a backfill, by its name or its dataset", "NAME")

COMMANDS = (
    Command(
        "run",
        "bring datasets up to date",
        "run:run",
        given("dataset", "datasets to run", many="*"),
        switch("--all", "every registered dataset that is not retired"),
        WINDOW,
        SINCE,
        UNTIL,
        switch("--dry-run", "do everything in a throw-away copy; change nothing"),
        switch("--force", "run although nothing changed; gates still apply"),
        switch(
            "--accept-change",
            "publish although so much changes at once; signed with this workspace's key",
        ),
        why("why it is forced or the change accepted; recorded"),
        WAIT,
        option(
            "--at-once",
            "how many datasets are worked side by side; default: with --all the number of cores,"
            " else 1, one after the other",
            "N",
            kind="count",
        ),
        UPSTREAM,
        option("--spec", "a governed run spec; its hash is recorded", "FILE", kind="path"),
        CLOCK_OK,
        example="kfm run ks_earthquakes",
        about="Look upstream, capture, transform, judge, publish; or say that nothing changed.",
    ),
    Command(
        "plan",
        "show what a run would do",
        "plan:plans",
        given("dataset", "the dataset"),
        WINDOW,
        SINCE,
        UNTIL,
        UPSTREAM,
        option(
            "--format",
            "how to print the plan",
            choices=("text", "json", "yaml", "msgpack"),
            default="text",
        ),
        option("-o, --output", "write the plan there", "FILE", kind="path"),
        example="kfm plan ks_earthquakes",
        about="""\
The plan for what upstream has now, and whether anything would happen at all. Changes nothing.""",
    ),
    Command(
        "get",
        "hand out the files of a version",
        "get:handed_out",
        given("ref", "DATASET, DATASET@vHEX or DATASET@GENERATION"),
        option(
            "-o, --output", "where to put them; default: here", "DIR|FILE", kind="path", default="."
        ),
        option(
            "--format",
            "the tables as one file of this format",
            choices=("csv", "geojson", "parquet", "xlsx", "gpkg"),
        ),
        switch(
            "--no-formulas",
            "csv: what a spreadsheet would take for a formula begins with an apostrophe",
        ),
        READER,
        example="kfm get ks_earthquakes --format csv -o quakes.csv",
        about="""\
They are checked against their digests on the way. In any format the same version gives the same
bytes. csv: texts in quotes, a missing value has none, times as ISO 8601, geometries as WKT; values
are exactly what they are, so that one may begin as a formula does. geojson: RFC 7946. xlsx: times are
text, and nothing is a formula. gpkg: one layer, times to the millisecond.""",
    ),
    Command(
        "export site",
        "make a static copy of the public pages of datasets",
        "export_site:exported",
        given(
            "ref",
            "datasets, each with all versions, or single versions (DATASET@vHEX, DATASET@GENERATION);"
            " default: every dataset that anybody may read",
            many="*",
        ),
        option("-o, --output", "the folder to make", "DIR", kind="path", needed=True),
        option(
            "--at",
            "where it will be had: links that leave the copy (feeds, lines to paste) are whole then",
            "URL",
            default="",
        ),
        example="kfm export site ks_earthquakes -o public",
        about="""\
Pages, maps, tables, changes, stories, lineage, citations, feeds, files and what proves them, and the
JSON of each: for any static host, and to be opened from a folder. Only what anybody may see now,
decided as the reader decides it; where a label asks something of who reads, the dataset is left out
with a word. The same evidence gives the same bytes. The folder appears whole or not at all, and takes
the place only of an unchanged copy.""",
    ),
    Command(
        "discover",
        "find what is new or changed upstream, and draft it",
        "discover:discovered",
        given(
            "dataset",
            "only these; default: every registered dataset and every catalogue",
            many="*",
        ),
        switch("--catalogues", "look at the catalogues only"),
        option("--adopt", "register the draft of this dataset", "ID"),
        switch("--pull-requests", "open a draft pull request on GitHub for each finding"),
        UPSTREAM,
        example="kfm discover",
        about="""\
Nothing is published by this command. Registered datasets that changed become proposals (`kfm
review`), with catalog records and verdicts. Resources of the catalogues in kfm.yml that nobody has
registered become drafts below data/work/_discovered; `--adopt ID` registers one, and it is published
only when its licence, labels and every gate allow it. The same finding twice is one draft.""",
    ),
    Command(
        "schedule list",
        "what is scheduled, how it stands, which windows failed",
        "schedule:schedules",
        given("name", "a schedule, or its dataset", many="?"),
        example="kfm schedule list",
    ),
    Command(
        "schedule next",
        "the next moments",
        "schedule:moments",
        given("name", "a schedule, or its dataset", many="?"),
        option("-n, --count", "how many moments of each; default: 5", "N", kind="count", default=5),
        example="kfm schedule next -n 3",
    ),
    Command(
        "schedule run",
        "put it now, whatever the cadence says",
        "schedule:put_now",
        given("name", "a schedule, or its dataset"),
        option("--window", "2026-11-01, or SINCE/UNTIL; default: the newest one that has ended"),
        why("what for"),
        example="kfm schedule run ks_earthquakes",
    ),
    Command(
        "schedule pause",
        "put nothing more by it",
        "schedule:paused_now",
        given("name", "a schedule, or its dataset"),
        why(),
        example='kfm schedule pause ks_earthquakes --reason "upstream moves house"',
    ),
    Command(
        "schedule unpause",
        "end a pause",
        "schedule:unpaused",
        given("name", "a schedule, or its dataset"),
        example="kfm schedule unpause ks_earthquakes",
    ),
    Command(
        "schedule event",
        "upstream said that it changed",
        "schedule:event",
        given("name", "a dataset", "DATASET"),
        option(
            "--digest",
            "what tells this event from others: the same twice is one event",
            needed=True,
        ),
        example="kfm schedule event ks_earthquakes --digest sha256:1f…",
    ),
    Command(
        "backfill plan",
        "what it would take: partitions, requests, bytes, time; nothing is written",
        "backfill:planned",
        _PLANNED,
        *_RANGE,
        example="kfm backfill plan ks_stream_gauges --since 2025-01-01 --until 2026-01-01",
    ),
    Command(
        "backfill start",
        "begin it; workers do it, or this process with --inline",
        "backfill:started",
        _PLANNED,
        *_RANGE,
        switch("--again", "although this very plan was done before"),
        *_INLINE,
        example="kfm backfill start ks_stream_gauges --since 2025-01-01 --until 2026-01-01",
    ),
    Command(
        "backfill status",
        "counts, grid, rate, what fails and the next command",
        "backfill:backfills",
        given("what", "a backfill, by its name or its dataset", "NAME", many="?"),
        example="kfm backfill status",
    ),
    Command(
        "backfill resume",
        "do only what is missing or failed",
        "backfill:resumed",
        _BEGUN,
        *_INLINE,
        example="kfm backfill resume ks_stream_gauges --inline",
    ),
    Command(
        "backfill cancel",
        "hand out nothing more; nothing official changes",
        "backfill:cancelled",
        _BEGUN,
        why(),
        example='kfm backfill cancel ks_stream_gauges --reason "wrong range"',
    ),
    Command("backfill list", "every backfill", "backfill:listing", example="kfm backfill list"),
)
