"""`serve:` of kfm.yml: which issuer is believed, and how often may be asked."""

from typing import Annotated

import msgspec

from kfm.model import UsageError, canonical, ids
from kfm.model.dataset import Text
from kfm.workspace.folder import Workspace

__all__ = ["Issuer", "Serve", "settings_of"]


class Issuer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`oidc:`: whose signed word about a person counts here, and what it is read from."""

    # as its tokens and its discovery document spell it; HTTPS, or loopback where that is allowed
    issuer: Annotated[str, msgspec.Meta(pattern=r"^https?://[!-~]+$", max_length=500)]
    audience: Text  # what its tokens must be made for
    name: Text = "sub"  # the claim that is the name of a person, as grants have it
    roles: Text = "roles"  # the claim that gives roles: a list, or words with blanks between
    # what the issuer calls a role -> what it is here; empty: the same words
    role_of: dict[Text, Text] = {}

    @property
    def reads_roles(self) -> str:
        """How roles are read from its word, as a digest."""
        return ids.digest(canonical.dumps([self.roles, self.role_of]))


class Serve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `kfm serve` goes by, beside its command line."""

    oidc: Issuer | None = None
    # of one client or one token; 0: as many as they like. On this machine alone nobody counts.
    requests_per_minute: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 6000
    failed_logins_per_minute: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 10
    session_hours: Annotated[int, msgspec.Meta(ge=1, le=168)] = 12
    # the header in which what stands in front of us says who asks; empty: nobody is believed
    client_header: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9-]{0,64}$")] = ""


def settings_of(workspace: Workspace) -> Serve:
    """What kfm.yml says now. Raises `UsageError`."""
    try:
        return msgspec.convert(workspace.config.serve, Serve)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"kfm.yml, serve: {error}.",
            expected="what schemas/config/serve.json describes",
            remedy="Write `serve:` in kfm.yml like the example in docs/reader.md.",
        ) from error
