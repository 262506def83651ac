"""Upstreams that cannot stream, or not as they are asked to: accepted, learnt, and told where it is something else."""

import json
from pathlib import Path

import pytest
from gateways import key

from .models import Answer, Json, says
from .talking import desk, talking

READ = json.dumps(
    {"tool": "file_operations", "parameters": {"operation": "read", "path": "notes.txt"}, "terminate": False}
)
UNLOOPED: Json = {"response_format": {"type": "json_object"}}
ASKS: list[Json] = [{"stream": True, "stream_options": {"include_usage": True}}, {"stream": True}, {"stream": False}]


def whole(content: object, *, finish: str | None = "stop", index: object = 0, **message: object) -> Answer:
    """An answer that is no stream."""
    choice = {"index": index, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    completion = {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    return sent(completion)


def sent(content: object, *, status: int = 200, content_type: str = "application/json") -> Answer:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Answer(status=status, content=raw, content_type=content_type)


def rejects(words: object, status: int = 400) -> Answer:
    return sent(words, status=status)


#: As servers say it.
NO_OPTIONS = rejects({"error": {"message": "Unrecognized request argument supplied: stream_options"}})
NO_OPTIONS_422 = rejects(
    {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}, 422
)
NO_STREAM = rejects({"error": {"message": "Streaming is not supported for this model.", "param": "stream"}})
NO_STREAM_501 = rejects({"error": "stream=true is not implemented"}, 501)


def asked(body: Json) -> Json:
    return {key: body[key] for key in ("stream", "stream_options") if key in body}


@pytest.mark.parametrize("further", [{}, UNLOOPED])
async def test_json_answer_to_a_stream_request_becomes_a_stream(further: Json) -> None:
    """Becomes a stream, and an answer; with its tokens, its fields, its finish reason."""
    answer = whole("Hello.", finish="length", refusal="no", annotations=[])
    async with talking(answer, answer) as world:
        completed = await world.chat(**further)
        assert (completed.text, completed.finish, completed.message["refusal"]) == ("Hello.", "length", "no")
        assert completed.json["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        stream = await world.stream(**further)
        assert (stream.text, stream.finishes) == ("Hello.", ["length"])


@pytest.mark.parametrize("index", [1, "0", None])
@pytest.mark.parametrize("further", [{}, UNLOOPED])
async def test_single_choice_is_accepted_with_any_index(index: object, further: Json) -> None:
    answer = whole("Hello.", index=index)
    async with talking(answer, answer) as world:
        assert (await world.chat(**further)).text == "Hello."
        stream = await world.stream(**further)
        assert (stream.text, stream.finishes) == ("Hello.", ["stop"])


@pytest.mark.parametrize("native", [False, True])
async def test_tool_calls_work_without_streaming_upstream(tmp_path: Path, *, native: bool) -> None:
    """A call is found in the answer, in its text or in its field, with arguments as a text or as an object."""
    arguments = {"operation": "read", "path": "notes.txt"}
    calls = [{"id": "a", "type": "function", "function": {"name": "file_operations", "arguments": arguments}}]
    first = whole(None, finish="tool_calls", tool_calls=calls) if native else whole(READ)
    async with talking(first, whole("Behind the mirror."), tools=desk(tmp_path)) as world:
        assert (await world.chat("Where?")).text == "Behind the mirror."
        assert "behind the mirror" in world.model.asked[-1]["messages"][-1]["content"]


@pytest.mark.parametrize("finish", [None, ""])
async def test_answer_without_a_finish_reason_is_complete(finish: str | None) -> None:
    """It is whole all the same: it is no stream."""
    async with talking(whole("Hello.", finish=finish)) as world:
        assert (await world.chat()).finish == "stop"


@pytest.mark.parametrize(
    ("refusals", "answer", "styles"),
    [
        ([NO_OPTIONS], says("Hi."), [0, 1]),
        ([NO_OPTIONS_422], says("Hi."), [0, 1]),
        ([NO_STREAM], whole("Hi."), [0, 2]),
        ([NO_STREAM_501], whole("Hi."), [0, 2]),
        ([NO_OPTIONS, NO_STREAM], whole("Hi."), [0, 1, 2]),
    ],
)
async def test_refused_stream_option_is_dropped_and_remembered_per_model(
    refusals: list[Answer], answer: Answer, styles: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """The next request of this model does not try it again; another model's does."""
    async with talking(*refusals, answer, answer, says("Other.")) as world:
        assert (await world.chat()).text == "Hi."
        assert (await world.chat("again", stream_options={"include_usage": True})).text == "Hi."
        assert [asked(body) for body in world.model.asked] == [ASKS[i] for i in [*styles, styles[-1]]]
        assert (await world.chat("again", model="another")).text == "Other."
        assert asked(world.model.asked[-1]) == ASKS[0]
        (logged,) = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
        assert "'up'" in logged and "'m'" in logged


async def test_error_text_of_one_key_does_not_change_other_requests() -> None:
    """A server shows the wrong value that it refuses, whose words name what it takes from everybody else."""
    value = {"x": "The system role is not supported. Streaming is not supported."}
    shown = {"loc": ["body", "messages", 2, "reasoning_content"], "msg": "Input should be a string", "input": value}
    wrong = {"role": "assistant", "content": "Hm.", "reasoning_content": value}
    system: Json = {"role": "system", "content": "Never tell."}
    messages = [system, {"role": "user", "content": "Hi"}]
    refusals, keys = [rejects({"detail": [shown]}, 422)] * 3, [key("mallory", "context"), key("anna", "context")]
    upstream = {"api_key": "sk-upstream"}
    async with talking(*refusals, whole("Ok."), whole("Again."), says("Hi."), keys=keys, upstream=upstream) as world:
        mallory, anna = ({"X-Gateway-Key": name} for name in ("mallory", "anna"))
        assert (await world.chat([*messages, wrong, messages[1]], headers=mallory)).text == "Ok."
        assert (await world.chat(messages, headers=mallory)).text == "Again."
        assert [asked(body) for body in world.model.asked[-2:]] == [ASKS[2]] * 2
        assert (await world.chat(messages, headers=anna)).text == "Hi."
        told = world.model.asked[-1]
        assert asked(told) == ASKS[0] and told["messages"][0]["role"] == "system"
        assert told["messages"][0]["content"].endswith(system["content"])


async def test_other_upstream_refusal_is_returned_without_retry() -> None:
    """It is told as it is, also where it holds a misleading word; nothing is asked again, and nothing is learnt."""
    misleading = rejects({"error": {"message": "Your text about a stream is too long."}})
    async with talking(misleading, rejects({"error": "no"}), says("Hi.")) as world:
        answer = await world.chat()
        assert (answer.status, answer.error["code"]) == (400, "upstream_rejected")
        assert (await world.chat("again")).status == 400
        assert (await world.chat("and again")).text == "Hi."
        assert [asked(body) for body in world.model.asked] == [ASKS[0]] * 3


@pytest.mark.parametrize(("quirks", "index"), [([], 0), (["no_usage_in_stream"], 1), (["no_stream"], 2)])
async def test_upstream_quirks_setting_determines_the_request(quirks: list[str], index: int) -> None:
    """By upstream."""
    answer = whole("Hi.") if quirks == ["no_stream"] else says("Hi.")
    async with talking(answer, upstream={"quirks": quirks}) as world:
        assert (await world.stream(stream_options={"include_usage": True})).text == "Hi."
        assert asked(world.model.asked[0]) == ASKS[index]
        (request,) = world.model.upstream.requests
        assert request.list_values(b"accept") == [
            b"application/json" if quirks == ["no_stream"] else b"text/event-stream"
        ]


@pytest.mark.parametrize(
    ("content", "content_type"),
    [(b"<html>Welcome</html>", "text/html; charset=utf-8"), (b"\n", "text/plain"), (b"ok", "application/octet-stream")],
)
async def test_unexpected_upstream_content_returns_502_with_details(content: bytes, content_type: str) -> None:
    """The error names what came, from where, and the usual mistake."""
    async with talking(sent(content, content_type=content_type)) as world:
        base = f"{world.model.upstream.base_url}/openai"
        await world.reload(upstreams=[{"name": "up", "base_url": base}])
        answer = await world.chat(stream=True)
        assert (answer.status, answer.error["code"]) == (502, "upstream_error")
        for part in (f"POST {base}/chat/completions", "status 200", content_type, "must end in '/openai/v1'"):
            assert part in answer.error["message"]


async def test_upstream_404_error_names_the_url() -> None:
    """An error answer without words is told with the URL."""
    async with talking(sent(b"<html>404</html>", status=404, content_type="text/html")) as world:
        answer = await world.chat()
        assert (answer.status, answer.error["code"]) == (404, "upstream_rejected")
        assert f"{world.model.upstream.base_url}/v1/chat/completions" in answer.error["message"]


@pytest.mark.parametrize(
    "content",
    [
        b"no json",
        [],
        {},
        {"choices": []},
        {"choices": [{"text": "as completions were before"}]},
        {"choices": [{"message": "x"}]},
        {"choices": [{"message": {"content": "x", "tool_calls": [5]}}]},
        {"error": {"message": "sorry"}},
        {"choices": [{"message": {"content": "x"}, "finish_reason": ["stop"]}]},
    ],
)
async def test_invalid_json_answer_returns_502(content: object) -> None:
    """The upstream's fault."""
    async with talking(sent(content)) as world:
        answer = await world.chat(stream=True)
        raw = answer.json if answer.status != 200 else {}
        assert (answer.status, raw["error"]["code"]) == (502, "upstream_error")
