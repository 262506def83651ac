"""What servers refuse, in the words of those that were seen to, and the request that they take then."""

import pytest

from gateway.contracts.quirks import QUIRKS, QuirkName
from gateway.contracts.storage.store import Json
from gateway.model.adaptation.quirks import (
    MODELS,
    NONE,
    LearntQuirks,
    QuirkKey,
    adapt_request,
    find_quirk,
)

STREAMED: Json = {"stream": True, "stream_options": {"include_usage": True}}
HI: Json = {"role": "user", "content": "Hi"}
#: Keys of a tenant.
ANN, BOB = ("acme", "ann"), ("acme", "bob")
BODY: Json = {
    "model": "m",
    "messages": [
        {"role": "developer", "content": "Be brief."},
        HI,
        {"role": "user", "content": [{"type": "text", "text": "there"}]},
        {"role": "assistant", "content": "Hello.", "reasoning_content": "Hm."},
        {"role": "system", "content": "It is late."},
        {"role": "user", "content": "Bye"},
    ],
    "max_tokens": 5,
    "parallel_tool_calls": False,
    "tools": [{"type": "function", "function": {"name": "files.read", "strict": True, "parameters": {}}}],
}


@pytest.mark.parametrize(
    ("status", "refusal", "found"),
    [
        (400, b"Unknown field: stream_options", "no_usage_in_stream"),
        (422, b"include_usage is not permitted", "no_usage_in_stream"),
        (400, b"Streaming is not supported", "no_stream"),
        (501, b"no STREAM here", "no_stream"),
        (400, b'{"error": {"message": "Bad value", "param": "stream"}}', "no_stream"),
        (422, b'{"detail": [{"loc": ["body", "stream"], "msg": "Extra inputs are not permitted"}]}', "no_stream"),
        (400, b"This model can't be streamed: streaming isn't available.", "no_stream"),
        (400, b"'max_tokens' is not supported with this model. Use 'max_completion_tokens'.", "max_completion_tokens"),
        (400, b"messages[0].role: unknown variant `developer`, expected one of `system`, `user`", "no_developer_role"),
        (500, b"Jinja Exception: System message must be at the beginning.", "one_system_message"),
        (400, b"Only one system message is allowed", "one_system_message"),
        (500, b"Conversation roles must alternate user/assistant/user/assistant/...", "alternating_roles"),
        (
            400,
            b'roles must alternate between "user" and "assistant", but found multiple "user" roles',
            "alternating_roles",
        ),
        (400, b"System role not supported", "no_system_role"),
        (400, b"Unsupported value: 'messages[0].role' does not support 'system' with this model.", "no_system_role"),
        (400, b"property 'reasoning_content' is unsupported", "no_reasoning"),
        (400, b'{\n  "error": {\n    "message": "reasoning_content is unsupported"\n  }\n}', "no_reasoning"),
        (400, b"Unrecognized request argument supplied: parallel_tool_calls", "no_parallel_tool_calls"),
        (422, b'{"detail": [{"loc": ["body", "tools", 0, "function", "strict"]}]}', "no_strict_tools"),
        (400, b"Invalid 'tools[0].function.name': string does not match pattern.", "plain_tool_names"),
        (400, b"Your text about a stream is too long.", None),
        (400, b"The image is not supported. It ended in mid-stream.", None),
        (400, b'{"error": {"message": "Bad body", "param": "messages"}, "request": {"stream": true}}', None),
        (500, b"stream_options", None),
        (429, b"stream", None),
        (400, b"max_tokens must be at most 4096", None),
        (400, b"The upstream is broken", None),
        (400, b"", None),
    ],
)
def test_refusal_text_maps_to_its_quirk(status: int, refusal: bytes, found: QuirkName | None) -> None:
    """Nothing where the error is about something else. It is found once."""
    expected = None if found is None else frozenset({found})
    quirks = find_quirk(NONE, BODY, status=status, refusal=refusal)
    assert quirks == expected
    if quirks is not None:
        again = find_quirk(quirks, BODY, status=status, refusal=refusal)
        assert again is None or again > quirks


