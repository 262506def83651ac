"""The prompt enhancer: what goes out in front of a request, what is kept, and what gives way when it is too large."""

import asyncio
import copy
import logging
from dataclasses import replace

import pytest
from enhancer_host import QUESTION, exchange, names_in, new_host, sent, stage, system, tool
from pydantic import ValidationError

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Exchange, Intent, Reply
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import ToolSpec
from gateway.plugins.stages.prompt_enhancer import Config
from gateway.plugins.stages.prompt_enhancer.mermaid import MERMAID
from gateway.plugins.stages.prompt_enhancer.tool_prompt import INSTRUCTIONS
from gateway.testing import FakeHost
from gateway.tools.catalog import ConfiguredSource, load_catalog
from tests.exchanges import changed
from tests.tools.doubles import Source
from tests.tools.managed import Managed


@pytest.fixture
def host() -> FakeHost:
    return new_host()


# What goes out.


async def test_context_mode_uses_enhanced_prompt(host: FakeHost) -> None:
    """All available tools as text, the calling convention in front of them, the base prompt before both."""
    text = await system(stage(host), exchange())
    assert text.startswith(f"You help.\n\n{INSTRUCTIONS}\n\n<tools")
    assert names_in(text) == ["read_file", "now"]


async def test_service_integrates_with_tool_registry(host: FakeHost) -> None:
    """It asks the registry, converts what it gets, grouped by category, and appends it to the base prompt."""
    host.tools.specs.append(tool("write_file", category="files"))
    text = await system(stage(host), exchange())
    assert names_in(text) == ["read_file", "write_file", "now"]
    assert text.index('<tools category="files">') < text.index("write_file") < text.index('<tools category="general">')


async def test_fetch_enhanced_prompt_for_chat(host: FakeHost) -> None:
    """The prompt that the request names, enhanced, is the system message; nothing else of the body changes."""
    request = exchange(prompt="other", body={"temperature": 0.5, "stream": True})
    before = copy.deepcopy(request.body)
    passed = await sent(stage(host), request)
    assert passed.body["messages"][0]["content"].startswith("You joke.\n\n# Tools")
    assert passed.body["messages"][1:] == before["messages"]
    assert {k: v for k, v in passed.body.items() if k != "messages"} == {
        "model": "m",
        "temperature": 0.5,
        "stream": True,
    }
    assert request.body == before
    assert replace(passed, body=request.body) == request


async def test_tool_definitions_are_backend_managed(host: FakeHost) -> None:
    """The client sends the id of a prompt and no tools; the model gets them all the same."""
    request = exchange(prompt="default")
    assert "tools" not in request.body
    assert names_in(await system(stage(host), request)) == ["read_file", "now"]


async def test_service_supports_multiple_enhancement_types(host: FakeHost) -> None:
    """Tools, Mermaid and custom context: each by its own switch, always in the same order, notes behind them all."""
    sections = {"tools": "# Tools", "mermaid": MERMAID, "custom_context": "Our house rules."}
    for tools in (True, False):
        for mermaid in (True, False):
            for context in (sections["custom_context"], None, ""):
                enhancer = stage(host, tools=tools, mermaid=mermaid, custom_context=context)
                text = await system(enhancer, exchange(notes=("The user is Ann.", "", "It rains.")))
                on = {"tools": tools, "mermaid": mermaid, "custom_context": bool(context)}
                assert {name: sections[name] in text for name in on} == on
                places = [text.index(sections[name]) for name, is_on in on.items() if is_on]
                assert places == sorted(places)
                assert text.startswith("You help.\n\n")
                assert text.endswith("\n\nThe user is Ann.\n\nIt rains.")


async def test_inject_mermaid_instructions(host: FakeHost) -> None:
    """Behind the tools."""
    text = await system(stage(host, mermaid=True), exchange())
    assert text.endswith("</tools>\n\n" + MERMAID)


async def test_mermaid_enhancement_is_optional(host: FakeHost) -> None:
    """And off unless it is switched on."""
    assert "mermaid" not in (await system(stage(host), exchange())).casefold()


