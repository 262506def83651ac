"""Requests about memories are told apart from sentences with the same words."""

import pytest

from gateway.text.memory_requests import find_memory_request
from gateway.text.phrases import Spans, fold

NOTHING = Spans(())


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("remember that my name is bob. what's up?", "my name is bob"),
        ("Please remember I like tea!", "i like tea"),
        ("can you remember that I live in Paris?", "i live in paris"),
        ("ok, remember: a. b.\nc", "a. b.\nc"),
        ("remember dr. smith is my doctor.", "dr. smith is my doctor"),
        ("don't forget I'm allergic to nuts", "i'm allergic to nuts"),
        ("remember this", ""),
        ("记住我喜欢喝茶。你好", "我喜欢喝茶"),
        ("请帮我记住：我叫张三", "我叫张三"),
        ("记一下，周五开会", "周五开会"),
        ("别忘了我对花生过敏", "我对花生过敏"),
        ("你好，请记住我叫李四", "我叫李四"),
    ],
)
def test_remember_requests_are_recognised_with_their_text(text: str, about: str) -> None:
    """The sentence without the words that ask for it; behind a colon, all the rest."""
    folded = fold(text).text
    request = find_memory_request(folded, shown=NOTHING)
    assert request is not None and request.action == "remember"
    assert folded[slice(*request.about)].strip() == about


@pytest.mark.parametrize(
    "text",
    [
        "what do you remember?",
        "tell me what you remember about me",
        "do you remember my birthday?",
        "what do you know about me",
        "show me my memories",
        "remember me?",
        "你记得什么",
        "你还记得我的名字吗？",
        "你记住了哪些事",
        "你知道我什么",
        "列出所有记忆",
    ],
)
def test_recall_requests_are_recognised(text: str) -> None:
    """Questions about what is known."""
    request = find_memory_request(fold(text).text, shown=NOTHING)
    assert request is not None and request.action == "recall"


@pytest.mark.parametrize(
    ("text", "about", "everything"),
    [
        ("forget that my name is bob", "my name is bob", False),
        ("please forget about my address.", "my address", False),
        ("forget everything you know about me", "everything you know about me", True),
        ("delete all memories", "", True),
        ("forget that", "", False),
        ("忘记我的名字", "我的名字", False),
        ("请忘掉所有", "所有", True),
        ("把我的生日忘了", "我的生日", False),
        ("清空记忆", "", True),
        ("forget what you know about me", "what you know about me", True),
        ("忘记关于我的一切", "我", True),
        ("stop remembering my address", "my address", False),
        ("把我的生日和地址忘掉", "我的生日和地址", False),
    ],
)
def test_forget_requests_are_recognised_with_their_text(text: str, about: str, everything: bool) -> None:
    """The text to be forgotten, or all of it."""
    folded = fold(text).text
    request = find_memory_request(folded, shown=NOTHING)
    assert request is not None and request.action == "forget"
    assert (folded[slice(*request.about)].strip(), request.everything) == (about, everything)


@pytest.mark.parametrize(
    ("text", "about"),
    [
        ("forget what you know about my dog", "my dog"),
        ("Please forget everything I told you about my dog.", "my dog"),
        ("forget all about my dog", "my dog"),
        ("could you forget what you've learned about my dog?", "my dog"),
        ("delete everything you know about my dog", "my dog"),
        ("erase what you remember about my dog!", "my dog"),
        ("忘掉关于我的狗的事", "我的狗"),
        ("请忘记你知道的关于我的狗的一切", "我的狗"),
        ("删除关于我的狗的记忆", "我的狗"),
        ("把关于我的狗的记忆删掉", "我的狗"),
        ("把关于我的狗的事情都忘了", "我的狗"),
    ],
)
def test_forget_all_about_a_topic_is_recognised(text: str, about: str) -> None:
    """Not only the memory that is most like it."""
    folded = fold(text).text
    request = find_memory_request(folded, shown=NOTHING)
    assert request is not None and request.action == "forget"
    assert (folded[slice(*request.about)].strip(" 都"), request.every, request.everything) == (about, True, False)


@pytest.mark.parametrize(
    "text",
    [
        "delete everything you wrote in main.py",
        "remove all that you added about dogs",
        "erase what I said",
        "clear the table",
        "删除关于狗的段落",
        "把关于狗的段落删掉",
        "how can I forget what I know about him?",
    ],
)
def test_other_delete_requests_are_not_memory_requests(text: str) -> None:
    """Files, texts and tables are deleted by tools, and what people know by nobody."""
    assert find_memory_request(fold(text).text, shown=NOTHING) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I remember when we met",
        "do not remember this",
        "how do I memorize things",
        "forget it",
        "forget about it",
        "I forgot my password",
        "我忘记密码了",
        "忘记密码怎么办",
        "忘记密码了吗？",
        "我记得小时候",
        "怎么记住单词",
        "他记住了",
    ],
)
def test_unrelated_sentences_are_not_memory_requests(text: str) -> None:
    """Who remembers or forgets is somebody else, or it is an idiom or a question."""
    assert find_memory_request(fold(text).text, shown=NOTHING) is None


def test_quoted_memory_request_is_ignored() -> None:
    """Only what the message itself says counts."""
    assert find_memory_request("remember me and you", shown=Spans([(0, 19)])) is None
