"""The schemas of bodies and answers."""

import jsonschema_rs

from gateway.api.openapi.schemas import BODIES, build_schemas


def test_openapi_schemas_are_valid_json_schema() -> None:
    """By the JSON Schema of 2020-12, which OpenAPI 3.1 uses; the models of bodies are among them."""
    for schema in build_schemas().values():
        jsonschema_rs.meta.validate(schema)
    assert {*BODIES} <= {*build_schemas()}
