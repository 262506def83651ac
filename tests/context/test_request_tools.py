"""The tools that a request names: narrowed and tightened, refused where a name means nothing, and connected nowhere."""

from dataclasses import replace

import pytest

from gateway.context.request_tools import NO_WISHES, Addresses, apply_wishes
from gateway.contracts.caller import Caller
from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange
from gateway.dialects.chat_request import may_call_tools
from gateway.dialects.dialect import RequestedTools, Wishes
from gateway.tools.catalog import Catalog, ConfiguredSource, load_catalog
from tests.tools.doubles import Source, spec
from tests.tools.managed import Managed

ASKED = Exchange(id="run_1", body={"messages": []}, caller=Caller("c", "t", frozenset()), chain="main")
URLS = {"time": "https://time.example/mcp?token=1"}
ADDRESSES = Addresses(service=URLS.get, host="gw.example:8443")


async def catalog() -> Catalog:
    """Our tools `now`, `page` (untrusted) and `git.log`; the services `time`, `git`, and `mail`, which is stopped."""
    services = []
    for name, tools in (("time", ("look", "odd[1]")), ("git", ("log", "push")), ("mail", ("send",))):
        service = Managed(name)
        service.becomes("running" if name != "mail" else "stopped", **dict.fromkeys(tools, "1"))
        services.append(ConfiguredSource(service, untrusted=True))
    ours = Source(spec("now"), spec("page", untrusted=True), spec("git.log"))
    return await load_catalog({"s": ConfiguredSource(ours)}, further=lambda: services)


def offer(label: str, place: str = "tools[0]", **facts: object) -> RequestedTools:
    return RequestedTools(label=label, place=place, **facts)  # type: ignore[arg-type]


async def wished(*offers: RequestedTools, only: tuple[str, ...] = (), **wishes: object) -> Exchange:
    """Return the exchange of a request with these offers and wishes, and `X-Context-Tools`."""
    asked = Wishes(offers=offers, **wishes)  # type: ignore[arg-type]
    return apply_wishes(
        replace(ASKED, steering=replace(ASKED.steering, only_tools=only)),
        asked,
        catalog=await catalog(),
        addresses=ADDRESSES,
    )


async def refused(*offers: RequestedTools) -> tuple[str | None, str]:
    with pytest.raises(GatewayError) as error:
        await wished(*offers)
    assert error.value.code == "invalid_field"
    return error.value.param, error.value.message


# What may be called.


@pytest.mark.parametrize(
    ("facts", "only", "services"),
    [
        ({"label": "gateway"}, ("now", "page", "git.log"), ()),
        ({"label": "gateway", "names": ("now",)}, ("now",), ()),
        ({"label": "time"}, ("time.look", "time.odd[[]1]"), ("time",)),
        ({"label": "time", "names": ("odd[1]",)}, ("time.odd[[]1]",), ("time",)),
        ({"label": "git"}, ("git.push",), ("git",)),
        ({"label": "gateway", "excluded": ("page",)}, ("now", "git.log"), ()),
        ({"label": "mail"}, ("mail.*",), ("mail",)),
        ({"label": "mail", "names": ("send", "any")}, ("mail.send", "mail.any"), ("mail",)),
    ],
)
async def test_offer_selects_tools_of_a_service_or_the_gateway(
    facts: dict[str, object], only: tuple[str, ...], services: tuple[str, ...]
) -> None:
    """By their exact names; of a service that does not run, whichever it has. A tool of ours is none of a service."""
    found = await wished(offer(**facts))  # type: ignore[arg-type]
    assert (
        found.steering.only_tools,
        found.steering.services,
        found.steering.no_tools,
        found.delivery.shows_calls,
    ) == (only, services, False, True)


async def test_excluded_tools_of_a_service_that_does_not_run_leave_none() -> None:
    """The gateway does not know the other tools of the service."""
    found = await wished(offer("mail", excluded=("send",)))
    assert found.steering.no_tools and found.steering.only_tools == ()


async def test_refusal_names_the_fields_of_its_api() -> None:
    """As the dialect calls them."""
    odd = offer("git2", "mcp_servers[0]", url="https://x", label_field="name", url_field="url")
    assert (await refused(odd))[0] == "mcp_servers[0].name"
    assert (await refused(replace(odd, label="time")))[0] == "mcp_servers[0].url"


async def test_question_may_be_a_text_although_calls_are_shown() -> None:
    """Where the client's API has nothing else for it."""
    delivery = (await wished(offer("gateway"), asks_in_text=True)).delivery
    assert delivery.shows_calls and not delivery.asks_with_events
    assert (await wished(offer("gateway"))).delivery.asks_with_events


async def test_tool_offers_of_a_request_are_combined_in_order() -> None:
    """In the order of the request."""
    found = await wished(offer("time", names=("look",)), offer("gateway", "tools[1]", names=("now",)))
    assert (found.steering.only_tools, found.steering.services) == (("time.look", "now"), ("time",))


@pytest.mark.parametrize("offers", [(), (offer("time", names=()),), (offer("gateway", names=()),)])
async def test_empty_offer_disables_all_tools(offers: tuple[RequestedTools, ...]) -> None:
    """And not all of them."""
    found = await wished(*offers)
    assert found.steering.no_tools and found.delivery.shows_calls and not found.steering.only_tools


@pytest.mark.parametrize(
    ("only", "label", "left"),
    [
        (("time.*",), "time", ("time.look", "time.odd[[]1]")),
        (("*.look", "now"), "time", ("time.look",)),
        (("now",), "time", ()),
        (("mail.send", "now"), "mail", ("mail.send",)),
        (("mail.s*",), "mail", ("mail.s*",)),
        (("*",), "mail", ("mail.*",)),
        (("ma*",), "mail", ("mail.*",)),
        (("*d",), "mail", ()),
    ],
)
async def test_only_tools_header_intersects_with_tool_offers(
    only: tuple[str, ...], label: str, left: tuple[str, ...]
) -> None:
    """What both name may be called; what cannot be known to be named by both may not."""
    found = await wished(offer(label), only=only)
    assert (found.steering.only_tools, found.steering.no_tools) == (left, not left)


