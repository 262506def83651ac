"""The playground: one message through both lanes side by side, as it streams, and what the gateway makes of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson
from aiohttp import HttpVersion11, web

from gateway.console.api_client import ApiError, parse_error
from gateway.console.request import Page, Visit
from gateway.contracts.storage.store import Json
from gateway.http.sse import EventError, EventReader
from gateway.jsontext import strict_json

LANES: Final[Mapping[str, Sequence[str]]] = {
    "passthrough": ("v1", "chat", "completions"),
    "context": ("context", "v1", "chat", "completions"),
}
#: So much of an answer is shown.
ANSWER_CHARS: Final = 100_000
#: Lines of JSON: {"text"} for each piece, then {"end"} with the facts of the answer as HTML.
LINES_TYPE: Final = "application/jsonl; charset=utf-8"
MESSAGE: Final = "Say hello, and what you can do here."


@dataclass(slots=True)
class LaneAnswer:
    """The answer of one lane: its text or a problem; times in seconds."""

    lane: str
    text: str = ""
    problem: str = ""
    first_s: float | None = None
    whole_s: float = 0.0
    tokens: int | None = None
    run_id: str | None = None


class Playground:
    """The page of the playground, and the answers that it loads."""

    def list_pages(self) -> tuple[Page, ...]:
        scopes = ("context",)
        return (
            Page("GET", "/playground", self._show_form, scopes),
            Page("POST", "/playground", self._answer_whole, scopes),
            Page("POST", "/playground/explanation", self._show_explanation, scopes),
            Page("POST", "/playground/{lane}", self._stream_lines, scopes),
        )

    async def _show_form(self, visit: Visit) -> web.Response:
        return await self._build_page(visit)

    async def _answer_whole(self, visit: Visit) -> web.Response:
        """Answer a form that was sent without a script: both lanes, once they have answered."""
        asked = [self._collect_answer(visit, lane) for lane in LANES if _may_use_lane(visit, lane)]
        answers, explained = await asyncio.gather(asyncio.gather(*asked), self._get_explanation(visit))
        return await self._build_page(visit, answers=answers, explained=explained)

    async def _build_page(
        self, visit: Visit, *, answers: Sequence[LaneAnswer] = (), explained: Json | None = None
    ) -> web.Response:
        tools, models = await asyncio.gather(visit.api.get("context", "tools"), _list_models(visit))
        return await visit.render_page(
            "playground.html",
            title="Playground",
            answers={answer.lane: answer for answer in answers},
            lanes=[lane for lane in LANES if _may_use_lane(visit, lane)],
            explained=explained,
            form={"message": visit.t(MESSAGE), "model": next(iter(models), ""), **visit.form},
            models=models,
            tools=[tool["name"] for tool in tools["data"]],
        )

    async def _show_explanation(self, visit: Visit) -> web.Response:
        return visit.render_answer("explanation.html", explained=await self._get_explanation(visit))

    async def _get_explanation(self, visit: Visit) -> Json:
        """Return what the gateway would make of the message, or the error that it answers."""
        body = _build_body(visit)
        try:
            if tool := visit.form.get("tool"):
                body["calls"] = [{"tool": tool, "parameters": _read_parameters(visit)}]
            return await visit.api.post("context", "explain", body=body)
        except ApiError as error:
            return {"problem": error.message}

    async def _stream_lines(self, visit: Visit) -> web.StreamResponse:
        lane = visit.match["lane"]
        if lane not in LANES or not _may_use_lane(visit, lane):
            raise ApiError(404, {"code": "unknown_route", "message": visit.t("There is no such page.")})
        headers = {"Content-Type": LINES_TYPE, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        response = web.StreamResponse(headers=headers)
        if visit.request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        await response.prepare(visit.request)
        answered = LaneAnswer(lane)
        async for piece in self._iterate_pieces(visit, answered):
            await response.write(orjson.dumps({"text": piece}) + b"\n")
        facts = visit.render("playground_facts.html", answer=answered)
        await response.write(orjson.dumps({"end": facts}) + b"\n")
        await response.write_eof()
        return response

    async def _collect_answer(self, visit: Visit, lane: str) -> LaneAnswer:
        answered = LaneAnswer(lane)
        answered.text = "".join([piece async for piece in self._iterate_pieces(visit, answered)])
        return answered

    async def _iterate_pieces(self, visit: Visit, answered: LaneAnswer) -> AsyncIterator[str]:
        """Yield the text of a lane's answer as it comes, and fill in the facts of `answered`."""
        began_s, shown_chars = time.perf_counter(), 0
        key = visit.form.get("upstream_key", "").strip()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        body = {**_build_body(visit), "stream": True, "stream_options": {"include_usage": True}}
        try:
            async with visit.api.stream_post(*LANES[answered.lane], body=body, headers=headers) as response:
                if response.status != 200:
                    error = parse_error(response.status, await response.read())
                    answered.problem = f"{error.status}: {error.message}"
                    return
                answered.run_id = response.headers.get("x-context-run-id")
                async for chunk in _iterate_chunks(response):
                    usage = chunk.get("usage")
                    if isinstance(usage, dict):
                        answered.tokens = usage.get("total_tokens")
                    text = _get_text(chunk)[: ANSWER_CHARS - shown_chars]
                    if text:
                        if answered.first_s is None:
                            answered.first_s = time.perf_counter() - began_s
                        shown_chars += len(text)
                        yield text
        except (aiohttp.ClientError, EventError, ValueError) as error:
            answered.problem = visit.t("The answer broke off: {0}.", type(error).__name__)
        answered.whole_s = time.perf_counter() - began_s
        answered.run_id = await _find_run_id(visit, answered.run_id)


