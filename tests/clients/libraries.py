"""The Python clients, each reduced to the pieces of text that it hands to its caller."""

import asyncio
import codecs
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import anthropic
import openai
from langchain_openai import ChatOpenAI

from tests.clients.ask import Ask, Client, observed

MAX_TOKENS: Final = 20_000  # more, and Anthropic's clients insist on streaming


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

    def _driven(self, pieces: AsyncIterator[str]) -> Iterator[str]:
        while (piece := self._runner.run(_next(pieces))) is not None:
            yield piece


async def _next(pieces: AsyncIterator[str]) -> str | None:
    return await anext(pieces, None)


def _openai(ask: Ask) -> Iterator[str]:
    with openai.OpenAI(**_options(ask, path="/v1")) as client:
        if not ask.stream:
            answer = client.chat.completions.create(model="demo", messages=_messages(ask))
            yield answer.choices[0].message.content or ""
            return
        for chunk in client.chat.completions.create(model="demo", messages=_messages(ask), stream=True):
            yield chunk.choices[0].delta.content or ""


def _openai_helper(ask: Ask) -> Iterator[str]:
    with (
        openai.OpenAI(**_options(ask, path="/v1")) as client,
        client.chat.completions.stream(model="demo", messages=_messages(ask)) as stream,
    ):
        if not ask.stream:
            yield stream.get_final_completion().choices[0].message.content or ""
            return
        for event in stream:
            if event.type == "content.delta":
                yield event.delta
        stream.get_final_completion()


async def _openai_async(ask: Ask) -> AsyncIterator[str]:
    async with openai.AsyncOpenAI(**_options(ask, path="/v1")) as client:
        if not ask.stream:
            answer = await client.chat.completions.create(model="demo", messages=_messages(ask))
            yield answer.choices[0].message.content or ""
            return
        async for chunk in await client.chat.completions.create(model="demo", messages=_messages(ask), stream=True):
            yield chunk.choices[0].delta.content or ""


def _openai_responses(ask: Ask) -> Iterator[str]:
    with openai.OpenAI(**_options(ask, path="/v1")) as client:
        if not ask.stream:
            yield client.responses.create(model="demo", input=ask.prompt).output_text
            return
        for event in client.responses.create(model="demo", input=ask.prompt, stream=True):
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


def _langchain(ask: Ask) -> Iterator[str]:
    model = ChatOpenAI(model="demo", **_options(ask, path="/v1"))
    if ask.stream:
        yield from (str(chunk.content) for chunk in model.stream(ask.prompt))
    else:
        yield str(model.invoke(ask.prompt).content)


async def _langchain_async(ask: Ask) -> AsyncIterator[str]:
    model = ChatOpenAI(model="demo", stream_chunk_timeout=ask.timeout_s, **_options(ask, path="/v1"))
    if ask.stream:
        async for chunk in model.astream(ask.prompt):
            yield str(chunk.content)
    else:
        yield str((await model.ainvoke(ask.prompt)).content)


def _llm(ask: Ask) -> Iterator[str]:
    """The command, as a user calls it."""
    with tempfile.TemporaryDirectory() as folder:
        headers = "".join(f"\n    {name}: {json.dumps(value)}" for name, value in ask.headers.items())
        Path(folder, "extra-openai-models.yaml").write_text(
            f"- model_id: gateway-demo\n  model_name: demo\n  api_base: {ask.root}/v1\n  api_key_name: gateway\n"
            + (f"  headers:{headers}\n" if headers else "")
        )
        command = [sys.executable, "-m", "llm", "-m", "gateway-demo", "--key", ask.api_key]
        with subprocess.Popen(
            [*command, *([] if ask.stream else ["--no-stream"]), ask.prompt],
            env={**os.environ, "LLM_USER_PATH": folder},
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


def _options(ask: Ask, *, path: str) -> dict[str, Any]:
    return {
        "base_url": ask.root + path,
        "api_key": ask.api_key,
        "default_headers": dict(ask.headers),
        "max_retries": ask.retries,
        "timeout": ask.timeout_s,
    }


def _messages(ask: Ask) -> list[Any]:
    return [{"role": "user", "content": ask.prompt}]


_SYNCHRONOUS: Final[Mapping[str, Callable[[Ask], Iterator[str]]]] = {
    "openai": _openai,
    "openai .stream()": _openai_helper,
    "openai responses": _openai_responses,
    "anthropic": _anthropic,
    "langchain-openai": _langchain,
    "llm": _llm,
}
_ASYNCHRONOUS: Final[Mapping[str, Callable[[Ask], AsyncIterator[str]]]] = {
    "openai async": _openai_async,
    "anthropic async": _anthropic_async,
    "langchain-openai async": _langchain_async,
}
PYTHON: Final[Sequence[str]] = (*_SYNCHRONOUS, *_ASYNCHRONOUS)
