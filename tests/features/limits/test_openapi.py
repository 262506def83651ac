"""The description of the page of limits."""

from gateway.api.openapi.shapes import build_reference
from gateway.features.limits.openapi import DESCRIPTION
from gateway.features.limits.pages import LIMITS


def test_description_names_the_page_and_the_schema_of_its_answer() -> None:
    (operation,) = DESCRIPTION.operations
    (content,) = operation.answers[200].content.values()
    assert operation.path == LIMITS and "admin" in operation.scopes
    assert str(build_reference("Limit")) in str(content) and list(DESCRIPTION.schemas) == ["Limit"]