# Who is asked.


@pytest.mark.parametrize(
    ("facts", "asked"),
    [
        ({"label": "time"}, ()),
        ({"label": "time", "asks": ()}, ("time.look", "time.odd[[]1]")),
        ({"label": "time", "asks": (), "names": ("look",)}, ("time.look",)),
        ({"label": "time", "asks": ("look",)}, ("time.look",)),
        ({"label": "mail", "asks": ()}, ("mail.*",)),
        ({"label": "mail", "asks": ("send",)}, ("mail.send",)),
        ({"label": "gateway", "asks": ("now",)}, ("now",)),
    ],
)
async def test_tool_offer_may_require_approval_for_all_or_some_tools(
    facts: dict[str, object], asked: tuple[str, ...]
) -> None:
    """For all of its tools, or for some."""
    assert (await wished(offer(**facts))).steering.ask_first == asked  # type: ignore[arg-type]


# What is refused.


async def test_unknown_name_in_a_tool_offer_is_refused_with_suggestions() -> None:
    """With its place, the nearest name, and the names that there are."""
    param, text = await refused(offer("tmie", "tools[3]"))
    assert param == "tools[3].server_label" and "'time'?" in text and "gateway, git, mail, time" in text
    param, text = await refused(offer("time", names=("look", "lok")))
    assert param == "tools[0].allowed_tools" and "'look'?" in text and "odd[1]" in text
    param, text = await refused(offer("gateway", asks=("nwo",)))
    assert param == "tools[0].require_approval" and "'now'?" in text
    param, text = await refused(offer("git", names=("log",)))
    assert param == "tools[0].allowed_tools" and text.endswith("There are: push.")


async def test_service_offered_twice_is_refused() -> None:
    """Else nobody knew which of the two narrows."""
    param, text = await refused(offer("time"), offer("time", "tools[1]", names=("look",)))
    assert param == "tools[1].server_label" and "once more" in text


@pytest.mark.parametrize("url", [URLS["time"], URLS["time"] + "/", "https://gw.example:8443/mcp"])
async def test_server_url_of_the_service_or_the_gateway_is_accepted(url: str) -> None:
    """It changes nothing."""
    assert await wished(offer("time", url=url)) == await wished(offer("time"))


@pytest.mark.parametrize(
    ("label", "url"),
    [
        ("time", "https://time.example/mcp"),
        ("time", "***"),
        ("time", "https://evil.example/mcp"),
        ("time", "https://gw.example/mcp"),
        ("time", "https://gw.example:8443@evil.example/"),
        ("time", "http://[::1"),
        ("time", "file://gw.example:8443/etc"),
        ("time", "\ud800"),
        ("git", URLS["time"]),
        ("gateway", URLS["time"]),
    ],
)
async def test_unknown_server_url_is_refused_without_revealing_the_configured_url(label: str, url: str) -> None:
    """And the operator's is not told."""
    param, text = await refused(offer(label, url=url))
    assert param == "tools[0].server_url" and "token" not in text


async def test_an_unknown_service_with_an_address_is_not_connected_to() -> None:
    """The text says so."""
    param, text = await refused(offer("new", url="https://evil.example/mcp"))
    assert param == "tools[0].server_label" and "connects to no address" in text


async def test_json_response_format_allows_only_offered_tools() -> None:
    """The tools that the request names run, and no others."""
    json = replace(ASKED, body={"messages": [], "response_format": {"type": "json_object"}})
    assert apply_wishes(json, Wishes(offers=()), catalog=await catalog(), addresses=ADDRESSES).steering.no_tools
    named = apply_wishes(json, Wishes(offers=(offer("time"),)), catalog=await catalog(), addresses=ADDRESSES)
    assert may_call_tools(named) and not may_call_tools(json)


# Other wishes.


async def test_request_wishes_are_applied_to_the_exchange() -> None:
    """Without offers, calls stay hidden and all tools are there."""
    wishes = Wishes(max_tool_calls=2, tainted=True, background=True, notes=("Be brief.",), no_tools=True)
    found = apply_wishes(ASKED, wishes, catalog=await catalog(), addresses=ADDRESSES)
    assert found == replace(
        ASKED,
        steering=replace(ASKED.steering, max_tool_calls=2, no_tools=True),
        execution=replace(ASKED.execution, tainted=True),
        delivery=replace(ASKED.delivery, background=True),
        notes=("Be brief.",),
    )
    assert apply_wishes(ASKED, NO_WISHES, catalog=await catalog(), addresses=ADDRESSES) == ASKED
    none = await wished(offer("time"), no_tools=True)
    assert none.steering.no_tools and none.steering.only_tools


@pytest.mark.parametrize(
    ("results", "tainted"),
    [
        ((), False),
        ((("gateway", "now"),), False),
        ((("gateway", "now"), ("gateway", "page")), True),
        ((("gateway", "read_result"),), True),
        ((("gateway", "gone"),), True),
        ((("time", "look"),), True),
        ((("now", "now"),), True),
    ],
)
async def test_result_from_an_untrusted_tool_taints_the_run(
    results: tuple[tuple[str, str], ...], tainted: bool
) -> None:
    """Those of services, of untrusted tools, and of tools that nobody knows."""
    found = apply_wishes(ASKED, Wishes(results=results), catalog=await catalog(), addresses=ADDRESSES)
    assert found.execution.tainted is tainted