CALLED: Json = {
    "model": "m",
    "messages": [
        HI,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "Done."},
    ],
}
CHOSEN: Json = {
    **BODY,
    "tool_choice": {"type": "function", "function": {"name": "files.read"}},
}


@pytest.mark.parametrize(
    ("body", "status", "refusal", "found"),
    [
        (CALLED, 400, b"Missing `reasoning_content` field in the assistant message at index 2.", "reasoning_back"),
        (CALLED, 400, b"`reasoning_content` in the thinking mode must be passed back to the API", "reasoning_back"),
        (CALLED, 400, b"Function call is missing a thought_signature in functionCall parts.", "thought_signatures"),
        (CALLED, 400, b"Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.", "short_call_ids"),
        (CALLED, 500, b"Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.", "short_call_ids"),
        (CALLED, 400, b"Bedrock doesn't support tool calling without `tools=` param specified.", "tools_for_calls"),
        ({**CALLED, "tools": BODY["tools"]}, 400, b"tool calling without `tools=` param specified.", None),
        (CHOSEN, 400, b"Invalid tool_choice type: 'object'. Supported string values: none", "no_named_tool_choice"),
        ({**CHOSEN, "tool_choice": "auto"}, 400, b"Invalid tool_choice type: 'object'.", None),
        ({"max_completion_tokens": 5}, 400, b"('body', 'max_completion_tokens'), 'msg': 'Extra inputs", "max_tokens"),
        ({"max_completion_tokens": 5}, 400, b'Unknown name "max_completion_tokens": Cannot find field.', "max_tokens"),
        ({"max_completion_tokens": 5}, 400, b"max_completion_tokens must be at most 4096", None),
        ({"max_completion_tokens": 5}, 400, b"Use 'max_completion_tokens' for this model.", None),
    ],
)
def test_refusal_of_calls_or_limits_maps_to_its_quirk(
    body: Json, status: int, refusal: bytes, found: QuirkName | None
) -> None:
    """It is found once, and never in a request without it."""
    expected = None if found is None else frozenset({found})
    assert find_quirk(NONE, body, status=status, refusal=refusal) == expected
    if expected is not None:
        again = find_quirk(expected, body, status=status, refusal=refusal)
        assert again is None or again > expected
        assert find_quirk(NONE, {"model": "m", "messages": [HI]}, status=status, refusal=refusal) is None


def test_missing_reasoning_content_refusal_adds_reasoning_back() -> None:
    """Where an answer has its thoughts already, and another has none."""
    body = {**BODY, "messages": [*BODY["messages"], {"role": "assistant", "content": "Bye."}]}
    missed = b"Missing `reasoning_content` field in the assistant message at message index 6."
    assert find_quirk(NONE, body, status=400, refusal=missed) == {"reasoning_back"}
    assert find_quirk(frozenset({"reasoning_back"}), body, status=400, refusal=missed) is None
    sent = adapt_request(body, frozenset({"reasoning_back"}))
    assert [one.get("reasoning_content") for one in sent["messages"] if one["role"] == "assistant"] == ["Hm.", ""]


@pytest.mark.parametrize(
    "refusal",
    [b"developer", b"roles must alternate", b"reasoning_content", b"strict", b"max_tokens max_completion_tokens"],
)
def test_refusal_of_an_absent_field_maps_to_no_quirk(refusal: bytes) -> None:
    assert find_quirk(NONE, {"model": "m", "messages": [HI]}, status=400, refusal=refusal) is None


@pytest.mark.parametrize(
    ("quirk", "changed"),
    [
        ("no_usage_in_stream", {"stream": True}),
        ("no_stream", {"stream": False}),
        ("max_completion_tokens", {"max_completion_tokens": 5}),
        ("max_tokens", {"max_tokens": 5}),
        ("no_parallel_tool_calls", {"tools": BODY["tools"]}),
    ],
)
def test_quirk_removes_or_renames_request_fields(quirk: QuirkName, changed: Json) -> None:
    """The client's own words about streams do not count."""
    sent = adapt_request({**BODY, "stream": "yes", "stream_options": {}}, frozenset({quirk}))
    assert {name: sent.get(name) for name in changed} == changed
    gone = {
        "no_usage_in_stream": "stream_options",
        "no_stream": "stream_options",
        "max_completion_tokens": "max_tokens",
        "max_tokens": "max_completion_tokens",
    }
    assert gone.get(quirk, "parallel_tool_calls") not in sent


