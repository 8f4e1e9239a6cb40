"""Countersign channels, and check them against what a witness saw, so that no operator can rewrite
history unseen.
"""

from pathlib import Path

from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import show, sign
from kfm.evidence.folder_check import Verified
from kfm.keys.trust import unwrap
from kfm.keys.witness import check_witnesses, witness_statement
from kfm.model import Denied, IntegrityError, ids
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world
from kfm.world.world import World
from kfm.zones.durable import create_durably

__all__ = ["Agreed", "Countersigned", "agreed", "check", "countersigned", "read_witness"]


class Countersigned(Answer, frozen=True, kw_only=True):
    """How many generations were countersigned."""

    signed: int
    folder: str

    def tell(self, call: Call) -> None:
        show(f"{sign('PASS')} {self.signed} generations countersigned in {self.folder}")


class Agreed(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """Whether channels are what a witness saw."""

    agreed: int
    problems: list[dict[str, str]]
    exit_code: int = 0

    @property
    def code(self) -> int:
        return self.exit_code

    def tell(self, call: Call) -> None:
        for problem in self.problems:
            show(f"  {sign('FAILED')} {problem['where']}: {problem['what']}")
        show(
            f"{sign('FAILED' if self.problems else 'PASS')} {self.agreed} countersignatures agree,"
            f" {len(self.problems)} do not"
        )


def countersigned(call: Call, key: str, channel: str | None, output: Path) -> Countersigned:
    workspace = open_workspace(call.workspace)
    channels = workspace.data / "catalog" / "channels"
    names = [channel] if channel else sorted(p.name for p in channels.glob("*"))
    with open_world(workspace) as world:
        made = sum(_sign(world, name, key, output) for name in names)
    return Countersigned(signed=made, folder=str(output))


def agreed(call: Call, dir: Path) -> Agreed:
    with open_world(open_workspace(call.workspace)) as world:
        count = check(world, dir, found := Verified())
    return Agreed(agreed=count, problems=found.problems, exit_code=found.exit_code)


def read_witness(folder: Path) -> dict[str, bytes]:
    """The countersignatures in a folder: `<dataset>/<generation:08>.json` -> bytes."""
    found = {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.glob("*/" + "[0-9]" * 8 + ".json"))
    }
    if not found:
        raise Denied(
            f"{folder} holds no countersignatures.",
            expected="<dataset>/<generation>.json",
            remedy="Make them with `kfm witness sign`.",
        )
    return found


def _digest(world: World, dataset_id: str, generation: int) -> str | None:
    path = world.channel(dataset_id).path(generation)
    return ids.digest(world.data.read(path)) if world.data.exists(path) else None


def check(world: World, folder: Path, found: Verified) -> int:
    """How many agree; what does not goes to `found`."""
    return check_witnesses(
        read_witness(folder),
        world.keys.require_trust(),
        lambda d, n: _digest(world, d, n),
        found.wrong,
    )


def _sign(world: World, dataset_id: str, key: str, folder: Path) -> int:
    """Countersign every generation that verifies, continues its predecessor, and is not
    countersigned yet.
    """
    witness, trust = world.keys.person(key), world.keys.require_trust()
    made, number, prev = 0, 1, None
    while (found := world.channel(dataset_id).predicate(number)) is not None:
        digest, target = (
            str(_digest(world, dataset_id, number)),
            folder / dataset_id / f"{number:08}.json",
        )
        seen = unwrap(target.read_bytes())["predicate"] if target.exists() else {"digest": digest}
        if found.prev != prev or seen.get("digest") != digest:
            raise IntegrityError(
                f"History was rewritten: generation {number} of {dataset_id} is not the one that"
                " was there before.",
                expected="a channel that only grows",
                remedy=(
                    "Nothing was signed. Ask the operator, and compare with `kfm witness check`."
                ),
            )
        if not target.exists():
            signed = witness.sign(witness_statement(dataset_id, number, digest, trust.fingerprint))
            trust.verified_by(signed, "witness")  # a key that is no witness is refused here
            create_durably(target.absolute(), signed)
            made += 1
        number, prev = number + 1, digest
    return made
