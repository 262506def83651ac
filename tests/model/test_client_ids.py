"""The header fields that say who and where a client is."""

import pytest

from gateway.model.client_ids import remove_client_ids


@pytest.mark.parametrize(
    "name",
    [
        b"x-codex-turn-metadata",
        b"session_id",
        b"Session-Id",
        b"thread-id",
        b"conversation_id",
        b"x-client-request-id",
        b"ChatGPT-Account-Id",
        b"X-OpenWebUI-User-Name",
        b"X-User-Email",
        b"x-session-affinity",
        b"X-Forwarded-For",
        b"X_Real_IP",
        b"Referer",
        b"Cf-Access-Jwt-Assertion",
    ],
)
def test_client_id_header_is_removed_regardless_of_spelling(name: bytes) -> None:
    """However it is spelt, and only its own line."""
    before, behind = b"User-Agent: codex\r\n", b"X-Title: Codex\r\n"
    assert remove_client_ids(before + name + b": v\r\n" + behind) == before + behind


def test_headers_other_than_client_ids_are_kept() -> None:
    """Those of the account that pays, of the program's kind, of the request and of its trace."""
    lines = (
        b"User-Agent: codex_cli_rs\r\nX-Stainless-Lang:  python\r\nOpenAI-Organization: org\r\nOpenAI-Project: p\r\n"
        b"OpenAI-Beta: x\r\nHTTP-Referer: https://a.example\r\nx-request-id: r\r\ntraceparent: 00-1\r\nX-Idle:\r\n"
    )
    assert remove_client_ids(lines) == lines
