"""What a person reads about approvals says what runs, why it waits, until when and how to answer."""

import re
from collections.abc import Callable

import pytest

from gateway.approvals.chat_replies import parse_reply
from gateway.approvals.escaping import Language
from gateway.approvals.texts import (
    AnswerOptions,
    ApprovalDescription,
    ApprovalQuestion,
    build_approval_link,
    detect_language,
    format_cancelled_text,
    format_expired_text,
    format_refused_here_text,
    format_rejected_text,
    format_resumed_elsewhere,
    format_turn_text,
    format_unknown_text,
)
from gateway.contracts.chat_decisions import ChatDecision

NOW_S = 1763789100.0
ID, OTHER = "ap_a2b3c4d5e6f7g2h3i4j5k6l7mq", "ap_z7y6x5w4v3u2t7s6r5q4p3o2na"
CALL = ApprovalDescription(
    id=ID,
    word="KFMQTR",
    tool="execute_command",
    arguments={"command": "rm -rf build"},
    reason="it deletes files",
    rule="command.rm",
)
SECOND = ApprovalDescription(
    id=OTHER, word="BCDFGH", tool="http_request", arguments={"url": "https://a.example", "method": "POST"}
)
BLOCK = re.compile(r"^(`{3,})text\n(.*?)\n\1$", re.DOTALL | re.MULTILINE)
LANGUAGES: tuple[Language, ...] = ("en", "zh")


def turn(
    *approvals: ApprovalDescription, console_url: str | None = None, left_s: float = 900.0, language: Language = "en"
) -> str:
    expires_s, answering = NOW_S + left_s, AnswerOptions(console_url=console_url)
    return format_turn_text(
        ApprovalQuestion(approvals=approvals, expires_s=expires_s, now_s=NOW_S, language=language, answering=answering)
    )


def blocks(text: str) -> list[str]:
    return [block[2] for block in BLOCK.finditer(text)]


def test_approval_turn_shows_call_reason_deadline_and_reply_lines() -> None:
    """As a whole."""
    assert turn(CALL) == (
        "This call waits for your approval. It has not run yet:\n\n"
        "```text\n"
        "execute_command\n"
        '  command: "rm -rf build"\n'
        "held because: it deletes files [command.rm]\n"
        "```\n\n"
        "To answer, send one of these lines as your whole message, until 2025-11-22 05:40:00 UTC"
        " (15 minutes from now):\n\n"
        "```text\n"
        f"approve {ID} KFMQTR\n"
        "```\n\n"
        "```text\n"
        f"reject {ID} KFMQTR\n"
        "```\n\n"
        f"A rejection may give a reason: `reject {ID} KFMQTR: reason`."
    )


