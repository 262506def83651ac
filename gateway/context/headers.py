"""The header lines of a client's request that go on to a model, and the headers that say who answered it."""

from collections.abc import Mapping

from gateway.http.fields import HOP_BY_HOP, nominated
from gateway.http.request_head import RequestHead
from gateway.lanes.classify import CONTEXT_PREFIX
from gateway.lanes.keys import CREDENTIAL_HEADERS
from gateway.model_names import MODEL_CHARS
from gateway.runs.live_run import LiveRun

#: Header fields of the client's that do not go on: they are about its own message, or mean nothing to a model. Nor does
#: any Content-* field.
_NOT_FORWARDED = HOP_BY_HOP | {
    b"host",
    b"transfer-encoding",
    b"trailer",
    b"digest",
    b"repr-digest",
    b"accept",
    b"accept-encoding",
    b"expect",
    b"idempotency-key",
    b"cookie",
    b"origin",
}
_CREDENTIALS = frozenset(CREDENTIAL_HEADERS)


def forwarded(head: RequestHead, consumed: frozenset[bytes]) -> tuple[bytes, bytes]:
    """Return the client's header lines for the model, and those of the client's own credential."""
    drop = _NOT_FORWARDED | nominated(head.connection) | consumed
    # A server that is like CGI reads `_` as `-`.
    named = [(f, f.name.replace(b"_", b"-")) for f in head.fields]
    lines = [f for f, name in named if name not in drop and not name.startswith((b"content-", CONTEXT_PREFIX))]
    return (
        b"".join(f.line for f in lines if f.name not in _CREDENTIALS),
        b"".join(f.line for f in lines if f.name in _CREDENTIALS),
    )


def credential_header(head: RequestHead) -> bytes:
    """Return the name of the header with the client's credential; Authorization if there is none."""
    return next((name for name in CREDENTIAL_HEADERS if head.value(name) is not None), CREDENTIAL_HEADERS[0])


def answerer(run: LiveRun) -> Mapping[str, str]:
    """Return the headers that name the upstream, and the model if it is another one than the client asked for."""
    if run.by is None:
        return {}
    model = run.by.model
    is_other = model != run.body.get("model") and len(model) <= MODEL_CHARS and model.isascii() and model.isprintable()
    return {"X-Context-Upstream": run.by.upstream, **({"X-Context-Model": model} if is_other else {})}
