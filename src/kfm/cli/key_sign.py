"""Sign a word on a proposal where your key lies, to bring it to a console elsewhere."""

from pathlib import Path

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.terminal import say, write
from kfm.keys.private_key import PersonKey, read_private, slug
from kfm.keys.trust import Envelope, statement
from kfm.model import Approval, IntegrityError, Json, UsageError, canonical
from kfm.workspace.config import find_workspace

__all__ = ["Signed", "signed"]

_MOST = 1 << 20


class Signed(Answer, frozen=True, kw_only=True):
    """A signed word: the envelope is what is brought."""

    keyid: str
    name: str
    verdict: str
    dataset_id: str
    proposal: int
    envelope: Envelope

    def tell(self, call: Call) -> None:
        write(canonical.dumps(msgspec.to_builtins(self.envelope)).decode())
        say(
            f"{self.name} says {self.verdict} to proposal {self.proposal} of {self.dataset_id}:"
            " bring it to where it was asked for."
        )


def signed(call: Call, file: Path, key: Path) -> Signed:
    document, said = _word(file)
    signer = _key(call, key)
    raw = signer.sign(document)
    return Signed(
        keyid=signer.keyid,
        name=said.name,
        verdict=said.verdict,
        dataset_id=said.dataset_id,
        proposal=said.proposal,
        envelope=msgspec.json.decode(raw, type=Envelope),
    )


def _word(file: Path) -> tuple[Json, Approval]:
    """A word on a proposal; nothing else is signed by this."""
    try:
        raw = file.read_bytes()[:_MOST]
        document = canonical.loads(raw)
        said = msgspec.convert(document["predicate"], Approval)
        subject = document["subject"][0]
        again = statement(
            "approval", subject["name"], subject["digest"]["sha256"], msgspec.to_builtins(said)
        )
    except FileNotFoundError as error:
        raise _unfit(f"{file.name} is not there.") from error
    except (canonical.NotIJson, msgspec.ValidationError, LookupError, TypeError) as error:
        raise _unfit(f"{file.name} is no word on a proposal.") from error
    if document != again or said.verdict not in ("approve", "reject"):
        raise _unfit(f"{file.name} says more than a word on a proposal does.")
    return document, said


def _unfit(happened: str) -> UsageError:
    return UsageError(
        happened,
        expected="the statement that the page of a proposal gives you",
        remedy="Take it from there again: `/proposals/N`, Decide.",
    )


def _key(call: Call, named: Path) -> PersonKey:
    here = call.workspace or find_workspace(Path.cwd())
    kept = here / "keys" / "people" / f"{slug(str(named))}.key" if here is not None else named
    path = named if named.is_file() else kept
    try:
        return read_private(path)
    except FileNotFoundError as error:
        raise UsageError(
            f"The key of {named} is not here.",
            expected="a .key file, or a name of this workspace",
            remedy="Name the file; `kfm keys new` makes a key.",
        ) from error
    except IntegrityError as error:
        raise UsageError(
            f"{path.name} cannot be signed with.",
            expected="an Ed25519 key without a passphrase",
            remedy="Name another file, or make a key with `kfm keys new`.",
        ) from error
