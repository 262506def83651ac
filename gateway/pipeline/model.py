"""The core of the onion: one call of the model, always streamed, as chat completion chunks.

The body goes out as the stages left it, with `stream: true` and `include_usage`; an answer that is no stream of chunks
is an upstream error, and one that ends without a finish reason is one that was cut.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import orjson

from gateway.contracts import Exchange, Json, Pause, Reply, Tell
from gateway.errors import GatewayError
from gateway.metrics import UpstreamTally
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.pool import Pool
from gateway.wire import strict_json
from gateway.wire.check_word import masked
from gateway.wire.json_values import VALUES_LIMIT, holds_more
from gateway.wire.mask import maskable
from gateway.wire.response import ResponseHead
from gateway.wire.sse import EventError, EventReader
from gateway.wire.text_events import TextEvents

#: How much of an upstream's error answer is read for its message.
ERROR_LIMIT_BYTES = 65536
#: Longest list of models that is passed on.
LIST_LIMIT_BYTES = 4 << 20
#: Longest wait that is passed on; openai-node waits literally for whatever it is told.
RETRY_AFTER_S = 60
#: How much of the message is told.
MESSAGE_CHARS = 2000
#: How long the connection waits for the end of a body behind `[DONE]`, which many servers send in a segment of its own.
#: The answer does not wait.
END_S = 1.0
#: A request of this size takes milliseconds to write, and again to send.
_LARGE_BYTES = 1 << 20
_DONE = b"[DONE]"
#: Arguments of a call as an object, where the API has a text.
_ARGUMENTS = re.compile(rb'"arguments"\s*:\s*\{')
#: What a chunk, and a choice, may have besides a text, that is nobody's concern here.
_ABOUT_CHUNK = frozenset(
    ("id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier", "obfuscation")
)
_ABOUT_CHOICE = frozenset(("index", "delta", "finish_reason", "logprobs"))


@dataclass(frozen=True, slots=True)
class Target:
    """An upstream of the context lane: `models` are the patterns of what it serves, () everything."""

    pool: Pool
    models: tuple[str, ...]
    tally: UpstreamTally

    @property
    def has_key(self) -> bool:
        """Whether the gateway has a key for it; else the client's credential goes there."""
        return self.pool.endpoint.api_key is not None


class ModelCore:
    """Calls models. `fixed` is the upstream that the configuration names for all of them."""

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

    @cached_property
    def key_kinds(self) -> tuple[bool, ...]:
        """Whether upstreams have keys of their own, True first; False as well where there is none."""
        return tuple(sorted({target.has_key for target in self._targets}, reverse=True)) or (False,)

    @property
    def needs_model(self) -> bool:
        """Whether a request must name its model: the configuration names none for all of them."""
        return self._model is None

    def has_key(self, body: Mapping[str, object]) -> bool:
        """Whether the upstream of a request for this model has a key of its own. Raises as `target_of`."""
        return self.target_of(body).has_key

    def target_of(self, body: Mapping[str, object]) -> Target:
        """Where a request for this model goes. Raises GatewayError (upstream_unavailable)."""
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
        """(status, content type, body) of the upstream's own list of models. Raises GatewayError."""
        target = self.target_of({})
        call = UpstreamCall(target.pool, method=b"GET")
        try:
            own = _credential(credential, target.pool.endpoint, header=credential_header)
            head = await call.send(_list_request(header + own, target.pool.endpoint))
            content = await call.within(LIST_LIMIT_BYTES)
        finally:
            call.close()
        if len(content) > LIST_LIMIT_BYTES:
            raise _broken(target, f"its list of models is longer than {LIST_LIMIT_BYTES} bytes")
        content_type = head.value(b"content-type") or b"application/json"
        return head.status, content_type.decode("latin-1"), content

    async def __call__(self, exchange: Exchange) -> Reply:
        target = self.target_of(exchange.body)
        call = UpstreamCall(target.pool)
        began = self._clock()
        try:
            request = _request(exchange, target.pool.endpoint, model=self._model)
            if len(request) >= _LARGE_BYTES:
                await asyncio.sleep(0)  # others go on between writing a request and sending it
            head = await call.send(request)
            target.tally.first_byte.observe(self._clock() - began)
            if head.status != 200:
                raise await _refusal(head, call, target)
            if not head.event_stream:
                raise GatewayError(
                    "upstream_error",
                    f"Upstream {target.pool.endpoint.name!r} failed: it answered a stream with something else.",
                )
        except BaseException as error:
            call.close()
            outcome = _outcome(error)
            target.tally.outcomes["connect" if outcome == "error" and not call.sent else outcome] += 1
            raise

        async def stream(tell: Tell) -> None:
            await _stream(call, target, tell)

        async def release() -> None:
            call.close()

        return Reply(stream, release)


