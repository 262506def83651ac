"""Items that go behind a conversation: what is read of it, and what counts as there already."""

import orjson
import pytest

from gateway.api.responses.conversation_items_create import check_added, depends_on_earlier
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json
from gateway.dialects.responses.items import build_input_items

CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}", "id": "fc_1"}
OUTPUT: Json = {"type": "function_call_output", "call_id": "call_1", "output": "sunny", "id": "fco_1"}
TEXT: Json = {"type": "message", "role": "user", "content": "Hi"}


def stored(*items: Json) -> list[bytes]:
    return [orjson.dumps(item) for item in build_input_items(items, response_id="resp_" + "0" * 24)]


def test_message_without_an_id_does_not_need_earlier_items() -> None:
    """A long conversation is not read for it."""
    assert not depends_on_earlier(TEXT)
    assert all(map(depends_on_earlier, (CALL, OUTPUT, {**TEXT, "id": "msg_1"})))


def test_stored_call_and_output_may_be_sent_again() -> None:
    """And what follows it."""
    check_added([CALL, OUTPUT, TEXT], stored(TEXT, CALL, OUTPUT), unseal=str)
    check_added([OUTPUT], stored(CALL), unseal=str)


def test_different_item_with_a_stored_id_is_refused() -> None:
    """The place counts all items that were sent, those that are there already, too."""
    with pytest.raises(GatewayError) as refused:
        check_added([CALL, {**OUTPUT, "output": "rainy"}], stored(CALL, OUTPUT), unseal=str)
    assert refused.value.param == "items[1].id"


def test_error_of_a_stored_broken_conversation_names_the_conversation() -> None:
    """The items of the conversation have no place in the request."""
    with pytest.raises(GatewayError) as refused:
        check_added([CALL], stored(OUTPUT), unseal=str)
    assert refused.value.param == "conversation"
