"""Operate: keep it going, and keep room for it."""

from kfm.cli.spec.shared import ROOT_KEY, UPSTREAM, why
from kfm.cli.spec.words import Command, Noun, given, option, switch

__all__ = ["COMMANDS", "NOUNS"]

NOUNS = {
    "github": Noun(
        "pull requests, checks and artifacts of the repository that kfm.yml names",
        about="""\
`github: {repository: owner/name}` in kfm.yml; `token` below it says where the token is
(env:GITHUB_TOKEN). docs/github.md shows the whole.""",
    ),
    "alerts": Noun("tell people what is wrong, once", usual="list"),
    "worker": Noun("work the job table, or a single job", usual="list"),
    "jobs": Noun("what workers do, did and will do", usual="list"),
    "switch": Noun(
        "stop an updater, a dataset or a type of job at once, and let it go on",
        usual="list",
        about="Every turn is a line of ledger/switches.jsonl: when, what, who, why.",
    ),
    "runner": Noun(
        "let other orchestrators run kfm",
        about="""\
GitHub Actions, Argo Workflows, Tekton, a Kubernetes CronJob, systemd or Compose: each is given files
that call the entry points a person calls, so that the choice of a runner changes no byte.
docs/runners.md tells what each needs.""",
    ),
    "webhook": Noun(
        "be told by others that something changed",
        usual="list",
        about="""\
Who may is in pipelines/orchestration/webhooks: docs/webhooks.md. `kfm up` receives too.""",
    ),
    "gc": Noun("remove what retention no longer keeps"),
    "backup": Noun(
        "back a workspace up, check a backup, restore one",
        about="""\
Links that stay in the workspace or its repository are followed; others are named and left out. A
backup made before `kfm withdraw --erase` is marked by it where it can be reached; a restore of it
erases the same again. Private keys stay out unless --with-keys is given: keep such a backup as you
keep the keys. Files in inbox/ are inside as people brought them; those that a dataset comes from
which is not public, or was erased since, are named.""",
    ),
}

RUNNERS = ("github", "argo", "tekton", "cronjob", "helm", "systemd", "compose", "gitops")

CHECKS = (
    "gates", "receipts", "catalogs", "checksums", "policy", "documents", "owners", "workers",
)  # fmt: skip
_DATASET_URI = option("--dataset", "what it works on", "kfm://dataset/ID", default="")
_PARTITION = option("--partition", "one partition", default="")
_ONE_WINDOW = option("--window", "one window", "SINCE/UNTIL", default="")
_SET = option("--set", "a parameter; repeatable", "NAME=VALUE", many="+")
_AT_ONCE = option(
    "--concurrency", "how many jobs at once; default: 2", "N", kind="count", default=2
)
_BOUNDARY = option(
    "--boundary", "the governed API that decides, instead of the rules here", "URL", default=""
)
_TURNED = given("name", "a dataset, an updater (kind.dataset) or a type of job")
_OF_TYPE = option("--type", "of this type", "TYPE", dest="job_type")
_OF_DATASET = option("--dataset", "of this dataset", "kfm://dataset/ID", default="")
_LIMIT = option("--limit", "how many at the most; default: 50", "N", kind="count", default=50)
_JOB = given("what", "a job id, or its beginning", "JOB")
_SOURCE = given("source", "a source: a file of pipelines/orchestration/webhooks")
_EVENT = given("event", "the id of an event, or its beginning")
_LISTEN = option(
    "--listen", "where; default: `webhooks.listen` of kfm.yml", "HOST:PORT|unix:PATH", default=""
)

