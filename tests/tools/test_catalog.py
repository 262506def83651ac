"""The catalog of tools: one name each, towards the model too, narrowed by the request and never widened."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.contracts.exchange import Exchange, Intent
from gateway.contracts.tools import Service, ServiceSource, ToolSpec
from gateway.tools.catalog import Catalog, CatalogError, ConfiguredSource, load_catalog

from .doubles import Source, exchange, spec
from .managed import Managed


async def catalog(*names: str) -> Catalog:
    return await load_catalog({f"s{i}": ConfiguredSource(Source(spec(name))) for i, name in enumerate(names)})


async def test_tools_are_offered_in_the_order_of_the_configuration() -> None:
    """All of them, each as its source describes it."""
    tools = await load_catalog(
        {"one": ConfiguredSource(Source(spec("b"), spec("a", priority=3))), "two": ConfiguredSource(Source(spec("c")))}
    )
    assert [tool.name for tool in tools.get_offered(exchange())] == ["b", "a", "c"]
    assert tools.get_offered(exchange())[1] == spec("a", priority=3)
    assert not tools.list_services()


@pytest.mark.parametrize("only", [(), ("read_*",)])
async def test_tools_are_not_copied_for_a_request(only: tuple[str, ...]) -> None:
    """There may be a thousand of them."""
    tools = await catalog("read_file", "read_mail", "now")
    first, second = tools.get_offered(exchange(*only)), tools.get_offered(exchange(*only))
    assert first and [id(tool) for tool in first] == [id(tool) for tool in second]


async def test_operator_flags_add_to_tool_flags() -> None:
    """They never take anything back: no definition makes itself trusted, no configuration loses a tool's caution."""
    tools = await load_catalog(
        {
            "plain": ConfiguredSource(Source(spec("plain"))),
            "asked": ConfiguredSource(Source(spec("asked")), requires_approval=True, untrusted=True),
            "wary": ConfiguredSource(Source(spec("wary", requires_approval=True, untrusted=True))),
        }
    )
    flags = {tool.name: (tool.requires_approval, tool.untrusted) for tool in tools.get_offered(exchange())}
    assert flags == {"plain": (False, False), "asked": (True, True), "wary": (True, True)}


@pytest.mark.parametrize(
    ("only", "offered"),
    [
        ((), ["read_file", "read_mail", "now"]),
        (("now",), ["now"]),
        (("read_*",), ["read_file", "read_mail"]),
        (("read_*", "now"), ["read_file", "read_mail", "now"]),
        (("NOW",), []),
        (("",), []),
        (("nope",), []),
    ],
)
async def test_a_request_narrows_the_tools(only: tuple[str, ...], offered: list[str]) -> None:
    """By names and globs; what is not offered cannot be found either."""
    tools = await catalog("read_file", "read_mail", "now")
    asked = exchange(*only)
    assert [tool.name for tool in tools.get_offered(asked)] == offered
    found = [name for name in ("read_file", "read_mail", "now") if tools.find(name, asked)]
    assert found == offered


async def test_tool_is_found_by_model_name_and_own_name() -> None:
    """`service.tool` is `service__tool` towards models; globs are about its own name."""
    tools = await catalog("files.read", "now")
    assert [tool.name for tool in tools.get_offered(exchange("files.*"))] == ["files__read"]
    for name in ("files__read", "files.read"):
        entry = tools.find(name, exchange())
        assert entry is not None
        assert (entry.spec.name, entry.model_name) == ("files.read", "files__read")
    assert tools.find("files_read", exchange()) is None


async def test_nearest_names_include_only_offered_tools() -> None:
    """As the model writes them; a hint names no tool that the request ruled out."""
    tools = await catalog("read_file", "read_files", "now")
    assert tools.find_nearest("read_fil", exchange()) == ["read_file", "read_files"]
    assert tools.find_nearest("read_fil", exchange("now")) == []
    assert tools.find_nearest("zzzz", exchange()) == []


