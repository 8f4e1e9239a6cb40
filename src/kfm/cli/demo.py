"""Run the sample datasets end to end in a folder of their own. Nothing leaves this machine."""

import os
import time
from argparse import Namespace
from pathlib import Path

import msgspec

from kfm.cli.beside import cores
from kfm.cli.call import Parser, emit
from kfm.cli.init import make_workspace
from kfm.cli.run import Wanted, run_datasets
from kfm.cli.terminal import program, sign
from kfm.upkeep.verify import verify_workspace
from kfm.workspace.folder import open_workspace
from kfm.workspace.upstreams import OWN_SAMPLE
from kfm.workspace.wiring import open_world

__all__ = ["configure", "main"]


def configure(parser: Parser) -> None:
    parser.add_argument(
        "--dir",
        type=Path,
        default=None,
        metavar="DIR",
        help="the workspace to make or use; default: ./demo",
    )


# what these two are there to show
SHOWN = {"ks_sites": "waits for a person", "ks_wells": "is denied"}


def main(args: Namespace) -> int:
    folder = args.dir or args.workspace or Path("demo")
    began = time.monotonic()
    # a demo shows the same whatever else this user has running
    os.environ["KFM_SAMPLE_UPSTREAM"] = OWN_SAMPLE
    make_workspace(folder.absolute(), sample=True, demo=True)
    workspace = open_workspace(folder.absolute())
    names = sorted(workspace.registered(), key=lambda name: (name in SHOWN, name))
    quiet = args.json
    if not quiet:
        print(
            f"kfm demo: {len(names)} datasets from the sample upstream, nothing leaves this"
            " machine\n",
            flush=True,
        )
    wanted = Wanted(where=args.workspace, as_json=quiet, verbose=args.verbose)
    first = run_datasets(workspace, names, wanted, at_once=cores())
    if not quiet:
        print("\nThen everything again, to show that nothing changes:\n", flush=True)
    again_at = time.monotonic()
    silent = msgspec.structs.replace(wanted, as_json=True)
    again = run_datasets(workspace, names, silent, at_once=cores())
    unchanged = sum(o.state == "NOOP" for o in again)
    took = time.monotonic() - again_at
    with open_world(workspace) as world:
        found = verify_workspace(world, names)
        trust = world.keys.trust()
    failed = [o.exit_code for o in first + again if o.dataset_id not in SHOWN] + [
        o.exit_code for o in first + again if o.exit_code in (1, 6)
    ]
    code = max([*failed, 6 if found.problems else 0])
    if quiet:
        emit(
            {
                "first": first,
                "again": again,
                "problems": found.problems,
            }
        )
        return code
    print(
        f"  {sign('NOOP')} {unchanged} unchanged, {len(again) - unchanged} others {took:>40.2f} s\n"
    )
    root = f" against root {trust.fingerprint[:13]}…" if trust is not None else ""
    print(
        f"Proof   {sign('PASS' if not found.problems else 'FAILED')} {found.versions} versions,"
        f" {found.files} files, {found.generations} signed generations verified{root}"
    )
    print(f"Where   {folder}/data        Time {time.monotonic() - began:.1f} s\n")
    kfm = program()
    print(f"Next    {kfm} -w {folder} status")
    print(f"        {kfm} -w {folder} gates ks_sites")
    print(f"        {kfm} -w {folder} explain deny ks_wells")
    print(f"        {kfm} -w {folder} bundle ks_earthquakes -o quakes.zip")
    return code
