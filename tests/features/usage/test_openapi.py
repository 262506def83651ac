"""The description of the page of usage."""

from gateway.api.openapi.shapes import build_reference
from gateway.features.usage.openapi import DESCRIPTION
from gateway.features.usage.pages import USAGE


def test_description_names_the_page_and_the_schema_of_its_answer() -> None:
    (operation,) = DESCRIPTION.operations
    (content,) = operation.answers[200].content.values()
    assert operation.path == USAGE and "admin" in operation.scopes
    assert str(build_reference("Usage")) in str(content) and list(DESCRIPTION.schemas) == ["Usage"]
