"""The requests that the context lane sends to upstreams, as bytes."""

import orjson

from gateway.contracts.check_word import mask_check_words
from gateway.contracts.exchange import Exchange
from gateway.contracts.tracing.context import TraceContext
from gateway.contracts.tracing.headers import TRACE_FIELDS
from gateway.contracts.tracing.tracer import Tracer
from gateway.model.adaptation.quirks import Quirks
from gateway.model.apis.table import get_model_api
from gateway.model.client_ids import remove_client_ids
from gateway.model.upstream_client import Target
from gateway.upstream.endpoint import Endpoint


def build_model_request(
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
    endpoint, origin = target.pool.endpoint, exchange.origin
    api = get_model_api(endpoint)
    body = api.build_body(exchange.body, quirks, endpoint.models)
    if model is not None:
        body["model"] = model
    content = mask_check_words(orjson.dumps(body))
    lines = _build_client_lines(endpoint, origin.header)
    return b"".join(
        (
            b"POST %b HTTP/1.1\r\nHost: %b\r\n" % (target.build_path(api.path), endpoint.authority),
            _remove_trace_lines(lines) + trace if trace else lines,
            api.select_credential(credential, endpoint, header=origin.credential_header, lines=origin.header),
            b"Accept: %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % (b"application/json" if "no_stream" in quirks else b"text/event-stream", len(content)),
            content,
        )
    )


def build_trace_lines(context: TraceContext, tracer: Tracer) -> bytes:
    """Return the header lines that pass a span on, if upstreams get them."""
    return context.lines if "upstreams" in tracer.receivers else b""


def _build_client_lines(endpoint: Endpoint, lines: bytes) -> bytes:
    """Return the client's lines as the endpoint gets them."""
    lines = lines if endpoint.models.client_ids else remove_client_ids(lines)
    return get_model_api(endpoint).build_lines(lines, endpoint.models)


def _remove_trace_lines(lines: bytes) -> bytes:
    kept = [line for line in lines.splitlines(keepends=True) if line.partition(b":")[0].lower() not in TRACE_FIELDS]
    return b"".join(kept)


def build_list_request(target: Target, lines: bytes, *, credential: bytes, header: bytes) -> bytes:
    """Return the request for the list of models, with the client's header lines.

    `credential` are the lines of its credential, and `header` is the name of the header where it put that.
    """
    endpoint = target.pool.endpoint
    api = get_model_api(endpoint)
    credential = api.select_credential(credential, endpoint, header=header, lines=lines)
    line = b"GET %b HTTP/1.1\r\nHost: %b\r\n" % (target.build_path(api.models_path), endpoint.authority)
    return line + _build_client_lines(endpoint, lines) + credential + b"Accept: application/json\r\n\r\n"
