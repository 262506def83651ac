"""instructor (requirements/clients-instructor.txt): texts, and objects as JSON; a stream has them piece by piece."""

from collections.abc import Iterator

import openai
from answering import Json, answer_questions, told
from instructor import Instructor, Mode, from_openai
from pydantic import BaseModel


class Rows(BaseModel):
    """A result of `execute_sql`."""

    columns: list[str]
    rows: list[list[str]]


class Lookup(BaseModel):
    """What the tool `Lookup` is called with; in a stream the tool is called `PartialLookup`."""

    id: int


def text(ask: Json) -> Iterator[str | list[int] | None]:
    """Without a model for its answer."""
    with _openai(ask) as client:
        answer = from_openai(client).create(response_model=None, **_request(ask))
        if not ask["stream"]:
            yield answer.choices[0].message.content
            yield from told(answer.usage)
            return
        for chunk in answer:
            yield from (choice.delta.content for choice in chunk.choices)
            yield from told(chunk.usage)


def rows(ask: Json) -> Iterator[str | list[int] | None]:
    """Found in the text of the answer."""
    with _openai(ask) as client:
        yield from _objects(from_openai(client, mode=Mode.MD_JSON), Rows, ask)


def lookup(ask: Json) -> Iterator[str | list[int] | None]:
    """The arguments of a tool that the model has to call."""
    with _openai(ask) as client:
        yield from _objects(from_openai(client, mode=Mode.TOOLS), Lookup, ask)


def _objects(client: Instructor, model: type[BaseModel], ask: Json) -> Iterator[str | list[int] | None]:
    request = _request(ask)
    if request.pop("stream"):
        found = client.create_partial(response_model=model, max_retries=0, **request)
        yield from (each.model_dump_json() for each in found)
        return
    whole, completion = client.create_with_completion(response_model=model, max_retries=0, **request)
    yield whole.model_dump_json()
    yield from told(completion.usage)


def _openai(ask: Json) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{ask['root']}/v1",
        api_key=ask["api_key"],
        default_headers=ask["headers"],
        max_retries=ask["retries"],
        timeout=ask["timeout_s"],
    )


def _request(ask: Json) -> Json:
    options = {"stream_options": {"include_usage": True}} if ask["stream"] and ask["usage"] else {}
    return {"model": "demo", "messages": ask["messages"], "stream": ask["stream"], **options}


if __name__ == "__main__":
    answer_questions({"text": text, "rows": rows, "lookup": lookup})
