"""Certificates for tests on loopback, made with the `openssl` command: a CA of their own, a server's, a client's."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

VALID_DAYS: Final = 7
_TIMEOUT_S: Final = 30.0

# VERIFY_X509_STRICT, the default of Python 3.13, wants the key identifiers and the CA's key usage.
_CONFIG: Final = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = {name}
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
[server]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = {names}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
[client]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always
"""


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files; the keys have no pass phrase."""

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path

    def server_context(self, *, require_client: bool = False) -> ssl.SSLContext:
        """Return a context for `FakeUpstream(ssl=...)`; `require_client` asks for a certificate of the same CA."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.load_cert_chain(self.server_cert, self.server_key)
        context.verify_mode = ssl.CERT_REQUIRED if require_client else ssl.CERT_NONE
        return context

    def client_context(self, *, with_certificate: bool = False) -> ssl.SSLContext:
        """Return a context for `connect(ssl=...)`; it trusts this CA only."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if with_certificate:
            context.load_cert_chain(self.client_cert, self.client_key)
        return context


def self_signed(
    folder: Path,
    *,
    dns_names: tuple[str, ...] = ("localhost",),
    addresses: tuple[str, ...] = ("127.0.0.1", "::1"),
) -> Certificates:
    """Write a CA, a server certificate for these names and a client certificate to `folder`; this blocks for ~0.1 s."""
    names = ", ".join([*(f"DNS:{name}" for name in dns_names), *(f"IP:{address}" for address in addresses)])
    for name in ("ca", "server", "client"):
        folder.joinpath(f"{name}.cnf").write_text(_CONFIG.format(name=f"test {name}", names=names), encoding="utf-8")
    _issue(folder, "ca", ["-signkey", "ca.key"])
    for name in ("server", "client"):
        _issue(folder, name, ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"])
    files = (folder / f"{name}.{kind}" for name in ("server", "client") for kind in ("crt", "key"))
    return Certificates(folder / "ca.crt", *files)


def _issue(folder: Path, name: str, signer: list[str]) -> None:
    key, request, config = f"{name}.key", f"{name}.csr", f"{name}.cnf"
    _openssl(folder, ["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key])
    _openssl(folder, ["req", "-new", "-config", config, "-key", key, "-out", request])
    validity = ["-days", str(VALID_DAYS), "-extfile", config, "-extensions", name]
    _openssl(folder, ["x509", "-req", "-in", request, *signer, *validity, "-out", f"{name}.crt"])


def _openssl(folder: Path, arguments: list[str]) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise FileNotFoundError("no program 'openssl' on PATH: install it to make test certificates")
    done = subprocess.run(
        [program, *arguments], cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]!r} failed in {str(folder)!r}: {done.stderr.strip()}")
