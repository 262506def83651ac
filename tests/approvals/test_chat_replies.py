"""Answers to approvals: the whole message or nothing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measuring import Effort

from gateway.approvals.chat_replies import COMMENT_CHARS, REPLY_CHARS, REPLY_IDS, parse_reply
from gateway.contracts.chat_decisions import ChatDecision
from gateway.contracts.check_word import generate_approval_id

DATA = Path(__file__).parent.parent / "data" / "replies.jsonl"
CASES = [json.loads(line) for line in DATA.read_text().splitlines()]
ID = "ap_a2b3c4d5e6f7g2h3i4j5k6l7mq"
IDS = st.text("abcdefghijklmnopqrstuvwxyz234567", min_size=26, max_size=26).map("ap_{}".format)
#: Some of it may stand around a command.
DECORATION = re.compile(r"[\s`.。:：/]*")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_reply_is_parsed_only_as_a_whole(case: dict[str, Any]) -> None:
    """Each case says why it is one, or not."""
    expected = case["reply"]
    if expected is not None:
        expected = ChatDecision(
            expected["approve"],
            tuple(expected["ids"]),
            expected["comment"],
            tuple((each, word) for each, word in expected.get("words", [])),
        )
    assert parse_reply(case["text"]) == expected


@given(
    st.sampled_from(["approve", "reject", "批准", "同意", "拒绝", "Approve:", "/REJECT"]),
    st.lists(IDS, min_size=1, max_size=5, unique=True),
)
def test_every_reply_command_is_parsed(verb: str, ids: list[str]) -> None:
    """Whatever the ids are."""
    reply = parse_reply(f"{verb} {' '.join(ids)}")
    assert reply is not None
    assert reply.ids == tuple(ids)
    assert reply.approve == (verb in ("approve", "批准", "同意", "Approve:"))


@given(st.sampled_from(["approve", "reject", "批准", "拒绝"]), IDS, st.sets(st.integers(0, 36)))
def test_fullwidth_characters_in_replies_are_accepted(verb: str, approval_id: str, wide: set[int]) -> None:
    """As those of Chinese, Japanese and Korean do, also the underscore of an id."""
    plain = f"{verb} {approval_id}"
    typed = "".join(chr(ord(c) + 0xFEE0) if i in wide and "!" <= c <= "~" else c for i, c in enumerate(plain))
    assert parse_reply(typed) == parse_reply(plain) is not None


@given(st.text(max_size=50), st.text(max_size=50), st.sampled_from(["approve", "reject", "批准", "拒绝"]))
def test_command_surrounded_by_other_text_is_ignored(before: str, after: str, verb: str) -> None:
    """A command within something else is not one; only a rejection may go on, behind a colon."""
    reason = verb in ("reject", "拒绝") and re.match(r"[\s`.。]*[:：]", after)
    if DECORATION.fullmatch(before) and (DECORATION.fullmatch(after) or reason):
        return
    assert parse_reply(f"{before}{verb} {ID}{after}") is None


@given(st.text() | st.text("aprove jct:`.。、,\n批准拒绝_27") | st.text().map(lambda text: f"reject {ID}{text}"))
def test_any_text_is_parsed_without_error(text: str) -> None:
    """Never an exception; ids have the form of ids; only a rejection has a reason."""
    reply = parse_reply(text)
    if reply is not None:
        assert reply.ids
        assert all(re.fullmatch("ap_[a-z2-7]{26}", approval_id) for approval_id in reply.ids)
        assert reply.comment is None or not reply.approve


def test_reply_with_lone_surrogates_is_ignored() -> None:
    """JSON can say them, UTF-8 cannot."""
    assert parse_reply(f"approve {ID}\ud800") is None
    assert parse_reply("\udfff") is None


def test_message_over_the_reply_limit_is_not_a_decision() -> None:
    """Nor one that white space stretches: what it was cut from is not known here."""
    assert parse_reply(f"approve {ID}".ljust(REPLY_CHARS)) is not None
    assert parse_reply(f"approve {ID}".ljust(REPLY_CHARS + 1)) is None


def test_reply_ids_and_reason_length_are_bounded() -> None:
    """64 ids, 2000 characters."""
    ids = [generate_approval_id() for _ in range(REPLY_IDS + 1)]
    assert parse_reply("approve " + " ".join(ids[:-1])) == ChatDecision(True, tuple(ids[:-1]))
    assert parse_reply("approve " + " ".join(ids)) is None
    assert parse_reply(f"reject {ID}: {'x' * 3000}") == ChatDecision(False, (ID,), "x" * COMMENT_CHARS)


def test_new_approval_ids_are_valid_and_unique() -> None:
    """26 characters of lower-case base32; 1000 of them are all different, in every bit that counts."""
    ids = {generate_approval_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch("ap_[a-z2-7]{26}", approval_id) for approval_id in ids)
    assert len({approval_id[3] for approval_id in ids}) == 32


@pytest.mark.parametrize(
    "text",
    [
        "a" + "\u0301\u0323" * 4000,
        "\u0f73" * 8000,
        "\ufdfa" * 8000,
        "`" * 8000,
        "approve" + " " * 7990,
        "批准" + " " * 7000 + "x",
        f"reject {ID}" + " ," * 3900 + ":",
        ":" * 8000,
        "approve " + f"{ID} " * 260,
        f"approve `{ID}` " * 200,
    ],
    ids=lambda text: text[:12],
)
def test_parsing_hostile_replies_takes_bounded_time(text: str) -> None:
    """No expression backtracks far, and marks are not sorted: 100 of them take well under a second."""
    effort = Effort()
    for _ in range(100):
        parse_reply(text[:REPLY_CHARS])
    assert effort.cpu_s < 1
