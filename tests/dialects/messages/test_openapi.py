"""The description of the dialect."""

from gateway.dialects.messages.openapi import DESCRIBED

from .requests import build_body


def test_description_has_the_fields_of_requests() -> None:
    """And names its schemas."""
    request = DESCRIBED.schemas[DESCRIBED.request]
    assert build_body().keys() <= request["properties"].keys() and DESCRIBED.answer in DESCRIBED.schemas
    assert {"stop_reason", "usage", "content"} <= {*DESCRIBED.schemas[DESCRIBED.answer]["required"]}
