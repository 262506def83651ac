"""The header lines of a client's request that go on to a model, and the headers that name the answering upstream."""

from collections.abc import Mapping

from gateway.auth.credentials import CREDENTIAL_HEADERS
from gateway.context.message_betas import BETAS, select_betas
from gateway.contracts.model_names import MODEL_CHARS
from gateway.dialects.messages import ENDPOINT
from gateway.http.fields import CREDENTIALS, HOP_BY_HOP, get_hop_fields
from gateway.http.request_head import RequestHead
from gateway.lanes.classify import CONTEXT_PREFIX
from gateway.lanes.routes import get_path
from gateway.runs.live_run import LiveRun

#: Header fields of the client's that do not go on: they are about its own message, or mean nothing to a model.
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
#: Nor does a field whose name begins so.
_BEGINNINGS_NOT_FORWARDED = (b"content-", CONTEXT_PREFIX)
_MESSAGES = b"/" + ENDPOINT.encode()


def select_forwarded_headers(head: RequestHead, consumed: frozenset[bytes]) -> tuple[bytes, bytes]:
    """Return the client's header lines for the model, and the lines of the client's own credential."""
    drop = consumed | get_hop_fields(head.connection)
    lines: list[bytes] = []
    credential: list[bytes] = []
    for field in head.fields:
        name = field.name.replace(b"_", b"-")  # a server that is like CGI reads `_` as `-`
        if name in _NOT_FORWARDED or name.startswith(_BEGINNINGS_NOT_FORWARDED):
            continue
        if name in drop or field.name in drop:
            continue
        if field.name == BETAS and get_path(head.target).removesuffix(b"/").endswith(_MESSAGES):
            if known := select_betas(field.value):
                lines.append(b"%b: %b\r\n" % (BETAS, known))
            continue
        (credential if name in CREDENTIALS else lines).append(field.line)
    return b"".join(lines), b"".join(credential)


def find_credential_header(head: RequestHead) -> bytes:
    """Return the name of the header with the client's credential; Authorization if there is none."""
    return next((name for name in CREDENTIAL_HEADERS if head.find_value(name) is not None), CREDENTIAL_HEADERS[0])


def build_answerer_headers(run: LiveRun) -> Mapping[str, str]:
    """Return the headers that name the upstream, and the model if it is not the requested one."""
    if run.answer.by is None:
        return {}
    model = run.answer.by.model
    is_other = model != run.body.get("model") and len(model) <= MODEL_CHARS and model.isascii() and model.isprintable()
    return {"X-Context-Upstream": run.answer.by.upstream, **({"X-Context-Model": model} if is_other else {})}
