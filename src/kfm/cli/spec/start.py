"""Start: a workspace, its datasets, its connectors."""

from kfm.cli.spec.shared import AUTHOR_FLAGS, SENSITIVITIES, why
from kfm.cli.spec.words import Command, Noun, given, option, switch

__all__ = ["COMMANDS", "NOUNS"]

NOUNS = {
    "dataset": Noun("register, list and check datasets", usual="list"),
    "connector": Noun("make connectors, try them, and check that they keep their contract"),
}

COMMANDS = (
    Command(
        "demo",
        "run the sample datasets end to end, in a folder of their own",
        "demo:demo",
        option("--dir", "the workspace to make or use; default: ./demo", "DIR", kind="path"),
        example="kfm demo",
        about="Nothing leaves this machine.",
    ),
    Command(
        "init",
        "make a workspace",
        "init:made",
        given("dir", "the folder; default: here", many="?", kind="path"),
        switch(
            "--sample",
            "for invented data: the sample upstream answers; registers its three datasets, or"
            " those of --kansas",
        ),
        switch("--kansas", "begin with the Kansas workspace: twelve streams with live addresses"),
        switch(
            "--allow-loopback",
            "let datasets be fetched from this machine (tests, local mirrors)",
        ),
        switch(
            "--full",
            "also what else is documented: examples of schedules and backfills, the skeleton of a"
            " connector, the updater's modules",
        ),
        example="kfm init water && cd water",
        about="A folder with kfm.yml, a registry, zones and a signing key.",
    ),
    Command(
        "dataset new",
        "register a dataset",
        "dataset:register",
        given("dataset_id", "how it is called: a-z, 0-9 and _", "ID"),
        option(
            "--url",
            "where the file is; {since}, {until} and {partition} are filled at run time",
            needed=True,
        ),
        option(
            "--format",
            "default: from the end of the URL's path",
            choices=("csv", "json", "geojson", "xlsx", "ods", "parquet", "gpkg"),
        ),
        option("--sensitivity", "who may see it", choices=SENSITIVITIES),
        *AUTHOR_FLAGS,
        option(
            "--cadence",
            "how often it is looked at: real-time, daily, weekly, annual, static, a length or a"
            " cron line; default: daily",
            default="daily",
        ),
        example="kfm dataset new wells --url https://example.org/wells.csv --licence CC0-1.0",
    ),
    Command("dataset list", "list datasets", "dataset:datasets", example="kfm dataset list"),
    Command(
        "dataset show",
        "print the registry entry of a dataset",
        "dataset:entry_of",
        given("dataset_id", "the dataset", "ID"),
        example="kfm dataset show wells",
    ),
    Command(
        "dataset check",
        "check registry entries",
        "dataset:check",
        given("dataset_id", "default: every dataset", "ID", many="?"),
        example="kfm dataset check",
    ),
    Command(
        "dataset schema",
        "print the columns and types of what is official",
        "dataset:columns",
        given("dataset_id", "the dataset", "ID"),
        switch("--write", "write it into data/registry/ID.yml; the comments above it stay"),
        example="kfm dataset schema wells --write",
    ),
    Command(
        "dataset rename",
        "give a dataset another id; the old one stays as an alias",
        "dataset:rename",
        given("dataset_id", "the dataset", "ID"),
        given("to", "the new id", "NEW"),
        example="kfm dataset rename wells water_wells",
    ),
    Command(
        "dataset retire",
        "run a dataset no longer; what is official stays",
        "dataset:retire",
        given("dataset_id", "the dataset", "ID"),
        why("why it is no longer run"),
        example='kfm dataset retire wells --reason "the agency stopped it"',
    ),
    Command(
        "connector new",
        "make a connector that works, to begin from",
        "connector:new",
        given("dataset", "the id: a-z, 0-9 and _", "DATASET"),
        option(
            "--file",
            "a CSV to map, or JSON, GeoJSON, XML, .xlsx, .ods, Parquet, GeoPackage, and each of them"
            " packed; without --url it is the source, copied to inbox/",
            "FILE",
            kind="path",
        ),
        option(
            "--url", "where the file is; {since}, {until} and {partition} are filled at run time"
        ),
        option(
            "--kind",
            "the kind of source; default: by how the file ends, delimited for a public CSV as --file",
        ),
        option("--format", "what the bytes are; default: from the end of the file's name"),
        option("--sensitivity", "default: public", choices=SENSITIVITIES, default="public"),
        *AUTHOR_FLAGS,
        switch("--force", "add what is missing beside what is there; nothing is overwritten"),
        example="kfm connector new wells --file wells.csv --licence CC0-1.0",
        about="""\
Without --file and --url it reads a synthetic sample, to be replaced by yours. With --file the file
is copied into the workspace and its columns are mapped; with --url a sample given by --file is what
it is mapped by.""",
    ),
    Command(
        "connector try",
        "show what a connector makes of the first rows",
        "connector:tried",
        given("dataset", "the id", "DATASET"),
        option("--rows", "how many to show; default: 10", "N", kind="count", default=10),
        example="kfm connector try wells --rows 3",
        about="""\
On its fixtures, or on its newest capture where there are none: the columns that were there, rows
before and after, those left out with their reasons, what it printed, and the author's lines of a
traceback. Nothing is fetched and nothing is written.""",
    ),
    Command(
        "connector check",
        "check that connectors keep their contract",
        "connector:checked",
        given("dataset", "default: every connector", "DATASET", many="*"),
        switch("--golden", "accept what the fixtures give now, as fixtures/expected.json"),
        example="kfm connector check wells",
    ),
    Command(
        "sample-upstream",
        "serve the sample datasets on loopback",
        "sample:serve",
        option("--port", "0 = any free one", kind="port", default=0),
        example="kfm sample-upstream",
        about="""\
With revisions and faults on request. Prints its address as one line of JSON. `POST /_control
{"dataset", "mode", "revision"}` switches what it answers; while it runs, `kfm run --upstream sample`
of the same user finds it by itself.""",
    ),
    Command(
        "help",
        "show the commands, or one of them",
        "help:page",
        given("words", "a command, such as `run` or `backup make`", "COMMAND", many="*"),
        switch("--all", "every command, not only those of every day"),
        switch("--man", "all of it as a manual page, for man"),
        example="kfm help --all",
    ),
    Command(
        "completion",
        "print what makes a shell complete kfm's commands",
        "completion:script",
        given("shell", "which shell", "SHELL", choices=("bash", "zsh", "fish")),
        example="source <(kfm completion bash)   # in ~/.bashrc",
    ),
)