def _request(exchange: Exchange, endpoint: Endpoint, *, model: str | None) -> bytes:
    body = {**exchange.body, "stream": True, "stream_options": {"include_usage": True}}
    if model is not None:
        body["model"] = model
    content = masked(orjson.dumps(body))
    return b"".join(
        (
            b"POST %b HTTP/1.1\r\nHost: %b\r\n" % (_target(b"/chat/completions", endpoint), endpoint.authority),
            exchange.header,
            _credential(exchange.credential, endpoint, header=exchange.credential_header),
            b"Accept: text/event-stream\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content),
            content,
        )
    )


def _list_request(header: bytes, endpoint: Endpoint) -> bytes:
    line = b"GET %b HTTP/1.1\r\nHost: %b\r\n" % (_target(b"/models", endpoint), endpoint.authority)
    return line + header + b"Accept: application/json\r\n\r\n"


def _target(path: bytes, endpoint: Endpoint) -> bytes:
    return (endpoint.base_path or b"/v1") + path


def _credential(clients: bytes, endpoint: Endpoint, *, header: bytes) -> bytes:
    """What the client sent, or the upstream's own key: in its `auth_header`, else where the client put its own."""
    if endpoint.api_key is None:
        return clients
    name = endpoint.auth_header or header
    return b"%b: %b%b\r\n" % (name.title(), b"Bearer " if name == b"authorization" else b"", endpoint.api_key)


async def _stream(call: UpstreamCall, target: Target, tell: Tell) -> None:
    """Tells the chunks of one answer. Raises GatewayError if it breaks off."""
    feed, finished = EventReader().feed, False
    texts = TextEvents(_text_in)

    def take(piece: bytes) -> Pause | None:
        nonlocal finished
        pause = None
        for data in feed(piece):
            if data == _DONE:
                finished = True
                call.leave(within_s=END_S)
                return pause
            if (text := texts.text_of(data)) is not None:
                pause = tell(text) or pause
                continue
            chunk = _chunk(data, target)
            if (text := _text_of(chunk)) is not None:
                texts.learn(data, text)
                pause = tell(text) or pause
                continue
            finishes = _finishes(chunk.get("choices"))
            if finishes is None:
                raise _broken(target, "an event of its answer is no chat completion chunk")
            if _ARGUMENTS.search(data) is not None:
                _check(data, target)
            finished = finished or finishes
            pause = tell(chunk) or pause
        return pause

    outcome = "cancelled"
    try:
        await call.each(take)
        if not finished:
            raise _broken(target, "its answer ends without a finish reason")
        outcome = "ok"
    except EventError as error:
        outcome = "invalid"
        raise _broken(target, str(error)) from None
    except GatewayError as error:
        outcome = "cancelled" if call.given_up else _outcome(error)
        raise
    finally:
        target.tally.outcomes[outcome] += 1


def _chunk(data: bytes, target: Target) -> Json:
    if holds_more(data, VALUES_LIMIT):
        raise _broken(target, f"an event of its answer holds more than {VALUES_LIMIT} values")
    try:
        chunk: Json = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise _broken(target, "an event of its answer is not JSON") from None
    if not isinstance(chunk, dict):
        raise _broken(target, "an event of its answer is no object")
    if (error := chunk.get("error")) is not None:
        raise _broken(target, _message_of(error, target) or "it sent an error in its answer")
    return chunk


