"""Connections: to the addresses that were checked and to no others; proxies from the environment are not looked at."""

import ipaddress
import socket
from typing import TYPE_CHECKING

from kfm.fetch.address import Lookup, checked_addresses, in_time
from kfm.fetch.base import UpstreamRefused
from kfm.fetch.pace import Pace
from kfm.fetch.trouble import Transient
from kfm.fetch.url import Target
from kfm.fetch.wire import network_reason
from kfm.model.errors import UsageError

if TYPE_CHECKING:
    import ssl

__all__ = ["Dialer"]


class Dialer:
    """Opens sockets for targets.

    With `reroute`, a loopback (host, port), every connection goes there in plain HTTP and only names and keys stay those
    of the target: a sample upstream can then play any host.
    """

    def __init__(self, *, allow_loopback: bool, reroute: tuple[str, int] | None, timeout: float, resolve: Lookup) -> None:
        if reroute is not None and reroute[0] == "localhost":
            reroute = ("127.0.0.1", reroute[1])
        if reroute is not None and not _is_loopback(reroute[0]):
            raise UsageError(f"Requests cannot be rerouted to {reroute[0]}.", expected="a loopback address", remedy="Use 127.0.0.1 or ::1.")
        self._allow_loopback, self._reroute, self._timeout, self._resolve = allow_loopback, reroute, timeout, resolve
        self._context: ssl.SSLContext | None = None

    def dial(self, target: Target, pace: Pace) -> socket.socket:
        """A socket connected to one of the target's checked addresses, with TLS for https."""
        if self._reroute is not None:
            return self._connect((self._reroute[0],), self._reroute[1], pace)
        # Resolved once: what is checked here is what is connected to, whatever the name says a moment later.
        patience = min(self._timeout, pace.left())
        addresses = checked_addresses(
            target.host, resolve=lambda host: in_time(self._resolve, host, patience), allow_loopback=self._allow_loopback
        )
        sock = self._connect(addresses, target.port, pace)
        return sock if target.scheme == "http" else self._secure(sock, target.host)

    def _connect(self, addresses: tuple[str, ...], port: int, pace: Pace) -> socket.socket:
        reason = "no address"
        for address in addresses:
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
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
                remedy="Check the host and this machine's certificate store; kfm does not connect without a check.",
            ) from error
        except OSError as error:
            sock.close()
            raise Transient("time-out" if isinstance(error, TimeoutError) else "the TLS handshake failed") from error


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
