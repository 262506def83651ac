"""The gateway's own answers are what an OpenAI client expects, whole, and understood by every parser."""

import json
import re

import pytest

from gateway.contracts.errors import CODES, GatewayError
from gateway.http.error_response import build_error_answer, build_error_body, generate_request_id
from tests.http.second_opinions import h11_response, llhttp_response

REQUEST_ID = "req_0123456789abcdef01234567"


def fields_of(answer: bytes) -> dict[bytes, bytes]:
    return dict(h11_response(answer, method=b"GET").fields)


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("code", CODES)
def test_error_answer_is_complete_and_openai_shaped(code: str, close: bool) -> None:
    """K19: status, JSON, length and request id; no Server, no Date, nothing else. llhttp and h11 agree on it."""
    error = GatewayError(code, "Something is amiss: do this.", param="host")
    answer = build_error_answer(error, request_id=REQUEST_ID, close=close)
    second = h11_response(answer + b"HTTP/1.1 200 OK\r\n", method=b"GET")
    third = llhttp_response(answer, guess=len(answer))
    assert second.end == third.end == len(answer)
    assert second.line == third.line == (b"%d" % CODES[code].status, b"1")
    assert third.keep_alive is not close
    fields = dict(second.fields)
    expected = {b"content-type", b"content-length", b"x-request-id"}
    assert fields.keys() == expected | ({b"connection"} if close else set()) | (
        {b"www-authenticate", b"x-should-retry"} if CODES[code].status == 401 else set()
    )
    assert (fields[b"content-type"], fields[b"x-request-id"]) == (b"application/json", REQUEST_ID.encode())
    assert json.loads(second.payload) == {
        "error": {
            "message": f"Something is amiss: do this. (request id: {REQUEST_ID})",
            "type": CODES[code].type,
            "param": "host",
            "code": code,
        }
    }


def test_error_content_length_counts_bytes() -> None:
    """A text beyond ASCII stays readable."""
    error = GatewayError("upstream_error", "Upstream 'größe 大' failed.")
    answer = build_error_answer(error, request_id=REQUEST_ID, close=False)
    assert fields_of(answer)[b"content-length"] == b"%d" % len(build_error_body(error, request_id=REQUEST_ID))
    assert "größe 大".encode() in answer and b'"param": null' in answer


def test_error_answer_to_head_has_no_body() -> None:
    """With the length that GET would have had."""
    error = GatewayError("unknown_route", "No route.")
    whole = build_error_answer(error, request_id=REQUEST_ID, close=False)
    head = build_error_answer(error, request_id=REQUEST_ID, close=False, head_only=True)
    assert whole == head + build_error_body(error, request_id=REQUEST_ID) and head.endswith(b"\r\n\r\n")


def test_error_response_carries_a_retry_after_header() -> None:
    """In whole seconds, at most 60: SDKs ignore longer ones."""
    error = GatewayError("overloaded", "Too much at once.", retry_after_s=1)
    assert fields_of(build_error_answer(error, request_id=REQUEST_ID, close=False))[b"retry-after"] == b"1"


def test_unauthorized_response_names_the_bearer_scheme() -> None:
    """RFC 9110 section 11.6.1: a 401 names the scheme."""
    for code in ("missing_api_key", "invalid_api_key"):
        answer = build_error_answer(GatewayError(code, "No."), request_id=REQUEST_ID, close=False)
        assert fields_of(answer)[b"www-authenticate"] == b"Bearer"
        assert fields_of(answer)[b"x-should-retry"] == b"false"


def test_error_message_cannot_escape_its_json() -> None:
    """Quotes, control characters and line ends are data."""
    text = 'a "b" \\ \r\nX: y\r\n\r\n\0 \u2028'
    answer = build_error_answer(GatewayError("bad_framing", text), request_id=REQUEST_ID, close=True)
    assert b"X: y" not in answer.split(b"\r\n\r\n")[0]
    assert json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["message"].startswith(text)


def test_request_ids_are_unique() -> None:
    """`req_` and 96 bits of chance."""
    ids = {generate_request_id() for _ in range(1000)}
    assert len(ids) == 1000 and all(re.fullmatch(r"req_[0-9a-f]{24}", one) for one in ids)
