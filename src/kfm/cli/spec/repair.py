"""Repair: finish, mend, rebuild, and kill on purpose."""

from kfm.cli.spec.shared import CLOCK_OK, WAIT
from kfm.cli.spec.words import Command, Noun, given, option, switch

__all__ = ["COMMANDS", "NOUNS"]

NOUNS: dict[str, Noun] = {}

COMMANDS = (
    Command(
        "doctor",
        "look for damage and leftovers, and mend them",
        "doctor:examined",
        switch("--fix", "mend what can be mended"),
        example="kfm doctor --fix",
        about="""\
--fix mends what the evidence allows and sets the rest aside. Exit 0 when nothing is left to do, 6 for
damage, 1 otherwise; advice is about what is not broken.""",
    ),
    Command(
        "resume",
        "finish what was interrupted",
        "resume:resumed",
        given("run", "only this run", many="?"),
        WAIT,
        CLOCK_OK,
        example="kfm resume",
        about="""\
Every unfinished run whose holder is gone, from its own capture, without asking upstream, and what
people began: an erasure whose generation is there, what follows from a rollback or a withdrawal.""",
    ),
    Command(
        "reindex",
        "rebuild the store from the evidence files",
        "reindex:reindexed",
        example="kfm reindex",
        about="""\
In a new epoch. The old store, if there is one, is set aside, never deleted. Jobs, switches, pools,
schedules and backfills are carried over when the old store can be read; staged parts of a backfill
are made again by `kfm backfill resume`.""",
    ),
    Command(
        "drill",
        "kill a dataset's pipeline everywhere and compare",
        "drill:drilled",
        given("dataset", "the dataset to drill; it must have been run once", many="?"),
        option(
            "--command",
            "kill this command instead: run, rollback, withdraw-erase, gc, …",
            "NAME|all",
            dest="killed",
        ),
        option(
            "--points",
            "about how many points; default: 140, with --command 40 for each",
            "N|all|journal",
        ),
        option("--jobs", "passes at once; default: 2", "N", kind="count"),
        example="kfm drill ks_earthquakes",
        about="""\
Resume it, and compare with the uninterrupted run. Works in throw-away copies fed from the last
capture: no network, and this workspace is only read. With --command a command that changes something
is killed at random system calls, each time in a fresh workspace made for it; `kfm resume` and the
next run must finish or undo it, verify and doctor find nothing.""",
    ),
)
