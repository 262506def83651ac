"""A list of models of Messages in OpenAI's form."""

from datetime import datetime

import orjson

from gateway.contracts.storage.store import Json
from gateway.jsontext.value_count import SERVICE_VALUES_LIMIT, holds_more


def convert_models(content: bytes) -> bytes:
    """Return a list of models in OpenAI's form, with what else is known of each. What is no list stays as it is."""
    if holds_more(content, SERVICE_VALUES_LIMIT):
        return content
    try:
        listed = orjson.loads(content)
    except orjson.JSONDecodeError:
        return content
    models = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(models, list):
        return content
    return orjson.dumps({"object": "list", "data": [_convert_model(one) for one in models if isinstance(one, dict)]})


def _convert_model(model: Json) -> Json:
    further = {name: value for name, value in model.items() if name not in ("type", "created_at")}
    created = _parse_time(model["created_at"]) if "created_at" in model else model.get("created", 0)
    return {"object": "model", "owned_by": "anthropic", **further, "created": created}


def _parse_time(text: object) -> int:
    try:
        return int(datetime.fromisoformat(str(text)).timestamp())
    except (ValueError, OverflowError):
        return 0