COMMANDS = (
    Command(
        "up",
        "keep everything here fresh and show it: scheduler, worker and pages in one command",
        "up:kept_fresh",
        _AT_ONCE,
        UPSTREAM,
        option(
            "--port",
            "where it is shown on this machine; default: 8788, or the next that is free",
            "N",
            kind="port",
        ),
        switch("--until-idle", "stop when nothing is left that is due; nothing is shown meanwhile"),
        switch("--no-webhooks", "receive no webhooks, whoever may send some"),
        switch("--no-serve", "show nothing in a browser"),
        example="kfm up",
        about="""\
Until it is stopped. The pages are those of `kfm serve --console`, for who works at this machine
(the extra `api`); `kfm open` opens them. What keeps it from showing them keeps it from nothing else.""",
    ),
    Command(
        "serve",
        "let people read what is published over HTTP, as far as each may",
        "serve:serve",
        option("--host", "where; default: this machine alone", "HOST", default="127.0.0.1"),
        option("--port", "default: 8788; 0: any that is free", "N", kind="port", default=8788),
        option(
            "--known-as",
            "how others address it, behind something that speaks TLS",
            "URL",
            default="",
        ),
        switch("--console", "also show how things are run, and let that be asked for and decided"),
        example="kfm serve",
        about="""\
Until it is stopped. Only what is published, and every request is decided by the labels, the licence
and the rules of that moment. docs/reader.md lists the addresses. The console is for who works at this
machine; with --known-as https://… for whose token has a role, `kfm grant token --role engineer`.""",
    ),
    Command(
        "scheduler",
        "put jobs by schedule; any number may run, one leads",
        "scheduler:scheduled",
        switch("--once", "one tick, then end: for a crontab or a CronJob"),
        option("--until", "end at this moment, such as 2026-11-01T06:00:00Z", "TIME"),
        example="kfm scheduler --once",
        about="""\
The schedules of pipelines/orchestration/schedules, and every registry entry with a cadence, until it
is stopped. Another takes over when the one that leads dies.""",
    ),
    Command(
        "worker run",
        "do jobs until it is stopped",
        "worker:worked",
        _AT_ONCE,
        option("--pool", "only jobs of this pool; repeatable", "NAME", many="+"),
        option("--name", "the name of this worker; default: host and process", default=""),
        switch("--until-idle", "stop when nothing is left to do"),
        option(
            "--grace",
            "how long running jobs may take after the first SIGTERM",
            "1h",
            default="1h",
        ),
        UPSTREAM,
        _BOUNDARY,
        example="kfm worker run --concurrency 4",
        about="""\
With --boundary, or KFM_BOUNDARY, every decision on what is published is asked of that governed API, by
the token in KFM_BOUNDARY_TOKEN. When it does not answer clearly nothing is decided: the job waits and
is tried again.""",
    ),
    Command(
        "worker run-job",
        "do one job here and now",
        "runjob:worked_here",
        given("type", "the type of job; `kfm jobs types` lists them", many="?"),
        _DATASET_URI,
        _PARTITION,
        _ONE_WINDOW,
        _SET,
        option(
            "--receipt", "do again what this receipt tells of, and compare", "FILE", kind="path"
        ),
        switch("--no-follow", "leave the jobs that follow from it in the queue"),
        switch("--queued", "ask for nothing: work those of it that wait and are due, then end"),
        UPSTREAM,
        _BOUNDARY,
        example="kfm worker run-job ingest.pull_source --dataset kfm://dataset/ks_earthquakes",
    ),
    Command(
        "worker list",
        "the workers, and what each does",
        "worker:workers",
        example="kfm worker list",
    ),
    Command(
        "worker metrics",
        "counters and gauges as Prometheus reads them",
        "worker:measured",
        example="kfm worker metrics",
    ),
    Command(
        "jobs list",
        "list jobs, newest first",
        "jobs:listed",
        option("--state", "only these", choices=("queued", "running", "ended")),
        _OF_DATASET,
        _OF_TYPE,
        _LIMIT,
        example="kfm jobs list --state running",
    ),
    Command("jobs show", "all about one job", "jobs:shown", _JOB, example="kfm jobs show 3f"),
    Command(
        "jobs put",
        "put a job",
        "jobs:put",
        given("what", "its type; `kfm jobs types` lists them", "TYPE"),
        _DATASET_URI,
        _SET,
        _PARTITION,
        _ONE_WINDOW,
        option("--pool", "the pool it runs in", default=""),
        option("--priority", "higher comes first", "N", kind="number", default=0),
        option("--not-before", "RFC 3339; it waits until then", "TIME", default=""),
        example="kfm jobs put ingest.pull_source --dataset kfm://dataset/ks_earthquakes",
    ),
    Command(
        "jobs retry",
        "try a job again that was put aside",
        "jobs:retried",
        given("what", "a job id, or its beginning", "JOB", many="?"),
        switch("--dead", "every job that was put aside"),
        example="kfm jobs retry --dead",
    ),
    Command(
        "jobs cancel",
        "take a job back, or stop it",
        "jobs:cancelled",
        _JOB,
        example="kfm jobs cancel 3f",
    ),
    Command(
        "jobs dead",
        "list the jobs that were put aside",
        "jobs:dead",
        _OF_DATASET,
        _OF_TYPE,
        _LIMIT,
        example="kfm jobs dead",
    ),
    Command(
        "jobs types", "every type of job and its parameters", "jobs:types", example="kfm jobs types"
    ),
    Command(
        "jobs pools", "pools, their slots and what waits", "jobs:pools", example="kfm jobs pools"
    ),
    Command(
        "switch off",
        "nothing of it starts any more",
        "switch:off",
        _TURNED,
        why("why; recorded with your login name and shown to whoever meets it"),
        example='kfm switch off ks_earthquakes --reason "upstream moves house"',
    ),
    Command(
        "switch on",
        "let it go on",
        "switch:on",
        _TURNED,
        why("why; recorded with your login name"),
        example="kfm switch on ks_earthquakes",
    ),
    Command(
        "switch list",
        "what is off, since when and why",
        "switch:switches",
        example="kfm switch list",
    ),
    Command(
        "runner render",
        "write the files of a runner into the workspace",
        "runner:render",
        given("runner", "which one", choices=RUNNERS),
        option("--image", "what containers run, by its digest", "NAME@sha256:…", default=""),
        option("--owner", "who must agree to changes; repeatable", "@TEAM", many="+"),
        option("--repository", "where Flux and Argo CD find this", "URL", default=""),
        switch("--check", "write nothing; exit 1 when a file is not what would be written"),
        switch("--force", "replace files that were changed by hand, too"),
        example="kfm runner render cronjob --image registry.example.org/kfm@sha256:…",
        about="""\
The same settings give the same bytes. What is always the same belongs in kfm.yml, `runners`
(docs/fields.md); a flag wins. A file that a person changed is not replaced.""",
    ),
    Command(
        "runner due",
        "put what is due, and print the datasets that have work",
        "runner:due",
        option("--dataset", "a person wants this one now", "ID", default=""),
        option("--window", "only this window of it", "7d|DAY|SINCE/UNTIL", default=""),
        option("--event", "upstream said that something changed", "JSON", default=""),
        switch("--dry-run", "put nothing"),
        example="kfm runner due",
        about="""\
The datasets stand on one line of JSON, for a runner that works each with `python -m workers run-job
ingest.pull_source --dataset kfm://dataset/ID --queued`. Without --dataset or --event the timetables
say what is due. An event that was heard before asks for nothing.""",
    ),
    Command(
        "runner check",
        "answer what CI asks of a change before it may be merged",
        "runner:check",
        given("question", "which one", choices=CHECKS),
        option(
            "--base", "the commit it is compared with; default: everything", "COMMIT", default=""
        ),
        example="kfm runner check gates --base origin/main",
        about="""\
gates, receipts, catalogs, checksums and workers run what changed in a throw-away copy with a key of
its own, which has no data, no store and no secret of this workspace. policy, documents and owners look
at files. Exit 1: the answer is no, and why.""",
    ),
    Command(
        "runner compare",
        "call what rendered runners call, and compare what they leave",
        "runner:compared",
        given("dataset", "which one; it must have been run once"),
        option("--runner", "only these; repeatable", choices=RUNNERS, many="+", dest="runners"),
        example="kfm runner compare ks_earthquakes",
        about="""\
The command lines are read from the files in this workspace, and each runner works in a throw-away copy
fed from the last capture: no network, and this workspace is only read. Beside them stands a run by
hand. Exit 6 when version, bytes, channel or receipts are not the same everywhere.""",
    ),
    Command(
        "webhook serve",
        "receive signed requests until it is stopped",
        "webhook:serve",
        _LISTEN,
        example="kfm webhook serve",
        about="""\
POST /hooks/<source_id>. Answered with 202 once the event is in the store together with the job it
asks for; files and keys are read again while it runs.""",
    ),
    Command(
        "webhook send",
        "tell a receiver something, signed as a source would",
        "webhook:sent",
        _SOURCE,
        given(
            "file",
            "the body; - is standard input; none: one of kfm's own form",
            many="?",
            kind="path",
        ),
        option("--to", "the receiver; default: the one of this workspace", "URL", default=""),
        option("--trigger", "what set it off; default: manual", default="manual"),
        option("--type", "what happened; default: update", dest="event_type", default="update"),
        option("--event", "of a github source: the event, such as push", "NAME", default=""),
        option("--set", "metadata; repeatable", "NAME=VALUE", dest="settings", many="+"),
        example="kfm webhook send noaa-stations",
        about="Exit 0: accepted, 3: refused, 4: nobody answers.",
    ),
    Command(
        "webhook sign",
        "the headers that sign a body",
        "webhook:signature",
        _SOURCE,
        given("file", "the body; - is standard input", kind="path"),
        example="kfm webhook sign noaa-stations body.json",
    ),
    Command(
        "webhook list",
        "what came, and why some of it was refused",
        "webhook:newest",
        option("--source", "of this source", "SOURCE", default=""),
        switch("--refused", "only what was refused"),
        _LIMIT,
        example="kfm webhook list --refused",
    ),
    Command(
        "webhook show",
        "all about one event",
        "webhook:shown",
        _EVENT,
        example="kfm webhook show e3f",
    ),
    Command(
        "webhook replay",
        "ask once more for what an event asked for",
        "webhook:replayed",
        _EVENT,
        example="kfm webhook replay e3f",
        about="Of what was refused nothing but its digest was kept: its sender has to send it again.",
    ),
    Command(
        "webhook keys",
        "the sources, their keys and when each was last used; no key is shown",
        "webhook:keys",
        given("source", "this one only", many="?", default=""),
        option("--new", "write a new key into this file", "FILE", kind="path"),
        example="kfm webhook keys noaa-stations",
        about="""\
Every key of a source may sign, so one follows another without a gap: add the new one, give it to the
sender, take the old one out when it is used no more. Exit 1: something has to be mended.""",
    ),
    Command(
        "gc",
        "remove what retention no longer keeps",
        "gc:removed",
        given("dataset", "this one only", many="?"),
        switch("--apply", "remove it, and leave a receipt that lists every file"),
        option("--grace", "how young is too young; default: 1h", "TIME", default="1h"),
        example="kfm gc --apply",
        about="""\
Without --apply only say what that is. Kept: what is official, what a rollback goes back to, what was
official within the registry's `retention` (none: for ever), whatever an unfinished run or an open
proposal needs, what is on hold, the records of every run that became official, what a person signed,
the last run of each partition, and everything younger than an hour. Tiles and indexes of what was
withdrawn go. A bundle holds its own bytes. Exit 5: a run is at work on the dataset.""",
    ),
    Command(
        "gc hold",
        "keep a version whatever its age",
        "gc:kept",
        given("hold", "the version", "REF"),
        why("why it is held; recorded"),
        example='kfm gc hold ks_earthquakes@4 --reason "cited in a paper"',
    ),
    Command(
        "gc release",
        "end a hold",
        "gc:released",
        given("release", "the version", "REF"),
        example="kfm gc release ks_earthquakes@4",
    ),
    Command(
        "backup make",
        "every file with its digest, and the store as of one moment",
        "backup:made",
        given("folder", "the backup", "DIR", kind="path"),
        switch("--with-keys", "put private keys in too (0600)"),
        switch(
            "--link",
            "hard links instead of copies for files that never change; no help against a bad disk",
        ),
        example="kfm backup make /mnt/backups/monday",
        about="Runs go on meanwhile.",
    ),
    Command(
        "backup check",
        "is this backup whole? exit 6 when it is not",
        "backup:checked",
        given("folder", "the backup", "DIR", kind="path"),
        example="kfm backup check /mnt/backups/monday",
    ),
    Command(
        "backup restore",
        "make the workspace that -w names from a backup",
        "backup:restored",
        given("folder", "the backup", "DIR", kind="path"),
        example="kfm backup restore /mnt/backups/monday -w water",
        about="""\
In a store epoch of its own; leases are not restored. It ends with `kfm doctor` and a dry run from a
capture, and says what they find. The exit code is that of what it finds: 6 for damage, 1 for other
findings, else that of the dry run.""",
    ),
    Command(
        "upgrade",
        "bring a workspace of an earlier kfm along",
        "upgrade:upgraded",
        switch("--dry-run", "say what would be done, and change nothing"),
        ROOT_KEY,
        example="kfm upgrade --dry-run",
        about="""\
Every step can be repeated. What is brought along:

  show         a release that only withholds gets `show`: the columns of its last public version
  credential   `file:` and `cmd:` references of registry entries move into the credential table of
               kfm.yml
  sealed       journals, reports and candidates of datasets that are not public are sealed
  root         a new version of the root says from which generation on approvals are recorded; the
               store remembers it
  catalog      catalogs are rendered as they are now

Generations made before stay as they are; `kfm verify` says from which time they are.""",
    ),
    Command(
        "github propose",
        "let pull requests show the proposals that wait",
        "github:proposed",
        given("number", "a proposal; without it, all that wait", "N", many="*"),
        switch("--draft", "open them as drafts"),
        example="kfm github propose 3",
        about="""\
One branch and one pull request for each dataset: evidence by digest, catalogs, a check for each gate,
and a comment with numbers and rows that change. Said twice it changes nothing. What not everybody may
see is refused.""",
    ),
    Command(
        "github promote",
        "make official what was merged",
        "github:promoted",
        example="kfm github promote",
        about="""\
For each merged pull request of ours the candidate in the branch is compared with the one here, then
judged by every gate and promoted. Where people have to approve, their signatures count (`kfm approve`):
without them it waits (exit 7). What differs is refused, with the reason as a check and a comment.""",
    ),
    Command(
        "github sync",
        "promote what was merged, tell what ended, propose what waits",
        "github:synced",
        example="kfm github sync",
        about="For a workflow that runs on a merge and on a schedule; it may be called at any time.",
    ),
    Command(
        "github upload",
        "upload what the runs of a job of GitHub Actions left",
        "github:uploaded",
        given("dataset", "whose runs; default: all", many="*"),
        example="kfm github upload ks_earthquakes",
        about="""\
One artifact for each dataset, pipelines-updater-ID, with the four files of each run since the job
began: also after a failure, and the same files are uploaded once. The step needs ACTIONS_RUNTIME_TOKEN
and ACTIONS_RESULTS_URL. What is not public stays here.""",
    ),
    Command(
        "alerts check",
        "look what is wrong, and tell those who do not know it yet",
        "alerts:checked",
        example="kfm alerts check",
        about="""\
An incident is a dataset that is stale, fails, or burns its error budget too fast. The channels of
`alerts` in kfm.yml (a webhook, a mail, a command) are told once when one begins, those of `then_to` when
it lasts, and everybody who was told when it is over. `kfm up` and `kfm scheduler` do this every minute;
without them, let cron call it.""",
    ),
    Command(
        "alerts list",
        "incidents that are open, and what is silenced",
        "alerts:listed",
        example="kfm alerts list",
    ),
    Command(
        "alerts silence",
        "tell nobody of a dataset for a while",
        "alerts:silenced_for",
        given("dataset", "the dataset"),
        option("--for", "how long; default: 1h", "LENGTH", dest="length", default="1h"),
        why("why; it is shown beside the silence"),
        example='kfm alerts silence ks_wells --for 2h --reason "upstream moves house"',
    ),
    Command(
        "alerts unsilence",
        "tell people of a dataset again",
        "alerts:unsilenced",
        given("dataset", "the dataset"),
        example="kfm alerts unsilence ks_wells",
    ),
    Command(
        "slo",
        "how datasets stand against what they promise",
        "slo:slo",
        given("dataset", "only these", many="*"),
        example="kfm slo",
        about="""\
How many runs failed, were slow or left the dataset stale, how much of the error budget of its period
was used, and whether it burns too fast (over an hour, six hours, three days). `slo` and `freshness` in
the registry say what is promised; not stated: 10 minutes a run, 99 of 100 runs, 30 days.""",
    ),
    Command(
        "energy",
        "what runs took: processor time, energy, and CO2e where its factor is stated",
        "slo:energy",
        given("dataset", "only these", many="*"),
        example="kfm energy",
        about="""\
By dataset and month, from the line that every run leaves; with what was saved by looks that found
nothing new. Counted by the processor where it tells, else estimated from its time: the factor, who
states it and how far it may be off are told. Without `telemetry: {energy: {g_per_kwh: …}}` in kfm.yml
no CO2e is.""",
    ),
)