async def test_client_system_messages_follow_the_gateway_prompt(host: FakeHost) -> None:
    """One system message: ours, a blank line, then theirs in their order, wherever they stood."""
    messages: list[Json] = [
        {"role": "developer", "content": "First."},
        QUESTION,
        {
            "role": "system",
            "content": [{"type": "text", "text": "Second,"}, {"type": "text", "text": "third."}, {"type": "x"}],
        },
        {"role": "assistant", "content": "Hi."},
        {"role": "system", "content": None},
    ]
    passed = await sent(stage(host, tools=False), exchange(*messages))
    assert passed.body["messages"] == [
        {"role": "system", "content": "You help.\n\nFirst.\n\nSecond,\nthird."},
        QUESTION,
        {"role": "assistant", "content": "Hi."},
    ]


async def test_request_without_a_base_prompt_still_gets_the_tools(host: FakeHost) -> None:
    """A request without a base prompt still gets the tools; with nothing to add it goes through untouched."""
    assert (await system(stage(host), exchange(prompt=None))).startswith(INSTRUCTIONS)
    request = exchange({"role": "system", "content": "Mine."}, QUESTION, prompt=None)
    assert (await sent(stage(host, tools=False), request)).body is request.body


async def test_request_without_tools_gets_no_tool_instructions(host: FakeHost) -> None:
    """A request to which no tools are offered hears nothing of calls."""
    assert await system(stage(host), exchange(only_tools=("none",))) == "You help."
    host.tools.specs = []
    host.tools.version = "2"
    assert await system(stage(host), exchange()) == "You help."


async def test_service_tools_require_the_tool_instructions(host: FakeHost) -> None:
    """Where the intent layer adds tools as notes, the model must know how to call them."""
    host.tools.specs = []
    intent = Intent("mcp", "keyword", service="time", tools=("time.now",))
    text = await system(stage(host), exchange(intent=intent, notes=("time__now: the time",)))
    assert text == f"You help.\n\n{INSTRUCTIONS}\n\ntime__now: the time"
    assert await system(stage(host), exchange()) == "You help."


@pytest.mark.parametrize(("wanted", "has_tools"), [("json_object", False), ("json_schema", False), ("text", True)])
async def test_json_response_format_omits_the_gateway_tools(host: FakeHost, wanted: str, has_tools: bool) -> None:
    """Calls as text and an answer in JSON exclude each other."""
    text = await system(stage(host), exchange(body={"response_format": {"type": wanted}}))
    assert bool(names_in(text)) is has_tools
    assert ("# Tools" in text) is has_tools


async def test_client_tool_takes_precedence_over_a_gateway_tool(host: FakeHost) -> None:
    """Ours of the same name is not mentioned to this request; all others are."""
    enhancer = stage(host)
    brought = {"tools": [{"type": "function", "function": {"name": "now"}}, {"type": "x"}, None]}
    assert names_in(await system(enhancer, exchange(body=brought))) == ["read_file"]
    assert names_in(await system(enhancer, exchange())) == ["read_file", "now"]


async def test_unknown_prompt_is_answered_with_prompt_not_found(host: FakeHost) -> None:
    """404, and the model is not called."""

    async def never(_: Exchange) -> Reply:
        raise AssertionError("called")

    with pytest.raises(GatewayError) as caught:
        await stage(host)(exchange(prompt="gone"), never)
    assert (caught.value.code, caught.value.param) == ("prompt_not_found", "x-context-prompt")


@pytest.mark.parametrize(
    "messages",
    [
        None,
        {},
        "text",
        [None, 5, "x", [], {}],
        [{"role": ["system"]}, {"role": "system"}, {"role": "system", "content": 5}],
        [{"role": "system", "content": [{"type": "text", "text": 5}, 7, None, {"type": "text"}]}],
        [{"role": "user", "content": [{"type": "image_url"}, None]}],
    ],
)
async def test_unusual_messages_cause_no_failure(host: FakeHost, messages: object) -> None:
    """Whatever is no system text stays; nothing fails, also when the question is looked for."""
    for options in ({}, {"max_tokens": 1}):
        passed = await sent(stage(host, **options), exchange(body={"messages": messages, "tools": messages}))
        assert passed.body["messages"][0]["role"] == "system"