def _may_use_lane(visit: Visit, lane: str) -> bool:
    return visit.may("passthrough" if lane == "passthrough" else "context")


def _build_body(visit: Visit) -> dict[str, Any]:
    """Return the body of the chat completion. A field that is empty is left out."""
    message = visit.form.get("message", "").replace("\r\n", "\n")
    model = visit.form.get("model", "").strip()
    return {**({"model": model} if model else {}), "messages": [{"role": "user", "content": message}]}


def _read_parameters(visit: Visit) -> Json:
    """Return the parameters of the call to judge. Raises ApiError."""
    try:
        value = strict_json.loads(visit.form.get("parameters", "").strip() or "{}")
    except strict_json.StrictJsonError as error:
        raise ApiError(
            400, {"code": "invalid_json", "message": f"{visit.t('Parameters, as JSON')}: {error}."}
        ) from None
    if not isinstance(value, dict):
        text = visit.t("The parameters are not a JSON object: send one, such as {}.")
        raise ApiError(400, {"code": "invalid_json", "message": text})
    return value


async def _list_models(visit: Visit) -> Sequence[str]:
    """Return the names of the models that the context lane lists; none where its upstream lists none."""
    try:
        listed = await visit.api.get("context", "v1", "models")
    except (ApiError, ValueError):
        return ()
    entries = listed.get("data")
    return [str(model["id"]) for model in entries if "id" in model] if isinstance(entries, list) else ()


async def _iterate_chunks(response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    """Yield the chunks of a streamed chat completion. Raises EventError, ValueError."""
    reader = EventReader()
    async for data in response.content.iter_any():
        for event in reader.feed(data):
            if event.startswith(b"{"):  # the mark of the end is not an object
                yield orjson.loads(event)


def _get_text(chunk: Json) -> str:
    choices = chunk.get("choices") or [{}]
    text = (choices[0].get("delta") or {}).get("content")
    return text if isinstance(text, str) else ""


async def _find_run_id(visit: Visit, run_id: str | None) -> str | None:
    """Return the id of a run that the store has: one of text alone is not stored."""
    try:
        return None if run_id is None else str((await visit.api.get("context", "runs", run_id))["id"])
    except ApiError:
        return None
