"""URLs: parsing without surprises, one canonical spelling, templates, and no secrets inside."""

import ipaddress
import re
from urllib.parse import quote, unquote_plus

import msgspec

from kfm.model import UsageError

__all__ = [
    "FILE",
    "Target",
    "canonical_url",
    "check_reference",
    "expand_url",
    "find_inline_secret",
    "host_of",
    "is_reference",
    "masked_url",
    "names_a_secret",
    "parse_url",
    "reference_in",
]

# a file of the workspace, by its path in it; no redirect or link ever leads to one
FILE = "file:///"
DEFAULT_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"(?i:(https?)):/{2}([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?")
_FORBIDDEN = "[\x00-\x1f\x7f\ud800-\udfff]"  # control characters and lone surrogates
_HOST = re.compile(
    r"(?=.{1,253}$)[a-z0-9_](?:[a-z0-9_-]{0,62})(?:\.[a-z0-9_](?:[a-z0-9_-]{0,62}))*"
)
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~!$&'()*+,;=:@/?]")
_UNRESERVED = r"[A-Za-z0-9\-._~]"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_REFERENCE = r"(?:env|credential|file|cmd):.+"
# of a header: the scheme is no secret
_SCHEME = r"(Bearer|Basic|Token) ((?:env|credential):.+)"
# what they name is read, or run, by whoever runs kfm: only kfm.yml may say so
_OF_THE_TABLE = ("file:", "cmd:")
# `sort_key` or `keyword` are ordinary fields, so a bare word "key" counts only alone or behind a
# word that makes it one.
_SECRET_NAME = (
    r"(?:.*(?:token|secret|password|passwd|signature|credentials?)|pwd|auth|authorization|sig"
    r"|(?:.*(?:api|access|secret|private|subscription|auth|app|account|client|developer|user|license))?key)"
)


