"""The list of models in Anthropic's form, made of a list in OpenAI's form or in this one."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json

#: Models of one page: if a request says nothing, and at most.
_LIMIT, _MOST = 20, 1000
#: The latest time that the form can show.
_LAST_S: Final = 253_402_300_799


def build_model_page(content: bytes, query: Mapping[str, str]) -> bytes:
    """Return a page of the models in a list. `query` has `limit`, `after_id` and `before_id`. Raises GatewayError."""
    models = _read_models(content)
    limit = _read_limit(query.get("limit"))
    ids = [model["id"] for model in models]
    start, end = 0, len(models)
    if (after := query.get("after_id")) is not None:
        start = _find_place("after_id", after, ids) + 1
    if (before := query.get("before_id")) is not None:
        end = _find_place("before_id", before, ids)
        page = models[start:end][-limit:]
        has_more = len(models[start:end]) > limit
    else:
        page = models[start:end][:limit]
        has_more = end - start > limit
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return orjson.dumps({"data": page, "has_more": has_more, "first_id": first, "last_id": last})


def build_model(content: bytes, model_id: str) -> bytes:
    """Return one of the models in a list. Raises GatewayError (unknown_route) if it is not there."""
    for model in _read_models(content):
        if model["id"] == model_id:
            return orjson.dumps(model)
    raise GatewayError("unknown_route", "There is no model of this name: GET /context/v1/models lists those there are.")


def _read_models(content: bytes) -> Sequence[Json]:
    """Return the models of a list in either form. Raises GatewayError (upstream_error) for anything else."""
    try:
        listed = orjson.loads(content)
    except orjson.JSONDecodeError:
        listed = None
    models = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(models, list):
        raise GatewayError("upstream_error", "The upstream's list of models has no form that the gateway knows.")
    return [_convert_model(one) for one in models if isinstance(one, dict) and isinstance(one.get("id"), str)]


def _convert_model(model: Json) -> Json:
    """Return a model in Anthropic's form. A list in this form has it already."""
    if model.get("type") == "model":
        return model
    created = model.get("created")
    seconds = created if type(created) is int and 0 <= created <= _LAST_S else 0
    return {
        "type": "model",
        "id": model["id"],
        "display_name": model["id"],
        "created_at": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
    }


def _read_limit(text: str | None) -> int:
    if text is None:
        return _LIMIT
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MOST)) and 1 <= int(text) <= _MOST):
        raise GatewayError("invalid_field", f"'limit' must be a whole number from 1 to {_MOST}.", param="limit")
    return int(text)


def _find_place(name: str, model_id: str, ids: Sequence[str]) -> int:
    if model_id not in ids:
        raise GatewayError("invalid_field", f"'{name}' must be the id of a model of this list.", param=name)
    return ids.index(model_id)
