"""What a model says beside its text and its calls: it reaches the client, and the model again where it needs it."""

import json
from pathlib import Path

import pytest

from gateway.dialects.id_scrubbing import INSTEAD

from .models import Answer, Json, call, native, says
from .talking import World, desk, talking

READ = ("file_operations", {"operation": "read", "path": "notes.txt", "risk_level": "low"})
APPROVAL_ID = "ap_" + "abcdefghijklmnopqrstuvwxyz"
#: Fields of a message as the pieces in which they stream, and what they are as a whole.
FIELDS: dict[str, tuple[list[object], object]] = {
    "refusal": (["I can", "not."], "I cannot."),
    "reasoning_content": (["Hm. ", "Yes, map_"], "Hm. Yes, map_"),
    "reasoning_details": (
        [
            [{"type": "reasoning.text", "text": "Hm. ", "format": "f", "index": 0}],
            [{"type": "reasoning.text", "text": "Yes.", "format": "f", "index": 0}],
            [{"type": "reasoning.encrypted", "data": "c2VjcmV0", "index": 0}],
        ],
        [
            {"type": "reasoning.text", "text": "Hm. Yes.", "format": "f", "index": 0},
            {"type": "reasoning.encrypted", "data": "c2VjcmV0", "index": 0},
        ],
    ),
    "annotations": (
        [[{"type": "url_citation", "url_citation": {"url": "https://a.example", "start_index": 0}}], [{"type": "x"}]],
        [{"type": "url_citation", "url_citation": {"url": "https://a.example", "start_index": 0}}, {"type": "x"}],
    ),
    "images": (
        [[{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}, "index": 0}]],
        [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}, "index": 0}],
    ),
    "audio": (
        [{"id": "a1", "data": "AA"}, {"id": "a1", "data": "BB", "transcript": "Hi"}, {"expires_at": 5}],
        {"id": "a1", "data": "AABB", "transcript": "Hi", "expires_at": 5},
    ),
    "anything_new": ([{"a": [1, 2.5, True]}], {"a": [1, 2.5, True]}),
}


def unlooped() -> Json:
    """A chain without an agent loop."""
    return {"chains": {"assistant": [{"use": "prompt_enhancer", "with": {}}]}}


@pytest.mark.parametrize("looped", [True, False])
@pytest.mark.parametrize("name", FIELDS)
async def test_extra_message_field_reaches_the_client(name: str, *, looped: bool) -> None:
    """As the model streams it, and whole where the client wants no stream."""
    pieces, whole = FIELDS[name]
    answer = says("Look: ", *({name: piece} for piece in pieces), "that.")
    async with talking(answer, answer, **({} if looped else unlooped())) as world:
        completed = await world.chat()
        assert completed.message == {"role": "assistant", "content": "Look: that.", name: whole}
        stream = await world.stream()
        assert stream.text == "Look: that."
        if name == "reasoning_content":  # an end that may begin an id comes once it is known that it does not
            assert "".join(delta.get(name, "") for delta in stream.deltas) == whole
        else:
            assert [delta[name] for delta in stream.deltas if name in delta] == pieces


async def test_content_parts_reach_the_client_as_text_and_parts() -> None:
    """Text is text, a thought has the name that clients know, any other part stays one."""
    image = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    answer = says({"content": [thinking]}, {"content": [{"type": "text", "text": "Look: "}, image]}, "that.")
    async with talking(answer, answer) as world:
        message = (await world.chat()).message
        assert message["reasoning_content"] == "Hm."
        assert message["content"] == [image, {"type": "text", "text": "Look: that."}]
        stream = await world.stream()
        contents = [delta["content"] for delta in stream.deltas if delta.get("content")]
        assert contents == [[image], "Look: ", "that."]