def _check(data: bytes, target: Target) -> None:
    """Arguments that come as an object are held to what their text would be: one reading. Raises GatewayError."""
    try:
        strict_json.loads(data.decode())
    except strict_json.StrictJsonError as error:
        raise _broken(target, f"a tool call of its answer cannot be read: {error}") from None


def _text_of(chunk: Json) -> str | None:
    """The text of a chunk that says nothing else, as nearly all do. None: look at all of it."""
    choices = chunk.get("choices")
    if chunk.get("usage") is not None or not (isinstance(choices, list) and len(choices) == 1):
        return None
    choice = choices[0]
    if not (isinstance(choice, dict) and chunk.keys() <= _ABOUT_CHUNK and choice.keys() <= _ABOUT_CHOICE):
        return None
    if choice.get("index", 0) != 0 or choice.get("finish_reason") is not None or choice.get("logprobs") is not None:
        return None
    delta = choice.get("delta")
    if not (isinstance(delta, dict) and len(delta) == 1):
        return None
    text = delta.get("content")
    return text if isinstance(text, str) else None


def _text_in(data: bytes) -> str | None:
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return _text_of(chunk) if isinstance(chunk, dict) else None


def _finishes(choices: object) -> bool | None:
    """Whether one of these choices has a finish reason. None: they are none that those behind can read unseen."""
    if not isinstance(choices, list):
        return False if choices is None else None
    finishes = False
    for choice in choices:
        if not isinstance(choice, dict):
            return None
        reason, delta = choice.get("finish_reason"), choice.get("delta")
        if reason is not None:
            if not isinstance(reason, str):
                return None
            finishes = finishes or reason != ""
        if delta is None:
            continue
        if not isinstance(delta, dict):
            return None
        calls = delta.get("tool_calls")
        if calls is not None and not (isinstance(calls, list) and all(map(_is_call, calls))):
            return None
        if not _is_function(delta.get("function_call")):
            return None
    return finishes


def _is_call(call: object) -> bool:
    if not isinstance(call, dict) or not isinstance(call.get("index"), int | None):
        return False
    return _is_function(call.get("function"))


def _is_function(function: object) -> bool:
    """Nothing, or a piece of a call; some upstreams send its arguments as an object."""
    if not isinstance(function, dict):
        return function is None
    return isinstance(function.get("name"), str | None) and isinstance(function.get("arguments"), str | dict | None)


async def _refusal(head: ResponseHead, call: UpstreamCall, target: Target) -> GatewayError:
    """What an upstream's error answer becomes: its own status where clients know what to do with it."""
    content = await call.within(ERROR_LIMIT_BYTES)
    try:
        parsed = orjson.loads(content)
    except orjson.JSONDecodeError:
        parsed = None
    message = _message_of(parsed.get("error") if isinstance(parsed, dict) else None, target)
    text = f"Upstream {target.pool.endpoint.name!r} answered {head.status}" + (f": {message}" if message else ".")
    code = {401: "upstream_refused", 403: "upstream_refused", 429: "upstream_limited"}.get(head.status)
    if code is None:
        code = "upstream_rejected" if 400 <= head.status < 500 else "upstream_error"
    return GatewayError(code, text, retry_after_s=_wait_s(head))


def _wait_s(head: ResponseHead) -> float | None:
    """How long the upstream wants to be left alone."""
    for name, unit_s in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        wait = head.value(name) or b""
        if wait.isdigit():
            return min(int(wait[:9]) * unit_s, RETRY_AFTER_S)
    return None


def _message_of(error: object, target: Target) -> str:
    """The upstream's own words, without its key: some repeat what they were sent."""
    message = error.get("message") if isinstance(error, dict) else error
    if not isinstance(message, str):
        return ""
    secret = maskable(target.pool.endpoint.api_key)
    return (message if secret is None else message.replace(secret.decode(), "***"))[:MESSAGE_CHARS]


def _broken(target: Target, reason: str) -> GatewayError:
    return GatewayError("upstream_error", f"Upstream {target.pool.endpoint.name!r} failed: {reason}.")


def _outcome(error: BaseException) -> str:
    if not isinstance(error, GatewayError):
        return "cancelled"
    if error.code == "upstream_timeout":
        return "timeout"
    return "error" if error.facts.status >= 500 else "ok"
