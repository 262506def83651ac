"""Our tools in the words of the API, beside those that a client brought."""

from dataclasses import replace

import orjson

from gateway.contracts.exchange import Intent
from gateway.contracts.risk import build_schema
from gateway.contracts.storage.store import Json
from gateway.tools.catalog import Catalog, ConfiguredSource, load_catalog
from gateway.tools.openai_tools import DESCRIPTION_CHARS, build_native_tools

from .doubles import Source, exchange, spec
from .managed import Managed

SCHEMA: Json = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


async def catalog(*sources: Source) -> Catalog:
    return await load_catalog({f"s{i}": ConfiguredSource(source) for i, source in enumerate(sources)})


async def test_native_tool_gets_an_optional_risk_level_parameter() -> None:
    """Which is not required, and not kept: the tool's own schema stays as it is."""
    look = spec(parameters=SCHEMA)
    before = orjson.dumps(look.parameters)
    (told,) = build_native_tools(await catalog(Source(look)), exchange(), besides=())
    assert told == {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Does look.",
            "parameters": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "risk_level": build_schema()},
                "required": ["x"],
            },
        },
    }
    assert orjson.dumps(look.parameters) == before


async def test_tool_without_parameters_gets_only_risk_level() -> None:
    """Whatever its schema says of none."""
    for parameters in (
        {"type": "object"},
        {"type": "object", "properties": {}},
        {"type": "object", "properties": None},
    ):
        (told,) = build_native_tools(await catalog(Source(spec(parameters=parameters))), exchange(), besides=())
        assert told["function"]["parameters"] == {"type": "object", "properties": {"risk_level": build_schema()}}


async def test_tool_with_its_own_risk_level_keeps_it() -> None:
    """It means what the tool says."""
    own: Json = {"type": "object", "properties": {"risk_level": {"type": "number"}}}
    (told,) = build_native_tools(await catalog(Source(spec(parameters=own))), exchange(), besides=())
    assert told["function"]["parameters"] == own


async def test_client_tool_overrides_a_gateway_tool_of_the_same_name() -> None:
    """Ours is left out; so is what this request does not offer."""
    made = await catalog(Source(spec("look"), spec("peek")), Source(spec("read")))

    def names(*only: str, besides: tuple[str, ...] = ()) -> list[str]:
        return [told["function"]["name"] for told in build_native_tools(made, exchange(*only), besides=besides)]

    assert sorted(names()) == ["look", "peek", "read"]
    assert sorted(names(besides=("peek", "other"))) == ["look", "read"]
    assert names("re*") == ["read"] and names("nothing") == []


async def test_service_tools_are_listed_once() -> None:
    """Whole if the request names the service; without their schema if only the user's message is about them."""
    service = Managed("time")
    service.becomes("running", look="1")
    made = await load_catalog({}, further=lambda: [ConfiguredSource(service, untrusted=True)])
    meant = replace(exchange(), intent=Intent("mcp", "explicit:service", None, "time", ("time.look",)))
    both = replace(meant, steering=replace(meant.steering, services=("time",)))
    for asked in (meant, both):
        (told,) = build_native_tools(made, asked, besides=())
        assert told["function"]["name"] == "time__look"
    assert build_native_tools(made, replace(both, steering=replace(both.steering, no_tools=True)), besides=()) == []


async def test_long_service_tool_description_is_cut() -> None:
    """Of a service's tool, that only the user's message is about: each request would pay for it."""
    service = Managed("time")
    service.becomes("running", look="1")
    service.find_spec = lambda tool: spec(tool, untrusted=True, description="word " * 3000)  # type: ignore[method-assign]
    made = await load_catalog({}, further=lambda: [ConfiguredSource(service, untrusted=True)])
    meant = replace(exchange(), intent=Intent("mcp", "explicit:service", None, "time", ("time.look",)))
    (told,) = build_native_tools(made, meant, besides=())
    assert len(told["function"]["description"]) <= DESCRIPTION_CHARS + 1
    assert told["function"]["description"].endswith("word…")