@pytest.mark.parametrize(("one", "other"), [("a", "a"), ("a.b", "a__b")])
async def test_two_tools_with_one_name_are_refused(one: str, other: str) -> None:
    """The text says where: a call must lead to one tool only."""
    with pytest.raises(CatalogError, match=r"tools\.s1: there is another tool named"):
        await catalog(one, other)


async def test_a_tool_without_a_name_is_refused() -> None:
    """Nobody could call it."""
    with pytest.raises(CatalogError, match=r"tools\.s0: a tool has no name"):
        await catalog("")


async def test_catalog_version_changes_with_any_definition() -> None:
    """And with nothing else: what is cached by it stays right."""
    same = [await catalog("a", "b") for _ in range(2)]
    assert same[0].version == same[1].version
    changed = ({"description": "x"}, {"parameters": {"type": "object", "required": ["x"]}}, {"untrusted": True})
    others = [await load_catalog({"s": ConfiguredSource(Source(spec("a", **facts), spec("b")))}) for facts in changed]
    others += [await catalog("a"), await catalog("b", "a")]
    versions = {one.version for one in (same[0], *others)}
    assert len(versions) == 1 + len(others)


async def test_each_source_is_listed_once() -> None:
    """However many tools it has: whoever closes them closes each once."""
    source = Source(spec("a"), spec("b"))
    tools = await load_catalog({"s": ConfiguredSource(source), "t": ConfiguredSource(Source(spec("c")))})
    assert [type(one) for one in tools.sources] == [Source, Source]
    assert tools.sources[0] is source
    assert not Catalog(()).sources


# Services that come and go.


def running(name: str, *tools: str) -> Managed:
    service = Managed(name)
    service.becomes("running", **dict.fromkeys(tools, "1"))
    return service


class Come:
    """The services that there are just now."""

    def __init__(self, *services: Managed) -> None:
        self.now = list(services)

    def __call__(self) -> Sequence[ConfiguredSource[ServiceSource]]:
        return [ConfiguredSource(service, untrusted=True) for service in self.now]


async def test_services_can_be_added_and_removed_at_runtime() -> None:
    """Without another catalog; their tools are found as long as they run, and never offered."""
    come = Come()
    tools = await load_catalog({"s": ConfiguredSource(Source(spec("now")))}, further=come)
    assert not tools.list_services() and tools.find("time__look", exchange()) is None
    come.now.append(running("time", "look"))
    entry = tools.find("time__look", exchange())
    assert entry is not None and (entry.spec.name, entry.spec.untrusted, entry.changed) == ("time.look", True, False)
    assert [one.name for one in tools.list_services()] == ["time"] and tools.find_by_name("time.look") == entry
    assert [one.name for one in tools.get_offered(exchange())] == ["now"]
    come.now[0].becomes("stopped")
    assert tools.find_by_name("time.look") is None and tools.find_stopped_service("time__look") == "time"
    come.now.clear()
    assert not tools.list_services() and tools.find_stopped_service("time__look") is None
    assert len(tools.sources) == 1


class Counted(Managed):
    """Counts how often its facts are read."""

    reads = 0

    def get_service(self) -> Service:
        self.reads += 1
        return super().get_service()


async def test_service_list_is_read_once_until_it_changes() -> None:
    """However often a request asks for them; a change is another sequence."""
    service = Counted("time")
    service.becomes("running", look="1")
    now = [ConfiguredSource(service, untrusted=True)]
    tools = Catalog((), further=lambda: now)
    for _ in range(9):
        assert (
            tools.find_by_name("time.look") is not None
            and tools.list_services()
            and tools.find_stopped_service("time.look") is None
        )
    assert service.reads == 1
    service.becomes("running", look="1", listen="2")
    now = [*now]
    assert tools.find_by_name("time.listen") is not None and service.reads == 2


async def test_ended_service_is_detected_before_it_reports() -> None:
    """A call of it finds that out, and the next question gets the truth."""
    service = running("time", "look")
    now = [ConfiguredSource(service, untrusted=True)]
    tools = Catalog((), further=lambda: now)
    assert tools.find_by_name("time.look") is not None
    service.state = "stopped"
    assert tools.find_by_name("time.look") is None and tools.find_stopped_service("time.look") == "time"


