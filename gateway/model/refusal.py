"""The errors that an upstream's error answers become."""

import re
from http import HTTPStatus
from typing import Final

import orjson

from gateway.errors import GatewayError
from gateway.http.redact import maskable
from gateway.http.response_head import ResponseHead
from gateway.http.retry_after import wanted_pause_s
from gateway.model.target import Target

#: The path that models are called under.
CHAT = b"/chat/completions"
#: How much of an upstream's error answer is read for its message.
ERROR_LIMIT_BYTES = 65536
#: Longest wait that is passed on; openai-node waits literally for whatever it is told.
RETRY_AFTER_S = 60
#: So much of the message goes to the client.
MESSAGE_CHARS = 2000
_TYPE_CHARS = 100
#: Codes of failures that pass, or that another upstream may not have: a limit, a broken server, a silence.
PASSING: Final = frozenset(
    (
        "circuit_open",
        "overloaded",
        "rate_limit_exceeded",
        "upstream_limited",
        "upstream_error",
        "upstream_timeout",
        "upstream_unavailable",
    )
)
#: Status of a path that is not there: mostly the base URL is wrong.
_NOT_THERE = frozenset((HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED))
_ERROR_STATUS = re.compile("[45][0-9][0-9]")
_VERSION = re.compile(rb"/v[0-9]+(?:alpha|beta)?[0-9]*(?:/|\Z)")


def refusal(head: ResponseHead, content: bytes, target: Target) -> GatewayError:
    """Return the error for an upstream's error answer, with its status and its Retry-After."""
    try:
        parsed = orjson.loads(content)
    except orjson.JSONDecodeError:
        parsed = None
    message = message_of(parsed.get("error") if isinstance(parsed, dict) else None, target)
    text = f"Upstream {target.name!r} answered {head.status}" + (f": {message}" if message else ".")
    if not message and head.status in _NOT_THERE:
        text += f" It was asked for {target.url(CHAT)}; {_hint(target)}."
    code = {401: "upstream_refused", 403: "upstream_refused", 429: "upstream_limited"}.get(head.status)
    if code is None:
        code = "upstream_rejected" if 400 <= head.status < 500 else "upstream_error"
    error = GatewayError(code, text, retry_after_s=_wait_s(head))
    error.settled = (head.value(b"x-should-retry") or b"").lower() == b"false"
    return error.with_status(head.status) if 400 <= head.status < 600 else error


def passes(error: GatewayError) -> bool:
    """Return whether a request that failed so may be sent again, later or elsewhere."""
    return error.code in PASSING and not error.settled


def no_answer(head: ResponseHead, target: Target) -> GatewayError:
    """Return the error of an answer that is neither a stream nor JSON, such as a page."""
    kind = (head.value(b"content-type") or b"").decode("latin-1")[:_TYPE_CHARS]
    what = f"the content type {kind!r}" if kind else "no content type"
    return target.broken(
        f"it answered POST {target.url(CHAT)} with status {head.status} and {what}, neither with a stream of chat "
        f"completion chunks (text/event-stream) nor with JSON; {_hint(target)}"
    )


def _hint(target: Target) -> str:
    """Return a hint at the usual mistake in a base URL."""
    path = target.pool.endpoint.base_path
    if path and not _VERSION.search(path):
        return f"perhaps its base_url must end in '{path.decode('latin-1')}/v1'"
    return "look at its base_url"


def _wait_s(head: ResponseHead) -> float | None:
    """Return how many seconds the upstream wants to be left alone, at most `RETRY_AFTER_S`, or None."""
    wanted_s = wanted_pause_s(head)
    return None if wanted_s is None else min(wanted_s, RETRY_AFTER_S)


def message_of(error: object, target: Target) -> str:
    """Return the upstream's own message without its key (some upstreams repeat it), or ""."""
    message = error.get("message") if isinstance(error, dict) else error
    if not isinstance(message, str):
        return ""
    secret = maskable(target.pool.endpoint.api_key)
    return (message if secret is None else message.replace(secret.decode(), "***"))[:MESSAGE_CHARS]


def status_of(error: object) -> int:
    """Return the status of an error in an event; 500, which may be the fault of the request, if it has none."""
    said = [str(error.get(name)) for name in ("status", "code")] if isinstance(error, dict) else []
    return next((int(status) for status in said if _ERROR_STATUS.fullmatch(status)), 500)


def outcome_of(error: BaseException) -> str:
    """Return the metric's label for the end of a call."""
    if not isinstance(error, GatewayError):
        return "cancelled"
    if error.code == "upstream_timeout":
        return "timeout"
    return "error" if error.facts.status >= 500 else "ok"
