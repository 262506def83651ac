"""The intent stage: every case of the collection, the requirement's scenarios, and what the prompt is given."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from measuring import Effort

from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Exchange, Intent, Reply
from gateway.contracts.storage.store import Json
from gateway.contracts.tools import Service, ToolSpec
from gateway.plugins.stages.intent import PLUGIN, Config, cut_first_sentence, recognise, write_mcp_note
from gateway.testing import FakeHost
from tests.exchanges import new_exchange
from tests.scripted_replies import reply_of

CASES = [json.loads(line) for line in Path(__file__).parents[3].joinpath("data/intent.jsonl").read_text().splitlines()]

WEATHER = Service(
    "weather",
    "Weather of the world.",
    ("天气", "weather"),
    {"get_weather": "Weather of a place now. Needs a name.", "get_forecast": ""},
    True,
)
GIT = Service("git", "git", ("git",), {"git_log": "Shows commits."}, True)
SEARCH = Service("search", "search", ("搜索", "search"), {"web_search": "Searches."}, False)
SERVICES = (WEATHER, GIT, SEARCH)


def services_of(case: dict[str, Any]) -> tuple[Service, ...]:
    return tuple(
        Service(s["name"], "", tuple(s["trigger_keywords"]), dict.fromkeys(s["tools"], ""), s["status"] == "running")
        for s in case["services"]
    )


@pytest.mark.parametrize("case", [case for case in CASES if not case.get("ambiguous")], ids=lambda c: c["message"][:30])
def test_every_case_of_the_collection_is_recognised(case: dict[str, Any]) -> None:
    """Intent, service, tool and what triggered it, in at most a few milliseconds."""
    effort = Effort()
    intent = recognise(case["message"], services_of(case))
    cpu_s = effort.cpu_s
    expect = case["expect"]
    assert (intent.kind == "mcp") == (expect["intent"] == "MCP")
    assert intent.service == expect["service"]
    assert (intent.rule.partition(":")[0] if intent.kind == "mcp" else None) == expect["trigger"]
    named = intent.rule in ("explicit:tool", "explicit:unknown")
    assert (intent.tools[0].rpartition(".")[2] if named else None) == expect["tool"]
    assert (intent.reply is not None) == (case.get("unavailable", False) or intent.rule == "explicit:unknown")
    assert cpu_s < 0.25


@pytest.mark.parametrize(
    ("text", "rule", "service"),
    [
        ("ＵＳＥ ＧＩＴ＿ＬＯＧ", "explicit:tool", "git"),
        ("用搜索服务找一下", "explicit:keyword", "search"),
        ("git weather", "keyword:weather", "weather"),
        ("git 天气 git", "keyword:git", "git"),
        ("翻译“天气”：git", "keyword:git", "git"),
        ("“天气”怎么说", "keyword:天气", "weather"),
        ("don't use the weather service, but what's the weather", "normal", None),
        ("don't use git_log; how is the weather", "keyword:weather", "weather"),
        ("```\ngit weather\n```", "normal", None),
        ("use git_log, remember that", "explicit:tool", "git"),
        ("remember my git name", "keyword:git", "git"),
        ("remember my name is Bob", "memory:remember", None),
        ("what do you remember", "memory:recall", None),
        ("忘记我的名字", "memory:forget", None),
        ("ask me before you run git_log", "hitl:ask_before", None),
        ("执行前先确认", "hitl:ask_before", None),
        ("", "normal", None),
        ("\x00\ud800\u200b", "normal", None),
    ],
)
def test_the_first_rule_that_matches_decides(text: str, rule: str, service: str | None) -> None:
    """Explicit, keyword (longest, earliest, unquoted), memory, hitl, normal."""
    intent = recognise(text, SERVICES)
    assert (intent.rule, intent.service) == (rule, service)


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("ﷺ，请用 ＧＩＴ＿log 工具", "用 ＧＩＴ＿log"),
        ("Straße: Weather?", "Weather"),
        ("ok. Remember that I like tea. Bye", "Remember that I like tea"),
        ("hm, ask me first", "ask me first"),
    ],
)
def test_intent_span_marks_the_matched_text(text: str, spoken: str) -> None:
    """The span is of the text as it was written."""
    intent = recognise(text, SERVICES)
    assert intent.span is not None and text[slice(*intent.span)] == spoken


@pytest.mark.parametrize(
    "text", ["under the weather", "I am Under  the weather".replace("  ", " "), "ＵＮＤＥＲ ＴＨＥ weather"]
)
def test_a_keyword_inside_an_excluded_phrase_does_not_count(text: str) -> None:
    """Elsewhere in the same message it does."""
    assert recognise(text, SERVICES, exclude_keywords=["under the weather"]).kind == "normal"
    assert recognise(text + ", weather?", SERVICES, exclude_keywords=["under the weather"]).kind == "mcp"


def test_equal_tool_names_prefer_the_running_service() -> None:
    """Then the first configured one."""
    stopped, running = (replace(GIT, name=name, running=name == "b") for name in "ab")
    assert recognise("use git_log", (stopped, running)).service == "b"
    assert recognise("use git_log", (replace(stopped, running=True), running)).service == "a"


def test_service_and_tool_of_one_name_are_distinguished() -> None:
    """By the word behind the name; without one it is the tool."""
    services = (Service("search", "", (), {"search": "", "other": ""}, True),)
    assert recognise("use the search service", services).rule == "explicit:service"
    assert recognise("use the search tool", services).rule == "explicit:tool"
    assert recognise("use search", services).rule == "explicit:tool"


@pytest.mark.parametrize(
    "text",
    [
        "用" * 20_000,
        "use git_log " * 2000,
        "don't use git_log " * 2000,
        "```\n" * 5000,
        "'" * 20_000,
        "。记得" * 6000,
        ",忘记" * 6000 + "?",
    ],
)
def test_hostile_text_is_recognised_in_linear_time(text: str) -> None:
    """Linear, whatever repeats."""
    effort = Effort()
    recognise(text, SERVICES)
    assert effort.cpu_s < 0.5


BOTH = ("git.git_log", "weather.get_weather", "weather.get_forecast")


@pytest.mark.parametrize(
    ("text", "rule", "tools"),
    [
        ("the weather in Paris, and use git_log too", "explicit:tool", BOTH),
        ("巴黎的天气，再用 git_log 看看提交", "explicit:tool", BOTH),
        ("git and the weather", "keyword:weather", (*BOTH[1:], BOTH[0])),
        ("use git_log and get_forecast", "explicit:tool", (BOTH[0], BOTH[2])),
        ("用 git_log、get_weather 和 get_forecast", "explicit:tool", BOTH),
        ("use git_log. Then call get_forecast.", "explicit:tool", (BOTH[0], BOTH[2])),
        ("use git_log on the git repository", "explicit:tool", BOTH[:1]),
        ("use git_log but don't use the weather service", "explicit:tool", BOTH[:1]),
        ("don't use git_log or get_weather", "normal", ()),
        ("use git_log to see how '天气' is spelled", "explicit:tool", BOTH[:1]),
        ("use git_log, then remember that I like tea", "explicit:tool", BOTH[:1]),
        ("use git_log and searching habits", "explicit:tool", BOTH[:1]),
        ("use git_log, then get_forecast", "explicit:tool", (BOTH[0], BOTH[2])),
        ("use git_log with the last tag, and then get_forecast for Rome", "explicit:tool", (BOTH[0], BOTH[2])),
        ("use git_log followed by get_weather, and after that get_forecast", "explicit:tool", BOTH),
        ("先用 git_log, 然后 get_forecast", "explicit:tool", (BOTH[0], BOTH[2])),
        ("don't use git_log, then get_forecast", "normal", ()),
        ("use git_log, but do not call get_weather, then get_forecast", "explicit:tool", BOTH[:1]),
        ("use git_log, then search the web and run the tests", "explicit:tool", BOTH[:1]),
        ("use git_log. Some day then get_forecast", "explicit:tool", BOTH[:1]),
    ],
)
def test_all_services_named_in_a_message_are_offered(text: str, rule: str, tools: tuple[str, ...]) -> None:
    """The first match decides the rule; a named tool of a service stands for what its keywords would bring."""
    intent = recognise(text, SERVICES)
    assert (intent.rule, intent.tools) == (rule, tools)


def test_longer_keyword_hides_the_shorter_one_inside() -> None:
    """And one that two services have means the first; elsewhere in the message the shorter one counts."""
    services = tuple(Service(name, "", (word,), {"t": ""}, True) for name, word in (("a", "log"), ("b", "git log")))
    assert recognise("git log", services).tools == ("b.t",)
    assert recognise("git log, log", services).tools == ("b.t", "a.t")
    assert recognise("log", (*services, replace(services[0], name="c"))).tools == ("a.t",)


# The stage.


def host_of(*services: Service) -> FakeHost:
    """A host with these services, or those of this file, and one tool."""
    reads = ToolSpec(name="read_file", description="Reads.", parameters={"type": "object"})
    return FakeHost(tools=[reads], services=services or SERVICES)


async def through(text: str, host: FakeHost, *, config: Config | None = None, **facts: object) -> Exchange:
    """The exchange as the next stage sees it."""
    seen: list[Exchange] = []

    async def call_next(exchange: Exchange) -> Reply:
        seen.append(exchange)
        return reply_of()

    stage = PLUGIN.build(config or Config(), host)
    body = {"messages": [{"role": "user", "content": text}]}
    caller = Caller("a", "t", frozenset())
    given: dict[str, object] = {"body": body, "caller": caller, "chain": "c", "notes": ("before",), **facts}
    reply = await stage(new_exchange(id="r", **given), call_next)
    assert reply.intent == seen[0].intent
    return seen[0]


async def test_explicit_tool_call_is_an_mcp_intent() -> None:
    """Scenario 显式工具调用识别: "用 xxx 工具" is an mcp intent with the tool's name in it."""
    intent = (await through("用 git_log 工具看看", host_of())).intent
    assert intent == Intent("mcp", "explicit:tool", (0, 9), "git", ("git.git_log",))


