"""Run the sample datasets end to end in a folder of their own. Nothing leaves this machine."""

import os
import sys
import time
from pathlib import Path

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.init import make_workspace
from kfm.cli.run import Wanted, run_datasets
from kfm.cli.side_by_side import cores
from kfm.cli.terminal import named_workspace, sign, write
from kfm.model import IntegrityError
from kfm.reader.serve import PORT
from kfm.upkeep.verify import verify_workspace
from kfm.workspace.folder import open_workspace
from kfm.workspace.upstreams import OWN_SAMPLE
from kfm.workspace.wiring import open_world
from kfm.world.outcome import Outcome

__all__ = ["Shown", "demo"]


# what these two are there to show
SHOWN = {"ks_sites": "waits for a person", "ks_wells": "is denied"}


class Shown(Answer, frozen=True, kw_only=True):
    """What a demonstration did; its runs are told in words as they end."""

    first: list[Outcome]
    again: list[Outcome]
    problems: list[dict[str, str]]

    @property
    def code(self) -> int:
        every = self.first + self.again
        failed = [o.exit_code for o in every if o.dataset_id not in SHOWN or o.exit_code in (1, 6)]
        return max([*failed, IntegrityError.exit_code if self.problems else 0])


def demo(call: Call, dir: Path | None) -> Shown:
    folder = dir or call.workspace or Path("demo")
    began = time.monotonic()
    # a demo shows the same whatever else this user has running
    os.environ["KFM_SAMPLE_UPSTREAM"] = OWN_SAMPLE
    make_workspace(folder.absolute(), sample=True, demo=True)
    named_workspace(folder)
    workspace = open_workspace(folder.absolute())
    names = sorted(workspace.registered(), key=lambda name: (name in SHOWN, name))
    said = (lambda _: None) if call.json else _said
    said(f"{len(names)} datasets from the sample upstream, nothing leaves this machine\n")
    wanted = Wanted(where=call.workspace, as_json=call.json, verbose=call.verbose)
    first = run_datasets(workspace, names, wanted, at_once=cores())
    said("\nThen everything again, to show that nothing changes:\n")
    again_at = time.monotonic()
    silent = msgspec.structs.replace(wanted, as_json=True)
    again = run_datasets(workspace, names, silent, at_once=cores())
    unchanged = sum(o.state == "NOOP" for o in again)
    took = time.monotonic() - again_at
    with open_world(workspace) as world:
        found = verify_workspace(world, names)
        trust = world.keys.trust()
    said(
        f"  {sign('NOOP')} {unchanged} unchanged, {len(again) - unchanged} others {took:>40.2f} s\n"
    )
    root = f" against root {trust.fingerprint[:13]}…" if trust is not None else ""
    said(
        f"Proof   {sign('PASS' if not found.problems else 'FAILED')} {found.versions} versions,"
        f" {found.files} files, {found.generations} signed generations verified{root}"
    )
    said(f"Where   {folder}/data        Time {time.monotonic() - began:.1f} s\n")
    said("Next    kfm status")
    said("        kfm show ks_earthquakes")
    said("        kfm gates ks_sites")
    said("        kfm explain deny ks_wells")
    said("        kfm bundle ks_earthquakes -o quakes.zip\n")
    said(f"Look    kfm up      keeps all of it fresh and shows it at http://127.0.0.1:{PORT}/")
    said("        kfm open    opens that in a browser")
    return Shown(first=first, again=again, problems=found.problems)


def _said(line: str) -> None:
    write(line)
    sys.stdout.flush()