class Steady(Managed):
    """Has one definition, the same object until it changes."""

    looks = spec("look", untrusted=True)

    def find_spec(self, tool: str) -> ToolSpec | None:
        return self.looks if tool in self.list_definitions() else None


async def test_service_tool_entry_is_built_once_per_definition() -> None:
    """However often a call is looked at; a definition that has changed counts at once, reported or not."""
    service = Steady("time")
    service.becomes("running", look="1")
    now = [ConfiguredSource(service, untrusted=True)]
    tools = Catalog((), further=lambda: now)
    first = tools.find("time__look", exchange())
    assert first is not None and tools.find_by_name("time.look") is first
    service.looks = spec("look", untrusted=True, requires_approval=True)
    second = tools.find("time__look", exchange())
    assert second is not None and second.spec.requires_approval and not first.spec.requires_approval


async def test_changed_service_tool_definition_is_flagged() -> None:
    """From the service itself."""
    service = running("time", "look", "listen")
    service.accept({"look": "other", "listen": "1"})
    tools = Catalog((), further=Come(service))
    changed = {name: entry.changed for name in ("look", "listen") if (entry := tools.find_by_name(f"time.{name}"))}
    assert changed == {"look": True, "listen": False}


async def test_changed_definition_hides_its_description_from_models() -> None:
    """Its text is a stranger's until somebody accepts it."""
    service = running("time", "look", "listen")
    service.accept({"look": "other", "listen": "1"})
    asks = replace(exchange(), intent=Intent("mcp", "explicit:service", None, "time", ("time.look", "time.listen")))
    look, listen = Catalog((), further=Come(service)).get_intended(asks)
    assert "has changed" in look.description and "has changed" not in listen.description


async def test_services_named_by_a_request_are_offered() -> None:
    """Whole, behind ours; as far as they run and the request allows their tools."""
    git = running("git", "log", "push")
    further = Come(running("time", "look", "listen"), git, running("other", "x"))
    tools = await load_catalog({"s": ConfiguredSource(Source(spec("now"), spec("git.log")))}, further=further)

    def names(*services: str, only: tuple[str, ...] = ()) -> list[str]:
        return [
            tool.name
            for tool in tools.get_offered(
                replace(exchange(*only), steering=replace(exchange(*only).steering, services=services))
            )
        ]

    assert names("git", "time") == ["now", "git__log", "git__push", "time__look", "time__listen"]
    assert names("time", only=("time.look", "git.*")) == ["git__log", "time__look"]
    assert tools.get_offered(replace(exchange(), steering=replace(exchange().steering, services=("time",))))[
        -1
    ].parameters == {"type": "object"}
    git.becomes("stopped")
    assert names("git", "gone") == ["now", "git__log"]


async def test_offered_service_tools_are_not_copied_per_request() -> None:
    """As long as no service changes."""
    service = running("time", "look", "listen")
    now = [ConfiguredSource(service, untrusted=True)]
    tools = Catalog((), further=lambda: now)
    asked = replace(exchange(), steering=replace(exchange().steering, services=("time",)))
    first, second = tools.get_offered(asked), tools.get_offered(asked)
    assert first and [id(tool) for tool in first] == [id(tool) for tool in second]
    service.becomes("running", look="2")
    now = [*now]
    assert [tool.name for tool in tools.get_offered(asked)] == ["time__look"]


async def test_request_without_tools_is_offered_none() -> None:
    """None is offered, found or named as the nearest."""
    tools = await load_catalog({"s": ConfiguredSource(Source(spec("now")))}, further=Come(running("time", "look")))
    none = replace(exchange(), steering=replace(exchange().steering, no_tools=True, services=("time",)))
    assert not tools.get_offered(none) and not tools.get_entries(none) and tools.find_nearest("nox", none) == []
    assert tools.find("now", none) is None and tools.find("time.look", none) is None
    intended = replace(none, intent=Intent("mcp", "explicit:service", None, "time", ("time.look",)))
    assert not tools.get_intended(intended)


