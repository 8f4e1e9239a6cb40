"""https: the certificate is checked against the name, on the pinned address."""

import datetime as dt
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kfm.fetch.base import FetchRequest, UpstreamRefused
from kfm.model.errors import UpstreamUnavailable


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """A self-signed certificate and its key, for data.example."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "data.example")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(
            name,
            name,
            key.public_key(),
            x509.random_serial_number(),
            now - dt.timedelta(1),
            now + dt.timedelta(1),
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("data.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "cert.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.fixture
def secure(tls_upstream, pem, say):
    names = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    context.sni_callback = lambda _sock, name, _context: names.append(name)
    server = tls_upstream(lambda conn: context.wrap_socket(conn, server_side=True))
    server.answers(say.answer(body=b"secure"))
    server.names = names
    return server


def ask(host, port):
    return FetchRequest(url=f"https://{host}:{port}/a", hosts=(host,))


def test_an_untrusted_certificate_is_refused_without_a_retry(
    secure, fetcher, into, slept, left_over
):
    with pytest.raises(UpstreamRefused, match="not trusted") as caught:
        fetcher(resolve=lambda _: ("127.0.0.1",)).fetch(ask("data.example", secure.port), into)
    assert caught.value.exit_code == 4
    assert (secure.asked, slept, left_over()) == ([], [], [])


def test_a_trusted_certificate_for_the_name_is_fine(secure, fetcher, into, pem, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    got = fetcher(resolve=lambda _: ("127.0.0.1",)).fetch(ask("data.example", secure.port), into)
    assert (got.size, secure.names) == (6, ["data.example"])


@pytest.mark.parametrize("host", ["other.example", "127.0.0.1"])
def test_a_trusted_certificate_for_another_name_is_refused(
    host, secure, fetcher, into, pem, monkeypatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    with pytest.raises(UpstreamRefused, match="not trusted"):
        fetcher(resolve=lambda _: ("127.0.0.1",)).fetch(ask(host, secure.port), into)
    assert secure.asked == []


def test_a_server_that_does_not_speak_tls_is_unavailable(upstream, say, fetcher, into):
    upstream.wrap = lambda conn: conn.sendall(b"HTTP/1.1 400 x\r\n\r\n") or conn
    upstream.answers(say.answer())
    with pytest.raises(UpstreamUnavailable, match="TLS handshake failed"):
        fetcher(attempts=2).fetch(ask("127.0.0.1", upstream.port), into)
