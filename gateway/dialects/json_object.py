"""The JSON object that the body of a request is, whatever API its client speaks."""

from typing import Final

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json

#: So many levels can be written, and 1024 read.
_LEVELS: Final = 254


def parse_json_object(content: bytes) -> Json:
    """Return the object, which can be written again. Raises GatewayError (invalid_json)."""
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise GatewayError("invalid_json", f"The request body is not JSON: {error}.") from None
    if not isinstance(body, dict):
        raise GatewayError("invalid_json", "The request body must be a JSON object.")
    if content.count(b"{") + content.count(b"[") > _LEVELS:  # else nothing can be too deep
        try:
            orjson.dumps(body)
        except orjson.JSONEncodeError:
            raise GatewayError("invalid_json", "The request body is nested too deeply.") from None
    return body