async def test_offered_tools_are_listed_by_internal_name() -> None:
    """With its service; a definition that nobody accepted says nothing here either."""
    service = running("time", "look", "listen")
    service.accept({"look": "other", "listen": "1"})
    tools = await load_catalog({"s": ConfiguredSource(Source(spec("a.now")))}, further=Come(service))
    listed = tools.get_entries(replace(exchange(), steering=replace(exchange().steering, services=("time",))))
    assert [(entry.spec.name, entry.service and entry.service.name) for entry in listed] == [
        ("a.now", None),
        ("time.look", "time"),
        ("time.listen", "time"),
    ]
    assert "has changed" in listed[1].spec.description and "has changed" not in listed[2].spec.description


async def test_service_of_a_tool_is_its_longest_name_prefix() -> None:
    """Inside or towards models, running or not; the longest name counts, and ours are of none."""
    stopped = running("my", "x")
    stopped.becomes("stopped")
    further = Come(running("my.server", "a.b"), stopped)
    tools = await load_catalog({"s": ConfiguredSource(Source(spec("my.own")))}, further=further)
    of = {
        name: tools.find_service_name(name)
        for name in ("my.server.a.b", "my__server__a__b", "my.x", "my.own", "my__own", "z")
    }
    assert list(of.values()) == ["my.server", "my.server", "my", None, None, None]
    assert tools.list_own_names() == ["my.own"]


async def test_nearest_tool_name_includes_service_tools() -> None:
    """With its prefix or without; what does not run, or is not offered, is not named."""
    tools = Catalog((), further=Come(running("weather", "get_weather", "x"), running("my.server", "a.b")))
    for wanted in ("get_weather", "weather.get_wether", "weather_get_weather", "other.get_weather"):
        assert tools.find_nearest(wanted, exchange())[0] == "weather__get_weather"
    assert tools.find_nearest("get_weather", exchange("none")) == []
    stopped = running("weather", "get_weather")
    stopped.becomes("stopped")
    assert Catalog((), further=Come(stopped)).find_nearest("get_weather", exchange()) == []


async def test_bare_tool_name_resolves_to_a_single_tool_in_the_prompt() -> None:
    """Several have it, or none that the prompt names: there is no such tool."""
    services = Come(running("weather", "look", "x"), running("time", "look", "now"), running("far", "away"))
    tools = Catalog((), further=services)

    def asked(*names: str, of: tuple[str, ...] = ()) -> Exchange:
        intent = Intent("mcp", "explicit:tool", None, None, names) if names else None
        return replace(exchange(), intent=intent, steering=replace(exchange().steering, services=of))

    def found(wanted: str, request: Exchange) -> str | None:
        entry = tools.find(wanted, request)
        return None if entry is None else entry.spec.name

    assert found("look", asked("weather.look", "time.now")) == "weather.look"
    assert found("look", asked(of=("time",))) == "time.look"
    assert found("now", asked("weather.look", of=("time",))) == "time.now"
    assert found("look", asked("weather.look", of=("time",))) is None
    assert found("away", asked("weather.look", of=("time",))) is None
    assert found("look", asked()) is None
    assert (
        found(
            "look",
            replace(asked("weather.look"), steering=replace(asked("weather.look").steering, only_tools=("time.*",))),
        )
        is None
    )
    assert (
        found(
            "look",
            replace(
                asked("weather.look", "time.look"),
                steering=replace(asked("weather.look", "time.look").steering, only_tools=("time.*",)),
            ),
        )
        == "time.look"
    )


async def test_dotted_tool_names_resolve_completely() -> None:
    """Where a service's name ends is known from its name."""
    tools = Catalog((), further=Come(running("my.server", "a.b"), running("my", "x")))
    for name in ("my.server.a.b", "my__server__a__b"):
        entry = tools.find(name, exchange())
        assert entry is not None and entry.spec.name == "my.server.a.b"
    assert tools.find("my.x", exchange()) is not None and tools.find("my.server", exchange()) is None


