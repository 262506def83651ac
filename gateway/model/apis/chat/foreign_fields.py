"""Chat completion requests of clients that speak another API, as a chat server takes them.

A client of Messages or Responses sends what only a model that speaks its API understands. Another request costs two
looks.
"""

from typing import Final

from gateway.contracts.storage.store import Json
from gateway.model.apis.chat.messages_fields import MESSAGES_API, remove_messages_fields

_RESPONSES_API: Final = "responses_api"


def drop_foreign_fields(body: Json) -> Json:
    """Return a request in the fields of chats alone: itself if it is one already."""
    if _RESPONSES_API in body:
        body = {name: value for name, value in body.items() if name != _RESPONSES_API}
    return remove_messages_fields(body)


def list_foreign_fields(body: Json) -> list[str]:
    """Return the fields of other APIs in a request."""
    groups = ((name, body.get(name)) for name in (MESSAGES_API, _RESPONSES_API))
    return [f"{name}.{field}" for name, fields in groups if isinstance(fields, dict) for field in sorted(fields)]
