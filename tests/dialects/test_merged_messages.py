"""Messages of one role that stand side by side, as one."""

import pytest

from gateway.contracts.storage.store import Json
from gateway.dialects.merged_messages import append_own_messages, join, join_neighbours

PARTS = [{"type": "image_url", "image_url": {"url": "data:,"}}]


@pytest.mark.parametrize(
    ("first", "second", "content"),
    [
        ("a", "b", "a\n\nb"),
        ("", "b", "b"),
        ("a", PARTS, [{"type": "text", "text": "a"}, *PARTS]),
        (PARTS, "b", [*PARTS, {"type": "text", "text": "b"}]),
        (None, "b", [{"type": "text", "text": "b"}]),
        (None, None, None),
    ],
)
def test_adjacent_messages_of_one_role_are_joined(first: object, second: object, content: object) -> None:
    """Texts with an empty line between them, or the parts of both."""
    both = join({"role": "user", "content": first}, {"role": "user", "content": second, "name": "ann"})
    assert both == {"role": "user", "content": content, "name": "ann"}


def test_calls_and_their_results_stay_apart() -> None:
    """An answer with calls is joined to the text before it, and to nothing behind it."""
    call: Json = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    result: Json = {"role": "tool", "tool_call_id": "c", "content": "x"}
    text: Json = {"role": "assistant", "content": "Look."}
    assert join_neighbours([text, call, result, result, text]) == [
        {"role": "assistant", "content": [{"type": "text", "text": "Look."}], "tool_calls": [{"id": "c"}]},
        result,
        result,
        text,
    ]
    assert join_neighbours([call, text]) == [call, text]


def test_gateway_messages_join_the_preceding_user_message() -> None:
    """They join the one before them, and each other; the client's neighbours stay as they are."""
    first, second, answer = ({"role": role, "content": role} for role in ("user", "user", "assistant"))
    ours: Json = {"role": "user", "content": "Again."}
    both = [first, {"role": "user", "content": "user\n\nAgain.\n\nAgain."}]
    assert append_own_messages([first, second], [ours, ours]) == both
    assert append_own_messages([first, answer], [ours, ours])[2:] == [{"role": "user", "content": "Again.\n\nAgain."}]
    assert append_own_messages([first], [answer, ours]) == [first, answer, ours]
    assert second == {"role": "user", "content": "user"}