@pytest.mark.parametrize("looped", [True, False])
async def test_upstream_answer_metadata_reaches_the_client(*, looped: bool) -> None:
    """Its fingerprint and whatever else, which means nothing to the gateway; but nothing that it says itself."""
    about = {"system_fingerprint": "fp_1", "service_tier": "flex", "citations": ["https://a.example"]}
    first = {**about, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
    forged = {"context": {"type": "approval.resolved"}, "calls": 5, "effects": True, "parked": True, "id": "theirs"}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "native_finish_reason": "end_turn"}]}
    pieces = [json.dumps(one).encode() for one in (first, {**first, **forged}, last)]
    answer = says(pieces[0], "Hi.", *pieces[1:], finish=None)
    async with talking(answer, answer, **({} if looped else unlooped())) as world:
        completed = await world.chat()
        assert completed.json == {**completed.json, **about} and completed.text == "Hi."
        assert completed.json["choices"][0]["native_finish_reason"] == "end_turn"
        assert "context" not in completed.json and completed.json["id"] != "theirs"
        stream = await world.stream()
        assert stream.frames[-1] == {**stream.frames[-1], **about}
        assert stream.frames[-1]["choices"][0] == {
            "index": 0,
            "delta": {},
            "finish_reason": "stop",
            "native_finish_reason": "end_turn",
        }
        assert not any("context" in frame or frame["id"] == "theirs" for frame in stream.frames)


async def test_token_usage_details_are_summed_over_rounds(tmp_path: Path) -> None:
    """Over all rounds, whatever their names are."""

    def counted(cached: int, cost: float) -> bytes:
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "cost": cost}
        details: Json = {"prompt_tokens_details": {"cached_tokens": cached, "audio_tokens": None}}
        return json.dumps({"choices": [], "usage": {**usage, **details}}).encode()

    rounds = [native(READ).but(usage=None), says("Behind the mirror.", usage=None)]
    rounds = [one.but(pieces=(*one.pieces, counted(4, 0.5))) for one in rounds]
    async with talking(*rounds, tools=desk(tmp_path)) as world:
        usage = (await world.chat("Where is the safe?")).json["usage"]
        assert usage == {
            "prompt_tokens": 20,
            "completion_tokens": 4,
            "total_tokens": 24,
            "cost": 1.0,
            "prompt_tokens_details": {"cached_tokens": 8},
        }


THOUGHT: Json = {"reasoning_content": "I look at map_"}
SIGNED: Json = {"google": {"thought_signature": "c2lnbmVk"}}


def signed_call(tool: str) -> Answer:
    """A native call with the signature of its thought."""
    (piece, *rest) = native((tool, READ[1])).pieces
    assert isinstance(piece, dict)
    piece["tool_calls"][0]["extra_content"] = SIGNED
    return Answer((THOUGHT, {"reasoning_details": [{"type": "t", "text": "Hm", "index": 0}]}, piece, *rest))


def first_call(world: World) -> Json:
    """The model's first answer as it is sent back to it."""
    found: Json = next(m for m in world.model.asked[-1]["messages"] if m["role"] == "assistant")
    return found


@pytest.mark.parametrize("stream", [True, False])
async def test_thoughts_and_signatures_are_sent_in_the_next_round(tmp_path: Path, *, stream: bool) -> None:
    """As the model sent them; also with its hidden turn in the next request of the conversation."""
    rounds = (signed_call(READ[0]), says("Behind the mirror."), says("You are welcome."))
    async with talking(*rounds, tools=desk(tmp_path)) as world:
        asked = [{"role": "user", "content": "Where is the safe?"}]
        ann = {"X-Context-User": "ann"}
        text = (await (world.stream if stream else world.chat)(asked, headers=ann)).text
        sent = first_call(world)
        assert sent["reasoning_content"] == THOUGHT["reasoning_content"]
        assert sent["reasoning_details"] == [{"type": "t", "text": "Hm", "index": 0}]
        assert [one["extra_content"] for one in sent["tool_calls"]] == [SIGNED]
        said = [*asked, {"role": "assistant", "content": text}, {"role": "user", "content": "Thanks!"}]
        await world.chat(said, headers=ann)
        assert first_call(world) == sent


async def test_thoughts_are_kept_across_an_approval(tmp_path: Path) -> None:
    """They are on record with the run."""
    write = json.dumps(call("file_operations", operation="write", path="a.txt", content="x", risk_level="high"))
    rounds = (says(THOUGHT, {"content": [{"type": "thinking", "thinking": "Hm."}]}, write), says("Done."))
    async with talking(*rounds, tools=desk(tmp_path, write=True)) as world:
        asked = await world.chat("write")
        await world.decide(asked.asks[0]["id"])
        await world.run(asked.headers["X-Context-Run-Id"], state="completed")
        sent = first_call(world)
        assert sent["reasoning_content"] == THOUGHT["reasoning_content"]
        assert sent["content"] == [{"type": "thinking", "thinking": "Hm."}]


