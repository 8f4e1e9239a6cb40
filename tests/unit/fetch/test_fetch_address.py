"""Only public addresses are reached, whatever they are called."""

import socket

import pytest

from kfm.fetch.base import UpstreamRefused
from kfm.fetch.connect import checked_addresses, lookup, refusal
from kfm.fetch.retry import Transient
from kfm.model.errors import Denied, UpstreamUnavailable


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("10.0.0.1", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("169.254.169.254", "cloud metadata"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%lo", "link-local"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "of this network"),
        ("::", "unspecified"),
        ("::ffff:8.8.8.8", "an IPv4-mapped address"),
        ("::ffff:127.0.0.1", "an IPv4-mapped address"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("100.127.255.254", "carrier-grade NAT"),
        ("64:ff9b::a00:1", "a NAT64 address"),
        ("64:ff9b:1::1", "a NAT64 address"),
        ("2002:7f00:1::", "a tunnel to an IPv4 address"),
        ("2001:0:7f00:1::", "a tunnel to an IPv4 address"),
        ("fd00:ec2::254", "cloud metadata"),
        ("fec0::1", "private"),
        ("192.0.2.1", "for documentation"),
        ("198.18.0.1", "for benchmarks"),
        ("192.0.0.1", "assigned to protocols"),
        ("192.0.0.170", "assigned to protocols"),
        ("192.175.48.1", "assigned to protocols"),
        ("2001:1::1", "assigned to protocols"),
        ("2001:20::1", "assigned to protocols"),
        ("3fff::1", "for documentation"),
        ("3fff:fff:ffff::1", "for documentation"),
        ("5f00::1", "for routers"),
        ("100::1", "thrown away"),
        ("4000::1", "not global"),
        ("192.88.99.1", "a 6to4 relay"),
        ("168.63.129.16", "cloud metadata"),
        ("not an address", "not an address"),
    ],
)
def test_addresses_that_are_not_public_are_refused(address, reason):
    assert refusal(address) == reason


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "192.0.1.1",
        "3ffe::1",
        "2001:4860::8888",
        "100.63.255.255",
        "100.128.0.1",
        "2606:4700::1111",
        "2a00::1",
    ],
)
def test_public_addresses_are_fine(address):
    assert refusal(address) is None


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "127.0.0.0x1",
        "1.2.3.4.5",
        "0x",
        "256.1.1.1",
    ],
)
def test_unusual_spellings_of_addresses_are_refused_without_looking_them_up(host):
    with pytest.raises(Denied, match="unusual spelling"):
        checked_addresses(host, resolve=lambda _: pytest.fail("looked up"), allow_loopback=True)


def test_one_bad_address_among_good_ones_is_enough():
    with pytest.raises(Denied, match="private") as caught:
        checked_addresses(
            "data.example", resolve=lambda _: ("8.8.8.8", "10.0.0.1"), allow_loopback=True
        )
    assert "source.hosts" in caught.value.remedy


def test_loopback_needs_permission_and_nothing_else_gets_it():
    for address in ("127.0.0.1", "::1"):
        assert checked_addresses(
            "localhost", resolve=lambda _, a=address: (a,), allow_loopback=True
        ) == (address,)
        with pytest.raises(Denied, match="loopback"):
            checked_addresses("localhost", resolve=lambda _, a=address: (a,), allow_loopback=False)
    with pytest.raises(Denied, match="mapped"):
        checked_addresses("localhost", resolve=lambda _: ("::ffff:127.0.0.1",), allow_loopback=True)


def test_a_literal_address_is_checked_without_looking_it_up():
    assert checked_addresses(
        "8.8.8.8", resolve=lambda _: pytest.fail("looked up"), allow_loopback=False
    ) == ("8.8.8.8",)
    with pytest.raises(Denied):
        checked_addresses(
            "10.0.0.1", resolve=lambda _: pytest.fail("looked up"), allow_loopback=True
        )


def test_a_name_without_addresses_is_unavailable():
    with pytest.raises(UpstreamUnavailable, match="no address"):
        checked_addresses("data.example", resolve=lambda _: (), allow_loopback=False)


def test_a_name_that_does_not_exist_is_final_and_a_resolver_that_fails_is_not(monkeypatch):
    def fails_with(code):
        def getaddrinfo(*_args, **_kwargs):
            raise socket.gaierror(code, "x")

        return getaddrinfo

    monkeypatch.setattr(socket, "getaddrinfo", fails_with(socket.EAI_NONAME))
    with pytest.raises(UpstreamRefused, match="does not exist"):
        lookup("data.example")
    monkeypatch.setattr(socket, "getaddrinfo", fails_with(socket.EAI_AGAIN))
    with pytest.raises(Transient):
        lookup("data.example")


def test_the_system_resolver_is_asked():
    assert set(lookup("localhost")) <= {"127.0.0.1", "::1"}
    assert lookup("localhost")
