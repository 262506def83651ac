"""The tools that a request names, and its other wishes, as the fields of its exchange.

1. A wish narrows the tools and tightens the gate. It loosens nothing, and makes the gateway connect nowhere.
2. A name that means nothing is refused, with the names that there are. Of a service that does not run, any is accepted.
3. A name means one tool: a function of the client's with the name of a tool that the request offers is refused, whether
   the service runs or not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import escape, has_magic
from hmac import compare_digest
from typing import Final
from urllib.parse import urlsplit

from gateway.context.context_headers import format_unknown_name
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.contracts.tools import Service, encode_model_name, is_of_service
from gateway.dialects.chat_request import list_client_tools
from gateway.dialects.dialect import RequestedTools, Wishes
from gateway.dialects.offered_tools import GATEWAY
from gateway.tools.catalog import Catalog
from gateway.tools.results import READ_RESULT

NO_WISHES: Final = Wishes()
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class _Tool:
    """One tool by its inside name; or all tools of a service that does not run, by the head of their names."""

    name: str
    is_head: bool = False

    @property
    def pattern(self) -> str:
        return escape(self.name) + "*" * self.is_head

    def find_function(self, functions: frozenset[str]) -> str | None:
        """Return the client's function whose name this tool has, or None."""
        if self.is_head:
            return next((name for name in sorted(functions) if is_of_service(name, self.name[:-1])), None)
        return next((name for name in (encode_model_name(self.name), self.name) if name in functions), None)

    def intersect_pattern(self, pattern: str) -> str | None:
        """Return the pattern of what this and another pattern mean both; None: nothing, or that cannot be known."""
        if not self.is_head:
            return self.pattern if fnmatchcase(self.name, pattern) else None
        if pattern.startswith(self.name) and not has_magic(self.name):
            return pattern
        begins = pattern.removesuffix("*")
        covers = begins != pattern and not has_magic(begins) and self.name.startswith(begins)
        return self.pattern if covers else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The addresses that a request may name: of services, as the operator configured them, and this gateway's own.

    `host` is the gateway's, as the client of the request wrote it.
    """

    service: Callable[[str], str | None]
    host: str

    def has(self, url: str, label: str) -> bool:
        """Return whether a URL is the address of the service with this label, or leads to this gateway."""
        known = None if label == GATEWAY else self.service(label)
        return self._is_gateway_address(url) or (
            known is not None and compare_digest(_normalize_url(known), _normalize_url(url))
        )

    def _is_gateway_address(self, url: str) -> bool:
        """Return whether a URL has the scheme, host and port of this gateway."""
        try:
            parts = urlsplit(url)
            own = urlsplit(f"{parts.scheme}://{self.host}")
            ports = [one.port or _PORTS.get(one.scheme) for one in (parts, own)]
        except ValueError:
            return False
        return parts.scheme in _PORTS and parts.hostname == own.hostname and ports[0] == ports[1]


def apply_wishes(exchange: Exchange, wishes: Wishes, *, catalog: Catalog, addresses: Addresses) -> Exchange:
    """Return the exchange with the tools, notes and limits that its request names. Raises GatewayError."""
    is_tainted = wishes.tainted or not all(_is_trusted(label, name, catalog) for label, name in wishes.results)
    wished = replace(
        exchange,
        notes=wishes.notes,
        steering=replace(
            exchange.steering,
            no_tools=wishes.no_tools,
            must_call=wishes.must_call,
            max_tool_calls=wishes.max_tool_calls,
            exact_tools=dict(wishes.exact_tools),
        ),
        delivery=replace(
            exchange.delivery,
            known_as=() if wishes.known_as is None else (exchange.id, *wishes.known_as),
            answer_id="" if wishes.known_as is None else exchange.id,
            background=wishes.background,
            asks_in_text=wishes.asks_in_text,
        ),
        origin=replace(exchange.origin, thoughts=wishes.thoughts, answer_ids=wishes.answer_ids),
        execution=replace(exchange.execution, tainted=is_tainted),
    )
    return wished if wishes.offers is None else _apply_offers(wished, wishes.offers, catalog, addresses)


def _is_trusted(label: str, name: str, catalog: Catalog) -> bool:
    """Return whether a tool's result is trusted. `READ_RESULT` is not: it returns the results of other tools."""
    entry = catalog.find_by_name(name) if label == GATEWAY and name != READ_RESULT else None
    return entry is not None and entry.service is None and not entry.spec.untrusted


