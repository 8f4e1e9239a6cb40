"""Decide: what may become official, what stops being it, who may use it."""

from kfm.cli.spec.shared import CLOCK_OK, READER, UPSTREAM, signing_key, why
from kfm.cli.spec.words import Command, Noun, given, option, switch

__all__ = ["COMMANDS", "NOUNS"]

NOUNS = {
    "licence": Noun("ask for a licence, record the one given, or sign that it suffices"),
    "grant": Noun("let a person use a dataset for a purpose, or show a column", usual="list"),
    "policy": Noun("test, check, ask and try out the rules in policy/"),
    "canary": Noun(
        "try another version of an updater on some partitions, and compare it",
        usual="list",
        about="""\
The registry says `canary: {pipeline_version: "2.0.0", partitions: [a, b]}`; code of its own is
scripts/connectors/ID/connector_canary.py.""",
    ),
}

_PROPOSAL = given("number", "the proposal", "N")
_RULES = option("--policy", "the rules; default: policy/ of the workspace", "DIR", kind="path")
_DATASET = given("dataset", "the dataset")
_ID = given("dataset", "the dataset", "ID")

COMMANDS = (
    Command(
        "propose",
        "judge a new version and stop before it is official",
        "propose:propose",
        given("dataset", "what to propose", many="+"),
        UPSTREAM,
        switch("--force", "propose although nothing changed; gates still apply"),
        why("why it is forced; recorded"),
        CLOCK_OK,
        example="kfm propose ks_earthquakes",
        about="""\
Fetch, transform and judge, and stop before anything becomes official: a preview that `kfm promote N`
can finish.""",
    ),
    Command(
        "review",
        "list or show the proposals that wait for a person",
        "review:review",
        given("number", "a proposal; without it, all that wait", "N", many="?"),
        example="kfm review 3",
        about="One proposal: its gates, what it changes, who approved, what you would sign.",
    ),
    Command(
        "approve",
        "approve a proposal with your own key",
        "approve:approved",
        _PROPOSAL,
        signing_key(),
        option(
            "--digest",
            "what you looked at: the version digest, 8 digits or more; another one is refused",
            "HEX",
        ),
        why("kept with the signature, public"),
        example="kfm approve 3 --key stone",
        about="""\
You sign its version, its evidence, the policy, the labels and the generation it follows; if any of
them changes, your approval does not count. When enough people approved, `kfm promote N` makes it
official.""",
    ),
    Command(
        "reject",
        "reject a proposal with your own key",
        "reject:rejected",
        _PROPOSAL,
        signing_key(),
        why("why; kept with the signature"),
        example='kfm reject 3 --reason "the east is missing"',
        about="""\
It ends REJECTED; the same content is not proposed again until something changes.""",
    ),
    Command(
        "promote",
        "make an approved proposal official",
        "promote:promoted",
        given("what", "a proposal, or the dataset whose newest proposal is meant", "N|DATASET"),
        CLOCK_OK,
        example="kfm promote 3",
        about="""\
It is judged again on the policy and labels of now, then its generation is appended. Without enough
valid approvals it waits on (exit 7), and what differs from what people approved is shown; denied it
is exit 3.""",
    ),
    Command(
        "gates",
        "judge a version or a proposal by every gate",
        "gates:gates",
        given("ref", "DATASET, DATASET@vHEX, DATASET@GENERATION or proposal/N"),
        option("--only", "show this gate only; repeatable", "GATE", many="+"),
        example="kfm gates ks_earthquakes",
        about="""\
As things are now; nothing is fetched and nothing is changed. A proposal (proposal/N), a dataset (its
newest candidate that is not official, else the official version), or one version. Exit 0: every gate
passes. 3: denied, each reason with what clears it. 6: bytes are damaged. 7: a person must look.""",
    ),
    Command(
        "rollback",
        "make an earlier version official again",
        "rollback:rolled_back",
        given("dataset", "may be left out with --receipt", many="?"),
        option("--to", "the version; default: the one before the present", "REF"),
        option(
            "--receipt",
            "instead of --to: the version that this receipt of a run names",
            "FILE",
            kind="path",
        ),
        why("why; recorded in the channel"),
        CLOCK_OK,
        example='kfm rollback ks_earthquakes --to 4 --reason "a bad feed"',
        about="What it leaves is held: it comes back only by `kfm run --force`.",
    ),
    Command(
        "withdraw",
        "take records, an area or a dataset out of publication",
        "withdraw:withdrawn",
        _DATASET,
        option("--partition", "this partition only", "NAME"),
        option(
            "--record", "records with this value; repeated: all must fit", "COLUMN=VALUE", many="+"
        ),
        option("--area", "records inside this box, in degrees", "W,S,E,N"),
        why("why; signed into the channel, public"),
        option("--authority", "who ordered it; with --erase needed", "NAME", default=""),
        switch("--erase", "destroy the bytes too: versions, captures, parts; not to be undone"),
        switch(
            "--inbox",
            "with --erase: its source files in inbox/ too, whatever else is in them; of a whole"
            " dataset or partition they go anyway",
        ),
        switch("--dry-run", "show what would go, and change nothing"),
        option(
            "--limit", "how many of the rows to show; default: 20", "N", kind="count", default=20
        ),
        switch("--yes", "do not show and ask first"),
        option(
            "--undo",
            "lift the withdrawal that is generation N; signed with --key",
            "N",
            kind="number",
        ),
        signing_key("--undo: the key of an approver"),
        CLOCK_OK,
        example='kfm withdraw wells --record id=17 --reason "the owner asked" --dry-run',
        about="""\
It stops being served, and never comes back by itself. The withdrawal is a generation of the channel
that carries its own rule: whatever upstream delivers later is published without it, and --force does
not lift it. --erase also destroys the bytes everywhere and leaves who ordered it and when: the files
in inbox/ that a whole dataset or partition came from, too; where records are erased they are named,
and --inbox destroys them.

The rows it takes out are shown first and a person is asked; --dry-run shows them only, --yes does
not ask. `--undo N` lifts the withdrawal that is generation N by the signed word of an approver,
which the channel keeps; what was erased stays gone.""",
    ),
    Command(
        "licence ask",
        "write the letter to the source",
        "licence:letter",
        _ID,
        example="kfm licence ask wells",
    ),
    Command(
        "licence set",
        "record the answer with its proof, in data/registry/proofs",
        "licence:record",
        _ID,
        given("licence", "the licence, an SPDX id such as CC-BY-4.0", "SPDX"),
        option(
            "--proof",
            "the mail or page that shows it was given",
            "FILE",
            kind="path",
            needed=True,
        ),
        example="kfm licence set wells CC-BY-4.0 --proof answer.eml",
    ),
    Command(
        "licence allow",
        "sign that a dataset may be public although its licence says less",
        "licence:allow",
        _ID,
        option("--proof", "the mail or page that shows it was given", "FILE", kind="path"),
        option("--records", "the records that say this of themselves", "COLUMN=VALUE"),
        why("why; signed, public"),
        signing_key(),
        example='kfm licence allow wells --reason "their letter of 3 May" --key stone',
        about="""\
Once, for this licence (non-commercial, no derivatives, …); another licence voids it. With --records
the same for records whose own column says that they are restricted.""",
    ),
    Command(
        "grant list",
        "list the grants of a dataset, or of all",
        "grant:grants",
        given("dataset", "only this one", many="?"),
        example="kfm grant list wells",
    ),
    Command(
        "grant give",
        "let a person use a dataset for a purpose, until a day",
        "grant:give",
        _DATASET,
        option("--to", "the person", "NAME"),
        option("--purpose", "what for; `publish` or words of your own", default=""),
        option("--expires", "the day it ends", "DATE"),
        signing_key("the steward's key"),
        example='kfm grant give wells --to "R. Stone" --purpose publish --expires 2027-01-01',
        about="""\
`--purpose publish` lets a restricted dataset's released version become official; other purposes are
for readers.""",
    ),
    Command(
        "grant column",
        "sign that a column is public although something was found in it",
        "grant:show_column",
        _DATASET,
        given("show", "the column of `release.show`", "COLUMN"),
        option(
            "--despite",
            "what was found; the denial says it",
            choices=("name", "address", "coordinates", "free text", "places", "values"),
        ),
        why("why; signed, public"),
        signing_key("the steward's key"),
        example='kfm grant column wells operator --despite name --reason "companies only"',
        about="""\
Although it looks like a name, an address, coordinates or free text, or although places or values that
are withheld were found in it.""",
    ),
    Command(
        "grant token",
        "make a token by which a person reads over HTTP, and print it once",
        "token:made",
        given("person", "as grants name them", "NAME"),
        option("--expires", "the day it ends", "DATE", needed=True),
        option(
            "--role",
            "what its holder may do beside reading; default: nothing",
            choices=("reader", "engineer", "steward", "admin"),
            default="reader",
        ),
        example='kfm grant token "A. Reader" --expires 2027-06-30',
        about="""\
Only its digest is kept, below keys/readers: who loses it is given another. What its holder may read is
what grants and labels say. An engineer also sees the console of `kfm serve --console` and asks for
runs there, a steward also decides what waits, an admin does everything; docs/reader.md.""",
    ),
    Command(
        "grant tokens",
        "list the tokens by which people read over HTTP",
        "token:listed",
        example="kfm grant tokens",
    ),
    Command(
        "grant revoke",
        "end a token now",
        "token:revoked",
        given("token", "the beginning of its digest, as `kfm grant tokens` prints it", "DIGEST"),
        example="kfm grant revoke 3f9a21c0",
    ),
    Command(
        "policy test",
        "run the *_test.rego rules",
        "policy:tested",
        _RULES,
        example="kfm policy test",
    ),
    Command(
        "policy check",
        "whether the files keep to the kfm subset",
        "policy:checked",
        _RULES,
        example="kfm policy check",
    ),
    Command(
        "policy eval",
        "one decision on a JSON document: exit 0 allowed, 3 denied",
        "policy:decided",
        _RULES,
        option("--input", "the JSON document; default: stdin", "FILE", default="-"),
        option("--package", "who is asked; default: the one that judges the document's action"),
        example="kfm policy eval --input document.json",
    ),
    Command(
        "policy simulate",
        "what other rules would do to everything that is official now",
        "policy:simulated",
        option("--policy", "the other rules", "DIR", kind="path", needed=True),
        example="kfm policy simulate --policy stricter/",
    ),
    Command(
        "canary list",
        "what is tried, and how it stands",
        "canary:canaries",
        given("dataset", "only this one", many="?"),
        READER,
        example="kfm canary list",
    ),
    Command(
        "canary compare",
        "compare what is tried with what is official",
        "canary:compared",
        _DATASET,
        READER,
        example="kfm canary compare wells",
    ),
    Command(
        "canary accept",
        "take it: say what makes it the updater",
        "canary:accepting",
        _DATASET,
        READER,
        example="kfm canary accept wells",
    ),
)