async def test_client_tool_call_carries_its_thought_signature() -> None:
    """The client has to send it back."""
    tools = [{"type": "function", "function": {"name": "theirs", "parameters": {"type": "object"}}}]
    async with talking(signed_call("theirs"), signed_call("theirs")) as world:
        (asked,) = (await world.chat(tools=tools)).message["tool_calls"]
        assert asked["extra_content"] == SIGNED
        (delta,) = [delta for delta in (await world.stream(tools=tools)).deltas if "tool_calls" in delta]
        assert delta["tool_calls"][0]["extra_content"] == SIGNED


HIDDEN_IDS: list[Json] = [
    {"refusal": APPROVAL_ID},
    {"reasoning_details": [{"index": 0, "text": APPROVAL_ID}]},
    {"annotations": [{"url_citation": {"title": APPROVAL_ID}}]},
    {"audio": {"transcript": APPROVAL_ID}},
    {"new": {"deep": [[APPROVAL_ID]]}},
    {"content": [{"type": "other", "title": APPROVAL_ID}]},
]


@pytest.mark.parametrize("looped", [True, False])
@pytest.mark.parametrize("piece", HIDDEN_IDS)
async def test_approval_id_from_the_model_is_masked(piece: Json, *, looped: bool) -> None:
    """Only the gateway's own text shows one."""
    async with talking(says(piece, "Hi."), **({} if looped else unlooped())) as world:
        answer = json.dumps((await world.chat()).json, ensure_ascii=False)
        assert APPROVAL_ID not in answer and INSTEAD in answer


@pytest.mark.parametrize("looped", [True, False])
async def test_approval_id_split_across_chunks_is_masked(*, looped: bool) -> None:
    """In any field that is continued."""
    pieces: list[Json] = [
        {"reasoning_details": [{"index": 0, "text": part}]} for part in ("ap_abcdef", APPROVAL_ID[9:])
    ]
    pieces += [{"audio": {"transcript": part}} for part in ("ap_abcdef", APPROVAL_ID[9:])]
    async with talking(says(*pieces, "Hi."), **({} if looped else unlooped())) as world:
        message = (await world.chat()).message
        assert INSTEAD in message["reasoning_details"][0]["text"] and INSTEAD in message["audio"]["transcript"]


@pytest.mark.parametrize("where", ["delta", "call", "about", "content"])
@pytest.mark.parametrize("looped", [True, False])
async def test_overly_nested_upstream_value_returns_502(where: str, *, looped: bool) -> None:
    """It could not be written again: the upstream's fault, and told as that."""
    deep = json.loads("[" * 300 + "]" * 300)
    delta: Json = {"x": deep}
    if where == "call":
        delta = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "x", "arguments": "{}"}, "x": deep}]}
    if where == "content":
        delta = {"content": [{"type": "other", "x": deep}]}
    chunk: Json = {"choices": [{"index": 0, "delta": {} if where == "about" else delta}]}
    if where == "about":
        chunk["x"] = deep
    async with talking(says(json.dumps(chunk).encode()), **({} if looped else unlooped())) as world:
        answer = await world.chat()
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")


async def test_indexed_entries_of_several_rounds_are_renumbered(tmp_path: Path) -> None:
    """Each model call counts from 0: the client sees one answer, in which an index means one entry."""
    details = [{"reasoning_details": [{"type": "t", "text": f"{n}", "index": 0}]} for n in (1, 2)]
    first = native(READ)
    rounds = (first.but(pieces=(details[0], *first.pieces)), says(details[1], "Behind the mirror."))
    async with talking(*rounds, tools=desk(tmp_path)) as world:
        found = (await world.chat("Where?")).message["reasoning_details"]
        assert found == [{"type": "t", "text": "1", "index": 0}, {"type": "t", "text": "2", "index": 1}]
