"""The errors that an upstream's error answers become."""

import re
from http import HTTPStatus

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.http.redact import get_maskable_key
from gateway.http.response_head import ResponseHead
from gateway.http.retry_after import read_retry_after_s
from gateway.model.apis.model_api import ModelApi
from gateway.model.error_words import parse_answer_error, parse_error_words
from gateway.model.upstream_client import Target

#: How much of an upstream's error answer is read for its message.
ERROR_LIMIT_BYTES = 65536
#: Longest wait that is passed on; openai-node waits for any stated time literally.
RETRY_AFTER_S = 60
_TYPE_CHARS = 100
#: Status of a path that is not there: mostly the base URL is wrong.
_NOT_THERE = frozenset((HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED))
_VERSION = re.compile(rb"/v[0-9]+(?:alpha|beta)?[0-9]*(?:/|\Z)")


def build_upstream_error(head: ResponseHead, content: bytes, target: Target, api: ModelApi) -> GatewayError:
    """Return the error for an upstream's error answer, with its status and its Retry-After."""
    words = parse_answer_error(content, secret=_get_secret(target))
    text = f"Upstream {target.name!r} answered {head.status}" + (f": {words.message}" if words.message else ".")
    if not words.message and head.status in _NOT_THERE:
        text += f" The gateway requested {target.build_url(api.path)}; {_format_hint(target)}."
    code = {401: "upstream_refused", 403: "upstream_refused", 429: "upstream_limited"}.get(head.status)
    if code is None:
        code = "upstream_rejected" if 400 <= head.status < 500 else "upstream_error"
    error = GatewayError(code, text, param=words.param, retry_after_s=_parse_retry_after_s(head))
    error.upstream_code = words.code
    error.settled = (head.find_value(b"x-should-retry") or b"").lower() == b"false"
    return error.with_status(head.status) if 400 <= head.status < 600 else error


def build_no_answer_error(head: ResponseHead, target: Target, api: ModelApi) -> GatewayError:
    """Return the error of an answer that is neither a stream nor JSON, such as a page."""
    kind = (head.find_value(b"content-type") or b"").decode("latin-1")[:_TYPE_CHARS]
    what = f"the content type {kind!r}" if kind else "no content type"
    return target.build_answer_error(
        f"it answered POST {target.build_url(api.path)} with status {head.status} and {what}, neither with "
        f"{api.answers} nor with JSON; {_format_hint(target)}"
    )


def _format_hint(target: Target) -> str:
    """Return a hint at the usual mistake in a base URL."""
    build_path = target.build_path(b"")
    if not _VERSION.search(build_path):
        return f"perhaps its base_url must end in '{build_path.decode('latin-1')}/v1'"
    return "look at its base_url"


def _parse_retry_after_s(head: ResponseHead) -> float | None:
    """Return how many seconds the upstream wants to be left alone, at most `RETRY_AFTER_S`, or None."""
    wanted_s = read_retry_after_s(head)
    return None if wanted_s is None else min(wanted_s, RETRY_AFTER_S)


def convert_error_event(event: Json, target: Target) -> GatewayError:
    """Return the error that an upstream sent as its answer, behind a head with 200.

    One that names no status counts as 502: another upstream may answer. It opens no breaker, as the request may be at
    fault.
    """
    words = parse_error_words(event.get("error") or event, secret=_get_secret(target))
    target.error_status, target.is_excused = words.status or HTTPStatus.BAD_GATEWAY, not words.status
    error = target.build_answer_error(words.message or "it sent an error in its answer")
    error.param, error.upstream_code = words.param, words.code
    return error


def _get_secret(target: Target) -> str:
    """Return the upstream's key, which some upstreams repeat, or ""."""
    secret = get_maskable_key(target.pool.endpoint.api_key)
    return "" if secret is None else secret.decode()


def get_call_outcome(error: BaseException) -> str:
    """Return the metric's label for the end of a call."""
    if not isinstance(error, GatewayError):
        return "cancelled"
    if error.code == "upstream_timeout":
        return "timeout"
    return "error" if error.facts.status >= 500 else "ok"
