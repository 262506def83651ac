"""Answers that no agent loop reads: ids of approvals never reach the client, everything else does."""

from typing import Any

import pytest

from gateway.agent.output.passthrough_answer_filter import with_safe_answers
from gateway.contracts.exchange import Chunk, Exchange, Reply
from gateway.dialects.id_scrubbing import INSTEAD
from gateway.runs.live_run import ANSWERS
from tests.agent.agent_bench import CALLER
from tests.scripted_replies import reply_of

ID = "ap_a2b3c4d5e6f7g2h3i4j5k6l7mq"


async def told(*chunks: Chunk) -> list[Chunk]:
    replied = reply_of(*chunks)

    async def model(_exchange: Exchange) -> Reply:
        return replied

    heard: list[Chunk] = []
    reply = await with_safe_answers(model)(Exchange(id="run_1", body={"messages": []}, caller=CALLER, chain="main"))
    await reply.stream(heard.append)
    assert heard[0] == {ANSWERS: replied}
    return heard[1:]


def chunk(reason: str | None = None, **delta: Any) -> Chunk:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


async def test_text_parts_are_flattened_to_text() -> None:
    """Thoughts get the name that clients read. A content with other parts goes on as it came."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    (thought, text, both, other) = await told(
        chunk(content=[thinking]),
        chunk(content=[{"type": "text", "text": "Hello "}]),
        chunk(content=[thinking, {"type": "text", "text": "map"}]),
        chunk(content=[{"type": "text", "text": "See"}, image]),
    )
    assert thought["choices"][0]["delta"] == {"content": "", "reasoning_content": "Hm."}
    assert text["choices"][0]["delta"] == {"content": "Hello "}
    assert both["choices"][0]["delta"] == {"content": "map", "reasoning_content": "Hm."}
    assert other["choices"][0]["delta"] == {"content": [{"type": "text", "text": "See"}, image]}


async def test_chunks_without_an_approval_id_pass_unchanged() -> None:
    """Texts, chunks with other fields, usage; of other choices nothing."""
    call = chunk(tool_calls=[{"index": 0, "id": "1", "function": {"name": "f", "arguments": ID}}])
    other = {"choices": [{"index": 1, "delta": {"content": ID}}]}
    chunks = ("Hello", chunk(content="map"), call, chunk("stop"), {"choices": [], "usage": {"x": 1}})
    assert await told(*chunks, other) == [*chunks, {"choices": []}]


@pytest.mark.parametrize("field", ["content", "reasoning_content", "reasoning", "refusal"])
async def test_approval_id_split_over_chunks_is_removed(field: str) -> None:
    """In each field that clients show, also where the answer ends within it."""
    heard = await told(*(chunk(**{field: piece}) for piece in ("approve ap_a2b3", ID[7:20], ID[20:])), chunk("stop"))
    text = "".join(one["choices"][0]["delta"].get(field, "") for one in heard)  # type: ignore[index]
    assert text == f"approve ap_{INSTEAD}"


async def test_held_back_text_is_released_at_the_end() -> None:
    """Nothing of an answer is lost."""
    heard = await told("see ap", "_a2b3", chunk("stop"))
    assert heard[0] == "see ap" and heard[1] == chunk("stop", content="_a2b3")
