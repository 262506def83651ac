"""A verb and a known name are a call; an unknown one is only with "tool" or "service" behind it."""

import pytest

from gateway.plugins.stages.intent.calls import CALLS_LIMIT, CallMention, find_calls
from gateway.plugins.stages.intent.names import NamedService, build_name_index
from gateway.text.phrases import Spans, fold

INDEX = build_name_index(
    (
        NamedService("weather", ("天气",), ("get_weather", "get_weather_now")),
        NamedService("git", ("git",), ("git_log",)),
        NamedService("地图", (), ("地图查询",)),
    )
)


def calls(text: str) -> list[CallMention]:
    folded = fold(text)
    hits = list(INDEX.phrases.iterate_hits(folded.text))
    return list(find_calls(text, folded, INDEX, hits, shown=Spans(())))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("use git_log", "git_log"),
        ("Please USE the MCP tool called `git_log`!", "git_log"),
        ("using git_log, show me", "git_log"),
        ("with the git tool", "git"),
        ("make use of git_log", "git_log"),
        ("用get_weather_now查", "get_weather_now"),
        ("使用「地图」服务", "地图"),
        ("用地图查询工具找路", "地图查询"),
        ("通过：git", "git"),
        ("用天气工具", "天气"),
        ("use get weather tool", "get weather"),
        ("執行 git_log", "git_log"),
    ],
)
def test_call_matches_the_longest_name(text: str, name: str) -> None:
    """Behind articles, quotes, colons and "tool"."""
    (call,) = calls(text)
    assert (call.name, call.refused, bool(call.named)) == (name, False, True)


@pytest.mark.parametrize(
    "text",
    [
        "用天气",
        "reuse git_log",
        "used git_log",
        "常用 git 工具",
        "这个函数调用了 git_log",
        "use git-lfs",
        "use git.status",
        "use get weather",
        "git_log is a tool to use",
        "use, for once, git_log",
        "use a tool",
        "use some tools",
        "use the right tool",
        "call customer service",
        "用一个工具",
        "使用 AI 工具",
        "使用 nginx 服务器",
        "用 foo 工具箱",
        "use send_fax",
        "use foo toolkit",
    ],
)
def test_ordinary_words_are_not_recognised_as_a_call(text: str) -> None:
    """A keyword without "tool", parts of longer names, adjectives, other words that begin like tool."""
    assert calls(text) == []


@pytest.mark.parametrize(
    ("text", "name", "kind"),
    [
        ("调用 send_fax 工具", "send_fax", "tool"),
        ("用 Fax 工具", "Fax", "tool"),
        ("use the fax tool", "fax", "tool"),
        ("invoke sendFax service", "sendFax", "service"),
        ('use "fax" service', "fax", "service"),
        ("ＵＳＥ ｆａｘ＿１ ｔｏｏｌ", "ｆａｘ＿１", "tool"),
    ],
)
def test_unknown_name_is_returned_unchanged(text: str, name: str, kind: str) -> None:
    """A plain English word only before "tool": there are services of many kinds."""
    (call,) = calls(text)
    assert (call.name, call.named, call.kind) == (name, (), kind)


@pytest.mark.parametrize(
    "text",
    ["don't use git_log", "不要用天气", "别调用 send_fax 工具", "before you run git_log", "调用 git_log 之前先问我"],
)
def test_negated_or_deferred_call_is_marked_as_refused(text: str) -> None:
    """What must not be called, or not before something else."""
    (call,) = calls(text)
    assert call.refused


def test_chinese_count_phrase_is_not_read_as_before() -> None:
    """前 3 条 counts things."""
    assert not calls("运行 git_log 前 3 条")[0].refused


def test_number_of_examined_calls_is_bounded() -> None:
    """Each costs time, and the first one decides."""
    assert len(calls("别用git_log " * 1000)) == CALLS_LIMIT


def test_quoted_verb_is_not_recognised_as_a_call() -> None:
    """The verb stands in a quotation."""
    folded = fold("use git_log")
    hits = list(INDEX.phrases.iterate_hits(folded.text))
    assert list(find_calls("use git_log", folded, INDEX, hits, shown=Spans([(0, 11)]))) == []
