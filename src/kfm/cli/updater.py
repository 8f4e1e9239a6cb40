"""The updater's own command line, kept exactly as documented."""

import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kfm.cli.call import emit, guard
from kfm.cli.flags import Parser
from kfm.cli.init import make_workspace
from kfm.cli.run import tell
from kfm.cli.terminal import Progress, named_workspace
from kfm.jobs.drive import run_target
from kfm.model import SystemClock, UpdaterConfig, UsageError
from kfm.workspace.config import find_workspace, load_updater
from kfm.workspace.folder import Workspace, open_workspace
from kfm.workspace.targets import updater_target
from kfm.workspace.wiring import open_world

__all__ = ["main"]


def _parser() -> Parser:
    parser = Parser(prog="updater", description="Run one configured update.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    run = commands.add_parser(
        "run",
        description="Fetch, validate, transform, publish, record; or say that nothing changed.",
    )
    run.add_argument("--config", type=Path, required=True, metavar="CONFIG", help="YAML or JSON")
    run.add_argument("--dry-run", action="store_true", help="disable every mutating side effect")
    run.add_argument("--window", help="look-back period for incremental sources, such as 7d")
    run.add_argument(
        "--verbose", action="store_true", help="human-readable log lines beside the JSON lines"
    )
    run.add_argument("--force", action="store_true", help="override idempotency, for debugging")
    run.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if argv is None else argv)
    named_workspace(None)  # the config leads to it, and commands are pasted where one stands
    return guard(lambda: _run(_parser().parse_args(given)), "--json" in given, "--verbose" in given)


def _run(args: Namespace) -> int:
    config = load_updater(args.config)
    began, shown = time.monotonic(), Progress(args.verbose, args.json)
    with _workspace(args, config) as workspace:
        target = updater_target(workspace, config, args.window, SystemClock())
        # a no-op publisher changes nothing
        dry = config.dataset_id if args.dry_run or config.publisher == "noop" else None
        with open_world(workspace, dry_run=dry, publisher=config.publisher, echo=shown) as world:
            outcome = run_target(
                world, target, forced=args.force, reason="--force" if args.force else ""
            )
    outcome = msgspec.structs.replace(outcome, dry_run=dry is not None)
    shown.clear()
    if args.json:
        emit(msgspec.to_builtins(outcome))
    else:
        tell(outcome, time.monotonic() - began, outcome.dry_run)
    return outcome.exit_code


def _register(folder: Path, config: UpdaterConfig) -> None:
    """In a temporary workspace, a dataset nobody registered: it runs dry up to the gates, which ask
    for licence and labels.
    """
    path = folder / "data" / "registry" / f"{config.dataset_id}.yml"
    if not path.exists():
        source = {
            "kind": "http_file",
            "url": config.sources[0].source_url,
            "format": config.sources[0].format,
        }
        path.write_bytes(
            msgspec.yaml.encode(
                {"dataset_id": config.dataset_id, "title": config.dataset_id, "source": source}
            )
        )


@contextmanager
def _workspace(args: Namespace, config: UpdaterConfig) -> Iterator[Workspace]:
    """The configured workspace, the one around the configuration file, or for a dry run a temporary
    one.
    """
    if config.workspace is not None:
        yield open_workspace((args.config.parent / config.workspace).absolute())
        return
    found = find_workspace(Path.cwd())
    if found is not None:
        yield open_workspace(found)
    elif args.dry_run:
        with tempfile.TemporaryDirectory(prefix="kfm-updater-") as folder:
            make_workspace(Path(folder), sample=True, allow_loopback=True)
            _register(Path(folder), config)
            yield open_workspace(Path(folder))
    else:
        raise UsageError(
            "The configuration names no workspace.",
            expected="`workspace: DIR`, or a workspace around this folder",
            remedy="Make one with `kfm init`.",
        )
