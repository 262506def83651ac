"""The names that the gateway answers to, and the web pages that may call it: a guard against browsers nearby.

A browser sends any request that a page makes, from where the gateway can be reached. So the name must be ours (one that
was rebound to us is not), and so must the page: a page on another port of this machine is another page.
Judged on the head alone, so that a remembered plan carries the verdict.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from gateway.contracts.errors import GatewayError
from gateway.http.request_head import RequestHead

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
#: A name in lower case without its last dot, or an address in its usual form; and the port, if one is named.
Authority: TypeAlias = tuple[str, int | None]

_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:/@\s]+?)\.?)(?::([0-9]{0,5}))?", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}
#: Headers of the gateway that a page may read; a browser shows few by itself.
_EXPOSED = (
    "x-request-id, x-context-run-id, x-context-chain, x-context-intent, x-context-task, x-context-upstream, "
    "x-context-model, retry-after, retry-after-ms, x-should-retry, location, etag, preference-applied, "
    "x-ratelimit-limit-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-requests, "
    "x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, x-ratelimit-reset-tokens, x-context-limit"
)
#: Values that browsers send with a request that no other page has caused.
_OWN_SITES = frozenset((b"same-origin", b"none"))


@dataclass(frozen=True, slots=True)
class HostGuard:
    """The names and pages of one configuration.

    `hosts` without a port hold for every port. `any_address`: we listen on all addresses, so every address is ours.
    `origins` are other pages that may ask, as browsers spell them.
    """

    hosts: frozenset[Authority] = frozenset()
    any_address: bool = False
    origins: frozenset[str] = frozenset()

    @classmethod
    def from_hosts(cls, hosts: Iterable[str], *, origins: Iterable[str] = (), any_address: bool = False) -> "HostGuard":
        """Build a guard for these hosts (names or addresses, the port is optional) and origins."""
        known = (parse_authority(host) for host in hosts)
        return cls(frozenset(one for one in known if one is not None), any_address, frozenset(origins))

    def check(self, head: RequestHead) -> None:
        """Raise GatewayError (host_not_allowed, origin_not_allowed). A request without a host is from no browser."""
        if head.host is not None and not self._is_gateway_host(parse_authority(head.host.decode("latin-1"))):
            raise GatewayError(
                "host_not_allowed",
                "The gateway does not serve this host: if it is yours, add it to 'allowed_hosts'.",
                param="host",
            )
        origins = _get_values(head, b"origin")
        for origin in origins:
            if not self._is_allowed_origin(origin.decode("latin-1"), head):
                raise _build_foreign_origin_error("origin")
        if not origins and not _is_same_site_or_navigation(head):
            raise _build_foreign_origin_error("sec-fetch-site")

    def find_shared_origin(self, head: RequestHead) -> str | None:
        """Return the origin of another page that may read our answers (CORS); None: the request is from none."""
        origins = _get_values(head, b"origin")
        origin = origins[0].decode("latin-1").lower() if len(origins) == 1 else ""
        return origin if origin in self.origins else None

    def get_cors_fields(self, head: RequestHead) -> Mapping[str, str]:
        """Return the CORS header fields of a gateway answer, by name. They let a page of an allowed origin read it."""
        if not self.origins:
            return {}
        origin = self.find_shared_origin(head)
        if origin is None:
            return {"Vary": "Origin"}
        return {"Vary": "Origin", "Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _EXPOSED}

    def is_preflight(self, head: RequestHead) -> bool:
        """Return whether a request is a CORS preflight from an allowed origin. A preflight carries no key."""
        asks = head.method == b"OPTIONS" and head.find_value(b"access-control-request-method") is not None
        return asks and self.find_shared_origin(head) is not None

    def _is_gateway_host(self, authority: Authority | None) -> bool:
        """Return whether an authority is a host of the gateway: allowed, localhost or a loopback address."""
        if authority is None:
            return False
        name, port = authority
        if name == "localhost" or (name, None) in self.hosts or (name, port) in self.hosts:
            return True
        address = _parse_address(name)
        return address is not None and (self.any_address or address.is_loopback)

    def _is_allowed_origin(self, origin: str, head: RequestHead) -> bool:
        """Return whether an origin is the gateway's own, by a requested or allowed name, or configured."""
        if origin.lower() in self.origins:
            return True
        scheme, mark, rest = origin.lower().partition("://")
        page = parse_authority(rest)
        if not mark or scheme not in _PORTS or page is None:
            return False
        asked = None if head.host is None else parse_authority(head.host.decode("latin-1"))
        default = _PORTS[scheme]
        if asked is not None and (page[0], page[1] or default) == (asked[0], asked[1] or default):
            return True
        is_plain = page[1] in (None, default)
        return _parse_address(page[0]) is None and (page in self.hosts or (is_plain and (page[0], None) in self.hosts))


@lru_cache(maxsize=256)
def parse_authority(text: str) -> Authority | None:
    """Return the name and the port of `text`; None: it is not an authority."""
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        return None
    name = (found[1] or found[2]).lower()
    address = _parse_address(name)
    if found[1] is not None and address is None:
        return None
    port = int(found[3]) if found[3] else None
    return (name if address is None else str(address), port)


def _parse_address(name: str) -> IPAddress | None:
    """Return the IP address of a host; one of IPv4 in IPv6 as IPv4. None: it is a name."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_same_site_or_navigation(head: RequestHead) -> bool:
    """Return whether a request without an Origin comes from no other page, or follows a link."""
    if _OWN_SITES.issuperset(map(bytes.lower, _get_values(head, b"sec-fetch-site"))):
        return True
    follows = _get_values(head, b"sec-fetch-mode") == [b"navigate"] and _get_values(head, b"sec-fetch-dest") == [
        b"document"
    ]
    return follows and head.method in (b"GET", b"HEAD")


def _get_values(head: RequestHead, name: bytes) -> list[bytes]:
    return [field.value for field in head.fields if field.name == name]


def _build_foreign_origin_error(param: str) -> GatewayError:
    """Return the error for a request from another site; `param` is the field that shows it."""
    return GatewayError(
        "origin_not_allowed",
        "The gateway refuses requests from other sites: if the page is the gateway's own, add its host to "
        "'allowed_hosts'; if another page may ask, add its origin to 'cors'.",
        param=param,
    )