async def test_colliding_model_names_resolve_to_the_first_tool() -> None:
    """Tools of the configuration win, then the first service; what is in their shadow cannot be reached at all."""
    further = Come(running("a__b", "c"), running("a", "b__c", "d"), running("now", "x"), running("a", "e"))
    tools = await load_catalog({"s": ConfiguredSource(Source(spec("now__x"), spec("a.d")))}, further=further)
    for wanted, inside in (("a__b__c", "a__b.c"), ("now__x", "now__x"), ("a__d", "a.d")):
        entry = tools.find(wanted, exchange())
        assert entry is not None and entry.spec.name == inside
    for shadowed in ("a.b__c", "now.x", "a.e"):
        assert tools.find_by_name(shadowed) is None
    assert [one.name for one in tools.list_services()] == ["a__b", "a", "now"]
    assert type(tools.find_by_name("a.d").source) is Source  # type: ignore[union-attr]


async def test_configured_sources_take_precedence_over_services() -> None:
    """They are this catalog's own: it is asked who is to be closed."""
    own, other = running("time", "look"), running("time", "listen")
    tools = await load_catalog({"s": ConfiguredSource(own)}, further=Come(other))
    assert tools.find_by_name("time.look") is not None and tools.find_by_name("time.listen") is None
    assert tools.sources == [own]


async def test_companion_tools_are_offered_only_with_services() -> None:
    """And known by another version, so that no prompt without them is taken for one with them."""
    come = Come()
    tools = await load_catalog({}, further=come, beside={"r": ConfiguredSource(Source(spec("read")))})
    without = tools.version
    assert not tools.get_offered(exchange()) and tools.find("read", exchange()) is not None
    come.now.append(running("time"))
    assert [one.name for one in tools.get_offered(exchange())] == ["read"] and tools.version != without
    come.now.append(running("git"))
    assert tools.version == (await catalog("read")).version


# Names that imitate others.


@pytest.mark.parametrize(
    ("service", "tool", "other"),
    [
        ("demo", "note", "demo_note"),  # built in, whether it is on or not
        ("find", "tools", "find_tools"),
        ("read", "f1le", "read_file"),
        ("re\u0430d", "file", "read_file"),
        ("bo", "x.delete", "box.delete"),
        ("BOX", "Delete", "box.delete"),
    ],
)
async def test_service_tool_with_a_lookalike_name_is_left_out(
    caplog: pytest.LogCaptureFixture, service: str, tool: str, other: str
) -> None:
    """Of the gateway, of the operator, or of an earlier service; the log says so once."""
    box, odd = running("box", "delete", "list"), running(service, tool, "fine")
    come = Come(box, odd)
    tools = await load_catalog({"s": ConfiguredSource(Source(spec("read_file")))}, further=come)
    for _ in range(2):
        assert tools.find_by_name(f"{service}.{tool}") is None and tools.find_by_name(f"{service}.fine") is not None
        assert f"{service}.{tool}" not in tools.list_names() and f"{service}.{tool}" not in tools.list_callable_tools()
        assert list(tools.list_services()[1].tools) == ["fine"]
    assert caplog.messages == [
        f"service {service!r}: the tool {tool!r} is left out: its name imitates that of the tool {other!r}"
    ]


@pytest.mark.parametrize("service", ["time", "my box", "a.b", "时间", "x" * 60])
async def test_service_of_a_tool_is_known_before_the_service_runs(service: str) -> None:
    """By the name that models have for its tools once it runs, whatever the service is called."""
    one = running(service, "look")
    tools = Catalog((), further=Come(one))
    (towards,) = tools.list_callable_tools().values()
    one.becomes("starting")
    assert tools.find_stopped_service(towards) == service and tools.is_starting(towards)
    assert tools.find_service_name(towards) == service and tools.find_service_name(f"{service}.look") == service
