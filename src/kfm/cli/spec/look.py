"""Look: what is official, what happened, why."""

from kfm.cli.spec.shared import CLOCK_OK, READER, WAIT, why
from kfm.cli.spec.words import Command, Noun, given, option, switch

__all__ = ["COMMANDS", "NOUNS"]

NOUNS = {
    "lineage": Noun("what came from what"),
    "quarantine": Noun("work what was set aside", usual="list"),
}

_WHAT = "DATASET, DATASET@vHEX, DATASET@GENERATION, the id of a run, or the address of a source"
_UP = option("--up", "how many runs back; default: 10", "N", kind="number", default=10)
_DOWN = option("--down", "how many runs on; default: 10", "N", kind="number", default=10)
_AS_OF = option("--as-of", "as it was at a moment, or when a run or a version was made", "WHEN")
_RUN = given("what", "a run, or the beginning of its id", "RUN")

COMMANDS = (
    Command(
        "status",
        "what is official, fresh, failed or waiting",
        "status:status",
        given("dataset", "only these", many="*"),
        example="kfm status",
        about="""\
And the next command for each. The newest look decides what is said of upstream; a proposal that
waits, and a denial on the head, always show. With DATASET only what is about it is told. A state is
official, proposed, denied, failed, running, waiting, retired, withdrawn or none.""",
    ),
    Command(
        "history",
        "what was official when, by whom and why, and the way back to each",
        "history:generations",
        given("dataset", "the dataset"),
        option("--limit", "how many at the most; default: 20", "N", kind="count", default=20),
        READER,
        example="kfm history ks_earthquakes",
    ),
    Command(
        "open",
        "open the page of something in the browser",
        "open_page:opened",
        given(
            "ref",
            "DATASET, DATASET@vHEX, DATASET@GENERATION, proposal/N or a run; default: where to begin",
            many="?",
        ),
        example="kfm open ks_earthquakes",
        about="""\
Its address is printed too, and where there is no browser that is all. `kfm up` or `kfm serve` has to
run meanwhile.""",
    ),
    Command(
        "show",
        "show a version on the screen, or the answer to a question in SQL",
        "show:viewed",
        given("ref", "DATASET, DATASET@vHEX, DATASET@GENERATION or proposal/N"),
        option("--rows", "how many at the most; default: 20", "N", kind="count", default=20),
        option("--sql", "a question; its table is called data", "SELECT"),
        READER,
        example='kfm show ks_earthquakes --sql "select count(*) from data"',
        about="""\
First rows, what each column holds, where its places are. A question sees one table, under the id of
the dataset and as `data`; DuckDB answers it in a process that can read these files and nothing else,
in at most a minute and a gigabyte.""",
    ),
    Command(
        "diff",
        "show what changed between two versions",
        "diff:compared",
        given("a", "DATASET, DATASET@vHEX, DATASET@GENERATION or proposal/N"),
        given("b", "the version to compare it with", many="?"),
        option(
            "--format",
            "how to show it; default: text",
            choices=("text", "json", "html"),
            default="text",
        ),
        option(
            "-o, --output",
            "write it there; html is one page without outside requests",
            "FILE",
            kind="path",
        ),
        option(
            "--limit",
            "how many differing rows to show, or `all`; default: 50",
            "N",
            kind="count_or_all",
            default=50,
        ),
        READER,
        example="kfm diff ks_earthquakes@1 ks_earthquakes@2",
        about="""\
Rows, columns, geometries and the profile. A DATASET without @ means its official version; without B,
A is compared with the official version, and a DATASET alone with the version that was official
before. A proposal of a dataset that has nothing official is compared with nothing: all its rows are
added. The counts are of all rows, samples are of --limit rows.""",
    ),
    Command(
        "lineage show",
        "show what something comes from, and what comes from it",
        "lineage:shown",
        given("what", _WHAT),
        _UP,
        _DOWN,
        _AS_OF,
        switch("--columns", "where each column of a version comes from, too"),
        READER,
        example="kfm lineage show ks_earthquakes --columns",
        about="""\
A version, a run or a source. What the reader may not know of is left out. --columns says of each
column whether it was taken over, renamed, computed, generalised, collected or dropped, and of which
columns; a commitment stands for one that is withheld.""",
    ),
    Command(
        "lineage path",
        "show the shortest way from one to the other",
        "lineage:way",
        given("one", _WHAT),
        given("other", "the same"),
        READER,
        example="kfm lineage path ks_earthquakes@1 ks_earthquakes@2",
    ),
    Command(
        "lineage impact",
        "say what would break if a source were withdrawn",
        "lineage:impacted",
        given("source", _WHAT),
        READER,
        example="kfm lineage impact https://example.org/trees.csv",
        about="""\
Every dataset of which a version comes from it, and whether that version is official now. An address
without a query stands for every answer it ever gave.""",
    ),
    Command(
        "lineage export",
        "draw it, or write it as Cypher",
        "lineage:exported",
        given("what", _WHAT),
        option("--format", "how; default: svg", choices=("svg", "dot", "cypher"), default="svg"),
        option("-o, --output", "write it there", "FILE", kind="path"),
        _UP,
        _DOWN,
        _AS_OF,
        READER,
        example="kfm lineage export ks_earthquakes -o lineage.svg",
    ),
    Command(
        "lineage sync",
        "build a Neo4j graph of it, or bring one in step, and compare both",
        "lineage_sync:synced",
        option(
            "--to", "ADDRESS, env:NAME or the name of a receiver; default: the only graph", "GRAPH"
        ),
        option("--batch", "runs in one transaction; default: 500", "N", kind="count", default=500),
        option(
            "--patience",
            "seconds without an answer until it ends; default: 60",
            "SECONDS",
            kind="number",
            default=60,
        ),
        example="kfm lineage sync --to neo4j://127.0.0.1:7687",
        about="""\
From nothing, or from where an earlier one was interrupted. Constraints come first, everything is
merged in batches, and what was withdrawn or erased since is taken out. Then nodes and edges of both
sides are counted and digested; exit code 6 says that they differ, 4 that the graph did not answer.
Needs the extra `neo4j`.""",
    ),
    Command(
        "search",
        "find passages of what may be read, with citations",
        "search:passages",
        given("words", "a question, or words of it; - reads them from stdin", many="+"),
        option("--dataset", "only this one; repeatable", "ID", many="+"),
        option(
            "--limit", "how many passages at the most; default: 10", "N", kind="count", default=10
        ),
        READER,
        example='kfm search "water rights on the Republican River"',
        about="""\
By words and by meaning, with citations that open. Given kfm://dataset/ID@VERSION/PLACE it prints the
one passage whose address this is, whole. Only the official version of a dataset is searched, and
only when its labels and licence let it out. Words are just words: no sign has a meaning of its own.""",
    ),
    Command(
        "explain",
        "say why something ran, was skipped, denied or is stale",
        "explain:explained",
        given(
            "words",
            "what, or first which of them is asked",
            "[run|skip|deny|stale] REF|RUN",
            many="+",
        ),
        example="kfm explain deny ks_earthquakes",
        about="Rebuilt from journal, ledger and receipts, without running anything.",
    ),
    Command(
        "story",
        "tell how a layer was produced, with the files that show it",
        "story:told",
        given("ref", "DATASET, DATASET@vHEX or DATASET@GENERATION"),
        option(
            "--format",
            "how to tell it; default: text",
            choices=("text", "markdown", "html", "json"),
            default="text",
        ),
        option(
            "-o, --output",
            "write it there; html is one page without outside requests",
            "FILE",
            kind="path",
        ),
        READER,
        example="kfm story ks_earthquakes --format html -o story.html",
        about="""\
Who asked, what came from where, what was refused and why, each step, each gate, who agreed, what is
held back and on whose word, what changed, how to check and cite it. From journal, plan, lineage,
receipts and signed acts alone: upstream is not asked, and may be gone. Every sentence names the files
that show it, with their digests.""",
    ),
    Command(
        "ask",
        "answer one of the fixed questions about a dataset, from evidence",
        "ask:asked",
        given("ref", "DATASET, DATASET@vHEX or DATASET@GENERATION"),
        given("words", "a question; without one they are listed", "QUESTION", many="*"),
        READER,
        example='kfm ask ks_earthquakes "when did it change"',
        about="""\
Where from, who touched it, which rule, which version had this row, why is it missing, when did it
change, how fresh, may I use it. Words are matched to one of these questions; the answer is read from
receipts, journals and signed acts, names its files and the receipt, and says when evidence does not
tell. Nothing is guessed.""",
    ),
    Command(
        "blame",
        "find who gave a row or a cell its value, over all versions",
        "blame:blamed",
        given("ref", "DATASET, DATASET@vHEX or DATASET@GENERATION"),
        option(
            "--key", "a column of its key and its value; repeatable", "[COLUMN=]VALUE", many="+"
        ),
        option("--column", "one cell of the row; default: all of them", "NAME"),
        READER,
        example="kfm blame ks_weather_stations --key station_id=KS001 --column county",
        about="""\
The generation since which it is so, the run that wrote it, what was captured and the line of its
source. Each version this reader may have is looked at; one that may not be looked at is named. Of a
dataset whose records are not public neither capture nor line is told.""",
    ),
    Command(
        "runs",
        "list runs, newest first",
        "runs:runs",
        given("dataset", "only this one", many="?"),
        switch("--all", "NOOPs too"),
        option("--limit", "how many at the most; default: 50", "N", kind="count", default=50),
        example="kfm runs ks_earthquakes",
    ),
    Command(
        "logs",
        "print what workers did, and follow it",
        "logs:logs",
        given("what", "only what has to do with it", "DATASET|JOB|RUN", many="?", default=""),
        switch("-f, --follow", "go on as lines are written"),
        option(
            "-n, --lines", "how many of the last lines; default: 50", "N", kind="count", default=50
        ),
        switch("--signals", "lifecycle, waiting and freshness signals instead"),
        example="kfm logs -f",
        about="One line per event of a job.",
    ),
    Command(
        "quarantine list",
        "list what was set aside",
        "quarantine:listed",
        given("what", "only this dataset", "DATASET", many="?"),
        switch("--all", "what is closed or overtaken, too"),
        example="kfm quarantine list",
    ),
    Command(
        "quarantine show",
        "show it with its neighbours",
        "quarantine:shown",
        _RUN,
        option("--row", "one of the rows, by its number", "N", kind="number"),
        option("--limit", "how many rows at the most; default: 20", "N", kind="count", default=20),
        switch("--unseal", "the records of a private dataset, which needs its data key"),
        example="kfm quarantine show 6f2a",
    ),
    Command(
        "quarantine fix",
        "say what a row should have been",
        "quarantine_decide:fixed",
        _RUN,
        option("--row", "the row, by its number", "N", kind="number"),
        option(
            "--set", "the text that is right; repeatable, empty = null", "COLUMN=VALUE", many="+"
        ),
        why("why; recorded with your login name"),
        example='kfm quarantine fix 6f2a --row 3 --set depth=12.5 --reason "typed twice"',
    ),
    Command(
        "quarantine replay",
        "run again from what was captured, with what was fixed",
        "quarantine:replayed",
        _RUN,
        WAIT,
        CLOCK_OK,
        example="kfm quarantine replay 6f2a",
    ),
    Command(
        "quarantine accept",
        "decide that it stays out",
        "quarantine_decide:accepted",
        _RUN,
        option("--row", "one of the rows, by its number; default: all", "N", kind="number"),
        why("why; recorded with your login name"),
        example='kfm quarantine accept 6f2a --reason "test wells"',
    ),
    Command(
        "du",
        "show how much lies where, and what could be freed",
        "du:lying",
        given("dataset", "this one only", many="?"),
        example="kfm du",
        about="""\
Bytes and files by dataset and zone, what `kfm gc` could free, and what the disk has left. Bytes that
lie under two names are counted once, where they are published.""",
    ),
)
