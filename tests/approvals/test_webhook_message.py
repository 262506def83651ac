"""Notices are signed as receivers expect it."""

import base64
import hashlib
import hmac

import orjson
import pytest

from gateway.approvals.webhook_message import (
    build_approval_notice,
    build_message_id,
    build_webhook_headers,
    decode_webhook_key,
)

#: The example of the reference implementations of Standard Webhooks.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "ap_a2b3c4d5e6f7g2h3i4j5k6l7mq"


def test_the_signature_is_that_of_the_reference_implementations() -> None:
    """Their published example."""
    headers = build_webhook_headers(
        b'{"test": 2432232314}',
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        key=decode_webhook_key(SECRET),
        now_s=1614265330.9,
    )
    assert headers == {
        "content-type": "application/json",
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_webhook_signature_is_verifiable_from_headers_and_body() -> None:
    """From the header lines and the bytes of the body alone; a second attempt differs in time and signature only."""
    key, body = decode_webhook_key("a secret of our own"), b"{}\n"
    first = build_webhook_headers(body, message_id=ID, key=key, now_s=1000.0)
    again = build_webhook_headers(body, message_id=ID, key=key, now_s=1060.0)
    for headers in (first, again):
        signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
        digest = hmac.new(b"a secret of our own", signed, hashlib.sha256).digest()
        assert headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
    assert first["webhook-id"] == again["webhook-id"]
    assert first["webhook-signature"] != again["webhook-signature"]


def test_a_secret_is_base64_or_text() -> None:
    """By its prefix; bytes of the environment that are not UTF-8 are kept."""
    assert decode_webhook_key("whsec_" + base64.b64encode(b"\x00\xff" * 12).decode()) == b"\x00\xff" * 12
    assert decode_webhook_key("plain ü") == "plain ü".encode()
    assert decode_webhook_key("\udcff") == b"\xff"


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_c2VjcmV0 c2VjcmV0", "whsec_abc", "whsec_ü", "\ud800secret"])
def test_invalid_webhook_secret_is_refused_without_being_shown(secret: str) -> None:
    """The text says what to do, and never what the secret was."""
    with pytest.raises(ValueError, match="webhook secret") as raised:
        decode_webhook_key(secret)
    assert secret.removeprefix("whsec_") == "" or secret.removeprefix("whsec_") not in str(raised.value)


#: The facts of an approval that one key gives.
ALONE = {"required_approvals": 1, "approved_by": [], "edited_arguments": None}


def test_notice_body_describes_the_pending_call_expiry_and_link() -> None:
    """Arguments as a person is shown them, when it expires, where it can be decided."""
    view = {
        "id": ID,
        "run_id": "run_7",
        "tool": "execute_command",
        "arguments": {"command": "ls\u202e", "timeout_s": 5},
        "sha256": "ab" * 32,
        "reason": "not on the\nwhitelist",
        "rule": "command.unknown",
        "created_at": 1763789100.0,
        "expires_at": 1763790000.5,
        **ALONE,
    }
    body = build_approval_notice(view, link=f"https://gw.example/console#{ID}", decision_link=None)
    assert orjson.loads(body) == {
        "type": "approval.required",
        "timestamp": "2025-11-22T05:25:00Z",
        "data": {
            "id": ID,
            "run_id": "run_7",
            "tool": "execute_command",
            "arguments": 'command: "ls\\u{202e}"\ntimeout_s: 5',
            "left_out": None,
            "sha256": "ab" * 32,
            "reason": "not on the\\nwhitelist",
            "rule": "command.unknown",
            "expires": "2025-11-22T05:40:00Z",
            "required_approvals": 1,
            "approved_by": [],
            "link": f"https://gw.example/console#{ID}",
            "decision_link": None,
        },
    }


def test_webhook_message_without_public_url_has_no_link() -> None:
    """No public address, no link; odd text raises nothing."""
    odd = {"id": ID, "tool": "t\ud800", "arguments": {"a\ud800": "\udfff"}, "reason": "\ud800", "rule": ""}
    view = {**odd, "run_id": "run_7", "sha256": "", "created_at": 0.0, "expires_at": 1e300, **ALONE}
    notice = orjson.loads(build_approval_notice(view, link=None, decision_link=None))
    assert notice["data"]["link"] is None
    assert notice["data"]["expires"] == "9999-12-31T23:59:59Z"
    assert notice["data"]["reason"] == "\\u{d800}"


def test_webhook_message_after_first_approval_has_a_new_id() -> None:
    """With another id, or a receiver takes it for a repeat: who has approved, and what would run now."""
    given = [{"by": "an\u202ena", "user": None, "via": "chat", "at": 1763789160.25}]
    view = {"id": ID, "run_id": "run_7", "tool": "t", "arguments": {"a": 1}, "sha256": "", "reason": "", "rule": ""}
    view |= {"created_at": 1763789100.0, "expires_at": 1763790000.5, "required_approvals": 2, "approved_by": given}
    view |= {"edited_arguments": {"a": 2}}
    notice = orjson.loads(
        build_approval_notice(view, link=None, decision_link="https://gw.example/console/link?token=x")
    )
    assert (notice["type"], notice["timestamp"]) == ("approval.partly_approved", "2025-11-22T05:26:00Z")
    data = notice["data"]
    assert (data["arguments"], data["required_approvals"], data["approved_by"]) == ("a: 2", 2, ["an\\u{202e}na"])
    assert data["decision_link"] == "https://gw.example/console/link?token=x"
    assert build_message_id(view) == f"{ID}.1763789160250" and build_message_id({**view, "approved_by": []}) == ID