async def test_trigger_keyword_is_an_mcp_intent() -> None:
    """Scenario 关键词触发识别: A trigger keyword is an mcp intent with its service."""
    intent = (await through("今天天气怎么样", host_of())).intent
    assert intent == Intent("mcp", "keyword:天气", (2, 4), "weather", ("weather.get_weather", "weather.get_forecast"))


@pytest.mark.parametrize(("text", "kind"), [("记住我叫张三", "memory"), ("先问我再做", "hitl"), ("你好", "normal")])
async def test_message_without_a_service_match_uses_the_other_rules(text: str, kind: str) -> None:
    """Scenario 无匹配时继续原有流程: The other rules go on, and nothing of services gets into the prompt."""
    exchange = await through(text, host_of())
    assert exchange.intent is not None and exchange.intent.kind == kind
    assert exchange.notes == ("before",)


async def test_an_mcp_intent_injects_short_descriptions() -> None:
    """Scenario MCP 意图匹配时注入简短描述: Name and one sentence per tool, without a schema."""
    exchange = await through("天气", host_of())
    assert exchange.notes[0] == "before"
    assert exchange.notes[1].splitlines() == [
        "These tools can be called now, in the JSON format for tool calls:",
        "weather: Weather of the world.",
        "- weather__get_weather: Weather of a place now.",
        "- weather__get_forecast: Weather of the world.",
    ]