def test_approval_text_is_available_in_chinese() -> None:
    """The same in Chinese, with Chinese words to answer with."""
    text = turn(CALL, language="zh")
    assert "需要您批准" in text and "2025-11-22 05:40:00 UTC（15 分钟后）" in text
    assert blocks(text) == [
        'execute_command\n  command: "rm -rf build"\n暂缓原因：it deletes files [command.rm]',
        f"批准 {ID} KFMQTR",
        f"拒绝 {ID} KFMQTR",
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_reply_line_of_the_text_is_parsed(language: Language) -> None:
    """Sent back as they stand, with and without the backticks they are shown in."""
    both = (ID, OTHER)
    words = ((ID, "kfmqtr"), (OTHER, "bcdfgh"))
    *_, approve, reject = blocks(turn(CALL, SECOND, language=language))
    assert parse_reply(approve) == ChatDecision(True, both, words=words)
    assert parse_reply(reject) == ChatDecision(False, both, words=words)
    spans = re.findall("`[^`\n]+`", BLOCK.sub("", turn(CALL, SECOND, language=language)))
    assert parse_reply(spans[0]) == ChatDecision(True, (ID,), words=words[:1])
    reasoned = parse_reply(spans[1].strip("`"))
    assert reasoned is not None and not reasoned.approve and reasoned.comment and reasoned.words == words[:1]


def test_group_text_lists_each_call_with_its_id() -> None:
    """Numbered, each in its own block, and all ids in one line."""
    text = turn(CALL, SECOND)
    assert text.startswith("These 2 calls wait for your approval.")
    first, second, approve, reject = blocks(text)
    assert first.startswith(f"1. execute_command ({ID})\n")
    assert second == f'2. http_request ({OTHER})\n  method: "POST"\n  url: "https://a.example"'
    assert approve == f"approve {ID} KFMQTR {OTHER} BCDFGH"
    assert reject == f"reject {ID} KFMQTR {OTHER} BCDFGH"


@pytest.mark.parametrize("language", LANGUAGES)
def test_approval_turn_text_is_not_parsed_as_a_decision(language: Language) -> None:
    """A client that sends it back as a user's message approves nothing."""
    assert parse_reply(turn(CALL, language=language)) is None


def test_text_contains_links_only_with_a_console_url() -> None:
    """One for each approval: its page asks who opens it."""
    base = "https://gw.example/console"
    assert "http" not in turn(CALL)
    assert f"Or decide in a browser: <{base}/approvals/{ID}>" in turn(CALL, console_url=base)
    both = turn(CALL, SECOND, console_url=base, language="zh")
    assert f"也可以在浏览器中决定：<{base}/approvals/{ID}> <{base}/approvals/{OTHER}>" in both
    assert build_approval_link(base, OTHER) == f"{base}/approvals/{OTHER}"


def commands(text: str) -> list[str]:
    """What the copy buttons copy that is one line: each stands in a block of its own."""
    return [block for block in re.findall(r"```text\n(.*)\n```", text) if " ap_" in block]


def asking(answering: AnswerOptions, *, language: Language = "en") -> str:
    question = ApprovalQuestion(
        approvals=[CALL],
        expires_s=NOW_S + 600,
        now_s=NOW_S,
        language=language,
        answering=answering,
    )
    return format_turn_text(question)


@pytest.mark.parametrize("language", LANGUAGES)
def test_waiting_stream_text_says_where_to_decide(language: Language) -> None:
    """In another window first: no program sends a message while an answer is open; then how to, once it is not."""
    text = asking(AnswerOptions(held_s=120.0), language=language)
    approve, reject = ("approve", "reject") if language == "en" else ("批准", "拒绝")
    assert commands(text) == [
        f"gateway approvals approve {ID}",
        f"gateway approvals reject {ID}",
        f"{approve} {ID} KFMQTR",
        f"{reject} {ID} KFMQTR",
    ]
    assert f"`POST /context/approvals/{ID}`" in text
    assert ("2 minutes at most" in text) == (language == "en")


@pytest.mark.parametrize("held_s", [None, 120.0])
@pytest.mark.parametrize("language", LANGUAGES)
def test_reader_without_scope_sees_deciders_and_no_reply_lines(language: Language, held_s: float | None) -> None:
    """No line to send, which would be refused: the keys that may, how their holders do it, and what to do then."""
    text = asking(
        AnswerOptions(held_s=held_s, hindrance="scope", tenant="te`am", deciders=["an`na"]), language=language
    )
    assert commands(text) == [f"gateway approvals approve {ID}", f"gateway approvals reject {ID}"]
    assert '``"an`na"``' in text and '``"te`am"``' in text and "KFMQTR" not in text
    nobody = asking(AnswerOptions(hindrance="scope", tenant="team"), language=language)
    assert ("No key has it yet" if language == "en" else "目前没有这样的密钥") in nobody


def test_rejection_text_names_the_call_and_reason() -> None:
    """With the reason, if there is one."""
    assert format_rejected_text("execute_sql", None) == "The call of `execute_sql` was rejected. Nothing ran."
    assert format_rejected_text("execute_sql", "use `dev`") == (
        "The call of `execute_sql` was rejected, because: `` use `dev` ``. Nothing ran."
    )
    assert format_rejected_text("execute_sql", "不对", language="zh") == (
        "对 `execute_sql` 的调用已被拒绝，原因：`不对`。没有执行任何操作。"
    )


@pytest.mark.parametrize(
    "text",
    [
        lambda ran, language: format_rejected_text("execute_sql", None, ran_before=ran, language=language),
        lambda ran, language: format_expired_text("execute_sql", ran_before=ran, language=language),
        lambda ran, language: format_cancelled_text("execute_sql", ran_before=ran, language=language),
        lambda ran, language: format_refused_here_text(
            ApprovalDescription(id=ID, tool="execute_sql", arguments={}), ran_before=ran, language=language
        ),
    ],
    ids=["rejected", "expired", "cancelled", "refused"],
)
def test_outcome_texts_count_calls_that_ran_before(text: Callable[[int, Language], str]) -> None:
    """`Nothing ran` only where nothing did."""
    assert "Nothing ran." in text(0, "en") and "没有执行任何操作。" in text(0, "zh")
    assert "1 earlier call of this run had run." in text(1, "en") and "Nothing ran" not in text(1, "en")
    assert "2 earlier calls" in text(2, "en")
    assert "此前已执行 2 个调用" in text(2, "zh") and "没有执行任何操作。" not in text(2, "zh")
    assert "execute_sql" in text(0, "en") and "execute_sql" in text(0, "zh")


@pytest.mark.parametrize("language", LANGUAGES)
def test_refusal_text_shows_the_call_without_reply_lines(language: Language) -> None:
    """No line to answer with."""
    text = format_refused_here_text(CALL, language=language)
    assert 'command: "rm -rf build"' in text and "it deletes files" in text
    assert ID not in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_unknown_outcome_text_names_the_lines_to_type_and_the_request(language: Language) -> None:
    """A line for each outcome, and the route for programs."""
    text = format_unknown_text("execute_sql", run_id="run_7", step=3, language=language)
    assert "`POST /context/runs/run_7/resume`" in text
    assert '`{"step": 3, "as": "done"}`' in text
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    outcomes = ("done", "retry", "failed")
    for line, outcome in zip(lines, outcomes, strict=True):
        assert line.endswith(f"`gateway runs resume run_7 --step 3 --as {outcome}`")


@pytest.mark.parametrize("language", LANGUAGES)
def test_text_names_the_run_resumed_elsewhere(language: Language) -> None:
    """By its id."""
    assert "`run_7`" in format_resumed_elsewhere("run_7", language=language)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", "en"),
        ("delete the build folder", "en"),
        ("删除构建目录", "zh"),
        ("请帮我运行 execute_command 工具", "zh"),
        ("用git提交", "zh"),
        ("translate 你好 to English", "en"),
        ("what does 拒绝 mean here?", "en"),
        (f"批准 {ID}", "zh"),
        (f"approve {ID}", "en"),
        ("ファイルを削除して", "en"),
        ("파일을 삭제해", "en"),
        ("удали папку", "en"),
        ("123 !?", "en"),
        ("中" * 2000 + "a " * 100_000, "zh"),
    ],
    ids=lambda value: value[:20],
)
def test_text_language_follows_the_message(text: str, language: Language) -> None:
    """Chinese where most of it is."""
    assert detect_language(text) == language
