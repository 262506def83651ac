"""The errors that upstream error answers become (over real sockets: test_model.py)."""

import pytest

from gateway.contracts.errors import GatewayError
from gateway.http.response_head import ResponseHead, ResponseHeads
from gateway.model.apis.chat.api import CHAT
from gateway.model.apis.messages.api import MESSAGES
from gateway.model.refusal import build_no_answer_error, build_upstream_error, get_call_outcome
from gateway.upstream.endpoint import ModelAccess
from tests.model.test_upstream_client import target


def head(status: int, *lines: bytes) -> ResponseHead:
    (found,) = ResponseHeads(b"POST").feed(
        b"HTTP/1.1 %d x\r\n%b\r\n" % (status, b"".join(b"%b\r\n" % one for one in lines))
    )
    return found


@pytest.mark.parametrize(("status", "told"), [(400, 400), (404, 404), (418, 418), (500, 500), (529, 529), (302, 502)])
def test_error_status_is_kept_and_redirect_becomes_502(status: int, told: int) -> None:
    """A status that is not for clients becomes a bad gateway."""
    assert build_upstream_error(head(status), b"", target(), CHAT).facts.status == told


@pytest.mark.parametrize(
    ("base_path", "hint"),
    [
        (b"", "look at its base_url"),
        (b"/v1", "look at its base_url"),
        (b"/v1beta/openai", "look at its base_url"),
        (b"/api", "perhaps its base_url must end in '/api/v1'"),
        (b"/v1x2/api", "perhaps its base_url must end in '/v1x2/api/v1'"),
    ],
)
def test_wrong_base_url_error_shows_the_url_and_a_hint(base_path: bytes, hint: str) -> None:
    """Mostly `/v1` is missing."""
    url = f"http://h.example{(base_path or b'/v1').decode()}/chat/completions"
    wrong = target(base_path=base_path)
    page = build_no_answer_error(head(200, b"Content-Type: text/html"), wrong, CHAT).message
    gone = build_upstream_error(head(404), b"<html>", wrong, CHAT).message
    assert all(url in text and hint in text for text in (page, gone)) and "'text/html'" in page
    assert "no content type" in build_no_answer_error(head(200), wrong, CHAT).message
    assert url not in build_upstream_error(head(404), b'{"error": {"message": "no such model"}}', wrong, CHAT).message


def test_call_outcome_metric_maps_errors_to_outcomes() -> None:
    """An error that clients made is no failure of the upstream."""
    errors = [
        GatewayError("upstream_timeout", ""),
        GatewayError("upstream_error", ""),
        GatewayError("upstream_limited", ""),
    ]
    assert [get_call_outcome(error) for error in errors] == ["timeout", "error", "ok"]
    assert get_call_outcome(KeyError()) == "cancelled"


def test_hint_at_a_base_url_of_messages_names_no_version() -> None:
    """The gateway adds it."""
    wrong = target(base_path=b"/anthropic", models=ModelAccess(api="messages"))
    told = build_upstream_error(head(404), b"", wrong, MESSAGES).message
    assert "http://h.example/anthropic/v1/messages; look at its base_url" in told
    assert "stream of the events of Messages" in build_no_answer_error(head(200), wrong, MESSAGES).message
