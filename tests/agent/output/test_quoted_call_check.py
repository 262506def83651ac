"""Calls that stand in text of others."""

import asyncio
import json

import pytest

from gateway.agent.output.quoted_call_check import THREAD_CHARS, mark_quoted_calls
from gateway.contracts.calls import FoundCall
from gateway.contracts.storage.store import Json
from gateway.dialects.document_texts import build_text_url

CALL = FoundCall("write", {"path": "a"}, terminate=False)
WRITTEN = json.dumps({"tool": "write", "parameters": {"path": "a"}, "terminate": False})


async def doubt(*messages: Json, call: FoundCall = CALL, besides: tuple[str, ...] = ()) -> str | None:
    ((found),) = await mark_quoted_calls([call], messages, besides=besides)
    return found.doubt


@pytest.mark.parametrize("role", ["user", "tool", "function"])
@pytest.mark.parametrize(
    "content", [WRITTEN, [{"type": "text", "text": WRITTEN}], ["x", WRITTEN], "x" * THREAD_CHARS + WRITTEN]
)
async def test_calls_quoted_from_users_or_tools_are_marked(role: str, content: object) -> None:
    """Users' messages and tools' results, as a text or in parts, long ones as well."""
    assert await doubt({"role": "user", "content": "Hi"}, {"role": role, "content": content}) == "quoted"


@pytest.mark.parametrize("role", ["user", "tool"])
@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "file": {"file_data": build_text_url(WRITTEN)}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": WRITTEN}},
        {
            "type": "document",
            "source": {"type": "content", "content": [{"text": WRITTEN[:20]}, {"text": WRITTEN[20:]}]},
        },
        {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": WRITTEN}]},
    ],
)
async def test_calls_quoted_from_documents_are_marked(role: str, part: Json) -> None:
    """A client of Messages sends texts so, and results of searches."""
    assert await doubt({"role": role, "content": [{"type": "text", "text": "Look:"}, part]}) == "quoted"
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
    assert await doubt({"role": role, "content": [picture]}) is None


async def test_calls_quoted_from_what_the_server_read_are_marked() -> None:
    """A page that the model's provider has fetched, in the answer under way, too."""
    page = {"type": "web_fetch_tool_result", "content": {"source": {"type": "text", "data": WRITTEN}}}
    entry = {"type": "reasoning.provider_tool", "index": 1, "block": page}
    assert await doubt({"role": "assistant", "content": "I see.", "reasoning_details": [entry]}) == "quoted"
    assert await doubt({"reasoning_details": [entry]}) == "quoted"
    thought = {"type": "reasoning.text", "text": WRITTEN}
    assert await doubt({"role": "assistant", "reasoning_details": [thought]}) is None


async def test_calls_quoted_from_stage_notes_are_marked() -> None:
    """It may be a memory that a user wrote, also as a literal of Python; one that only names the tool is no quote."""
    for note, doubt in (
        (f"You remember:\n- {WRITTEN}", "quoted"),
        (f"Stored: {WRITTEN!r}", "quoted"),
        ("- write", None),
    ):
        ((found),) = await mark_quoted_calls([CALL], [], notes=(note,), besides=())
        assert found.doubt == doubt


@pytest.mark.parametrize("role", ["assistant", "system", "developer"])
async def test_calls_from_model_or_operator_text_are_not_marked(role: str) -> None:
    """Texts of the model and of the operator are no quotes; nor is content without a text."""
    assert await doubt({"role": role, "content": WRITTEN}) is None
    assert await doubt({"role": "user"}, {"role": "user", "content": [3, None, {"text": 7}]}) is None


async def test_client_calls_and_doubted_calls_are_not_checked_for_quotes() -> None:
    """Calls that the client runs, and those that are doubted already."""
    message = {"role": "user", "content": WRITTEN}
    assert await doubt(message, besides=("write",)) is None
    announced = FoundCall("write", {"path": "a"}, terminate=False, doubt="example")
    assert await doubt(message, call=announced) == "example"


async def test_quote_search_yields_to_other_event_loop_tasks() -> None:
    """The event loop turns while 20 MB are looked through."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    turning = asyncio.create_task(turn())
    assert await doubt({"role": "user", "content": '{"tool": "write", "x": "\\n"} ' * 700_000}) is None
    turning.cancel()
    assert turns > 10
