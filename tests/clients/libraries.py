"""The Python clients, each reduced to the pieces of text that it hands to its caller."""

import asyncio
import codecs
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import anthropic
import openai
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from openai.types import CompletionUsage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

from tests.clients.ask import Ask, Client, Usage, observed

MAX_TOKENS: Final = 20_000  # more, and Anthropic's clients insist on streaming
_LLM_USAGE: Final = re.compile(r"Token usage: ([0-9,]+) input, ([0-9,]+) output")


class ProgramError(Exception):
    """A program exited with an error; its words are the message."""


class Libraries:
    """`with Libraries() as libraries`; `libraries.client(name)` is one of `PYTHON`."""

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._runner.close()

    def client(self, name: str) -> Client:
        if name in _SYNCHRONOUS:
            return observed(_SYNCHRONOUS[name])
        return observed(lambda ask: self._driven(_ASYNCHRONOUS[name](ask)))

    def _driven(self, pieces: AsyncIterator[str | Usage]) -> Iterator[str | Usage]:
        """All of it in one task, which is what pydantic-ai insists on."""
        queue = asyncio.Queue[str | Usage | None]()
        task = self._runner.get_loop().create_task(_drive(pieces, queue))
        while (piece := self._runner.run(queue.get())) is not None:
            yield piece
        self._runner.run(asyncio.wait_for(task, timeout=None))


async def _drive(pieces: AsyncIterator[str | Usage], queue: asyncio.Queue[str | Usage | None]) -> None:
    try:
        async for piece in pieces:
            queue.put_nowait(piece)
    finally:
        queue.put_nowait(None)


def _openai(ask: Ask) -> Iterator[str | Usage]:
    with openai.OpenAI(**_options(ask, path="/v1")) as client:
        if not ask.stream:
            answer = client.chat.completions.create(model="demo", messages=_messages(ask))
            yield answer.choices[0].message.content or ""
            yield from _told(answer.usage)
            return
        for chunk in client.chat.completions.create(
            model="demo", messages=_messages(ask), stream=True, stream_options=_stream_options(ask)
        ):
            if not ask.usage:
                yield chunk.choices[0].delta.content or ""
                continue
            yield from (choice.delta.content or "" for choice in chunk.choices)
            yield from _told(chunk.usage)


def _openai_helper(ask: Ask) -> Iterator[str | Usage]:
    with (
        openai.OpenAI(**_options(ask, path="/v1")) as client,
        client.chat.completions.stream(
            model="demo", messages=_messages(ask), stream_options=_stream_options(ask)
        ) as stream,
    ):
        if not ask.stream:
            yield stream.get_final_completion().choices[0].message.content or ""
        for event in stream:
            if event.type == "content.delta":
                yield event.delta
        yield from _told(stream.get_final_completion().usage)


async def _openai_async(ask: Ask) -> AsyncIterator[str | Usage]:
    async with openai.AsyncOpenAI(**_options(ask, path="/v1")) as client:
        if not ask.stream:
            answer = await client.chat.completions.create(model="demo", messages=_messages(ask))
            yield answer.choices[0].message.content or ""
            for usage in _told(answer.usage):
                yield usage
            return
        async for chunk in await client.chat.completions.create(
            model="demo", messages=_messages(ask), stream=True, stream_options=_stream_options(ask)
        ):
            if not ask.usage:
                yield chunk.choices[0].delta.content or ""
                continue
            for choice in chunk.choices:
                yield choice.delta.content or ""
            for usage in _told(chunk.usage):
                yield usage


def _openai_responses(ask: Ask) -> Iterator[str]:
    with openai.OpenAI(**_options(ask, path="/v1")) as client:
        if not ask.stream:
            yield client.responses.create(model="demo", input=_messages(ask)).output_text
            return
        for event in client.responses.create(model="demo", input=_messages(ask), stream=True):
            if event.type == "response.output_text.delta":
                yield event.delta


def _anthropic(ask: Ask) -> Iterator[str]:
    with anthropic.Anthropic(**_options(ask, path="")) as client:
        if not ask.stream:
            answer = client.messages.create(model="demo", messages=_messages(ask), max_tokens=MAX_TOKENS)
            yield "".join(block.text for block in answer.content if block.type == "text")
            return
        with client.messages.stream(model="demo", messages=_messages(ask), max_tokens=MAX_TOKENS) as stream:
            yield from stream.text_stream


async def _anthropic_async(ask: Ask) -> AsyncIterator[str]:
    async with anthropic.AsyncAnthropic(**_options(ask, path="")) as client:
        if not ask.stream:
            answer = await client.messages.create(model="demo", messages=_messages(ask), max_tokens=MAX_TOKENS)
            yield "".join(block.text for block in answer.content if block.type == "text")
            return
        async with client.messages.stream(model="demo", messages=_messages(ask), max_tokens=MAX_TOKENS) as stream:
            async for text in stream.text_stream:
                yield text