# What is kept.


async def test_cache_enhanced_prompts(host: FakeHost) -> None:
    """Kept for the TTL, dropped at once when tools or prompts change; the counters tell."""
    enhancer = stage(host, cache_ttl="5m")
    first = await system(enhancer, exchange())
    assert await system(enhancer, exchange()) == first
    assert host.tools.n_asked == 1
    host.clock.advance(299.0)
    await system(enhancer, exchange())
    assert host.counters.counted[("prompt_cache_requests", "hit")] == 2
    host.clock.advance(1.0)
    await system(enhancer, exchange())
    assert host.counters.counted[("prompt_cache_requests", "miss")] == 2

    host.tools.specs.append(tool("extra"))
    host.tools.version = "2"
    assert names_in(await system(enhancer, exchange())) == ["read_file", "now", "extra"]
    host.prompts.texts["default"] = "You help more."
    host.prompts.version = 1
    assert (await system(enhancer, exchange())).startswith("You help more.")
    assert {k: v for k, v in host.counters.counted.items() if "invalidations" in k[0]} == {
        ("prompt_cache_invalidations", "tools"): 1,
        ("prompt_cache_invalidations", "prompts"): 1,
    }


async def test_changed_prompt_text_bypasses_the_cache(host: FakeHost) -> None:
    """What is kept belongs to the text it was made from."""
    enhancer = stage(host)
    await system(enhancer, exchange())
    host.prompts.texts["default"] = "Changed."
    assert (await system(enhancer, exchange())).startswith("Changed.")


async def test_concurrent_misses_compute_once(host: FakeHost) -> None:
    """A hundred requests at once convert the tools once."""
    enhancer = stage(host)
    host.prompts.gate.clear()
    waiting = [asyncio.create_task(system(enhancer, exchange())) for _ in range(100)]
    await asyncio.sleep(0)
    host.prompts.gate.set()
    assert len(set(await asyncio.gather(*waiting))) == 1
    assert host.tools.n_asked == 1
    assert host.counters.counted[("prompt_cache_requests", "miss")] == 1


async def test_cached_prompt_excludes_notes_and_tools_of_a_single_request(host: FakeHost) -> None:
    """Neither notes nor narrowed tools reach another request."""
    enhancer = stage(host)
    narrowed = await system(enhancer, exchange(only_tools=("now",), notes=("Secret of Ann.",)))
    assert names_in(narrowed) == ["now"]
    plain = await system(enhancer, exchange())
    assert names_in(plain) == ["read_file", "now"]
    assert "Ann" not in plain
    assert names_in(await system(enhancer, exchange(only_tools=("read_file",)))) == ["read_file"]
    assert host.counters.counted[("prompt_cache_requests", "miss")] == 3


async def test_cached_prompt_excludes_service_and_tool_choices_of_a_request(host: FakeHost) -> None:
    """Services that it names are in its prompt, with their parameters, and in no other; `no_tools` leaves none."""
    service = Managed("time")
    service.becomes("running", look="1")
    sources = {"s": ConfiguredSource(Source(*host.tools.specs))}
    host.tools = await load_catalog(sources, further=lambda: [ConfiguredSource(service)])  # type: ignore[assignment]
    enhancer = stage(host)
    plain = await system(enhancer, exchange())
    for named, offered in (("time", ["read_file", "now", "time__look"]), ("gone", ["read_file", "now"])):
        assert names_in(await system(enhancer, exchange(services=(named,)))) == offered
    assert await system(enhancer, exchange(no_tools=True)) == "You help."
    meant = Intent("mcp", "keyword:x", None, "time", ("time.look",))
    assert await system(enhancer, exchange(no_tools=True, intent=meant)) == "You help."
    assert "# Tools" not in await system(enhancer, exchange(only_tools=("gone",), intent=meant))
    assert names_in(plain) == ["read_file", "now"] and await system(enhancer, exchange()) == plain


