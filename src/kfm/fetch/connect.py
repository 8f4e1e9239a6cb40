"""Connections: which machines may be reached, decided on the address and not on the name; to those
and to no others.
"""

import ipaddress
import re
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kfm.fetch.base import UpstreamRefused
from kfm.fetch.retry import Pace, Transient
from kfm.fetch.url import Target
from kfm.fetch.wire import network_reason
from kfm.model import Denied, UpstreamUnavailable, UsageError

if TYPE_CHECKING:
    import ssl

__all__ = ["Dialer", "Lookup", "checked_addresses", "in_time", "inner", "lookup", "refusal"]


Lookup = Callable[[str], tuple[str, ...]]

# IANA's registries of special-purpose addresses, whole, and what clouds keep for themselves: our
# own table, so that every Python
# answers alike. What stands further up is the more telling name.
_SPECIAL = {
    "cloud metadata": (
        "169.254.169.254/32",
        "168.63.129.16/32",
        "100.100.100.200/32",
        "fd00:ec2::254/128",
    ),
    "unspecified": ("0.0.0.0/32", "::/128"),
    "loopback": ("127.0.0.0/8", "::1/128"),
    "link-local": ("169.254.0.0/16", "fe80::/10"),
    "private": ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10"),
    "carrier-grade NAT": ("100.64.0.0/10",),
    "of this network": ("0.0.0.0/8",),
    "for documentation": (
        "192.0.2.0/24",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "2001:db8::/32",
        "3fff::/20",
    ),
    "for benchmarks": ("198.18.0.0/15", "2001:2::/48"),
    "a 6to4 relay": ("192.88.99.0/24",),
    "an IPv4-mapped address": ("::ffff:0:0/96",),
    "a NAT64 address": ("64:ff9b::/96", "64:ff9b:1::/48"),
    "a tunnel to an IPv4 address": ("2002::/16", "2001::/32"),
    "for routers": ("5f00::/16",),
    "thrown away": ("100::/64", "100:0:0:1::/64"),
    "assigned to protocols": (
        "192.0.0.0/24",
        "2001::/23",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.175.48.0/24",
        "2620:4f:8000::/48",
    ),
    "multicast": ("224.0.0.0/4", "ff00::/8"),
    "reserved": ("240.0.0.0/4",),
}
_NETWORKS = [
    (ipaddress.ip_network(network), reason)
    for reason, networks in _SPECIAL.items()
    for network in networks
]
_V6_GLOBAL = ipaddress.IPv6Network("2000::/3")
_INNER = (".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa", ".localdomain")
_LOOKS_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")


def lookup(host: str) -> tuple[str, ...]:
    """Every address the system knows for `host`."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno != socket.EAI_NONAME:
            raise Transient("the name could not be resolved") from error
        raise UpstreamRefused(
            f"The host {host} does not exist.",
            expected="a name that resolves",
            remedy="Check `source.url` and this machine's DNS.",
        ) from error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


def in_time(resolve: Lookup, host: str, seconds: float) -> tuple[str, ...]:
    """What `resolve` says within `seconds`. Raises `Transient` when a resolver keeps us waiting: it
    has no time-out of its own.
    """
    answers: list[tuple[str, ...] | BaseException] = []

    def ask() -> None:
        try:
            answers.append(resolve(host))
        except BaseException as error:
            answers.append(error)

    asking = threading.Thread(target=ask, name="resolve", daemon=True)
    asking.start()
    asking.join(seconds)
    if not answers:
        raise Transient("the name could not be resolved in time")
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


def refusal(address: str) -> str | None:
    """Why `address` may not be reached; None when it is an ordinary public one."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return "not an address"
    special = next(
        (
            reason
            for network, reason in _NETWORKS
            if ip.version == network.version and ip in network
        ),
        None,
    )
    return special or ("not global" if ip.version == 6 and ip not in _V6_GLOBAL else None)


def inner(host: str) -> str | None:
    """What kind of inner place `host` names, as far as can be told without asking anybody; None:
    none.
    """
    plain = host.strip("[]").rstrip(".")
    if not _LOOKS_NUMERIC.fullmatch(plain) and ":" not in plain:
        return "a name of this network" if "." not in plain or plain.endswith(_INNER) else None
    why = refusal(plain)
    return (
        None
        if why is None
        else (
            "an unusual spelling of an address"
            if why == "not an address"
            else f"an address that is {why}"
        )
    )