@pytest.mark.parametrize(
    ("quirks", "roles"),
    [
        ((), "developer user user assistant system user"),
        (("no_developer_role",), "system user user assistant system user"),
        (("one_system_message",), "developer user user assistant user"),
        (("no_system_role",), "user user assistant user user"),
        (("alternating_roles",), "system user assistant user"),
        (("no_system_role", "alternating_roles"), "user assistant user"),
        (QUIRKS, "user assistant user"),
    ],
)
def test_quirk_joins_messages_without_losing_text(quirks: tuple[QuirkName, ...], roles: str) -> None:
    """No text is lost, whatever a server refuses."""
    sent = adapt_request(BODY, frozenset(quirks))
    assert " ".join(message["role"] for message in sent["messages"]) == roles
    assert all(text in str(sent["messages"]) for text in ("Be brief.", "Hi", "there", "Hello.", "It is late.", "Bye"))


def test_quirk_removes_reasoning_and_strict_fields() -> None:
    sent = adapt_request(BODY, frozenset({"no_reasoning", "no_strict_tools"}))
    assert "Hm." not in str(sent) and sent["tools"][0]["function"] == {"name": "files.read", "parameters": {}}
    assert "Hm." in str(BODY) and "strict" in str(BODY)


def test_leading_system_messages_are_always_joined() -> None:
    """Of texts and of parts; the body of the client is not changed."""
    parts = [{"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]
    messages = [{"role": "system", "content": "a"}, {"role": "developer", "content": parts}, HI]
    body = {"model": "m", "messages": messages}
    sent = adapt_request(body, NONE)
    assert sent["messages"] == [{"role": "system", "content": [{"type": "text", "text": "a"}, *parts]}, HI]
    assert body["messages"] is messages and len(messages) == 3
    two = [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}, HI]
    assert adapt_request({"messages": two}, NONE)["messages"] == [{"role": "system", "content": "a\n\nb"}, HI]


def test_request_without_quirks_only_gains_stream_options() -> None:
    assert adapt_request({"model": "m", "messages": [HI]}, NONE) == {"model": "m", "messages": [HI], **STREAMED}


def test_learnt_quirks_keep_a_bounded_number_of_models() -> None:
    """Clients can name any: the oldest are forgotten."""
    learnt = LearntQuirks()
    for n in range(MODELS + 1):
        learnt.remember_quirks(QuirkKey("up", "one", f"model-{n}", ANN), frozenset({"no_stream"}))
    assert learnt.get_quirks(QuirkKey("up", "one", "model-0", ANN)) == NONE
    first = QuirkKey("up", "one", "model-1", ANN)
    assert learnt.get_quirks(first, configured=frozenset({"no_reasoning"})) == {"no_stream", "no_reasoning"}
    assert learnt.get_quirks(QuirkKey("up", "two", "model-1", ANN)) == NONE
    assert learnt.list_model_quirks("up", "model-1", whose=ANN) == {"no_stream"}
    assert (
        learnt.get_endpoint_quirks("up", "one")["model-1"] == ["no_stream"]
        and learnt.get_endpoint_quirks("up", "two") == {}
    )


def test_learnt_quirks_apply_to_one_key_only() -> None:
    """Another key's, also one of its name in another tenant, are sent as they came. Operators see it together."""
    learnt = LearntQuirks()
    learnt.remember_quirks(QuirkKey("up", "one", "m", ANN), frozenset({"no_stream"}))
    learnt.remember_quirks(QuirkKey("up", "one", "m", BOB), frozenset({"no_system_role"}))
    for whose in (("acme", "bo"), ("other", "ann")):
        assert (
            learnt.get_quirks(QuirkKey("up", "one", "m", whose))
            == learnt.list_model_quirks("up", "m", whose=whose)
            == NONE
        )
    assert learnt.get_quirks(QuirkKey("up", "one", "m", BOB)) == {"no_system_role"}
    assert learnt.get_endpoint_quirks("up", "one") == {"m": ["no_stream", "no_system_role"]}
