"""The errors of the gateway itself: one exception, and the closed table of its codes."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType, TracebackType
from typing import Final, Literal

Source = Literal["client", "policy", "upstream", "gateway"]


@dataclass(frozen=True, slots=True)
class Code:
    """The facts of one error code: HTTP status, OpenAI error type, the party at fault, and whether a retry can help."""

    status: int
    type: str
    source: Source
    retryable: bool = False


_INVALID = "invalid_request_error"
_TYPES: Mapping[int, str] = MappingProxyType({403: "permission_error", 404: "not_found_error"})
#: What SDKs send again by themselves, besides every 5xx.
_SENT_AGAIN = (408, 409, 429)

#: Every error that the gateway answers by itself (docs/errors.md). The type fits the status: LiteLLM classifies by it.
CODES: Mapping[str, Code] = MappingProxyType(
    {
        "bad_framing": Code(400, _INVALID, "client"),
        "content_blocked": Code(400, _INVALID, "policy"),
        "unsupported_parameter": Code(400, _INVALID, "client"),
        "unsupported_endpoint": Code(400, _INVALID, "client"),
        "upstream_rejected": Code(400, _INVALID, "upstream"),
        "websocket_connection_limit_reached": Code(400, _INVALID, "policy"),
        "invalid_field": Code(400, _INVALID, "client"),
        "invalid_header": Code(400, _INVALID, "client"),
        "invalid_json": Code(400, _INVALID, "client"),
        "missing_field": Code(400, _INVALID, "client"),
        "previous_response_not_found": Code(400, _INVALID, "client"),
        "unknown_field": Code(400, _INVALID, "client"),
        "unknown_parameter": Code(400, _INVALID, "client"),
        "missing_api_key": Code(401, "authentication_error", "policy"),
        "invalid_api_key": Code(401, "authentication_error", "policy"),
        "invalid_token": Code(401, "authentication_error", "policy"),
        "upstream_refused": Code(401, "authentication_error", "upstream"),
        "key_expired": Code(401, "authentication_error", "policy"),
        "scope_missing": Code(403, "permission_error", "policy"),
        "own_call": Code(403, "permission_error", "policy"),
        "key_too_wide": Code(403, "permission_error", "policy"),
        "model_not_allowed": Code(403, "permission_error", "policy"),
        "network_not_allowed": Code(403, "permission_error", "policy"),
        "upstream_not_allowed": Code(403, "permission_error", "policy"),
        "host_not_allowed": Code(403, "permission_error", "policy"),
        "origin_not_allowed": Code(403, "permission_error", "policy"),
        "link_not_valid": Code(404, "not_found_error", "client"),
        "approval_not_found": Code(404, "not_found_error", "client"),
        "conversation_not_found": Code(404, "not_found_error", "client"),
        "grant_not_found": Code(404, "not_found_error", "client"),
        "item_not_found": Code(404, "not_found_error", "client"),
        "key_not_found": Code(404, "not_found_error", "client"),
        "memory_not_found": Code(404, "not_found_error", "client"),
        "prompt_not_found": Code(404, "not_found_error", "client"),
        "response_not_found": Code(404, "not_found_error", "client"),
        "run_not_found": Code(404, "not_found_error", "client"),
        "service_not_found": Code(404, "not_found_error", "client"),
        "tool_not_found": Code(404, "not_found_error", "client"),
        "unknown_route": Code(404, "not_found_error", "client"),
        "workflow_not_found": Code(404, "not_found_error", "client"),
        "method_not_allowed": Code(405, _INVALID, "client"),
        "request_timeout": Code(408, _INVALID, "client", retryable=True),
        "approval_stale": Code(409, _INVALID, "policy"),
        "approved_already": Code(409, _INVALID, "policy"),
        "link_used": Code(409, _INVALID, "client"),
        "decision_conflict": Code(409, _INVALID, "client"),
        "prompt_is_configured": Code(409, _INVALID, "policy"),
        "idempotency_mismatch": Code(409, _INVALID, "client"),
        "idempotency_in_use": Code(409, _INVALID, "client", retryable=True),
        "key_ended": Code(409, _INVALID, "client"),
        "key_exists": Code(409, _INVALID, "client"),
        "key_is_configured": Code(409, _INVALID, "policy"),
        "run_ended": Code(409, _INVALID, "client"),
        "run_not_waiting": Code(409, _INVALID, "client"),
        "runtime_keys_off": Code(409, _INVALID, "policy"),
        "too_many_keys": Code(409, _INVALID, "policy"),
        "service_changed": Code(409, _INVALID, "policy"),
        "service_exists": Code(409, _INVALID, "client"),
        "service_is_configured": Code(409, _INVALID, "policy"),
        "service_not_running": Code(409, _INVALID, "client"),
        "approval_expired": Code(410, _INVALID, "policy"),
        "request_too_large": Code(413, _INVALID, "client"),
        "target_too_long": Code(414, _INVALID, "client"),
        "unsupported_media_type": Code(415, _INVALID, "client"),
        "expectation_failed": Code(417, _INVALID, "client"),
        "agent_iteration_limit": Code(422, _INVALID, "gateway"),
        "edit_refused": Code(422, _INVALID, "policy"),
        "invalid_parameters": Code(422, _INVALID, "client"),
        "run_cancelled": Code(422, _INVALID, "client"),
        "run_interrupted": Code(422, _INVALID, "gateway"),
        "workflow_failed": Code(422, _INVALID, "gateway"),
        "agent_malformed_tool_call": Code(422, _INVALID, "upstream"),
        "headers_too_large": Code(431, _INVALID, "client"),
        "insufficient_quota": Code(429, "rate_limit_error", "policy"),
        "rate_limit_exceeded": Code(429, "rate_limit_error", "policy", retryable=True),
        "upstream_limited": Code(429, "rate_limit_error", "upstream", retryable=True),
        "internal_error": Code(500, "server_error", "gateway"),
        "unsupported_transfer_coding": Code(501, _INVALID, "client"),
        "upstream_error": Code(502, "server_error", "upstream", retryable=True),
        "circuit_open": Code(503, "server_error", "upstream", retryable=True),
        "gateway_starting": Code(503, "server_error", "gateway", retryable=True),
        "gateway_stopping": Code(503, "server_error", "gateway", retryable=True),
        "issuer_unavailable": Code(503, "server_error", "gateway", retryable=True),
        "overloaded": Code(503, "server_error", "gateway", retryable=True),
        "upstream_unavailable": Code(503, "server_error", "gateway", retryable=True),
        "upstream_timeout": Code(504, "server_error", "upstream", retryable=True),
        "agent_timeout": Code(504, "server_error", "gateway", retryable=True),
        "http_version": Code(505, _INVALID, "client"),
        "store_full": Code(507, "server_error", "gateway"),
        "store_uncertain": Code(507, "server_error", "gateway"),
    }
)


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


class GatewayError(Exception):
    """An error that the gateway answers by itself.

    `code` is a key of CODES. `message` names the cause and the next step. It never repeats bytes of a body or a
    credential. `param` names the header or field at fault. `retry_after_s` becomes `Retry-After`, in whole seconds. If
    it is not whole, it also becomes `retry-after-ms`, which the SDKs of OpenAI read first.
    """

    def __init__(
        self, code: str, message: str, *, param: str | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.facts = CODES[code]
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.upstream_code: str | None = None  # the code in the upstream's own error, which clients know
        # True: trying again would do something twice, or is of no use, as with a key that is not accepted.
        self.settled = self.facts.status == 401
        self.fields: Mapping[str, str] = {}  # further header fields of the answer, by name

    @property
    def shown_code(self) -> str:
        """Return the code that clients get: the upstream's own where it has one, which they act on."""
        return self.upstream_code or self.code

    @property
    def passes(self) -> bool:
        """Return whether a request that failed so may be sent again, later or elsewhere."""
        return self.code in PASSING and not self.settled

    def mark_after_effects(self) -> "GatewayError":
        """Return the same error for a run that has had effects already, with a status that no client retries."""
        error = GatewayError(self.code, self.message, param=self.param)
        error.facts, error.settled, error.fields = self.facts, True, self.fields
        error.upstream_code = self.upstream_code
        if self.facts.status in _SENT_AGAIN or self.facts.status >= 500:
            error.facts = replace(self.facts, status=422, type=_INVALID, retryable=False)
        return error

    def with_status(self, status: int) -> "GatewayError":
        """Return the same error with another status than that of its code, and the type that clients expect with it."""
        error = self.copy()
        error.facts = replace(self.facts, status=status, type=_TYPES.get(status, self.facts.type))
        return error

    def copy(self) -> "GatewayError":
        """Return the same error as a new object that has not been raised yet."""
        error = type(self)(self.code, self.message, param=self.param, retry_after_s=self.retry_after_s)
        error.facts, error.settled, error.fields = self.facts, self.settled, self.fields
        error.upstream_code = self.upstream_code
        return error

    def __repr__(self) -> str:
        return f"GatewayError({self.code!r}, {self.message!r})"


