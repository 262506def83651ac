"""The lane that a request takes, decided on the raw path and the X-Context-* headers alone."""

import re
from collections.abc import Collection
from typing import Literal

from gateway.contracts.errors import GatewayError
from gateway.dialects.registry import COLLECTIONS, ENDPOINTS, HELPERS
from gateway.http.request_head import RequestHead
from gateway.lanes.billable_paths import generates
from gateway.lanes.path_normalization import may_act_as_post
from gateway.lanes.routes import get_path

Mode = Literal["own", "context", "passthrough"]

CONTEXT_PREFIX = b"x-context-"
#: What dialects answer, behind a base URL.
_ANSWERED = (*ENDPOINTS.values(), *(path for helpers in HELPERS.values() for path in helpers))
#: Context requests by an X-Context-* header: what a dialect answers, beneath the base URL of passthrough.
_BY_HEADER = frozenset(b"/v1/" + path.encode() for path in _ANSWERED)
#: What dialects store, and below each the pages of single ones.
_STORED = frozenset(b"/v1/" + name.encode() for name in COLLECTIONS)
_BELOW_STORED = tuple(collection + b"/" for collection in _STORED)
#: Below each are the pages of single ones, where it is our own itself.
PROMPTS, WORKFLOWS, SERVICES = b"/v1/system-prompts", b"/workflows", b"/mcp/services"
CONSOLE = b"/console"
#: Paths that the context lane answers itself; the rest of the API beneath its base URL is the upstream's.
CONTEXT_BASE = b"/context/v1/"
_OWN_OF_CONTEXT = frozenset(CONTEXT_BASE + part.encode() for part in (*_ANSWERED, "models"))
#: Single models, which clients of Messages get from the context lane's list: they send the version of their API.
_SINGLE_MODELS = CONTEXT_BASE + b"models/"
#: Upstream paths that a key for the context lane may use: plain models, of which none calls tools or stores anything.
_PLAIN = re.compile(
    rb"/context/v1/(?:embeddings|moderations|rerank|audio/(?:speech|transcriptions|translations)"
    rb"|images/(?:generations|edits|variations)|models(?:/[A-Za-z0-9_:@-][A-Za-z0-9_.:@-]*)+)"
)
_SINGLES = (PROMPTS, WORKFLOWS, SERVICES, CONSOLE)
_BELOW_SINGLES = tuple(collection + b"/" for collection in _SINGLES)


def classify(head: RequestHead, target: bytes, own_paths: Collection[bytes]) -> Mode:
    """Return the lane of a request for `target` (aliases resolved). Raises GatewayError if context headers contradict.

    Own routes come first, by exact path. `/context` and everything under it is context, but for the API beneath
    `/context/v1`: there the endpoints of dialects with what they store, and the list of models, are context, what else
    generates is refused, and the rest is passthrough. Such a path elsewhere is context if the request has an
    X-Context-* header, unless X-Context-Mode is `passthrough`. Everything else is passthrough; there these headers have
    no effect, so they are refused where something is generated without the mode that they need.
    """
    path = get_path(target)
    if path in own_paths or build_wildcard(path) in own_paths:
        return "own"
    if path.startswith(_BELOW_SINGLES) and any(path.startswith(one + b"/") and one in own_paths for one in _SINGLES):
        return "own"
    headers = collect_context_headers(head)
    mode = headers.get(b"x-context-mode")
    if mode not in (None, b"context", b"passthrough"):
        raise GatewayError(
            "invalid_header",
            "The value of 'X-Context-Mode' is not known: send 'context' or 'passthrough'.",
            param="x-context-mode",
        )
    if path == b"/context" or path.startswith(b"/context/"):
        if not path.startswith(CONTEXT_BASE) or path == CONTEXT_BASE or path.removesuffix(b"/") in _OWN_OF_CONTEXT:
            return "context"
        if _is_collection_path(path.removeprefix(b"/context")):
            return "context"
        if path.startswith(_SINGLE_MODELS) and head.find_value(b"anthropic-version") is not None:
            return "context"
        if _may_generate_text(head, path):
            raise GatewayError(
                "unsupported_endpoint",
                "The context lane supports chat completions, responses and messages: set the client to one of these "
                "APIs (POST '/context/v1/chat/completions', '/context/v1/responses' or '/context/v1/messages'), or use "
                "the base URL 'http://<this host>/v1', where this path goes to the upstream unchanged, without tools "
                "and approvals.",
            )
        return "passthrough"
    if headers and mode != b"passthrough":
        if _is_collection_path(path) or (head.method == b"POST" and path.removesuffix(b"/") in _BY_HEADER):
            return "context"
        if _may_generate_text(head, path):
            raise _build_no_context_error(headers)
    return "passthrough"


def build_wildcard(path: bytes) -> bytes:
    """Return the entry of `own_paths` for a path and its siblings: the last segment becomes `*`.

    A slash at the end begins no segment.
    """
    whole = path.removesuffix(b"/")
    return whole[: whole.rfind(b"/") + 1] + b"*" + path[len(whole) :]


def _build_no_context_error(headers: dict[bytes, bytes]) -> GatewayError:
    """Return the error for a request with context headers on a path without a context lane."""
    return GatewayError(
        "invalid_header",
        "There is no context mode on this path: send chat completions, responses or messages to '/context/v1', or "
        "leave the 'X-Context-*' headers out (with 'X-Context-Mode: passthrough' they have no effect).",
        param=next(iter(headers)).decode("latin-1"),
    )


def _is_collection_path(path: bytes) -> bool:
    """Return whether a path beneath `/v1` is a collection that a dialect has pages for, or below one."""
    return path in _STORED or path.startswith(_BELOW_STORED)


def _may_generate_text(head: RequestHead, path: bytes) -> bool:
    """Return whether a model may answer the request with text, however path and method are spelled."""
    return (head.websocket or may_act_as_post(head.method, has_body=head.has_body)) and generates(path)


def is_relayable_path(target: bytes) -> bool:
    """Return whether a path beneath the context lane's base URL is one that its callers may ask of the upstream."""
    return _PLAIN.fullmatch(get_path(target)) is not None


def collect_context_headers(head: RequestHead) -> dict[bytes, bytes]:
    """Return the X-Context-* headers by their whole lower-case names. Raises GatewayError for one that comes twice.

    Two values would be a choice of the reader's; who reads these headers reads them here.
    """
    headers: dict[bytes, bytes] = {}
    for field in head.fields:
        if field.name.startswith(CONTEXT_PREFIX):
            if field.name in headers:
                raise GatewayError(
                    "invalid_header",
                    "You sent this header twice: send it once, with one value.",
                    param=field.name.decode(),
                )
            headers[field.name] = field.value
    return headers
