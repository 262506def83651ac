"""One upstream as the lanes see it: where it is, what it is sent as credential, how long it may take."""

import re
import ssl
from dataclasses import dataclass, field
from typing import Final, Literal

from gateway.contracts.model_apis import ApiName
from gateway.contracts.quirks import QuirkName

#: The providers of upstreams that the configuration does not name one for, by their APIs.
OPENAI: Final = "openai"
ANTHROPIC: Final = "anthropic"
#: The end of a base path that names a version of the API.
_VERSIONED: Final = re.compile(rb"/v[0-9]+(?:alpha|beta)?[0-9]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """The ways in which the context lane asks the models of an upstream.

    `quirks` are what they refuse (gateway/model/adaptation/quirks.py), and `client_ids` whether they get the ids of the
    client. `reasoning_summary` is of the API `responses`: the summary of its reasoning that a model is to write where
    the client states none. The others are of the API `messages`: the limit of an answer whose client sets none, how the
    models are told to think, whether the gateway marks what the upstream should cache, and the values of
    `anthropic-beta` that every request carries.
    """

    api: ApiName = "chat"
    quirks: frozenset[QuirkName] = frozenset()
    client_ids: bool = False
    max_tokens: int = 16_384
    thinking: Literal["adaptive", "budget"] = "adaptive"
    prompt_caching: bool = True
    betas: tuple[str, ...] = ()
    reasoning_summary: Literal["auto", "concise", "detailed"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Facts about one upstream, built once from configuration.

    `authority` is the Host it is sent; `base_path` ("" or "/x/y") replaces the matched prefix of a target; `api_key`
    replaces the client's credential. `tls` is None for plain HTTP. Times are seconds. `models` is how the context lane
    asks its models. `provider` is the name that spans give to its operator.
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
    models: ModelAccess = ModelAccess()
    provider: str = OPENAI

    @property
    def origin(self) -> str:
        """Return the URL of the endpoint without a path."""
        return f"{'http' if self.tls is None else 'https'}://{self.authority.decode('latin-1')}"

    def build_path(self, path: bytes) -> bytes:
        """Return a path of the API at this endpoint: its base path replaces `/v1`.

        Clients of Messages add `/v1` to every base URL; so it follows a base path that does not end with a version.
        """
        base = self.base_path or b"/v1"
        if self.models.api == "messages" and _VERSIONED.search(base) is None:
            base += b"/v1"
        return base + path

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
