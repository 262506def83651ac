"""The requests that may be sent a second time."""

import re

from gateway.http.request_head import RequestHead

#: Idempotent by RFC 9110 section 9.2.2: may be sent again when a reused connection turned out to be closed.
REPEATABLE = frozenset((b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE"))
#: POST requests that only compute an answer from their body. Not those that store or change something by it: a response
#: can be a turn of a conversation, a message of a thread becomes a part of it.
_COMPUTES = re.compile(
    rb"(?:/openai)?/(?:v1|deployments/[^/]+)/(?:chat/completions|completions|embeddings|messages|"
    rb"messages/count_tokens|moderations|rerank|audio/(?:speech|transcriptions|translations))/?"
)


def may_repeat(head: RequestHead, path: bytes) -> bool:
    """Return whether a request goes over a fresh connection when a reused one is lost before it answers.

    These are idempotent methods (RFC 9110 section 9.2.2), and requests that only compute. `path` is as the API has it
    (`Route.get_api_path`).
    """
    return head.method in REPEATABLE or computes(head, path)


def computes(head: RequestHead, path: bytes) -> bool:
    """Return whether a request only computes an answer from its body. `path` is as the API has it."""
    return head.method == b"POST" and _COMPUTES.fullmatch(path) is not None


def may_run_twice(head: RequestHead, path: bytes) -> bool:
    """Return whether a request that may have been carried out can be sent again without harm.

    These are requests that may be repeated (`may_repeat`), and those that the client made safe by an Idempotency-Key.
    """
    return not head.websocket and (may_repeat(head, path) or bool(head.find_value(b"idempotency-key")))
