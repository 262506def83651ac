"""Rows of responses: what is made of the record of a run, and what a row has as items."""

import orjson
import pytest

from gateway.api.responses import response_rows
from gateway.contracts.storage.store import Json
from tests.plugins.stores.contract_responses import opened, response
from tests.plugins.stores.records import run

ITEM: Json = {"id": "msg_1", "type": "message", "role": "user", "status": "completed", "content": []}
CLIENT: Json = {
    "api": response_rows.API,
    "request": {"a": 1},
    "input": [ITEM],
    "previous_id": "resp_0",
    "conversation": "conv_1",
}


@pytest.mark.parametrize(("background", "state"), [(True, "queued"), (False, "in_progress")])
def test_row_built_from_a_run_restores_the_response_fields(background: bool, state: str) -> None:
    """With its own items alone, each with an id."""
    stored = run("run_1", request=orjson.dumps({"background": background, "client": CLIENT}))
    made = response_rows.build_row(stored, "resp_1")
    assert made is not None and (made.id, made.run_id, made.state, made.background) == (
        "resp_1",
        "run_1",
        state,
        background,
    )
    assert (made.previous_id, made.conversation, orjson.loads(made.request)) == ("resp_0", "conv_1", {"a": 1})
    assert response_rows.read_items(made) == [ITEM] and made.tenant == stored.tenant and made.caller == stored.caller


def test_the_items_of_a_response_are_its_input_and_its_output() -> None:
    """Before its end only the input; a deleted response has none."""
    said: Json = {"id": "msg_2", "type": "message", "role": "assistant", "content": []}
    given, output = orjson.dumps([ITEM]), orjson.dumps({"output": [said]})
    assert response_rows.read_items(opened(input=given)) == [ITEM]
    assert response_rows.read_items(response(input=given, output=output)) == [ITEM, said]
    assert response_rows.build_added_items(given, [said]) == [
        ("msg_1", orjson.dumps(ITEM)),
        ("msg_2", orjson.dumps(said)),
    ]
    assert response_rows.is_hidden(response(output=b"")) and not response_rows.is_hidden(opened())


def test_missing_previous_response_error_names_both_ids() -> None:
    """The response that the request names, or one before it that the client may not know."""
    for gone in ("resp_2", "resp_1"):
        error = response_rows.build_missing_response_error("resp_2", gone)
        assert (error.code, error.param) == ("previous_response_not_found", "previous_response_id")
        assert "resp_2" in error.message and gone in error.message
