"""The body of a chat completion request, checked as far as the gateway itself reads it; all else is the model's affair.

Each refusal names the field at fault as `param`, such as `messages[2].role`, and never repeats its value.
"""

from collections.abc import Mapping
from typing import Final, NoReturn

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.json_object import parse_json_object

ROLES: Final = ("system", "developer", "user", "assistant", "tool", "function")
_TEXT: Final = "text"
_TRUTH: Final = "true or false"
_OBJECT: Final = "an object"
_OBJECTS: Final = "a list of objects"
#: Fields that the gateway reads; null counts as left out, and items of lists are objects.
_FIELDS: Final[Mapping[str, tuple[type, str]]] = {
    "model": (str, _TEXT),
    "stream": (bool, _TRUTH),
    "stream_options": (dict, _OBJECT),
    "tools": (list, _OBJECTS),
    "functions": (list, _OBJECTS),
    "response_format": (dict, _OBJECT),
    "logprobs": (bool, _TRUTH),
    "n": (int, "a whole number"),
    "user": (str, _TEXT),
    "safety_identifier": (str, _TEXT),
}


def read_chat_request(content: bytes, *, needs_model: bool) -> Json:
    """Return the request. `needs_model`: the configuration names no model that goes in the place of a missing one.

    Raises GatewayError (invalid_json, missing_field, invalid_field, unsupported_parameter).
    """
    body = parse_json_object(content)
    _check_messages(body.get("messages"))
    for name, value in body.items():
        if value is not None and name in _FIELDS:
            _check_field(name, value)
    if needs_model and not body.get("model"):
        text = "'model' is missing: name one of 'GET /context/v1/models', or set 'context.model' in gateway.yaml."
        raise GatewayError("missing_field", text, param="model")
    if isinstance(options := body.get("stream_options"), dict):
        _check_kind("stream_options.include_usage", options.get("include_usage"), bool, _TRUTH)
    if body.get("n") not in (None, 1):
        raise GatewayError("unsupported_parameter", "'n' must be 1 in context mode: there is one run.", param="n")
    if body.get("logprobs"):
        raise GatewayError("unsupported_parameter", "'logprobs' is not offered in context mode.", param="logprobs")
    return body


def _check_messages(messages: object) -> None:
    """Raise GatewayError (missing_field, invalid_field) unless `messages` are valid."""
    if messages is None:
        text = '\'messages\' is missing: send a list of messages, such as [{"role": "user", "content": "Hi"}].'
        raise GatewayError("missing_field", text, param="messages")
    if not isinstance(messages, list) or not messages:
        _refuse("messages", "a list of at least one message")
    for i, message in enumerate(messages):
        if type(message) is not dict:
            _refuse(f"messages[{i}]", "an object with 'role' and 'content'")
        if message.get("role") not in ROLES:
            _refuse_role(f"messages[{i}].role", message.get("role"))
        content = message.get("content")
        if type(content) is not str and content is not None:
            _check_parts(f"messages[{i}].content", content)
        if len(message) > 2:
            _check_call_fields(f"messages[{i}]", message)


def _refuse_role(param: str, role: object) -> NoReturn:
    if role is None:
        raise GatewayError("missing_field", f"'{param}' is missing: it is one of {', '.join(ROLES)}.", param=param)
    _refuse(param, f"one of {', '.join(ROLES)}")


def _check_parts(param: str, parts: object) -> None:
    """Raise GatewayError (invalid_field) unless content is a list of parts or plain texts."""
    if not isinstance(parts, list):
        _refuse(param, "text, or a list of parts")
    for i, part in enumerate(parts):
        if not isinstance(part, str) and not (isinstance(part, dict) and isinstance(part.get("type"), str)):
            _refuse(f"{param}[{i}]", "an object with a 'type'")


def _check_call_fields(param: str, message: Json) -> None:
    """Check the fields of a message that carry calls and their results."""
    for name in ("name", "tool_call_id"):
        _check_kind(f"{param}.{name}", message.get(name), str, _TEXT)
    calls = message.get("tool_calls")
    _check_kind(f"{param}.tool_calls", calls, list, _OBJECTS)
    for i, call in enumerate(calls or ()):
        if not isinstance(call, dict):
            _refuse(f"{param}.tool_calls[{i}]", _OBJECT)
        _check_kind(f"{param}.tool_calls[{i}].function", call.get("function"), dict, _OBJECT)


def _check_field(name: str, value: object) -> None:
    """Raise GatewayError (invalid_field) unless a known field has its type."""
    kind, described = _FIELDS[name]
    _check_kind(name, value, kind, described)
    if isinstance(value, list):
        for i, item in enumerate(value):
            if not isinstance(item, dict):
                _refuse(f"{name}[{i}]", _OBJECT)


def _check_kind(param: str, value: object, kind: type, described: str) -> None:
    """Check the kind. JSON's true and false are not numbers, though Python's are."""
    if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        _refuse(param, described)


def _refuse(param: str, described: str) -> NoReturn:
    raise GatewayError("invalid_field", f"'{param}' must be {described}.", param=param)
