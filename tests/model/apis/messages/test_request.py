"""The body of a request to Messages: what has an equal, what passes, what is left out."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.model.apis.messages.request import build_messages_body, drop_sampling, list_lost_fields
from gateway.upstream.endpoint import ModelAccess
from tests.messages_rules import Ledger, find_fault

ACCESS = ModelAccess(api="messages", max_tokens=1000, prompt_caching=False)
HI: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def build(**body: object) -> Json:
    """The body; the API takes it."""
    built = build_messages_body({**HI, **body}, ACCESS)
    assert find_fault(built, Ledger()) is None
    return built


def test_smallest_request_has_a_limit_and_a_stream() -> None:
    turns = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    assert build() == {"model": "m", "max_tokens": 1000, "messages": turns, "stream": True}


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        ({"max_tokens": 7}, {"max_tokens": 7}),
        ({"max_tokens": 7, "max_completion_tokens": 8}, {"max_tokens": 8}),
        ({"max_tokens": "7"}, {"max_tokens": 1000}),
        ({"stop": "END"}, {"stop_sequences": ["END"]}),
        ({"stop": ["a", " ", 7, "b"]}, {"stop_sequences": ["a", "b"]}),
        ({"stop": "\n"}, {}),
        ({"temperature": 1.7}, {"temperature": 1}),
        ({"temperature": 0.3, "top_p": 0.5}, {"temperature": 0.3}),
        ({"top_p": 0.5}, {"top_p": 0.5}),
        ({"user": "u-1"}, {"metadata": {"user_id": "u-1"}}),
        ({"safety_identifier": "u-2"}, {"metadata": {"user_id": "u-2"}}),
        ({"service_tier": "default"}, {"service_tier": "standard_only"}),
        ({"service_tier": "flex"}, {}),
        ({"top_k": 5}, {"top_k": 5}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}},
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        ),
        ({"response_format": {"type": "json_object"}}, {}),
        (
            {
                "messages_api": {
                    "container": "c",
                    "top_k": 4,
                    "context_management": {"edits": []},
                    "service_tier": "auto",
                }
            },
            {"container": "c", "top_k": 4, "context_management": {"edits": []}, "service_tier": "auto"},
        ),
        ({"frequency_penalty": 1, "seed": 7, "logit_bias": {}, "prompt_cache_key": "k", "metadata": {"a": "b"}}, {}),
    ],
)
def test_fields_are_translated(asked: Json, sent: Json) -> None:
    assert {**build(), **sent} == build(**asked)


def test_name_of_a_person_is_sent_as_a_hash() -> None:
    """The API refuses addresses."""
    for user in ("ada@example.com", "Ada Lovelace", "x" * 300):
        sent = build(user=user)["metadata"]["user_id"]
        assert len(sent) == 64 and int(sent, 16)


@pytest.mark.parametrize(
    "name", ["messages", "model", "system", "tools", "mcp_servers", "stream", "max_tokens", "fallbacks"]
)
def test_field_of_the_client_replaces_nothing_that_the_gateway_has_checked(name: str) -> None:
    """Nor does it let the provider call tools or other models by itself."""
    assert build(messages_api={name: "other"}) == build()
    assert list_lost_fields({**HI, "messages_api": {name: "other"}}) == [f"messages_api.{name}"]


def test_lost_fields_are_listed() -> None:
    audio = {"role": "user", "content": [{"type": "input_audio"}, {"type": "text", "text": "x"}]}
    body: Json = {
        **HI,
        "messages": [audio],
        "seed": 7,
        "logit_bias": None,
        "temperature": 1,
        "response_format": {"type": "json_object"},
        "tools": [{"type": "custom"}, {"type": "function", "function": {"name": "a"}}],
    }
    assert list_lost_fields(body) == [
        *("seed", "response_format", "tools of the type custom", "parts of the type input_audio"),
    ]
    assert list_lost_fields(HI) == []


def test_sampling_is_dropped_wherever_it_stands() -> None:
    assert drop_sampling(HI) is HI
    body: Json = {**HI, "temperature": 1, "top_p": 1, "messages_api": {"top_k": 1, "container": "c"}}
    assert drop_sampling(body) == {**HI, "messages_api": {"container": "c"}}


def test_clients_body_is_never_changed() -> None:
    mark: Json = {"type": "ephemeral"}
    tool: Json = {"type": "bash_20250124", "name": "bash"}
    block: Json = {"type": "search_result", "title": "t", "cache_control": mark}
    marked = [{"role": "user", "content": [{"type": "text", "text": str(n), "cache_control": mark} for n in range(6)]}]
    for body in (
        {**HI, "tools": [tool]},
        {**HI, "messages": marked},
        {**HI, "messages": [{"role": "user", "content": [block]}]},
    ):
        before = repr(body)
        build_messages_body(body, ModelAccess(api="messages"))
        assert repr(body) == before
