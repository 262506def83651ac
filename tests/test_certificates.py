"""Certificates are made without a new dependency, and hold in strict verification."""

import shutil
import ssl
import stat
from pathlib import Path

import pytest
from certificates import Certificates, self_signed

from gateway.testing.raw_connection import connect
from gateway.testing.upstream import FakeUpstream


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_the_certificates_pass_strict_verification(certificates: Certificates, host: str) -> None:
    """As `ssl.create_default_context` of Python 3.13 does it, by name and by address."""
    context = certificates.client_context()
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    async with (
        FakeUpstream(ssl=certificates.server_context()) as upstream,
        connect(host, upstream.port, ssl=context) as client,
    ):
        await client.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await client.read_response()).status == 200


async def test_a_name_that_is_not_in_the_certificate_is_refused(certificates: Certificates) -> None:
    """The client says which."""
    async with FakeUpstream(ssl=certificates.server_context()) as upstream:
        with pytest.raises(ssl.SSLCertVerificationError, match=r"other\.test"):
            await connect("127.0.0.1", upstream.port, ssl=certificates.client_context(), server_name="other.test")


async def test_client_without_the_required_certificate_is_refused(certificates: Certificates) -> None:
    """TLS 1.3 tells it after the handshake, at the first read."""
    async with (
        FakeUpstream(ssl=certificates.server_context(require_client=True)) as upstream,
        connect("127.0.0.1", upstream.port, ssl=certificates.client_context()) as client,
    ):
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            await client.read_some()


def test_private_keys_are_readable_by_their_owner_only(certificates: Certificates) -> None:
    """Whatever the umask."""
    for key in (certificates.server_key, certificates.client_key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_certificate_contains_the_chosen_dns_names(tmp_path: Path) -> None:
    """For upstreams that are told apart by name."""
    made = self_signed(tmp_path, dns_names=("a.test", "b.test"), addresses=())
    decoded = ssl._ssl._test_decode_cert(str(made.server_cert))  # type: ignore[attr-defined]
    assert decoded["subjectAltName"] == (("DNS", "a.test"), ("DNS", "b.test"))


def test_missing_openssl_error_names_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way out."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("openssl") is None
    with pytest.raises(FileNotFoundError, match="'openssl' on PATH: install it"):
        self_signed(tmp_path)


def test_failing_openssl_error_quotes_its_output(tmp_path: Path) -> None:
    """What openssl said."""
    with pytest.raises(RuntimeError, match=r"(?s)openssl 'x509' failed in .*no-such-type"):
        self_signed(tmp_path, addresses=("no-such-type",))
