"""The typed decoder says of an answer what the general reader says, or leaves it to that."""

import json
from collections.abc import Mapping
from math import ceil
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lanes.assembled import endpoint, router
from lanes.assembled import read as read_head
from usage.shapes import AZURE, CHAT, COMPLETION, MESSAGE, RESPONSE, text

from gateway.features.usage.observer import UsageObserver
from gateway.features.usage.observer_batch import UsageBatch
from gateway.features.usage.observer_decoder import UsageDecoder
from gateway.features.usage.observer_meter import build_meter
from gateway.lanes.client import Client
from gateway.lanes.passthrough.access_record import AccessRecord
from gateway.usage.tokens import BYTES_A_TOKEN, MOST, RequestUsage, TokenCounts

ASK = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nContent-Length: 40"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"

NUMBERS = st.one_of(
    st.integers(0, 1000),
    st.sampled_from((-1, -0.0, 12.0, 12.5, 1e3, MOST - 1, MOST, 1 << 63, 1 << 64, 1 << 200, True, None, "7", [], {})),
)
NAMES = (
    *("prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "completion_tokens_details"),
    *("prompt_cache_hit_tokens", "cached_tokens", "reasoning_tokens", "input_tokens", "output_tokens"),
    *("cache_read_input_tokens", "cache_creation_input_tokens", "usage", "model", "choices", "\u00fcsage"),
)
VALUES = st.recursive(
    NUMBERS | st.sampled_from(("bench", "", "x" * 300, "a\nb", "\u6a21\u578b", '"usage":{"prompt_tokens":1}')),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=6),
    max_leaves=12,
)
OBJECTS = st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=8)
USAGES = st.lists(st.tuples(st.sampled_from(NAMES[:12]), NUMBERS | OBJECTS), max_size=8)
ANSWERS = st.lists(st.tuples(st.sampled_from(("usage", "model", "choices")), USAGES | VALUES), max_size=5)


def written(value: object) -> str:
    """JSON in which an object, a list of pairs here, may have a key more than once."""
    if isinstance(value, list):
        if value and all(isinstance(one, tuple) for one in value):
            return "{" + ",".join(f"{json.dumps(key)}:{written(inner)}" for key, inner in value) + "}"
        return "[" + ",".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


HEARD: list[tuple[RequestUsage, str]] = []
ROUTER = router(endpoint())
METER = build_meter(
    lambda usage, key, tenant, model, *_: HEARD.append((usage, model)),
    UsageBatch().undecoded,
    makes=True,
    path=b"/v1/chat/completions",
)


class Reading(UsageObserver):
    """The observer of an answer that is here. `is_left`: it was left to the general reader."""

    is_left = False

    def __init__(self, body: bytes) -> None:
        planned = ROUTER.route(read_head(ASK + b"\r\n\r\n"), ASK)
        assert planned is not None
        plan, _ = planned
        record = AccessRecord(plan.head, plan.policy, plan.target, cast("Client", None), 0.0)
        super().__init__(METER, None, record)
        record.beginning, record.sent_bytes, record.received_bytes = HEAD % len(body) + body, len(body), 40

    def read(self, *, cut: bool = False) -> int:
        self.is_left = True
        return super().read(cut=cut)


def read(observer: Reading) -> None:
    """Read one answer, and record it."""
    decoder = UsageDecoder(most=1)
    decoder.read([observer])


def agrees(body: bytes) -> bool:
    """Whether the typed decoder reads it, and then as the general reader."""
    HEARD.clear()
    usual, general = Reading(body), Reading(body)
    read(usual)
    general.read()
    assert len(HEARD) == 2 and HEARD[0] == HEARD[1], body
    return not usual.is_left


@given(ANSWERS)
def test_typed_decoder_agrees_with_the_general_reader(answer: list[tuple[str, object]]) -> None:
    """On keys that come twice, numbers of all kinds, other names and other types."""
    agrees(written(answer).encode())


