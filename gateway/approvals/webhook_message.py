"""Notices of approvals to the operator's own endpoint: the body, and its signature by the Standard Webhooks scheme.

https://github.com/standard-webhooks/standard-webhooks: HMAC-SHA256 over `id.timestamp.body`. A notice that is sent
again has the same id, and gets a new timestamp and signature.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

import orjson

from gateway.approvals.escaping import NAME_CHARS, count_hidden, escape_line, format_shown_arguments
from gateway.approvals.texts import REASON_CHARS, convert_to_utc
from gateway.approvals.view import get_waiting_arguments
from gateway.contracts.storage.store import Json

EVENT: Final = "approval.required"
#: Another key has approved the call, and others must, too.
PARTLY_APPROVED: Final = "approval.partly_approved"
_PREFIX: Final = "whsec_"


def decode_webhook_key(secret: str) -> bytes:
    """Return the signing key: base64 behind `whsec_`, else the text itself. Raises ValueError."""
    if not secret:
        raise ValueError("the webhook secret is empty: set 24 random bytes or more, as whsec_ and base64")
    # The texts never repeat what was given: it is a secret.
    try:
        if not secret.startswith(_PREFIX):
            return secret.encode("utf-8", "surrogateescape")  # as the environment had it
        key = base64.b64decode(secret[len(_PREFIX) :], validate=True)
    except UnicodeEncodeError:
        raise ValueError("the webhook secret is not valid Unicode: set it anew") from None
    except ValueError:
        raise ValueError("the webhook secret is not base64 behind whsec_: copy it whole, or leave whsec_ out") from None
    if not key:
        raise ValueError("the webhook secret has nothing behind whsec_: copy it whole")
    return key


def build_webhook_headers(body: bytes, *, message_id: str, key: bytes, now_s: float) -> Mapping[str, str]:
    """Return the header lines of one attempt to deliver `body`."""
    timestamp = str(int(now_s))
    signed = f"{message_id}.{timestamp}.".encode() + body
    signature = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{signature}",
    }


def build_message_id(view: Json) -> str:
    """Return the id of the notice about an approval: another one for each key that has approved it."""
    given = view["approved_by"]
    return f"{view['id']}.{given[-1]['at'] * 1000:.0f}" if given else str(view["id"])


def build_approval_notice(view: Json, *, link: str | None, decision_link: str | None) -> bytes:
    """Return the body of a notice: `{"type", "timestamp", "data"}`. Arguments are written as a person sees them.

    `view` is the approval as `build_approval_view` shows it; `link` is the page where it can be decided with a key, and
    `decision_link` the one without. The time is that of the question, or of the last approval of several, so that the
    notice is always the same.
    """
    given, arguments = view["approved_by"], get_waiting_arguments(view)
    hidden = count_hidden(arguments)
    return orjson.dumps(
        {
            "type": PARTLY_APPROVED if given else EVENT,
            "timestamp": _format_iso(given[-1]["at"] if given else view["created_at"]),
            "data": {
                "id": view["id"],
                "run_id": view["run_id"],
                "tool": escape_line(view["tool"], NAME_CHARS),
                "arguments": format_shown_arguments(arguments),
                "left_out": None if hidden is None else {"characters": hidden.chars, "lines": hidden.lines},
                "sha256": view["sha256"],
                "reason": escape_line(view["reason"], REASON_CHARS),
                "rule": escape_line(view["rule"], REASON_CHARS),
                "expires": _format_iso(view["expires_at"]),
                "required_approvals": view["required_approvals"],
                "approved_by": [escape_line(one["by"], NAME_CHARS) for one in given],
                "link": link,
                "decision_link": decision_link,
            },
        }
    )


def _format_iso(time_s: float) -> str:
    return convert_to_utc(time_s).strftime("%Y-%m-%dT%H:%M:%SZ")