def _langchain(ask: Ask) -> Iterator[str | Usage]:
    model = ChatOpenAI(model="demo", stream_usage=ask.usage, **_options(ask, path="/v1"))
    messages = _messages(ask)
    for message in model.stream(messages) if ask.stream else [model.invoke(messages)]:
        yield str(message.content)
        yield from _langchain_usage(message)


async def _langchain_async(ask: Ask) -> AsyncIterator[str | Usage]:
    # A timeout of this type keeps its connections out of a cache that outlives the loop.
    options = {**_options(ask, path="/v1"), "timeout": openai.Timeout(ask.timeout_s)}
    model = ChatOpenAI(model="demo", stream_usage=ask.usage, stream_chunk_timeout=ask.timeout_s, **options)
    async with model.root_async_client:
        if not ask.stream:
            message = await model.ainvoke(_messages(ask))
            yield str(message.content)
            for usage in _langchain_usage(message):
                yield usage
            return
        async for chunk in model.astream(_messages(ask)):
            yield str(chunk.content)
            for usage in _langchain_usage(chunk):
                yield usage


def _langchain_usage(message: AIMessage) -> Iterator[Usage]:
    if message.usage_metadata is not None:
        yield Usage(message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"])


async def _pydantic_ai(ask: Ask) -> AsyncIterator[str | Usage]:
    """It always asks for the usage."""
    async with openai.AsyncOpenAI(**_options(ask, path="/v1")) as client:
        provider = OpenAICompatibleProvider("gateway", openai_client=client)
        agent = Agent(OpenAIChatModel("demo", provider=provider))
        history = [pydantic_message(**message) for message in ask.messages[:-1]]
        if not ask.stream:
            whole = await agent.run(ask.prompt, message_history=history)
            yield whole.output
            yield Usage(whole.usage.input_tokens, whole.usage.output_tokens)
            return
        async with agent.run_stream(ask.prompt, message_history=history) as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                yield text
            yield Usage(result.usage.input_tokens, result.usage.output_tokens)


def pydantic_message(role: str, content: str) -> ModelMessage:
    return ModelResponse([TextPart(content)]) if role == "assistant" else ModelRequest([UserPromptPart(content)])


@contextmanager
def llm_home(root: str, settings: str = "") -> Iterator[dict[str, str]]:
    """Yield the environment of `llm` commands with a model `gateway-demo` at this root, and a folder of their own.

    `settings` are more fields of the model in YAML's short form.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = f"model_id: gateway-demo, model_name: demo, api_base: '{root}/v1', api_key_name: gateway"
        Path(folder, "extra-openai-models.yaml").write_text(f"- {{{', '.join(filter(None, [model, settings]))}}}")
        yield {**os.environ, "LLM_USER_PATH": folder}


def _llm(ask: Ask) -> Iterator[str | Usage]:
    """The command, as a user calls it; it always asks for the usage."""
    with llm_home(ask.root, f"headers: {json.dumps(dict(ask.headers))}") as env:
        command = [sys.executable, "-m", "llm", "-m", "gateway-demo", "--key", ask.api_key]
        options = [*([] if ask.stream else ["--no-stream"]), *(["--usage"] if ask.usage else [])]
        with subprocess.Popen(
            [*command, *options, ask.prompt],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as program:
            assert program.stdout is not None and program.stderr is not None
            newline = ""  # the program ends its output with one of its own
            for text in codecs.iterdecode(iter(partial(os.read, program.stdout.fileno(), 65536), b""), "utf-8"):
                yield newline + text.removesuffix("\n")
                newline = "\n" if text.endswith("\n") else ""
            complaint = program.stderr.read().decode()
    if program.returncode:
        raise ProgramError(complaint)
    if told := _LLM_USAGE.search(complaint):
        yield Usage(*(int(count.replace(",", "")) for count in told.groups()))


def _options(ask: Ask, *, path: str) -> dict[str, Any]:
    return {
        "base_url": ask.root + path,
        "api_key": ask.api_key,
        "default_headers": dict(ask.headers),
        "max_retries": ask.retries,
        "timeout": ask.timeout_s,
    }


def _stream_options(ask: Ask) -> Any:
    return {"include_usage": True} if ask.usage else openai.omit


def _told(usage: CompletionUsage | None) -> Iterator[Usage]:
    if usage is not None:
        yield Usage(usage.prompt_tokens, usage.completion_tokens)


def _messages(ask: Ask) -> list[Any]:
    return [*ask.messages]


_SYNCHRONOUS: Final[Mapping[str, Callable[[Ask], Iterator[str | Usage]]]] = {
    "openai": _openai,
    "openai .stream()": _openai_helper,
    "openai responses": _openai_responses,
    "anthropic": _anthropic,
    "langchain-openai": _langchain,
    "llm": _llm,
}
_ASYNCHRONOUS: Final[Mapping[str, Callable[[Ask], AsyncIterator[str | Usage]]]] = {
    "openai async": _openai_async,
    "anthropic async": _anthropic_async,
    "langchain-openai async": _langchain_async,
    "pydantic-ai": _pydantic_ai,
}
PYTHON: Final[Sequence[str]] = (*_SYNCHRONOUS, *_ASYNCHRONOUS)