@given(st.integers(0, len(text(CHAT))), st.binary(max_size=3), st.integers(0, 3))
def test_typed_decoder_agrees_on_damaged_answers(at: int, by: bytes, gone: int) -> None:
    """Also by bytes that are no UTF-8, in texts that it leaves out."""
    whole = text(CHAT)
    agrees(whole[:at] + by + whole[at + gone :])


@pytest.mark.parametrize("answer", [CHAT, AZURE, COMPLETION])
def test_usage_decoder_matches_the_general_reader_on_common_answers(answer: Mapping[str, object]) -> None:
    assert agrees(text(answer))


@pytest.mark.parametrize(
    "body",
    [
        b'{"usage": {"prompt_tokens": 9, "completion_tokens": 2, "cache_creation_input_tokens": 7}, "model": "m"}',
        text(RESPONSE),
        text(MESSAGE),
        b"\xef\xbb\xbf" + text(CHAT),
        text(CHAT).replace(b"Hello!", b"\\ud800"),
        text({**CHAT, "model": "gpt"}).replace(b'"gpt"', b'"g\xffpt"'),
        text({**CHAT, "model": "gpt"}).replace(b'"gpt"', b'"\xed\xa0\x80"'),
        text({"usage": {"prompt_tokens": 1, "completion_tokens": -1}}),
        text({"usage": {"prompt_tokens": 12.0}}),
        text({"usage": {"prompt_tokens": MOST}}),
        text({"model": 7, "usage": {"prompt_tokens": 1}}),
        text({"model": "m"}),
        b'{"usage":{"prompt_tokens":1},"usage":null}',
        text({"model": None, "usage": {"prompt_tokens": 1}}),
        text({"model": "", "usage": {"prompt_tokens": 1}}),
        text({"model": "a\nb", "usage": {"prompt_tokens": 1}}),
        text({"model": "m", "usage": {"prompt_tokens": 0, "completion_tokens": 7}}),
        text({"model": "m", "usage": {"prompt_tokens": 9, "prompt_tokens_details": {"audio_tokens": 5}}}),
        text({"model": "m", "usage": {"prompt_tokens": 9, "completion_tokens_details": {"audio_tokens": 5}}}),
        b"[1]",
        b"",
    ],
)
def test_typed_decoder_leaves_unknown_answers_to_the_general_reader(body: bytes) -> None:
    assert not agrees(body)


def test_typed_decoder_reads_non_ascii_texts() -> None:
    """Also half an emoji in a text of the model, which many clients take."""
    assert agrees(text({**CHAT, "model": "\u6a21\u578b", "user": "J\u00fcrgen"}))
    assert agrees('{"model":"\u6a21\u578b","usage":{"prompt_tokens":3}}'.encode())
    assert agrees(text(CHAT).replace(b"Hello!", b"Hello \xf0\x9f\x98"))


class Broken(Reading):
    """An answer with which the general reader ends in an error that nobody has thought of."""

    def _read_usage(self, cut: bool) -> tuple[RequestUsage, str]:
        raise ZeroDivisionError


def test_unreadable_answer_is_estimated_without_affecting_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    HEARD.clear()
    decoder = UsageDecoder(most=1)
    decoder.read([Reading(text(CHAT)), Broken(b"{}"), Reading(text(CHAT))])
    asked = CHAT["usage"]["prompt_tokens"]  # type: ignore[index]
    assert sorted((usage.estimated, usage.tokens.input) for usage, _ in HEARD) == [
        (False, asked),
        (False, asked),
        (True, 10),
    ]
    assert "could not be read" in caplog.text


def test_deeply_nested_answer_is_read_or_estimated() -> None:
    """By how deep this Python lets its libraries go; deeper is an answer for the general reader, and no error."""
    nested = b"[" * 2000 + b"]" * 2000
    body = b'{"model":"m","usage":{"prompt_tokens":1},"x":%b}' % nested
    read(Reading(body))
    guessed = RequestUsage(TokenCounts(10, output=ceil(len(body) / BYTES_A_TOKEN)), estimated=True)
    assert HEARD[-1] in ((RequestUsage(TokenCounts(1)), "m"), (guessed, ""))
