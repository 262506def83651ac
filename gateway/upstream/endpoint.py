"""One upstream as the lanes see it: where it is, what it is sent as credential, how long it may take."""

import ssl
from dataclasses import dataclass, field
from typing import Final

from gateway.contracts.quirks import QuirkName

#: The provider of an upstream that the configuration does not name one for.
OPENAI: Final = "openai"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Facts about one upstream, built once from configuration.

    `authority` is the Host it is sent; `base_path` ("" or "/x/y") replaces the matched prefix of a target; `api_key`
    replaces the client's credential. `tls` is None for plain HTTP. Times are seconds. `quirks` are what its models
    refuse in the context lane (gateway/model/adaptation/quirks.py), and `client_ids` whether they get the ids of the
    client there. `provider` is the name that spans give to its operator.
    """

    name: str
    host: str
    port: int
    authority: bytes
    base_path: bytes = b""
    api_key: bytes | None = field(default=None, repr=False)
    auth_header: bytes | None = None
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    connect_s: float = 5.0
    first_byte_s: float = 600.0
    idle_s: float = 300.0
    quirks: frozenset[QuirkName] = frozenset()
    client_ids: bool = False
    provider: str = OPENAI

    @property
    def origin(self) -> str:
        """Return the URL of the endpoint without a path."""
        return f"{'http' if self.tls is None else 'https'}://{self.authority.decode('latin-1')}"

    def build_path(self, path: bytes) -> bytes:
        """Return a path of the API at this endpoint: its base path replaces `/v1`."""
        return (self.base_path or b"/v1") + path

    def build_credential(self, header: bytes) -> bytes:
        """Return the value with which a header carries the key. The name of the header is in lower case."""
        key = self.api_key or b""
        return b"Bearer " + key if header == b"authorization" else key

    def build_credential_line(self, header: bytes) -> bytes:
        """Return the header line that carries the key in `auth_header`, else in `header`; none without a key."""
        if self.api_key is None:
            return b""
        name = self.auth_header or header
        return b"%b: %b\r\n" % (name.title(), self.build_credential(name))
