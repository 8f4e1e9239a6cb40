"""The command line: one file per command, loaded only when it is called."""

import sys
from collections.abc import Sequence

__all__ = ["COMMANDS", "main"]

COMMANDS = {  # name -> (module, what it is for)
    "demo": ("demo", "run the sample datasets end to end, in a folder of their own"),
    "init": ("init", "make a workspace"),
    "dataset": ("dataset", "register, list and check datasets"),
    "connector": ("connector", "make connectors, and check that they keep their contract"),
    "run": ("run", "bring datasets up to date"),
    "discover": ("discover", "find what is new or changed upstream, and draft it"),
    "plan": ("plan", "show what a run would do"),
    "resume": ("resume", "finish what was interrupted"),
    "schedule": ("schedule", "list schedules, see what comes next, ask now, pause"),
    "scheduler": ("scheduler", "put jobs by schedule; any number may run, one leads"),
    "backfill": ("backfill", "bring past ranges in: plan, start, status, resume, cancel"),
    "status": ("status", "what is official, fresh, failed or waiting"),
    "runs": ("runs", "list runs"),
    "wal": ("wal", "print the journal of a run"),
    "ledger": ("ledger", "print the ledger"),
    "quarantine": ("quarantine", "work what was set aside: list, show, fix, replay, accept"),
    "explain": ("explain", "say why something ran, was skipped, denied or is stale"),
    "diff": ("diff", "show what changed between two versions"),
    "search": ("search", "find passages of what may be read, with citations"),
    "get": ("get", "hand out the files of a version"),
    "verify": ("verify", "check bytes, digests and signatures"),
    "bundle": ("bundle", "put a version and its proof into one file"),
    "keys": ("keys", "make, list, replace and revoke keys"),
    "witness": ("witness", "countersign channels, and check them"),
    "rollback": ("rollback", "make an earlier version official again"),
    "gates": ("gates", "judge a version or a proposal by every gate"),
    "propose": ("propose", "judge a new version and stop before it is official"),
    "review": ("review", "list or show the proposals that wait for a person"),
    "approve": ("approve", "approve a proposal with your own key"),
    "reject": ("reject", "reject a proposal with your own key"),
    "promote": ("promote", "make an approved proposal official"),
    "withdraw": ("withdraw", "take records, an area or a dataset out of publication"),
    "licence": ("licence", "ask for a licence, or record the one given"),
    "grant": ("grant", "let a person use a dataset for a purpose"),
    "cite": ("cite", "print how to cite a version"),
    "rebuild": ("rebuild", "make the output of a receipt again and compare"),
    "done": ("done", "answer the Definition of Done for a dataset"),
    "drill": ("drill", "kill a dataset's pipeline everywhere and compare"),
    "doctor": ("doctor", "look for damage and leftovers, and mend them"),
    "worker": ("worker", "work the job table, or a single job"),
    "jobs": ("jobs", "list, show, retry and cancel jobs"),
    "logs": ("logs", "print what workers did, and follow it"),
    "switch": ("switch", "stop an updater, a dataset or a type of job at once, and let it go on"),
    "canary": ("canary", "try another version of an updater on some partitions, and compare it"),
    "up": ("up", "scheduler and worker in one command"),
    "du": ("du", "show how much lies where, and what could be freed"),
    "gc": ("gc", "remove what retention no longer keeps"),
    "backup": ("backup", "back a workspace up, check a backup, restore one"),
    "policy": ("policy", "test, check, ask and try out the rules"),
    "upgrade": ("upgrade", "bring a workspace of an earlier kfm along"),
    "reindex": ("reindex", "rebuild the store from the evidence files"),
    "sample-upstream": ("sample", "serve the sample datasets on loopback"),
}

_HEAD = """kfm keeps public-interest datasets fresh and can prove every byte it publishes.

usage: kfm [-w WORKSPACE] COMMAND [options]
"""
_TAIL = """
Every command takes --help and --json. -w names a workspace, before or after the command; else the
folder you are in, or KFM_WORKSPACE. Exit codes: 0 done or unchanged, 1 failed, 2 usage, 3 denied,
4 upstream unavailable, 5 fenced, 6 integrity, 7 waits for a person, 130/143 interrupted (resumable).
"""


def _overview() -> str:
    width = max(map(len, COMMANDS))
    return _HEAD + "\n" + "".join(f"  {name:<{width}}  {what}\n" for name, (_, what) in COMMANDS.items()) + _TAIL


def main(argv: Sequence[str] | None = None) -> int:
    """Find the command, load its module, run it."""
    args = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without our signs shows another one, never a traceback
    before: list[str] = []
    while args and args[0].startswith("-"):
        if args[0] in ("-h", "--help"):
            print(_overview(), end="")
            return 0
        if args[0] == "--version":
            from kfm import __version__

            print(f"kfm {__version__}")
            return 0
        if args[0] in ("-w", "--workspace") and len(args) > 1:
            before += [args.pop(0), args.pop(0)]
        elif args[0].startswith(("-w=", "--workspace=")):
            before.append(args.pop(0))
        else:
            break
    if not args:
        print(_overview(), end="", file=sys.stderr)
        return 2
    from kfm.cli import call

    return call.command(args[0], before + args[1:])
