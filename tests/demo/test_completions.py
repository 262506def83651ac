"""The completions from before chat, over a real socket."""

import aiohttp

from .talk import post, post_stream

PATH = "/v1/completions"


async def test_completion_has_text_usage_and_finish_reason(client: aiohttp.ClientSession) -> None:
    """A completion has its text, usage, and a finish_reason that this API knows."""
    answer = await post(client, PATH, {"model": "demo", "prompt": ["native x {}"]})
    (choice,) = answer["choices"]
    assert (answer["object"], choice["finish_reason"]) == ("text_completion", "stop")
    assert '"tool": "x"' in choice["text"] and answer["usage"]["total_tokens"] > 0


async def test_completion_stream_has_frames_usage_and_done(client: aiohttp.ClientSession) -> None:
    """A stream has a frame for each word, one finish_reason, usage when asked, and [DONE]."""
    body = {"prompt": "long 9", "max_tokens": 3, "stream_options": {"include_usage": True}}
    *chunks, usage, done = await post_stream(client, PATH, body)
    assert done == "[DONE]" and (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 3)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["text"] for choice in choices] == ["word1 ", "word2 ", "word3 ", ""]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]


async def test_non_text_prompt_returns_400(client: aiohttp.ClientSession) -> None:
    """A prompt that is no text is refused."""
    async with client.post(PATH, json={"prompt": 3}) as response:
        assert (response.status, (await response.json())["error"]["param"]) == (400, "prompt")
