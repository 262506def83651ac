"""Somebody who wants to be asked first is heard."""

import pytest

from gateway.text.ask_before import find_ask_request
from gateway.text.phrases import Spans, fold

NOTHING = Spans(())


@pytest.mark.parametrize(
    "text",
    [
        "ask me before you delete anything",
        "Always ask me first.",
        "please check with me before each step",
        "before you run anything, ask me",
        "don't do anything without asking me",
        "wait for my approval",
        "let me approve every call",
        "tell me before you change files",
        "先问我",
        "执行前先确认",
        "执行任何操作之前都要问我",
        "先跟我确认再运行",
        "未经我同意不要执行",
        "不要在没有我同意的情况下写文件",
        "没有我的批准，不得删除任何东西",
        "不可以在未经我许可时运行",
        "每次都要问我",
        "需要我批准",
        "不要擅自修改文件",
    ],
)
def test_ask_before_request_is_detected(text: str) -> None:
    """In both languages."""
    assert find_ask_request(fold(text).text, shown=NOTHING) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "don't ask me before you run it",
        "no need to ask me first",
        "stop asking me",
        "just do it without asking me",
        "he asked me before lunch",
        "不用先问我",
        "可以在没有我同意的情况下写文件",
        "你可以直接在未经我同意时运行",
        "不必每次都问我",
        "出发前确认航班",
        "ask your mother before dinner",
    ],
)
def test_negated_requests_do_not_enable_ask_before(text: str) -> None:
    """A user who does not want to be asked is not asked."""
    assert find_ask_request(fold(text).text, shown=NOTHING) is None


def test_quoted_requests_do_not_enable_ask_before() -> None:
    """Only what the message itself says counts."""
    assert find_ask_request("ask me first", shown=Spans([(0, 12)])) is None
