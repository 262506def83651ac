"""One upstream as the lanes see it: where it is, what it is sent as credential, how long it may take."""

import ssl
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Facts about one upstream, built once from configuration.

    `authority` is the Host it is sent; `base_path` ("" or "/x/y") replaces the matched prefix of a target; `api_key`
    replaces the client's credential. `tls` is None for plain HTTP. Times are seconds. `stream` is how the context lane
    asks models for their answers.
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
    stream: Literal["usage", "plain", "never"] = "usage"
