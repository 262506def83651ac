"""The end of a response in the words of chat completions."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.model.apis.responses.ending import build_ending, build_error, build_usage


@pytest.mark.parametrize(
    ("response", "has_calls", "finish", "native"),
    [
        ({"status": "completed"}, False, "stop", "completed"),
        ({"status": "completed"}, True, "tool_calls", "completed"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            True,
            "length",
            "max_output_tokens",
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            False,
            "content_filter",
            "content_filter",
        ),
        ({"status": "incomplete"}, False, "length", "incomplete"),
    ],
)
def test_end_has_a_reason(response: Json, has_calls: bool, finish: str, native: str) -> None:
    ending = build_ending(response, has_calls=has_calls)
    assert ending == {"index": 0, "delta": {}, "finish_reason": finish, "native_finish_reason": native}


def test_usage_has_cached_written_and_reasoning_tokens() -> None:
    asked = {"cached_tokens": 5, "cache_write_tokens": 3}
    told = {"input_tokens": 20, "input_tokens_details": asked, "output_tokens": 7}
    assert build_usage({**told, "output_tokens_details": {"reasoning_tokens": 4}}) == {
        "prompt_tokens": 20,
        "completion_tokens": 7,
        "total_tokens": 27,
        "prompt_tokens_details": {"cached_tokens": 5},
        "cache_creation_input_tokens": 3,
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    assert build_usage({"input_tokens": 1, "output_tokens": 1}) == {
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "total_tokens": 2,
    }
    assert build_usage(None) is None


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "Slow down."}, "rate_limit_error"),
        ({"error": {"code": "server_error", "message": "Oops."}}, None),
        ({"error": {"type": "invalid_request_error", "message": "No."}}, "invalid_request_error"),
        (7, None),
    ],
)
def test_error_has_the_type_of_its_code(told: object, kind: str | None) -> None:
    assert build_error(told)["error"]["type"] == kind
