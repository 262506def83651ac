"""Somebody who does not want to be asked any more is heard, and nobody else."""

import pytest

from gateway.text.ask_before_phrases import UNASK_CHARS, is_ask_cancellation
from gateway.text.phrases import Spans, fold

NOTHING = Spans(())


@pytest.mark.parametrize(
    "text",
    [
        "You don't have to ask me any more.",
        "you need not ask me first",
        "No need to ask me before you run something. Go on.",
        "Stop asking me!",
        "stop asking me every time, please write the file",
        "Don't ask me for permission any more",
        "Please go on without asking me again.",
        "You no longer need to ask me.",
        "不用再问我了。",
        "不必每次都问我",
        "别再问我了，直接做吧",
        "不需要征求我的同意了",
        "無需先請示我",
    ],
)
def test_ask_cancellation_phrases_are_recognised(text: str) -> None:
    """In both languages, with what else a short message says."""
    assert is_ask_cancellation(fold(text).text, shown=NOTHING)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ask me before you delete anything.",
        "don't stop asking me",
        "Don't ask me why.",
        "don't ask me what it is",
        "Why don't you ask me first?",
        "Do I have to say that you need not ask me any more?",
        "You don't have to ask me any more unless you delete something.",
        "no need to ask me first, but do ask before deletes",
        "only stop asking me about reads",
        "You need not ask me before you read a file.",
        "For reads you don't have to ask me any more.",
        "stop asking me about reads",
        "读文件前不用问我",
        "读取时，不用再问我了",
        "the notes say: he need not ask my mother",
        "不要在没有我同意的情况下写文件",
        "不用问我天气",
        "除了删除，不用再问我了",
        "不用再问我了吗？",
        "先问我",
        f"stop asking me. {'x' * UNASK_CHARS}",
    ],
)
def test_opposite_or_conditional_phrases_do_not_cancel_asking(text: str) -> None:
    """What is not certain loosens nothing."""
    assert not is_ask_cancellation(fold(text).text, shown=NOTHING)


def test_quoted_phrase_does_not_cancel_asking() -> None:
    """Only what the message itself says counts."""
    assert not is_ask_cancellation("stop asking me", shown=Spans([(0, 14)]))
