"""The table of error codes is the contract: each code has one status and a type that fits it."""

from http import HTTPStatus

import pytest

from gateway.contracts.errors import CODES, Code, GatewayError, without_traceback

#: docs/errors.md and the design's contract; a code that is added or changed must be added or changed here.
CONTRACT = {
    400: {
        "bad_framing",
        "content_blocked",
        "invalid_field",
        "invalid_header",
        "invalid_json",
        "missing_field",
        "previous_response_not_found",
        "unknown_field",
        "unknown_parameter",
        "unsupported_endpoint",
        "unsupported_parameter",
        "upstream_rejected",
        "websocket_connection_limit_reached",
    },
    401: {"missing_api_key", "invalid_api_key", "invalid_token", "key_expired", "upstream_refused"},
    403: {
        "host_not_allowed",
        "key_too_wide",
        "model_not_allowed",
        "network_not_allowed",
        "origin_not_allowed",
        "own_call",
        "scope_missing",
        "upstream_not_allowed",
    },
    404: {
        "approval_not_found",
        "conversation_not_found",
        "grant_not_found",
        "item_not_found",
        "key_not_found",
        "link_not_valid",
        "memory_not_found",
        "prompt_not_found",
        "response_not_found",
        "run_not_found",
        "service_not_found",
        "tool_not_found",
        "unknown_route",
        "workflow_not_found",
    },
    405: {"method_not_allowed"},
    408: {"request_timeout"},
    409: {
        "approval_stale",
        "approved_already",
        "decision_conflict",
        "idempotency_in_use",
        "idempotency_mismatch",
        "key_ended",
        "key_exists",
        "key_is_configured",
        "link_used",
        "prompt_is_configured",
        "run_ended",
        "run_not_waiting",
        "runtime_keys_off",
        "service_changed",
        "service_exists",
        "service_is_configured",
        "service_not_running",
        "too_many_keys",
    },
    410: {"approval_expired"},
    413: {"request_too_large"},
    414: {"target_too_long"},
    415: {"unsupported_media_type"},
    417: {"expectation_failed"},
    422: {
        "agent_iteration_limit",
        "agent_malformed_tool_call",
        "edit_refused",
        "invalid_parameters",
        "run_cancelled",
        "run_interrupted",
        "workflow_failed",
    },
    429: {"insufficient_quota", "rate_limit_exceeded", "upstream_limited"},
    431: {"headers_too_large"},
    500: {"internal_error"},
    501: {"unsupported_transfer_coding"},
    502: {"upstream_error"},
    503: {
        "circuit_open",
        "gateway_starting",
        "gateway_stopping",
        "issuer_unavailable",
        "overloaded",
        "upstream_unavailable",
    },
    504: {"upstream_timeout", "agent_timeout"},
    505: {"http_version"},
    507: {"store_full", "store_uncertain"},
}
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
#: What SDKs send again by themselves (besides every 5xx).
SENT_AGAIN = (408, 409, 429)


def test_each_code_has_the_status_of_the_contract() -> None:
    """No more codes, and no fewer."""
    found: dict[int, set[str]] = {}
    for name, code in CODES.items():
        found.setdefault(code.status, set()).add(name)
    assert found == CONTRACT


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_error_type_matches_its_status(name: str, code: Code) -> None:
    """LiteLLM classifies by it: what we or an upstream do wrong is a server_error, the rest is the client's."""
    assert HTTPStatus(code.status).phrase
    if code.status >= 500 and code.source != "client":
        assert code.type == "server_error"
    else:
        assert code.type == TYPES.get(code.status, "invalid_request_error")


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_only_transient_error_codes_are_retryable(name: str, code: Code) -> None:
    """Timeouts, limits, overload, upstream failures, a run that just began; never what the client must change.

    A budget that is used up does not pass within the time that a client waits.
    """
    passes = code.status in (408, 429, 502, 503, 504) or name == "idempotency_in_use"
    assert code.retryable is (passes and name != "insufficient_quota")


def test_error_code_table_is_immutable() -> None:
    """It is a constant."""
    with pytest.raises(TypeError):
        CODES["new"] = CODES["overloaded"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        CODES["overloaded"].status = 200  # type: ignore[misc]


def test_gateway_error_carries_code_param_and_retry_after() -> None:
    """What the answer, the log and the metric need."""
    error = GatewayError("overloaded", "Too much at once.", param="p", retry_after_s=3)
    assert (error.code, error.facts, error.param, error.retry_after_s) == ("overloaded", CODES["overloaded"], "p", 3)
    assert str(error) == error.message == "Too much at once."
    assert repr(error) == "GatewayError('overloaded', 'Too much at once.')"


@pytest.mark.parametrize("name", CODES)
def test_errors_after_effects_have_a_status_no_sdk_retries(name: str) -> None:
    """A run that has done something is not run twice: same code and words, a status that no SDK sends again."""
    error = GatewayError(name, "It broke.", param="p", retry_after_s=3)
    late = error.mark_after_effects()
    assert (late.code, late.message, late.param, late.settled) == (name, "It broke.", "p", True)
    assert late.retry_after_s is None
    assert not late.facts.retryable
    assert late.facts.status < 500 and late.facts.status not in SENT_AGAIN
    assert late.facts.source == error.facts.source
    if late.facts.status != error.facts.status:
        assert (late.facts.status, late.facts.type) == (422, "invalid_request_error")
    assert error.settled == (error.facts.status == 401) and error.facts is CODES[name]


def test_error_without_traceback_keeps_its_fields() -> None:
    """It says the same each time, after effects too, and knows no frame that it passed before."""
    raised = GatewayError("overloaded", "Too much.", param="p", retry_after_s=3).mark_after_effects()
    for first in (raised, GatewayError("overloaded", "Too much.", param="p", retry_after_s=3)):
        try:
            raise first
        except GatewayError as error:
            again = without_traceback(error)
        assert isinstance(again, GatewayError) and again is not first
        assert again.__traceback__ is None and again.__context__ is None
        assert vars(again) == vars(first) and str(again) == str(first)


def test_without_traceback_returns_foreign_errors_unchanged() -> None:
    """It stays what it is."""
    failure = ValueError("x")
    assert without_traceback(failure) is failure


def test_unknown_error_code_raises_key_error() -> None:
    """It cannot reach a client."""
    with pytest.raises(KeyError):
        GatewayError("nope", "x")


def test_rejected_key_error_is_marked_not_retryable() -> None:
    """Another try would bring the same key: Claude Code repeats a 401 for minutes that does not say so."""
    assert GatewayError("invalid_api_key", "").settled and GatewayError("key_expired", "").copy().settled
    assert not GatewayError("scope_missing", "").settled and not GatewayError("overloaded", "").settled
