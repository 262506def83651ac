"""Listen addresses, URLs, path prefixes, host and header names as the configuration spells them."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from gateway.config.values.scalars import build_text_parser, parse_text
from gateway.config.values.secret import Secret
from gateway.config.values.value import ValueType

_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})\Z")
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.(?!-)[A-Za-z0-9_-]{1,63})*\.?\Z")
_DIGITS_AND_DOTS = re.compile(r"[0-9.]+\Z")
_PREFIX = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*\Z")
_ORIGIN = re.compile(r"([a-z][a-z0-9+.-]*)://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?\Z")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?\Z")
_CREDENTIAL = re.compile(r"[\x21-\x7e]+\Z")
_STORE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}://.")
_VALKEY = re.compile(r"(?:valkeys?|rediss?)://[^/\s]+(?:/\d*)?(?:\?\S*)?\Z|unix://\S+\Z")
HIGHEST_PORT = 65535
# A credential in one of these would break the framing or the routing of the request.
_NO_CREDENTIAL_IN = frozenset(
    {
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


@dataclass(frozen=True, slots=True)
class Address:
    """The address to listen on. `host` has no brackets. Port 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Return whether the host is localhost or a loopback address."""
        if self.host.rstrip(".").lower() == "localhost":
            return True
        try:
            address = ipaddress.ip_address(self.host)
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return (mapped or address).is_loopback


def parse_address(value: object) -> Address:
    """Parse `127.0.0.1:8080`, `localhost:8080` or `[::1]:8080`."""
    if isinstance(value, Address):
        return value
    match = _LISTEN.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected \"host:port\", for example 127.0.0.1:8080 or, in quotes, '[::1]:8080'")
    host, port = match[1] or match[2], int(match[3])
    if port > HIGHEST_PORT:
        raise ValueError(f"the port must be between 0 and {HIGHEST_PORT}")
    _check_host(host, bracketed=match[1] is not None)
    return Address(host, port)


def _check_host(host: str, *, bracketed: bool) -> None:
    """Raise ValueError for a host that is neither an IP address nor a host name."""
    if bracketed or _DIGITS_AND_DOTS.match(host):
        try:
            ipaddress.IPv6Address(host) if bracketed else ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError("the host is not an IP address") from None
    elif not _HOST_NAME.match(host):
        raise ValueError("the host is not a host name")


def parse_base_url(value: object) -> str:
    """Parse an http or https URL that has only a host, a port and perhaps a path."""
    text = parse_text(value)
    parts = _split_web_url(text)
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise ValueError("a base URL has no query and no fragment: remove what follows '?' or '#'")
    if not _PREFIX.match(parts.path or "/"):
        raise ValueError("the path of the URL has a character that must be percent-encoded")
    return text


def _split_web_url(text: str) -> SplitResult:
    """Split a URL. No message repeats it, because it may contain a credential."""
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("a URL has no spaces, backslashes, control or non-ASCII characters")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("the host or the port of the URL is not valid") from None
    if parts.scheme not in {"http", "https"}:
        raise ValueError("expected a URL that begins with http:// or https://")
    if "@" in parts.netloc:
        raise ValueError("a URL here has no user or password: use a key, or a header")
    if not host or port == 0 or parts.netloc.endswith(":"):
        raise ValueError("the host or the port of the URL is not valid")
    _check_host(host, bracketed=parts.netloc.startswith("["))
    return parts


parse_prefix = build_text_parser(_PREFIX, "expected a path that begins with '/', without spaces, '?' or '#'")


def parse_host(value: object) -> str:
    """Parse a Host to accept, without scheme and path. A port may follow."""
    text = parse_text(value)
    host = text if _LISTEN.match(text) else f"{text}:0"
    try:
        parse_address(host)
    except ValueError:
        raise ValueError("expected a host such as gateway.example.com, with a port only when clients send it") from None
    return text.lower()


def parse_origin(value: object) -> str:
    """Parse a page's origin as browsers send it: in lower case, without the usual port of its scheme."""
    text = parse_text(value).lower()
    found = _ORIGIN.match(text)
    if found is None:
        raise ValueError("expected an origin such as https://chat.example.com: name each one, without a path")
    usual = {"http": ":80", "https": ":443"}.get(found[1], "")
    return text.removesuffix(usual) if usual else text


parse_header_name = build_text_parser(_TOKEN, "expected the name of a header, such as X-Api-Key")


def parse_credential_header(value: object) -> str:
    text = parse_header_name(value)
    if text.lower() in _NO_CREDENTIAL_IN:
        raise ValueError(f"the header {text!r} cannot carry a credential")
    return text


def parse_secret(value: object) -> Secret:
    """Parse a secret. No message repeats it."""
    if isinstance(value, Secret):
        return value
    text = parse_text(value)
    if not text.strip():
        raise ValueError("the value is empty: set it, or remove the key")
    return Secret(text)


def parse_variable(value: object) -> Secret:
    """Parse the value of an environment variable, which may be empty."""
    return value if isinstance(value, Secret) else Secret(parse_text(value))


def _build_secret_parser(pattern: re.Pattern[str], message: str) -> Callable[[object], Secret]:
    """Return the parser of secrets that fit `pattern`; `message` is its error."""

    def parse(value: object) -> Secret:
        secret = parse_secret(value)
        if not pattern.match(secret.reveal()):
            raise ValueError(message)
        return secret

    return parse


parse_credential = _build_secret_parser(
    _CREDENTIAL, "a key has only visible ASCII characters and no spaces: write it without a word like 'Bearer'"
)
parse_header_value = _build_secret_parser(
    _HEADER_VALUE, "the value of a header is one line of visible ASCII characters"
)
#: Parses the URL of a store. Its scheme is the name of a plugin.
parse_store = _build_secret_parser(_STORE, "expected a URL whose scheme names a store, such as sqlite:///FILE")

parse_valkey = _build_secret_parser(
    _VALKEY, "expected a URL such as valkey://HOST:6379/0, or valkeys://USER:PASSWORD@HOST:6379/0 with TLS"
)


def parse_secret_url(value: object) -> Secret:
    secret = parse_secret(value)
    _split_web_url(secret.reveal())
    return secret


ListenAddress = Annotated[Address, ValueType(kind="host:port", parse=parse_address, write=str)]
BaseUrl = Annotated[str, ValueType(kind="http(s) URL", parse=parse_base_url)]
PathPrefix = Annotated[str, ValueType(kind="path prefix", parse=parse_prefix)]
HostName = Annotated[str, ValueType(kind="host", parse=parse_host)]
Origin = Annotated[str, ValueType(kind="origin", parse=parse_origin)]
HeaderName = Annotated[str, ValueType(kind="header name", parse=parse_header_name)]
CredentialHeader = Annotated[str, ValueType(kind="header name", parse=parse_credential_header)]
SecretText = Annotated[Secret, ValueType(kind="secret", parse=parse_secret, write=str)]
VariableValue = Annotated[Secret, ValueType(kind="secret", parse=parse_variable, write=str)]
Credential = Annotated[Secret, ValueType(kind="secret", parse=parse_credential, write=str)]
HeaderValue = Annotated[Secret, ValueType(kind="secret", parse=parse_header_value, write=str)]
SecretUrl = Annotated[Secret, ValueType(kind="secret http(s) URL", parse=parse_secret_url, write=str)]
StoreUrl = Annotated[Secret, ValueType(kind="secret database URL", parse=parse_store, write=str)]
ValkeyUrl = Annotated[Secret, ValueType(kind="secret Valkey URL", parse=parse_valkey, write=str)]
