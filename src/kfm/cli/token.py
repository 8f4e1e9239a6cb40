"""Make, list and end the tokens by which people read over HTTP."""

import msgspec

from kfm.cli.answer import Answer, Call
from kfm.cli.call import again
from kfm.cli.grant import day_of
from kfm.cli.terminal import say, show, table, write
from kfm.grants.token import Token, new_token, revoke_token, tokens
from kfm.model import UsageError, ids, rfc3339
from kfm.workspace.folder import open_workspace
from kfm.workspace.wiring import open_world

__all__ = ["Listed", "Made", "Revoked", "listed", "made", "revoked"]

_LEAST = 8  # digits of a digest


class Made(Answer, frozen=True, kw_only=True):
    """A token that was made now."""

    person: str
    role: str
    expires: str
    digest: str
    token: str

    def tell(self, call: Call) -> None:
        write(self.token)
        what = "reads" if self.role == "reader" else f"is {self.role}"
        say(f"{self.person} {what} with it until {self.expires[:10]}; it is shown this once.")
        say(f"  {again(call, f'grant revoke {self.digest[:_LEAST]}')} ends it")


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was made."""

    digest: str
    person: str
    roles: tuple[str, ...]
    expires: str
    made_at: str


class Listed(Answer, frozen=True, kw_only=True):
    """Every token, ended ones too."""

    tokens: list[Held]

    def tell(self, call: Call) -> None:
        cells = [
            (t.digest[:_LEAST], t.person, ", ".join(t.roles), t.expires[:10], t.made_at[:10])
            for t in self.tokens
        ]
        for line in table(("token", "person", "role", "until", "made"), cells) if cells else ():
            show(line)
        write(f"{len(cells)} tokens")


class Revoked(Answer, frozen=True, kw_only=True):
    """A token that is none any more."""

    digest: str
    person: str

    def tell(self, call: Call) -> None:
        write(f"The token {self.digest[:_LEAST]}… of {self.person} has ended.")


def made(call: Call, person: str, expires: str, role: str) -> Made:
    name = person.strip()
    if not name:
        raise UsageError("A token stands for a person.", expected="a name", remedy="Say whose.")
    with open_world(open_workspace(call.workspace)) as world:
        now = world.clock.now()
        token = Token(
            person=name, roles=(role,), expires=day_of(expires, now), made_at=rfc3339(now)
        )
        secret = new_token(world, token)
    digest = ids.digest(secret.encode()).removeprefix("sha256:")
    return Made(person=name, role=role, expires=token.expires, digest=digest, token=secret)


def listed(call: Call) -> Listed:
    with open_world(open_workspace(call.workspace)) as world:
        found = tokens(world)
    return Listed(
        tokens=[
            Held(
                digest=digest,
                person=t.person,
                roles=t.roles,
                expires=t.expires,
                made_at=t.made_at,
            )
            for digest, t in sorted(found.items(), key=lambda each: each[1].made_at)
        ]
    )


def revoked(call: Call, token: str) -> Revoked:
    with open_world(open_workspace(call.workspace)) as world:
        fitting = {d: t for d, t in tokens(world).items() if d.startswith(token)}
        if len(fitting) != 1 or len(token) < _LEAST:
            raise UsageError(
                f"{token} names {len(fitting)} tokens.",
                expected=f"{_LEAST} or more digits of exactly one",
                remedy="`kfm grant tokens` lists them.",
            )
        digest, found = next(iter(fitting.items()))
        revoke_token(world, digest)
    return Revoked(digest=digest, person=found.person)
