"""Arguments that several commands share."""

from kfm.cli.spec.words import Argument, option, switch

__all__ = [
    "AUTHOR_FLAGS",
    "CLOCK_OK",
    "EVERYWHERE",
    "READER",
    "ROOT_KEY",
    "SINCE",
    "UNTIL",
    "UPSTREAM",
    "WAIT",
    "WINDOW",
    "signing_key",
    "why",
]

EVERYWHERE = (
    option("-w, --workspace", "the workspace; default: the folder you are in", "DIR", kind="path"),
    switch("--json", "print the result as JSON"),
    switch("--verbose", "print readable log lines on stderr"),
)
CLOCK_OK = switch("--clock-ok", "the clock is right, although it is behind what is official")
READER = option(
    "--for", "who it is for: what needs a grant goes to who has one", "NAME", dest="reader"
)
UPSTREAM = option(
    "--upstream",
    "where bytes come from; default: live, or sample in a workspace made by `kfm init --sample`",
    choices=("live", "replay", "sample"),
)
WAIT = option(
    "--wait", "how long to wait for another run of the same dataset", "60s", default="60s"
)
WINDOW = option("--window", "only this window; a length looks back from now", "7d|DAY|SINCE/UNTIL")
SINCE = option("--since", "start of the window, RFC 3339", "TIME")
UNTIL = option("--until", "end of the window, RFC 3339, exclusive", "TIME")
ROOT_KEY = option(
    "--root-key", "the root key, where it was exported", "FILE", kind="path", many="+"
)

SENSITIVITIES = ("public", "restricted", "sensitive-location", "aggregate-only")
AUTHOR_FLAGS = (  # what a registry entry is made of
    option("--title", "default: the id in words", "TEXT"),
    option("--licence, --license", "an SPDX id; without one nothing is published", "SPDX"),
    option("--policy-label", "what policy reads; `public` for open data", "LABEL"),
    option("--key", "a column of the business key; repeatable", "COLUMN", many="+"),
    option("--time-column", "the column a window is cut by", "COLUMN"),
    option("--encoding", "of the file, when it is not UTF-8", "NAME"),
)


def signing_key(
    help: str = "your key; default: KFM_KEY; else you are asked, on a terminal",
) -> Argument:
    """`--key` of an act that a person signs."""
    return option("--key", help, "NAME|FILE")


def why(help: str = "why; recorded") -> Argument:
    """`--reason`, which every act that needs one has."""
    return option("--reason", help, "WHY", default="")