@pytest.mark.parametrize(
    ("facts", "lines"),
    [
        ({"only_tools": ("weather.get_forecast", "now")}, ["- weather__get_forecast: Weather of the world."]),
        ({"only_tools": ("now",)}, []),
        ({"no_tools": True}, []),
        ({"services": ("weather",)}, []),
        (
            {"services": ("git",), "only_tools": ("weather.get_weather",)},
            ["- weather__get_weather: Weather of a place now."],
        ),
    ],
)
async def test_note_describes_only_callable_tools_not_already_offered(facts: Json, lines: list[str]) -> None:
    """The intent is what the user said, whatever the request allows."""
    exchange = await through("天气", host_of(), **facts)
    assert exchange.intent is not None and exchange.intent.rule == "keyword:天气"
    assert [line for note in exchange.notes[1:] for line in note.splitlines()][2:] == lines


async def test_several_services_of_a_message_are_listed_together() -> None:
    """Each with its own tools, and what cannot be had behind them."""
    exchange = await through("用 git_log 看看，再用 web_search 工具，还有天气", host_of())
    assert exchange.notes[1].splitlines()[1:-1] == [
        "weather: Weather of the world.",
        "- weather__get_weather: Weather of a place now.",
        "- weather__get_forecast: Weather of the world.",
        "- git__git_log: Shows commits.",
    ]
    assert "'web_search' is not available" in exchange.notes[1].splitlines()[-1]