async def test_a_selection_of_tools_is_converted_once(host: FakeHost) -> None:
    """As long as its tools are the same: one that changes is another one, whatever its name."""
    service = Managed("time")
    service.becomes("running", look="1")
    services = [ConfiguredSource(service)]
    sources = {"s": ConfiguredSource(Source(*host.tools.specs))}
    host.tools = await load_catalog(sources, further=lambda: services)  # type: ignore[assignment]
    enhancer = stage(host)
    asked = exchange(services=("time",), only_tools=("time.*", "now"))
    first = await system(enhancer, asked)
    assert names_in(first) == ["now", "time__look"]
    assert await system(enhancer, asked) == first and host.counters.counted[("prompt_cache_requests", "hit")] == 1
    assert names_in(await system(enhancer, changed(asked, only_tools=("time.*",)))) == ["time__look"]
    assert names_in(await system(enhancer, changed(asked, only_tools=("now",)))) == ["now"]
    service.accept({"look": "another"})
    services = [*services]
    assert "has changed" in await system(enhancer, asked)
    service.becomes("stopped")
    services = [*services]
    assert names_in(await system(enhancer, asked)) == ["now"]


async def test_full_prompt_cache_evicts_its_oldest_entry(host: FakeHost) -> None:
    """The oldest gives way."""
    enhancer = stage(host, cache_size=1)
    for prompt in ("default", "other", "default"):
        await system(enhancer, exchange(prompt=prompt))
    assert host.counters.counted[("prompt_cache_requests", "miss")] == 3


async def test_enhance_prompt_returns_the_cached_text_and_its_age(host: FakeHost) -> None:
    """The part that is kept, ready to send, and for how long it still holds; None for an unknown prompt."""
    enhancer = stage(host, cache_ttl=100, custom_context="Rules.")
    text = await system(enhancer, exchange(notes=("Note.",)))
    host.clock.advance(30.0)
    shown = await enhancer.enhance_prompt("default", tenant="local")
    assert shown is not None
    assert (shown.text + "\n\nNote.", shown.max_age_s, shown.omitted) == (text, 70.0, ())
    assert await enhancer.enhance_prompt("gone", tenant="local") is None
    assert host.counters.counted[("prompt_cache_requests", "hit")] == 1


# What gives way.


def crowd(count: int) -> list[ToolSpec]:
    """Tools of about 200 tokens each, which a shortened description makes about half."""
    return [tool(f"tool_{i}", f"Handles topic{i} matters. " + "More about it. " * 25) for i in range(count)]