def _apply_offers(
    exchange: Exchange, offers: Sequence[RequestedTools], catalog: Catalog, addresses: Addresses
) -> Exchange:
    """Return the exchange limited to the tools that its request names. Raises GatewayError."""
    services = {service.name: service for service in catalog.list_services() if service.name != GATEWAY}
    functions = frozenset() if exchange.steering.no_tools else list_client_tools(exchange.body)
    tools: list[_Tool] = []
    asked: list[_Tool] = []
    for at, offer in enumerate(offers):
        _check_offer(offer, offers[:at], services, addresses)
        named = _get_callable_tools(offer, services.get(offer.label), catalog)
        _check_functions(offer, named, functions)
        tools += named
        asked += named if offer.asks == () else _get_approval_tools(offer, services.get(offer.label), catalog)
    by = exchange.steering.only_tools
    found = (
        (tool.intersect_pattern(pattern) for tool in tools for pattern in by)
        if by
        else (tool.pattern for tool in tools)
    )
    only = tuple(dict.fromkeys(filter(None, found)))
    steering = replace(
        exchange.steering,
        only_tools=only,
        no_tools=exchange.steering.no_tools or not only,
        services=tuple(offer.label for offer in offers if offer.label != GATEWAY),
        ask_first=tuple(dict.fromkeys(tool.pattern for tool in asked)),
    )
    return replace(exchange, steering=steering, delivery=replace(exchange.delivery, shows_calls=True))


def _check_offer(
    offer: RequestedTools, earlier: Sequence[RequestedTools], services: dict[str, Service], addresses: Addresses
) -> None:
    """Check label and URL. Raises GatewayError (invalid_field)."""
    if offer.label != GATEWAY and offer.label not in services:
        further = "" if offer.url is None else " The gateway connects to no address that a request names."
        place = f"{offer.place}.{offer.label_field}"
        text = format_unknown_name("service", offer.label, (GATEWAY, *services), place=place)
        raise _build_offer_error(offer, offer.label_field, text + further)
    if any(other.label == offer.label for other in earlier):
        raise _build_offer_error(
            offer, offer.label_field, f"{offer.place} names {offer.label!r} once more: name all of its tools at once."
        )
    # Some clients must send a URL: the label in its place is not an address.
    if offer.url not in (None, offer.label) and not addresses.has(offer.url or "", offer.label):
        raise _build_offer_error(
            offer,
            offer.url_field,
            f"{offer.place}.{offer.url_field} is not the address of {offer.label!r} that the operator of this gateway "
            "configured, and the gateway connects to no other: leave it out, or repeat the label there.",
        )


def _check_functions(offer: RequestedTools, tools: Sequence[_Tool], functions: frozenset[str]) -> None:
    """Check that no function of the client's has the name of an offered tool. Raises GatewayError (invalid_field)."""
    for tool in tools if functions else ():
        if (function := tool.find_function(functions)) is None:
            continue
        what = f"the tools of {offer.label!r}, which does not run now" if tool.is_head else f"the tool {tool.name!r}"
        raise _build_offer_error(
            offer,
            "allowed_tools",
            f"{offer.place} offers {what}, and the function {function!r} of the request has such a tool's name to a "
            "model: rename the function, or name other tools in 'allowed_tools'.",
        )


def _get_callable_tools(offer: RequestedTools, service: Service | None, catalog: Catalog) -> list[_Tool]:
    """Return the tools that the model may call. Raises GatewayError (invalid_field)."""
    if offer.names is not None:
        return _find_named_tools(offer, offer.names, service, catalog, "allowed_tools")
    if service is not None and not service.running:
        # Which tools it has is not known, and so not which are left.
        return [] if offer.excluded else [_Tool(f"{service.name}.", is_head=True)]
    known = _map_inside_names(service, catalog)
    return [_Tool(inside) for name, inside in known.items() if name not in offer.excluded]


def _get_approval_tools(offer: RequestedTools, service: Service | None, catalog: Catalog) -> list[_Tool]:
    """Return the tools whose calls need an approval. Raises GatewayError (invalid_field)."""
    return _find_named_tools(offer, offer.asks or (), service, catalog, "require_approval")


def _find_named_tools(
    offer: RequestedTools, names: Sequence[str], service: Service | None, catalog: Catalog, field: str
) -> list[_Tool]:
    """Return the tools with these names. Raises GatewayError (invalid_field) for an unknown name."""
    if service is not None and not service.running:
        return [_Tool(f"{service.name}.{name}") for name in names]
    known = _map_inside_names(service, catalog)
    for name in names:
        if name not in known:
            text = format_unknown_name(f"tool of {offer.label!r} named", name, known, place=f"{offer.place}.{field}")
            raise _build_offer_error(offer, field, text)
    return [_Tool(known[name]) for name in names]


def _map_inside_names(service: Service | None, catalog: Catalog) -> dict[str, str]:
    """Return the inside names of a running service's tools, or of the gateway's own tools, by their short names."""
    own = catalog.list_own_names()
    if service is None:
        return {name: name for name in own}
    taken = frozenset(own)
    inside = ((tool, f"{service.name}.{tool}") for tool in service.tools)
    return {tool: name for tool, name in inside if name not in taken}


def _build_offer_error(offer: RequestedTools, field: str, text: str) -> GatewayError:
    return GatewayError("invalid_field", text, param=f"{offer.place}.{field}")


def _normalize_url(url: str) -> bytes:
    return url.rstrip("/").encode("utf-8", "surrogatepass")