async def test_service_without_keywords_is_called_by_name() -> None:
    """Scenario 默认值兼容: Without keywords a service is called by its name, which describes it."""
    host = host_of(Service("files", "files", (), {"read": ""}, True))
    assert (await through("read my files", host)).notes == ("before",)
    assert (await through("use files", host)).notes[1].endswith("\n- files__read: files")


@pytest.mark.parametrize("text", ["用 web_search 工具", "use the search service", "调用 send_fax 工具"])
async def test_unavailable_service_or_tool_gets_a_friendly_reply(text: str) -> None:
    """Scenario 服务不可用时的友好提示: What is stopped or unknown is said not to be available, not described."""
    exchange = await through(text, host_of())
    assert exchange.intent is not None and exchange.intent.kind == "mcp"
    (_, note) = exchange.notes
    assert "is not available" in note and note == exchange.intent.reply
    assert "__" not in note


async def test_keyword_of_a_stopped_service_triggers_nothing() -> None:
    """Scenario 服务未运行时不可用: A keyword of a stopped service triggers nothing."""
    assert (await through("搜索一下新闻", host_of())).notes == ("before",)


async def test_recognised_intent_is_counted_by_kind_and_layer() -> None:
    """By intent and by what decided."""
    host = host_of()
    for text in ("use git", "天气", "记住我", "hello"):
        await through(text, host)
    assert host.counters.calls == [
        ("intent", {"intent": "mcp", "layer": "explicit"}),
        ("intent", {"intent": "mcp", "layer": "keyword"}),
        ("intent", {"intent": "memory", "layer": "phrase"}),
        ("intent", {"intent": "normal", "layer": "none"}),
    ]


async def test_list_of_many_service_tools_is_truncated() -> None:
    """With how many more there are."""
    host = host_of(Service("s", "s", (), {f"t{i}": "" for i in range(5)}, True))
    exchange = await through("use s", host, config=Config(max_described=2))
    assert exchange.notes[1].splitlines()[2:] == ["- s__t1: s", "... and 3 more of this service."]


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        ("Reads v1.2 files. Then more.", "Reads v1.2 files."),
        ("读文件。还有。", "读文件。"),
        ("one\n- evil: line\x1b[0m", "one - evil: line [0m"),
        ("", ""),
        ("x" * 5000, "x" * 199 + "…"),
    ],
)
def test_service_description_is_reduced_to_one_sentence(description: str, sentence: str) -> None:
    """A service cannot add lines to the prompt."""
    assert cut_first_sentence(description) == sentence


def test_only_mcp_intents_have_a_note() -> None:
    """Whatever else an intent of another kind may carry."""
    assert write_mcp_note(Intent("memory", "memory:remember", None, "git", ("git.git_log",)), SERVICES, limit=9) is None
