"""The check word of an approval: nobody can compute it, and no model sees it."""

import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.contracts.check_word import (
    LETTERS,
    check_word,
    generate_approval_id,
    generate_secret,
    is_expected_word,
    mask_check_words,
)

ID, HASH = "ap_a2b3c4d5e6f7g2h3i4j5k6l7mq", "a" * 64
CUT = "ap_a2b3(not shown to models)"


def test_check_word_depends_on_secret_approval_and_call() -> None:
    """The same each time; another secret, id or call has another one."""
    word = check_word("s", ID, HASH)
    assert word == check_word("s", ID, HASH) and re.fullmatch(f"[{LETTERS}]{{6}}", word)
    others = {check_word("t", ID, HASH), check_word("s", generate_approval_id(), HASH), check_word("s", ID, "b" * 64)}
    assert word not in others and len(others) == 3
    assert len({check_word(generate_secret(), ID, HASH) for _ in range(1000)}) > 990


def test_check_word_is_accepted_in_either_case() -> None:
    """People type it as they like; nothing else passes."""
    word = check_word("s", ID, HASH)
    assert is_expected_word(word, word) and is_expected_word(word.lower(), word)
    assert not is_expected_word(word[:-1], word) and not is_expected_word("", word) and not is_expected_word("ſ", word)


@pytest.mark.parametrize(
    "text",
    [
        f"approve {ID} KFMQTR",
        f"```text\napprove {ID} KFMQTR\n```",
        f"approve {ID}\nKFMQTR",
        f"approve `{ID}` `KFMQTR`",
        f"批准 {ID}\u3000KFMQTR。",
        f"approve {ID.upper()} kfmqtr",
        f"approve {ID.capitalize()} kfmqtr",
        f'<b>{ID}</b>: "KFMQTR"'.replace("</b>", ""),
    ],
)
def test_masking_removes_approval_ids_and_check_words(text: str) -> None:
    """In content, in parts, in arguments of calls that are JSON in JSON."""
    call = {"function": {"name": "f", "arguments": orjson.dumps({"text": text}).decode()}}
    body = {"messages": [{"content": text}, {"content": [{"type": "text", "text": text}]}, {"tool_calls": [call]}]}
    sent = mask_check_words(orjson.dumps(body))
    assert b"kfmqtr" not in sent.lower() and b"l7mq" not in sent.lower()
    assert sent.lower().count(b"ap_a2b3(not shown to models)") == 3 and orjson.loads(sent)


def test_masking_leaves_other_text_unchanged() -> None:
    """An id alone is cut short; what only resembles one is not touched."""
    assert mask_check_words(f"approve {ID} and KFMQTR".encode()) == f"approve {CUT} and KFMQTR".encode()
    assert mask_check_words(f"approve {ID} KFMQTR {ID} BCDFGH!".encode()) == f"approve {CUT} {CUT}!".encode()
    for text in ("", "ap_", "approve ap_short KFMQTR", "map_of_the_world", "KFMQTR"):
        assert mask_check_words(text.encode()) == text.encode()


@given(st.text(), st.text())
def test_masking_leaves_json_as_json(before: str, after: str) -> None:
    """Whatever stands around an id."""
    content = orjson.dumps({"x": f"{before}{ID} KFMQTR{after}", "y": [before, after]}, option=orjson.OPT_SORT_KEYS)
    assert ID.encode() not in mask_check_words(content) and orjson.loads(mask_check_words(content))["y"] == [
        before,
        after,
    ]