def checked_addresses(host: str, *, resolve: Lookup, allow_loopback: bool) -> tuple[str, ...]:
    """Resolve `host` once and return its addresses, all of them allowed.

    Raises `Denied` when any address is not: a name that points both outside and inside is an attack
    or a mistake.
    """
    addresses = (host,) if _is_address(host) else resolve(host)
    for address in addresses:
        reason = refusal(address)
        if reason is not None and not (reason == "loopback" and allow_loopback):
            raise _denied(host, f"leads to an address that is {reason}")
    if not addresses:
        raise UpstreamUnavailable(
            f"The host {host} has no address.",
            expected="at least one",
            remedy="Check `source.url`.",
        )
    return addresses


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        # 2130706433, 0x7f.1 and 0177.0.0.1 are 127.0.0.1 to some resolvers and names to others;
        # nobody needs them.
        if _LOOKS_NUMERIC.fullmatch(host):
            raise _denied(host, "is an unusual spelling of an address") from None
        return False
    return True


def _denied(host: str, why: str) -> Denied:
    return Denied(
        f"The host {host} {why}.",
        expected="a public address",
        remedy=(
            "Name a public host in `source.url` and `source.hosts`; for tests a workspace may set"
            " `allow_loopback`."
        ),
    )


class Dialer:
    """Opens sockets for targets.

    With `reroute`, a loopback (host, port), every connection goes there in plain HTTP and only
    names and keys stay those of the target: a sample upstream can then play any host.
    """

    def __init__(
        self,
        *,
        allow_loopback: bool,
        reroute: tuple[str, int] | None,
        timeout: float,
        resolve: Lookup,
    ) -> None:
        if reroute is not None and reroute[0] == "localhost":
            reroute = ("127.0.0.1", reroute[1])
        if reroute is not None and not _is_loopback(reroute[0]):
            raise UsageError(
                f"Requests cannot be rerouted to {reroute[0]}.",
                expected="a loopback address",
                remedy="Use 127.0.0.1 or ::1.",
            )
        self._allow_loopback, self._reroute, self._timeout, self._resolve = (
            allow_loopback,
            reroute,
            timeout,
            resolve,
        )
        self._context: ssl.SSLContext | None = None

    def dial(self, target: Target, pace: Pace) -> socket.socket:
        """A socket connected to one of the target's checked addresses, with TLS for https."""
        if self._reroute is not None:
            return self._connect((self._reroute[0],), self._reroute[1], pace)
        # Resolved once: what is checked here is what is connected to, whatever the name says a
        # moment later.
        patience = min(self._timeout, pace.left())
        addresses = checked_addresses(
            target.host,
            resolve=lambda host: in_time(self._resolve, host, patience),
            allow_loopback=self._allow_loopback,
        )
        sock = self._connect(addresses, target.port, pace)
        return sock if target.scheme == "http" else self._secure(sock, target.host)

    def _connect(self, addresses: tuple[str, ...], port: int, pace: Pace) -> socket.socket:
        reason = "no address"
        for address in addresses:
            sock = socket.socket(
                socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM
            )
            try:
                sock.settimeout(min(self._timeout, pace.left()))
                sock.connect((address, port))
            except OSError as error:
                sock.close()
                reason = network_reason(error)
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise Transient(reason)

    def _secure(self, sock: socket.socket, host: str) -> socket.socket:
        import ssl  # here, because an unchanged plain-HTTP source should not pay for it

        if self._context is None:
            self._context = ssl.create_default_context()
            self._context.set_alpn_protocols(["http/1.1"])
        try:
            return self._context.wrap_socket(sock, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            sock.close()
            raise UpstreamRefused(
                f"The certificate of {host} is not trusted: {error.verify_message}.",
                expected="a valid certificate for that name",
                remedy=(
                    "Check the host and this machine's certificate store; kfm does not connect"
                    " without a check."
                ),
            ) from error
        except OSError as error:
            sock.close()
            raise Transient(
                "time-out" if isinstance(error, TimeoutError) else "the TLS handshake failed"
            ) from error


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
