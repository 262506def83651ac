"""The stages that answer, change and refuse requests, as openai-python meets them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from tests.clients.conftest import running

pytestmark = pytest.mark.clients

SECRET = "Write to ann@example.com"
BLOCKING = {"phrases": {"projects": ["Blue Heron"]}}
REASON = "projects"
streams = pytest.mark.parametrize("stream", [False, True])


@contextmanager
def client_of(tmp_path: Path, stage: str, options: Mapping[str, object]) -> Iterator[openai.OpenAI]:
    """A client of a gateway whose chain has this stage alone, before the demo model, which repeats what it is asked."""
    chains = {"assistant": [{"use": stage, "with": options}]}
    text = json.dumps({"store": f"sqlite:///{tmp_path}/gateway.db", "chains": chains})
    with (
        running(text) as gateway,
        openai.OpenAI(base_url=f"{gateway.base_url}/context/v1", api_key="x", max_retries=0) as client,
    ):
        yield client


def said(client: openai.OpenAI, prompt: str, *, stream: bool) -> tuple[str, str | None]:
    """The text of an answer, and why it ended."""
    messages = [{"role": "user", "content": prompt}]
    if not stream:
        (choice,) = client.chat.completions.create(model="demo", messages=messages).choices  # type: ignore[call-overload]
        return choice.message.content or "", choice.finish_reason
    text, finish = "", None
    for chunk in client.chat.completions.create(model="demo", messages=messages, stream=True):  # type: ignore[call-overload]
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    return text, finish


@streams
def test_cached_answer_is_a_valid_completion(tmp_path: Path, *, stream: bool) -> None:
    """Streamed or whole, whichever way it was made; a header says where it is from."""
    with client_of(tmp_path, "response_cache", {"any_temperature": True}) as client:
        first = said(client, "Say hello", stream=stream)
        raw = client.chat.completions.with_raw_response.create(
            model="demo", messages=[{"role": "user", "content": "Say hello"}]
        )
        assert raw.headers["x-context-cache"] == "hit"
        again = raw.parse()
        assert (again.choices[0].message.content, again.choices[0].finish_reason) == first
        assert again.usage is not None and again.usage.total_tokens == 0
        assert said(client, "Say hello", stream=True) == first


@streams
def test_redacted_data_is_hidden_from_the_model_and_restored(tmp_path: Path, *, stream: bool) -> None:
    """The model repeats what it got."""
    with client_of(tmp_path, "redact_pii", {"restore": False}) as client:
        text, _ = said(client, SECRET, stream=stream)
        assert "[EMAIL_1]" in text and "ann@example.com" not in text
    with client_of(tmp_path, "redact_pii", {"restore": True}) as client:
        text, _ = said(client, SECRET, stream=stream)
        assert "ann@example.com" in text and "[EMAIL_1]" not in text


@streams
def test_blocked_request_raises_a_client_error_with_the_reason(tmp_path: Path, *, stream: bool) -> None:
    with client_of(tmp_path, "block_list", {**BLOCKING, "on_block": "error"}) as client:
        with pytest.raises(openai.BadRequestError, match=REASON) as raised:
            said(client, "Tell me of Blue Heron", stream=stream)
        assert (raised.value.status_code, raised.value.code) == (400, "content_blocked")
        assert said(client, "Say hello", stream=stream)[1] == "stop"


@streams
def test_blocked_request_can_answer_with_content_filter(tmp_path: Path, *, stream: bool) -> None:
    """Of the finish reason that clients know for it."""
    with client_of(tmp_path, "block_list", BLOCKING) as client:
        text, finish = said(client, "Tell me of Blue Heron", stream=stream)
        assert finish == "content_filter" and REASON in text