class Target(msgspec.Struct, frozen=True):
    """A parsed http or https URL in canonical spelling."""

    scheme: str
    host: str  # lower case, no brackets, no trailing dot
    port: int
    path: str
    query: str | None

    @property
    def authority(self) -> str:
        """Host and port as the `Host` header wants them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}" + (
            "" if self.query is None else f"?{self.query}"
        )


def _forbidden(url: str) -> bool:
    """Whether it holds what no address may."""
    plain = url.isascii() and url.isprintable()  # as nearly all are
    return not plain and re.search(_FORBIDDEN, url) is not None


def parse_url(url: str) -> Target:
    """Take `url` apart.

    Raises `UsageError` for anything but a plain http or https URL; user and password are an inline
    secret.
    """
    match = None if _forbidden(url) else _URL.fullmatch(url)
    if match is None:
        raise UsageError(
            "The URL is not usable.",
            expected="http://host/path or https://host/path",
            remedy="Correct `source.url`.",
        )
    scheme, authority, path, query = match.groups()
    if "@" in authority:
        raise UsageError(
            "The URL holds a secret inline: user information before the host.",
            expected="credentials as references",
            remedy=(
                "Remove it and use `source.headers` with `Authorization: env:NAME` or"
                " `credential:NAME`."
            ),
        )
    host, port = _split_authority(authority, DEFAULT_PORTS[scheme.lower()])
    return Target(
        scheme.lower(), host, port, _normal(path) or "/", None if query is None else _normal(query)
    )


def canonical_url(url: str) -> str:
    """The one spelling of `url` that keys are made of.

    Scheme and host in lower case, no default port, no fragment, escapes normalised; path and order
    of the query are kept.
    """
    return url if url.startswith(FILE) else parse_url(url).url


def host_of(url: str) -> str:
    """The host of `url`; empty for a file of the workspace."""
    return "" if url.startswith(FILE) else parse_url(url).host


def find_inline_secret(url: str) -> None:
    """Refuse a URL that carries a credential: user information, or a literal value in a query field
    named like one.
    """
    if url.startswith(FILE):
        if _forbidden(url) or {"", ".", ".."} & set(url.removeprefix(FILE).split("/")):
            raise UsageError(
                "The path is not usable.",
                expected="file:///<path inside the workspace>",
                remedy="Correct `source.url`.",
            )
        return
    for field in (parse_url(url).query or "").split("&"):
        name, value = map(unquote_plus, field.partition("=")[::2])
        if value and names_a_secret(name) and not is_reference(value):
            raise UsageError(
                f"The URL holds an inline secret: query field {name!r} has a literal value.",
                expected="a reference, `env:NAME` or `credential:NAME`",
                remedy=(
                    "Put the value in the environment, or name where it is under `credentials` in"
                    " kfm.yml."
                ),
            )
        if names_a_secret(name):
            check_reference(value, f"query field {name!r} of the URL")


def names_a_secret(name: str) -> bool:
    """Whether a query field of this name usually carries a credential."""
    return re.fullmatch(_SECRET_NAME, re.sub(r"[^a-z0-9]", "", name.lower())) is not None


def is_reference(value: str) -> bool:
    """Whether `value` names where a secret is, instead of being one."""
    return re.fullmatch(_REFERENCE, value) is not None


def reference_in(value: str) -> tuple[str, str] | None:
    """The scheme of a header (`Bearer`, `Basic`, `Token`; mostly none) and the reference behind it;
    None where the value is no reference.
    """
    match = re.fullmatch(_SCHEME, value)
    if match is not None:
        return match[1], match[2]
    return ("", value) if is_reference(value) else None


def check_reference(value: str, where: str) -> None:
    """Refuse a reference to a file or a command: whoever may register a dataset may not read or run
    things here.
    """
    if value.startswith(_OF_THE_TABLE):
        kind = value.partition(":")[0]
        raise UsageError(
            f"The {where} names a {'file' if kind == 'file' else 'command'} itself.",
            expected="`env:NAME`, or `credential:NAME` of the table `credentials` in kfm.yml",
            remedy=(
                f"Move it there, as `credentials: {{NAME: {kind}:…}}`, and write `credential:NAME`"
                " here."
            ),
        )


def masked_url(target: Target) -> str:
    """The URL for people and receipts: upstream may have put signed query fields into a
    redirect.
    """
    if target.query is None:
        return target.url
    return msgspec.structs.replace(
        target, query="&".join(_masked(field) for field in target.query.split("&"))
    ).url


def expand_url(
    template: str, since: str | None = None, until: str | None = None, partition: str | None = None
) -> str:
    """Fill `{since}`, `{until}`, `{day}` (that of `since`, as 20260131) and `{partition}` in
    `template`, percent-encoded.

    A query field that is nothing but an empty placeholder is left out; in the path an empty one is
    a `UsageError`.
    """
    values = {
        "since": since or "",
        "until": until or "",
        "day": (since or "")[:10].replace("-", ""),
        "partition": partition or "",
    }
    address, mark, query = template.partition("#")[0].partition("?")
    start = address.find("/", address.find("://") + 3)
    authority, path = (address, "") if start < 0 else (address[:start], address[start:])
    if "{" in authority or "}" in authority:  # otherwise a partition's name could choose the host
        raise UsageError(
            "The URL has a placeholder before its path.",
            expected="placeholders in path or query only",
            remedy="Correct `source.url`.",
        )
    fields = [_fill(field, values) for field in query.split("&") if not _stays_empty(field, values)]
    return (
        authority + _fill(path, values, required=True) + (mark + "&".join(fields) if fields else "")
    )


def _split_authority(authority: str, default_port: int) -> tuple[str, int]:
    match = re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(?::(\d{0,5}))?", authority)
    port = int(match[2] or default_port) if match else 0
    host = _normal_host(match[1]) if match else ""
    if not host or not 0 < port < 65536:
        raise UsageError(
            "The URL has no usable host or port.",
            expected="a host name, optionally with a port",
            remedy="Correct `source.url`.",
        )
    return host, port


def _normal_host(host: str) -> str:
    """The host in the form it is compared and looked up in; empty when it is none."""
    try:
        if host.startswith("["):
            # a zone id names a local network card
            return "" if "%" in host else str(ipaddress.IPv6Address(host[1:-1]))
        # Names go through IDNA before any check: it turns full-width digits and dots into plain
        # ones.
        name = (host if host.isascii() else host.encode("idna").decode()).lower().removesuffix(".")
    except ValueError:
        return ""
    return name if _HOST.fullmatch(name) else ""


def _normal(text: str) -> str:
    return _ESCAPE.sub(_normal_escape, text)


def _normal_escape(match: re.Match[str]) -> str:
    found = match[0]
    if len(found) == 1:
        return quote(found, safe="")
    plain = chr(int(found[1:], 16))
    return plain if re.fullmatch(_UNRESERVED, plain) else found.upper()


def _masked(field: str) -> str:
    name, _, value = field.partition("=")
    if not value or not names_a_secret(unquote_plus(name)) or is_reference(unquote_plus(value)):
        return field
    return f"{name}=hidden"


def _stays_empty(field: str, values: dict[str, str]) -> bool:
    if not field:
        return True
    match = _PLACEHOLDER.fullmatch(field.partition("=")[2])
    return match is not None and values.get(match[1]) == ""


def _fill(text: str, values: dict[str, str], *, required: bool = False) -> str:
    def value_of(match: re.Match[str]) -> str:
        value = values.get(match[1])
        if value is None or (required and not value):
            problem = (
                "is not known"
                if value is None
                else "has no value in this run but is part of the path"
            )
            raise UsageError(
                f"The placeholder {{{match[1]}}} in the URL {problem}.",
                expected="{since}, {until} or {partition}, with a value when used in the path",
                remedy="Correct `source.url`.",
            )
        return quote(value, safe="")

    if re.search("[{}]", _PLACEHOLDER.sub("", text)):
        raise UsageError(
            "The URL has an unmatched brace.",
            expected="{since}, {until} or {partition}",
            remedy="Correct `source.url`.",
        )
    return _PLACEHOLDER.sub(value_of, text)
