"""Responses and their events, checked against the models of openai-python: strictly, and without unknown fields."""

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import orjson
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from gateway.contracts.storage.store import Json

#: Fields that the Open Responses schemas have, and the models do not: of a response, of `error`, of custom tool calls.
_OF_SCHEMAS = {
    "Response": {"presence_penalty", "frequency_penalty", "store"},
    "ResponseErrorEvent": {"error"},
    "ResponseCustomToolCall": {"status"},
}
#: The model of each event, by its type.
_EVENTS: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(get_args(ResponseStreamEvent)[0])
}


def check_response(response: Json) -> None:
    """Check a Response object."""
    _check(Response, response)


def check_event(event: Json) -> None:
    """Check an event."""
    _check(_EVENTS[event["type"]], event)


def _check(model: type[BaseModel], value: Json) -> None:
    found = _adapter(model).validate_json(orjson.dumps(value), strict=True)
    unknown = [*_unknown(found)]
    assert unknown == [], unknown


@cache
def _adapter(model: type[BaseModel]) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _unknown(value: object) -> Iterator[str]:
    """Yield the fields that the models do not have."""
    if isinstance(value, BaseModel):
        kind = type(value).__name__
        yield from (f"{kind}.{name}" for name in (value.model_extra or {}).keys() - _OF_SCHEMAS.get(kind, set()))
        for name in value.model_fields_set - (value.model_extra or {}).keys():
            yield from _unknown(getattr(value, name))
    elif isinstance(value, list):
        for entry in value:
            yield from _unknown(entry)
