"""Prove: what is published is what was made, and how it was made can be shown."""

from kfm.cli.spec.shared import READER, ROOT_KEY
from kfm.cli.spec.words import Command, Noun, given, option, switch

__all__ = ["COMMANDS", "NOUNS"]

NOUNS = {
    "keys": Noun(
        "who may sign: make, list, replace and revoke keys",
        usual="list",
        about="""\
The root key signs who may sign what, the builder key what is published. Whoever has both can rewrite
history: keep the root key elsewhere.

A lost key. Lost builder key: `kfm keys rotate` with the root key makes a new one, and history stays
good. Lost root key: nobody can change who may sign; a new root (move keys/root away, then `kfm init`,
or `kfm keys renew` if the builder key is there) has a new fingerprint; the workspace goes by it after
`kfm keys adopt-root`, and readers must pin it again. Lost data key (keys/data): the raw bytes of that
dataset are gone. So make a backup, and keep it elsewhere; one made before an erasure still holds the
erased data key, and must be destroyed with it.""",
    ),
    "release": Noun(
        "sign what runs here under a version, and check that",
        usual="check",
        about="""\
`releases/<version>/` holds an SBOM (SPDX), a manifest with every file of code, documents, rules and schemas,
a SLSA attestation, what the newest runs told of themselves, and a signature of all of it. Nothing of data, keys or
runs is in it; keep it in version control. The documents that name a release are stamped by it.""",
    ),
    "witness": Noun(
        "countersign channels, and check them, so that no operator can rewrite history unseen"
    ),
}

_REF = given("ref", "DATASET, DATASET@vHEX or DATASET@GENERATION")
_WITNESS = option("--witness", "compare with these countersignatures too", "DIR", kind="path")
_NAME = option("--name", "whose key it is", needed=True)
_ROLE = option(
    "--role",
    "what it may sign; default: approver",
    choices=("root", "builder", "approver", "steward", "witness"),
    default="approver",
)
_CUSTODIAN = option(
    "--for", "of a steward: for whom, as registry entries name it", "CUSTODIAN", dest="custodian"
)
_YEARS = option(
    "--years", "how long the root is good for from now; default: 2", kind="real", default=2
)
_PASSPHRASE = option(
    "--passphrase", "where the passphrase of the backup is; default: it is asked for", "env:NAME"
)

