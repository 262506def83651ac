"""The description of the Responses API says what real requests and responses hold."""

import jsonschema_rs
import orjson
import pytest

from gateway.contracts.errors import GatewayError
from gateway.dialects.responses.fields import check_fields
from gateway.dialects.responses.openapi import DESCRIBED
from tests.dialects.responses.scripts import EVERYTHING, SCRIPTS


@pytest.mark.parametrize("name", SCRIPTS)
def test_completed_responses_match_the_openapi_schema(name: str) -> None:
    """At their end."""
    schema = DESCRIBED.schemas[DESCRIBED.answer]
    jsonschema_rs.validate(schema, orjson.loads(orjson.dumps(SCRIPTS[name].ended().build_resource())))


def test_requests_match_the_openapi_schema() -> None:
    """With every field that is described."""
    schema = DESCRIBED.schemas[DESCRIBED.request]
    jsonschema_rs.validate(schema, {**EVERYTHING, "input": "Hi"})
    jsonschema_rs.validate(schema, dict.fromkeys(schema["properties"]))


@pytest.mark.parametrize("field", DESCRIBED.schemas[DESCRIBED.request]["properties"])
def test_openapi_request_fields_are_validated(field: str) -> None:
    """A field that is not is refused, and so is one of another type than described."""
    check_fields({"input": "Hi", field: None})
    if field not in ("input", "instructions"):  # their items are checked elsewhere
        with pytest.raises(GatewayError) as caught:
            check_fields(
                {field: 0.5 if field in ("max_tool_calls", "max_output_tokens") else [7] if field != "tools" else 7}
            )
        assert caught.value.param is not None and caught.value.param.startswith(field)