async def test_prompt_over_max_tokens_drops_the_least_relevant_tools_whole(
    host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    """Over the threshold: instructions stay, descriptions are shortened, then the least relevant tools go, whole."""
    host.tools.specs = crowd(40)
    enhancer = stage(host, max_tokens=3000)
    with caplog.at_level(logging.WARNING, "gateway"):
        text = await system(enhancer, exchange({"role": "user", "content": "What about topic33?"}))
    assert len(text.encode()) <= 3000 * 4
    assert text.startswith(f"You help.\n\n{INSTRUCTIONS}\n\n")
    kept = names_in(text)
    assert 5 < len(kept) < 40
    assert kept == sorted(kept, key=lambda name: int(name.partition("_")[2]))
    assert "tool_33" in kept and "tool_32" not in kept
    assert host.counters.counted[("prompt_truncations",)] == 1
    assert host.counters.observed == [("prompt_tokens", -(-len(text.encode()) // 4))]
    (record,) = caplog.records
    assert "max_tokens (3000)" in record.getMessage() and "left out" in record.getMessage()
    for name in {spec.name for spec in host.tools.specs} - set(kept):
        assert repr(name) in record.getMessage()


async def test_prompt_descriptions_are_shortened_before_tools_are_omitted(
    host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    """As long as shortening is enough, all tools are there, and the most relevant one is whole."""
    host.tools.specs = crowd(20)
    enhancer = stage(host, max_tokens=3500)
    text = await system(enhancer, exchange({"role": "user", "content": [{"type": "text", "text": "topic19"}]}))
    assert len(names_in(text)) == 20
    assert text.count("More about it. More about it. More about it. More") >= 1
    assert "More about it." * 2 not in text.split("<name>tool_18</name>")[1].split("</tool>")[0].replace(" ", "")[:60]
    assert "left out nothing" in caplog.text


async def test_chinese_question_ranks_tools_by_relevance(host: FakeHost) -> None:
    """Chinese has no spaces between its words."""
    host.tools.specs = [*crowd(40), tool("weather", "查询天气预报。" + "详细说明。" * 100)]
    text = await system(stage(host, max_tokens=1500), exchange({"role": "user", "content": "今天天气怎么样?"}))
    assert "weather" in names_in(text)


async def test_operator_priority_outranks_relevance_to_the_question(host: FakeHost) -> None:
    """What the operator marks stays before what the question names."""
    host.tools.specs = [*crowd(40), tool("important", "A." * 100, priority=5), tool("least", "topic7", priority=-1)]
    text = await system(stage(host, max_tokens=1500), exchange({"role": "user", "content": "topic7"}))
    assert {"important", "tool_7"} <= set(names_in(text))
    assert "least" not in names_in(text)


async def test_notes_of_a_request_count_towards_max_tokens(host: FakeHost) -> None:
    """A request whose notes make it too large gives way in its tools; the next one is whole again."""
    host.tools.specs = crowd(10)
    enhancer = stage(host, max_tokens=2800)
    plain = await system(enhancer, exchange())
    noted = await system(enhancer, exchange(notes=("x" * 4000,)))
    assert len(noted.encode()) <= 2800 * 4 and noted.endswith("x" * 4000)
    assert await system(enhancer, exchange()) == plain
    assert host.counters.counted[("prompt_truncations",)] == 1


async def test_base_prompt_over_max_tokens_is_sent_uncut(host: FakeHost, caplog: pytest.LogCaptureFixture) -> None:
    """It is never cut; the instructions stay, and the warning says what is left out."""
    host.prompts.texts["default"] = "x" * 5000
    text = await system(stage(host, max_tokens=1000), exchange())
    assert text == "x" * 5000 + "\n\n" + INSTRUCTIONS
    assert "'read_file', 'now'" in caplog.text


async def test_prompt_truncation_warns_once_per_set_of_omitted_tools(
    host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    """Not one for each request, and never an endless number."""
    host.tools.specs = crowd(120)
    enhancer = stage(host, max_tokens=2000)
    for _ in range(5):
        await system(enhancer, exchange())
    assert len(caplog.records) == 1
    for i in range(120):
        await system(enhancer, exchange({"role": "user", "content": f"topic{i}"}))
    assert 1 < len(caplog.records) <= 64
    assert host.counters.counted[("prompt_truncations",)] == 125


async def test_prompt_display_lists_omitted_tools_without_counting_a_truncation(
    host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a question the order decides; looking is no request that is counted or warned of."""
    host.tools.specs = crowd(40)
    shown = await stage(host, max_tokens=2000).enhance_prompt("default", tenant="local")
    assert shown is not None
    assert [*names_in(shown.text), *shown.omitted] == [spec.name for spec in host.tools.specs]
    assert (caplog.records, host.counters.counted[("prompt_truncations",)]) == ([], 0)


# What it is told.


def test_config_defaults_match_the_requirements() -> None:
    """Tools on, Mermaid off, five minutes, 8000 tokens."""
    assert Config().model_dump() == {
        "tools": True,
        "mermaid": False,
        "custom_context": None,
        "cache_ttl": 300.0,
        "cache_size": 1024,
        "max_tokens": 8000,
    }
    assert all(known.description for known in Config.model_fields.values())


@pytest.mark.parametrize(
    "options",
    [{"cache_ttl": "soon"}, {"cache_ttl": 0}, {"cache_size": 0}, {"max_tokens": 0}, {"tool": True}, {"mermaid": 3}],
)
def test_invalid_config_is_rejected(options: dict[str, object]) -> None:
    """Unknown keys, and values that cannot be meant."""
    with pytest.raises(ValidationError):
        Config(**options)
