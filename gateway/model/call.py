"""The core of the chain: one call of the model, as chat completion chunks.

The body is sent as the stages left it, and requests a stream (gateway/model/styles.py). An answer that is neither
a stream of chunks nor a chat completion is an upstream error.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property, partial
from http import HTTPStatus

import orjson

from gateway.approvals.check_word import masked
from gateway.contracts.exchange import Emit, Exchange, Reply
from gateway.errors import GatewayError
from gateway.http.response_head import ResponseHead
from gateway.model.answer import stream, whole
from gateway.model.refusal import CHAT, ERROR_LIMIT_BYTES, no_answer, outcome_of, refusal
from gateway.model.styles import Style, Styles, completed_request, without
from gateway.model.target import Target
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint import Endpoint

log = logging.getLogger("gateway")

#: Longest list of models that is passed on.
LIST_LIMIT_BYTES = 4 << 20
#: A request of this size takes milliseconds to write, and again to send.
_LARGE_BYTES = 1 << 20


class ModelCall:
    """The caller of models. `fixed` is the upstream that the configuration names for all of them."""

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        fixed: str | None,
        model: str | None,
        clock: Callable[[], float],
    ) -> None:
        self._targets = targets
        self._fixed = next((target for target in targets if target.pool.endpoint.name == fixed), None)
        self._model = model
        self._clock = clock
        self._styles = Styles()

    @cached_property
    def key_kinds(self) -> tuple[bool, ...]:
        """Return the kinds of upstreams, (False,) if there are none: True with their own key (first), False without."""
        return tuple(sorted({target.has_key for target in self._targets}, reverse=True)) or (False,)

    @property
    def needs_model(self) -> bool:
        """Return whether a request must name its model, because the configuration names none."""
        return self._model is None

    def target_of(self, body: Mapping[str, object]) -> Target:
        """Return the upstream for a request for this model. Raises GatewayError (upstream_unavailable)."""
        if self._fixed is not None:
            return self._fixed
        model = self._model or str(body.get("model", ""))
        for target in self._targets:
            if any(fnmatchcase(model, pattern) for pattern in target.models):
                return target
        if not self._targets:
            raise GatewayError("upstream_unavailable", "No upstream is configured; add one under 'upstreams'.")
        return next((target for target in self._targets if not target.models), self._targets[0])

    async def models(self, *, header: bytes, credential: bytes, credential_header: bytes) -> tuple[int, str, bytes]:
        """Return (status, content type, body) of the upstream's own list of models. Raises GatewayError."""
        target = self.target_of({})
        call = UpstreamCall(target.pool, method=b"GET")
        try:
            own = _credential(credential, target.pool.endpoint, header=credential_header)
            head = await call.send(_list_request(header + own, target))
            content = await call.within(LIST_LIMIT_BYTES)
        except GatewayError as error:
            target.note(error)
            raise
        finally:
            call.close()
        if len(content) > LIST_LIMIT_BYTES:
            raise target.broken(f"its list of models is longer than {LIST_LIMIT_BYTES} bytes")
        content_type = head.value(b"content-type") or b"application/json"
        return head.status, content_type.decode("latin-1"), content

    async def __call__(self, exchange: Exchange) -> Reply:
        target = self.target_of(exchange.body)
        endpoint = target.pool.endpoint
        exchange.caller.check_upstream(endpoint.name)
        model = self._model or str(exchange.body.get("model", ""))
        style = first = self._styles.of(endpoint.name, model, configured=endpoint.stream)
        while True:
            request = _request(exchange, target, model=self._model, style=style)
            if len(request) >= _LARGE_BYTES:
                await asyncio.sleep(0)  # others go on between writing a request and sending it
            call = UpstreamCall(target.pool)
            try:
                head, refused = await self._sent(call, request, target)
                if refused is None:
                    break
                lesser = without(style, status=head.status, refusal=refused)
                if lesser is None:
                    raise refusal(head, refused, target)
                style = lesser
            except BaseException as error:
                call.close()
                target.note(error, exchange.id)
                outcome = outcome_of(error)
                target.tally.outcomes["connect" if outcome == "error" and not call.sent else outcome] += 1
                raise
            call.close()
            target.tally.outcomes["ok"] += 1
        if style != first:
            self._styles.learn(endpoint.name, model, style)
            log.warning(
                "upstream %r refused how model %r was asked so far: it is asked with %r now",
                endpoint.name,
                model,
                style,
            )
        read = stream if head.event_stream else whole

        async def release() -> None:
            call.close()

        return Reply(partial(_noted, read, call, target, exchange.id), release)

    async def _sent(self, call: UpstreamCall, request: bytes, target: Target) -> tuple[ResponseHead, bytes | None]:
        """Return the answer's head, and the body of an error answer or None. Raises GatewayError for other answers."""
        began = self._clock()
        head = await call.send(request)
        target.tally.first_byte.observe(self._clock() - began)
        if head.status != HTTPStatus.OK:
            return head, await call.within(ERROR_LIMIT_BYTES)
        if not head.event_stream and not _is_json(head):
            raise no_answer(head, target)
        return head, None


async def _noted(
    read: Callable[[UpstreamCall, Target, Emit], Awaitable[None]],
    call: UpstreamCall,
    target: Target,
    request_id: str,
    emit: Emit,
) -> None:
    """Read an answer. Log a failure, unless the call was given up before."""
    try:
        await read(call, target, emit)
    except GatewayError as error:
        if not call.given_up:
            target.note(error, request_id)
        raise


def _is_json(head: ResponseHead) -> bool:
    """Return whether the content type is JSON, or missing."""
    kind = (head.value(b"content-type") or b"application/json").partition(b";")[0].strip().lower()
    return kind == b"application/json" or kind.endswith(b"+json")


def _request(exchange: Exchange, target: Target, *, model: str | None, style: Style) -> bytes:
    endpoint = target.pool.endpoint
    body = completed_request(exchange.body, style)
    if model is not None:
        body["model"] = model
    content = masked(orjson.dumps(body))
    return b"".join(
        (
            b"POST %b HTTP/1.1\r\nHost: %b\r\n" % (target.path(CHAT), endpoint.authority),
            exchange.header,
            _credential(exchange.credential, endpoint, header=exchange.credential_header),
            b"Accept: %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % (b"application/json" if style.streams == "never" else b"text/event-stream", len(content)),
            content,
        )
    )


def _list_request(header: bytes, target: Target) -> bytes:
    line = b"GET %b HTTP/1.1\r\nHost: %b\r\n" % (target.path(b"/models"), target.pool.endpoint.authority)
    return line + header + b"Accept: application/json\r\n\r\n"


def _credential(clients: bytes, endpoint: Endpoint, *, header: bytes) -> bytes:
    """Return the client's credential, or the upstream's own key in `auth_header`, else in `header`."""
    if endpoint.api_key is None:
        return clients
    name = endpoint.auth_header or header
    return b"%b: %b%b\r\n" % (name.title(), b"Bearer " if name == b"authorization" else b"", endpoint.api_key)
