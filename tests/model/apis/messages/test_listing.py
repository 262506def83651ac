"""A list of models of Messages in OpenAI's form."""

import orjson
import pytest

from gateway.model.apis.messages.listing import convert_models


def test_models_get_the_fields_of_openais_list() -> None:
    listed = {
        "data": [
            {"type": "model", "id": "claude-a", "display_name": "A", "created_at": "2026-02-01T00:00:00Z"},
            {"type": "model", "id": "claude-b", "created_at": "soon", "max_tokens": 64_000},
            {"id": "local", "object": "model", "created": 7, "owned_by": "me"},
            "no model",
        ],
        "has_more": False,
    }
    assert orjson.loads(convert_models(orjson.dumps(listed))) == {
        "object": "list",
        "data": [
            {"object": "model", "owned_by": "anthropic", "id": "claude-a", "display_name": "A", "created": 1769904000},
            {"object": "model", "owned_by": "anthropic", "id": "claude-b", "max_tokens": 64_000, "created": 0},
            {"object": "model", "owned_by": "me", "id": "local", "created": 7},
        ],
    }


@pytest.mark.parametrize("content", [b"<html>", b"[]", b'{"error": {}}', b'{"data": 7}'])
def test_content_of_another_form_stays(content: bytes) -> None:
    assert convert_models(content) == content
