"""The requests that the context lane sends to upstreams, as bytes."""

import orjson

from gateway.contracts.check_word import mask_check_words
from gateway.contracts.exchange import Exchange
from gateway.contracts.tracing.context import TraceContext
from gateway.contracts.tracing.headers import TRACE_FIELDS
from gateway.contracts.tracing.tracer import Tracer
from gateway.model.adaptation.quirks import Quirks, adapt_request
from gateway.model.client_ids import remove_client_ids
from gateway.model.refusal import CHAT
from gateway.model.upstream_client import Target
from gateway.upstream.endpoint import Endpoint

#: The path of the list of models.
MODELS = b"/models"


def build_chat_request(
    exchange: Exchange,
    target: Target,
    quirks: Quirks,
    *,
    model: str | None = None,
    credential: bytes,
    trace: bytes = b"",
) -> bytes:
    """Return the request for one endpoint. `model` None: the request names it.

    `credential` are the client's header lines with its key, for an upstream without a key. `trace` are the lines of the
    gateway's trace context, in place of the client's.
    """
    endpoint = target.pool.endpoint
    body = adapt_request(exchange.body, quirks)
    if model is not None:
        body["model"] = model
    content = mask_check_words(orjson.dumps(body))
    lines = _select_lines(endpoint, exchange.origin.header)
    return b"".join(
        (
            b"POST %b HTTP/1.1\r\nHost: %b\r\n" % (target.build_path(CHAT), endpoint.authority),
            _remove_trace_lines(lines) + trace if trace else lines,
            select_credential(credential, endpoint, header=exchange.origin.credential_header),
            b"Accept: %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % (b"application/json" if "no_stream" in quirks else b"text/event-stream", len(content)),
            content,
        )
    )


def build_trace_lines(context: TraceContext, tracer: Tracer) -> bytes:
    """Return the header lines that pass a span on, if upstreams get them."""
    return context.lines if "upstreams" in tracer.receivers else b""


def _select_lines(endpoint: Endpoint, lines: bytes) -> bytes:
    return lines if endpoint.client_ids else remove_client_ids(lines)


def _remove_trace_lines(lines: bytes) -> bytes:
    kept = [line for line in lines.splitlines(keepends=True) if line.partition(b":")[0].lower() not in TRACE_FIELDS]
    return b"".join(kept)


def build_list_request(target: Target, lines: bytes, *, credential: bytes) -> bytes:
    """Return the request for the list of models, with the client's header lines and a credential's lines."""
    endpoint = target.pool.endpoint
    line = b"GET %b HTTP/1.1\r\nHost: %b\r\n" % (target.build_path(MODELS), endpoint.authority)
    return line + _select_lines(endpoint, lines) + credential + b"Accept: application/json\r\n\r\n"


def select_credential(clients: bytes, endpoint: Endpoint, *, header: bytes) -> bytes:
    """Return the client's credential, or the upstream's own key in `auth_header`, else in `header`."""
    return clients if endpoint.api_key is None else endpoint.build_credential_line(header)
