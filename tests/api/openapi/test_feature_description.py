"""Features bring their part of the description of the API."""

from gateway.api.openapi.document import build_document
from gateway.api.openapi.feature_description import collect_descriptions
from gateway.features.registry import list_features


def test_operations_and_schemas_of_features_are_in_the_document() -> None:
    described, found = build_document(), collect_descriptions()
    assert len(found) == len(list_features("openapi"))
    for feature in found:
        for operation in feature.operations:
            assert described["paths"][operation.path][operation.method.lower()]["operationId"] == operation.name
        assert feature.schemas.items() <= described["components"]["schemas"].items()
