"""Chat completions as a model's API: nothing changes but what quirks and fields of Messages need."""

from gateway.model.adaptation.quirks import adapt_request
from gateway.model.apis.chat.api import CHAT
from gateway.upstream.endpoint import Endpoint, ModelAccess

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "seed": 7}


def test_chat_body_is_the_clients_with_a_stream() -> None:
    marked = {
        **BODY,
        "tools": [{"type": "function", "function": {"name": "f"}, "cache_control": {"type": "ephemeral"}}],
    }
    for body in (BODY, marked):
        assert CHAT.build_body(body, frozenset(), ModelAccess()) == adapt_request(body, frozenset())


def test_fields_of_messages_are_left_out_and_listed() -> None:
    body = {**BODY, "messages_api": {"top_k": 5, "container": "c"}}
    plain = {**BODY, "messages": [{"role": "user", "content": "Hi"}]}
    assert CHAT.build_body(body, frozenset(), ModelAccess()) == adapt_request(plain, frozenset())
    assert CHAT.list_lost(body) == ["messages_api.container", "messages_api.top_k"]


def test_own_key_takes_the_clients_header_and_lines_stay() -> None:
    endpoint = Endpoint(name="up", host="h", port=1, authority=b"h", api_key=b"k")
    assert CHAT.select_credential(b"", endpoint, header=b"api-key", lines=b"") == b"Api-Key: k\r\n"
    assert CHAT.build_lines(b"X: 1\r\n", ModelAccess()) == b"X: 1\r\n"
    assert CHAT.convert_models(b"as it is") == b"as it is"


def test_refused_effort_is_learnt() -> None:
    body = {**BODY, "messages_api": {"thinking": {"type": "enabled", "budget_tokens": 20_000}}}
    refusal = b'{"error": {"message": "Unrecognized request argument supplied: reasoning_effort"}}'
    assert CHAT.build_body(body, frozenset(), ModelAccess())["reasoning_effort"] == "high"
    learnt = CHAT.find_quirk(frozenset(), body, status=400, refusal=refusal)
    assert learnt == {"no_reasoning_effort"}
    assert "reasoning_effort" not in CHAT.build_body(body, learnt, ModelAccess())
    wrong_value = b'{"error": {"message": "reasoning_effort must be low, medium or high"}}'
    assert CHAT.find_quirk(frozenset(), body, status=400, refusal=wrong_value) is None
