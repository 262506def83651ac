"""How answers of any API end. What each API makes of them: its own tests."""

import pytest

from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.jsontext.value_count import VALUES_LIMIT
from gateway.model.apis.answer_reading import parse_object, parse_value
from gateway.model.json_repair import mend_answer
from gateway.testing.scripts import build_answer, serve
from gateway.upstream.endpoint import ModelAccess
from tests.agent.models import failure, models
from tests.model.test_upstream_client import target

MESSAGES = ModelAccess(api="messages")


@pytest.mark.parametrize("access", [ModelAccess(), MESSAGES])
async def test_broken_answers_are_failures_of_the_upstream(access: ModelAccess) -> None:
    """Whatever the API: no JSON, no object, an object of another kind."""
    for content in (b"{", b"[]", b"7", b'{"a": 1}'):
        async with models(
            serve(build_answer(200, content, [("Content-Type", "application/json")])), models=access
        ) as one:
            error = await failure(one, "upstream_error")
            assert "its answer" in error.message
            assert one.outcomes() == {"error": 1}


def test_answer_with_too_many_values_is_not_parsed() -> None:
    with pytest.raises(GatewayError, match="holds more than"):
        parse_value(b"[" + b"0," * VALUES_LIMIT + b"0]", target(), mend_answer)


def test_error_in_an_answer_raises_its_words() -> None:
    told: Json = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    found = target()
    with pytest.raises(GatewayError, match="Overloaded"):
        parse_object(repr(told).replace("'", '"').encode(), found)
    assert found.error_status == 529
