"""The bytes that go to an upstream. What a whole call sends is in tests/model/test_call.py."""

import orjson

from gateway.model.http_request import build_list_request, build_model_request
from gateway.upstream.endpoint import ModelAccess
from tests.agent.models import SECRET, exchange
from tests.model.test_upstream_client import target

CREDENTIAL = b"Authorization: Bearer sk-client\r\n"


def test_chat_request_uses_the_model_name_of_its_candidate() -> None:
    """The rest of the body stays; without a name of its own, the one of the request stays, too."""
    asked = exchange(b"X-One: 1\r\n", model="fast", temperature=0.5)
    for name, sent in (("big", "big"), (None, "fast")):
        request = build_model_request(
            asked, target(), frozenset({"no_usage_in_stream"}), model=name, credential=CREDENTIAL
        )
        head, _, body = request.partition(b"\r\n\r\n")
        assert head.startswith(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: h.example\r\nX-One: 1\r\nAuthorization: Bearer sk-c"
        )
        assert orjson.loads(body) == {**asked.body, "model": sent, "stream": True}


def test_upstream_key_is_sent_in_place_of_the_client_credential() -> None:
    """In the header where the client put its own credential."""
    mine = target(api_key=SECRET)
    request = build_model_request(exchange(), mine, frozenset({"no_stream"}), credential=CREDENTIAL)
    assert b"Authorization: Bearer " + SECRET + b"\r\nAccept: application/json\r\n" in request
    assert b"sk-client" not in request


def test_model_list_request_forwards_client_headers_without_session_ids() -> None:
    """Without its ids, and with its credential."""
    request = build_list_request(
        target(), b"X-One: 1\r\nSession-Id: s\r\n", credential=CREDENTIAL, header=b"authorization"
    )
    assert request == b"GET /v1/models HTTP/1.1\r\nHost: h.example\r\nX-One: 1\r\n" + CREDENTIAL + (
        b"Accept: application/json\r\n\r\n"
    )


def test_client_ids_are_sent_only_to_upstreams_that_allow_them() -> None:
    """With a question and with the request for the list."""
    lines = b"X-One: 1\r\nX-Codex-Turn-Metadata: {}\r\n"
    for may, sent in ((False, b"X-One: 1\r\n"), (True, lines)):
        mine = target(models=ModelAccess(client_ids=may))
        asked = build_model_request(exchange(lines), mine, frozenset(), credential=CREDENTIAL)
        assert b"Host: h.example\r\n" + sent + CREDENTIAL in asked
        assert b"Host: h.example\r\n" + sent + CREDENTIAL in build_list_request(
            mine, lines, credential=CREDENTIAL, header=b"authorization"
        )