class UndecidedError(GatewayError):
    """A refusal that is not final. Once `answered` is done, it is known whether there is room: then ask again.

    Where no code waits for that, it is the refusal.
    """

    def __init__(self, refusal: GatewayError, answered: "asyncio.Future[None]") -> None:
        super().__init__(refusal.code, refusal.message, param=refusal.param, retry_after_s=refusal.retry_after_s)
        self.fields = refusal.fields
        self.refusal = refusal
        self.answered = answered

    def copy(self) -> GatewayError:
        return self.refusal.copy()


def build_not_allowed_error(message: str, methods: Iterable[str]) -> GatewayError:
    """Return the error of a method that a page does not support; `methods` are the supported ones."""
    error = GatewayError("method_not_allowed", message)
    error.fields = {"Allow": ", ".join(sorted(methods))}
    return error


class ExitError(Exception):
    """The error raised when a plugin tried to end the process (`sys.exit`), or raised another non-Exception."""


#: What is raised for the caller of plugin code, and passes through it.
_PASSING: Final = (asyncio.CancelledError, GeneratorExit)


def is_ending(error: BaseException) -> bool:
    """Return whether an error is none that code catches: it ends the event loop, or the task of a request.

    Examples are SystemExit, the panics of libraries in Rust, and groups with one of them.
    """
    return not isinstance(error, (Exception, *_PASSING))


def convert_fatal_error(error: BaseException, what: str) -> BaseException:
    """Return the error of plugin code, or ExitError in place of one that would end the event loop or a task."""
    if not is_ending(error):
        return error
    ended = ExitError(f"{what} raised {type(error).__name__}: only the gateway ends its process")
    ended.__cause__ = error
    return ended


class contained:  # noqa: N801  # reads as a statement: `with contained(...)`
    """A guard around plugin code, which raises errors as `convert_fatal_error` returns them.

    It is a class, because each request passes several of these and a generator costs a microsecond more.
    """

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None and (kept := convert_fatal_error(error, self._what)) is not error:
            raise kept


def without_traceback(error: BaseException) -> BaseException:
    """Return an error that can be stored, and raised later or more than once.

    A raised error refers to the frames that it passed, and they refer to the object that stores it. This cycle would
    retain the whole request until the garbage collector runs. Errors that are not GatewayErrors are returned unchanged,
    for the log.
    """
    return error.copy() if isinstance(error, GatewayError) else error