COMMANDS = (
    Command(
        "verify",
        "check bytes, digests and signatures",
        "verify:verified",
        given("what", "default: everything", "REF|DIR|FILE", many="?"),
        option(
            "--root",
            "the root you trust, as the publisher told you: its fingerprint, or the digest of any"
            " version of it",
            "sha256:…",
        ),
        switch("--pin", "remember the root that is found here, if nothing is wrong"),
        _WITNESS,
        example="kfm verify",
        about="""\
All datasets, one reference, a folder with a checksums.sha256, or a bundle file. A workspace or bundle
is `verified` when its root is the one you name with --root or pinned before with --pin (in
~/.config/kfm/roots.json); else it is `consistent, signer unknown`. How far a verified root was is
remembered there, and an older version of it is refused from then on. Exit 3 for a foreign or expired
root, 6 for damage and for an older root.""",
    ),
    Command(
        "cite",
        "print how to cite a version",
        "cite:cite",
        _REF,
        option("--format", "default: text", choices=("text", "bibtex", "csl"), default="text"),
        READER,
        example="kfm cite ks_earthquakes --format bibtex",
        about="It names exactly these bytes for ever, and says how to check them.",
    ),
    Command(
        "bundle",
        "put a version and its proof into one file",
        "bundle:bundled",
        _REF,
        option("-o, --output", "the file to make", "FILE", kind="path", needed=True),
        option("--witness", "put these countersignatures in too", "DIR", kind="path"),
        READER,
        example="kfm bundle ks_earthquakes -o quakes.kfm",
        about="`kfm verify FILE` checks it anywhere, without network.",
    ),
    Command(
        "rebuild",
        "make the output of a receipt again and compare",
        "rebuild:made_again",
        given("receipt", "a file below receipts/", "receipt.json", kind="path"),
        READER,
        example="kfm rebuild receipts/ks_earthquakes/6f2a.json",
        about="""\
From what was captured then, byte for byte. Nothing is published.""",
    ),
    Command(
        "done",
        "answer the Definition of Done for a dataset",
        "done:done",
        given("dataset", "the dataset"),
        example="kfm done ks_earthquakes",
        about="Nine points of a pipeline, eight of a connector, each with its evidence.",
    ),
    Command(
        "wal",
        "print the journal of a run",
        "wal:journal",
        given("run", "a run id, or its beginning"),
        example="kfm wal 6f2a",
        about="What it intended, what it did, in order; its hash chain is checked.",
    ),
    Command(
        "ledger",
        "print the ledger: every run key and what became of it",
        "ledger:ledger",
        given("dataset", "only this one", many="?"),
        option("--limit", "how many at the most; default: 1000", "N", kind="count", default=1000),
        example="kfm ledger ks_earthquakes",
    ),
    Command(
        "release make",
        "sign what runs here under a version",
        "release:made",
        given("version", "vMAJOR.MINOR.PATCH, above the newest"),
        option("--note", "what changed; it stands in the documents' history", needed=True),
        example='kfm release make v1.1.0 --note "workers end what they began"',
    ),
    Command(
        "release check",
        "check every release here: signatures, attestations, digests",
        "release:checked",
        example="kfm release check",
        about="""\
Without network. A release signed by a key that was replaced since is good when the next release vouches
for it: after `kfm keys rotate`, make one. Exit 6 when one does not hold.""",
    ),
    Command(
        "keys new",
        "make a key; outside a workspace one to be enrolled there",
        "keys:new",
        _NAME,
        _ROLE,
        _CUSTODIAN,
        option("-o, --out", "where the private half goes", "FILE", kind="path"),
        ROOT_KEY,
        example='kfm keys new --name "R. Stone" --role approver',
        about="""\
A steward (`--role steward --for CUSTODIAN`) may grant and approve what is not public and that
custodian answers for.""",
    ),
    Command(
        "keys enrol",
        "let a key sign here whose private half stays elsewhere",
        "keys:enrol",
        given("what", "the public half; also an SSH key (ssh-ed25519)", "FILE.pub", kind="path"),
        _NAME,
        _ROLE,
        _CUSTODIAN,
        ROOT_KEY,
        example='kfm keys enrol stone.pub --name "R. Stone" --role approver',
        about="""\
Compare the fingerprint with its owner by another channel. A key that is listed gets one role more.""",
    ),
    Command(
        "keys sign",
        "sign a word on a proposal of a console elsewhere, and print it",
        "key_sign:signed",
        given("file", "the statement that the page of the proposal gives", kind="path"),
        option(
            "--key",
            "your key: a file, or a name of this workspace",
            "FILE|NAME",
            kind="path",
            needed=True,
        ),
        example="kfm keys sign proposal-3-approve.json --key ann.key",
        about="""\
No workspace is needed: the key stays where it lies, and what is printed is brought to the page, which
counts it as `kfm approve` or `kfm reject` would.""",
    ),
    Command("keys list", "who may sign what", "keys:keys", example="kfm keys list"),
    Command(
        "keys rotate",
        "a new builder key; history stays good",
        "keys:rotate",
        ROOT_KEY,
        example="kfm keys rotate",
    ),
    Command(
        "keys renew",
        "let the root be good for longer",
        "keys:renew",
        _YEARS,
        ROOT_KEY,
        example="kfm keys renew --years 2",
    ),
    Command(
        "keys revoke",
        "take a key out of use",
        "keys:revoke",
        given("what", "whose key", "KEYID|NAME"),
        option("--reason", "why a key is revoked", "WHY", needed=True),
        ROOT_KEY,
        example='kfm keys revoke "R. Stone" --reason "left the office"',
    ),
    Command(
        "keys export-root",
        "the root key leaves the workspace; changes then need --root-key FILE",
        "keys:export_root",
        given("file", "where it goes", kind="path"),
        option("--name", "which, where several are here"),
        example="kfm keys export-root /media/stick/root.key",
    ),
    Command(
        "keys adopt-root",
        "go by a new root, made after the old one was lost",
        "keys:adopt",
        ROOT_KEY,
        example="kfm keys adopt-root",
    ),
    Command(
        "keys backup",
        "every private key in one file, sealed with a passphrase",
        "key_backup:back_up",
        option("-o, --out", "where the backup goes", "FILE", kind="path", needed=True),
        _PASSPHRASE,
        example="kfm keys backup -o keys.sealed",
    ),
    Command(
        "keys restore",
        "take keys from such a file",
        "key_backup:restore",
        given("what", "the backup", "FILE", kind="path"),
        _PASSPHRASE,
        example="kfm keys restore keys.sealed",
    ),
    Command(
        "witness sign",
        "countersign what is new",
        "witness:countersigned",
        option("--key", "the witness's key", "NAME|FILE", needed=True),
        option("--channel", "only this one; default: every channel", "DATASET"),
        option("-o, --output", "where the countersignatures go", "DIR", kind="path", needed=True),
        example="kfm witness sign --key witness.key -o seen/",
        about="It adds DIR/<dataset>/<generation>.json.",
    ),
    Command(
        "witness check",
        "compare channels with what a witness saw; exit 6 when they say something else now",
        "witness:agreed",
        given("dir", "the folder of countersignatures", kind="path"),
        example="kfm witness check seen/",
    ),
)
