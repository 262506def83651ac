"""One run: its timeline and picture, news of it while it lasts, and what a person can do about it."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from gateway.console.api_client import ApiError
from gateway.console.event_hub import Live, format_sse_frame
from gateway.console.pages.approvals.approval import BASES
from gateway.console.request import VIEWING, Page, Visit, see_other
from gateway.console.timeline import build_timeline, cut_excerpt, get_begin_s, hash_run, measure_duration_s
from gateway.console.visible_text import render_exact_json
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.journal import ENDED
from gateway.contracts.storage.store import Json

CHANGED, OVER = format_sse_frame("changed", ""), format_sse_frame("over", "")
#: What follows a change within so long goes with it.
PAUSE_S: Final = 0.2
#: What the API's stream of events sends in a silence (`gateway.api.events.pages`).
_SILENCE: Final = b": keep-alive"
#: Words for the decisions of the risk gate, from `gateway.contracts.risk.Action`.
DECISIONS: Final[Mapping[str, str]] = {
    "auto": "Runs without asking",
    "confirm": "A person decides",
    "deny": "Not allowed",
    "error": "Not a valid call",
}
OUTCOMES: Final = ("done", "retry", "failed")


class RunDetailPage:
    """The pages of one run. `live` sends news to open pages, `now_s` returns the Unix time."""

    def __init__(self, live: Live, now_s: Callable[[], float]) -> None:
        self._live = live
        self._now_s = now_s

    def list_pages(self) -> tuple[Page, ...]:
        one = "/runs/{id}"
        return (
            Page("GET", one, self._run, VIEWING),
            Page("GET", one + "/timeline", self._show_timeline, VIEWING),
            Page("GET", one + "/live", self._stream_news, VIEWING),
            Page("GET", one + "/raw", self._show_raw, VIEWING),
            Page("POST", one + "/cancel", self._cancel, VIEWING),
            Page("POST", one + "/resume", self._resume, VIEWING),
            Page("POST", one + "/settle", self._resolve_run, ("approve",)),
        )

    async def _run(self, visit: Visit) -> web.Response:
        return await self._render_page(visit)

    async def _render_page(
        self, visit: Visit, *, status: int = 200, problem: str | None = None, form: Mapping[str, str] = {}
    ) -> web.Response:
        run = await _get_run(visit)
        return await visit.render_page(
            "run.html", title="Run", status=status, problem=problem, **self._load_values(visit, run, form=form)
        )

    def _load_values(self, visit: Visit, run: Json, *, form: Mapping[str, str] = {}) -> Mapping[str, Any]:
        first = visit.query.get("from", "")
        now_s, begin_s = self._now_s(), get_begin_s(run)
        whole = run["answer"] or {}
        answer = whole.get("content") if isinstance(whole.get("content"), str) else None
        return {
            "run": run,
            "timeline": build_timeline(
                run, first=int(first) if re.fullmatch("[0-9]{1,9}", first) else None, now_s=now_s
            ),
            "begin_s": begin_s,
            "lasted_s": measure_duration_s(run, begin_s, now_s=now_s),
            "ended": run["state"] in ENDED,
            "seen": hash_run(run),
            "answer": cut_excerpt(answer) if answer else None,
            "usage": whole.get("usage"),
            "bases": BASES,
            "decisions": DECISIONS,
            "form": form,
            "from_step": first or None,
        }

    async def _show_timeline(self, visit: Visit) -> web.Response:
        """Return the part of the page that changes; nothing (204) if it is as the reader has it."""
        run = await _get_run(visit)
        if visit.query.get("seen") == hash_run(run):
            return web.Response(status=204, headers={"Cache-Control": "no-store"})
        return visit.render_answer("run_timeline.html", afresh=True, **self._load_values(visit, run))

    async def _stream_news(self, visit: Visit) -> web.StreamResponse:
        await _get_run(visit)  # refused before the stream begins, if the run does not exist
        return await self._live.relay_frames(visit, _iterate_changes(visit))

    async def _show_raw(self, visit: Visit) -> web.Response:
        run = await _get_run(visit)
        return await visit.render_page(
            "run_raw.html", title="Run as JSON", run=run, text=await asyncio.to_thread(render_exact_json, run)
        )

    async def _cancel(self, visit: Visit) -> web.Response:
        return await self._act_on_run(visit, "cancel", {}, "cancelled")

    async def _resume(self, visit: Visit) -> web.Response:
        return await self._act_on_run(visit, "resume", {}, "resumed")

    async def _resolve_run(self, visit: Visit) -> web.Response:
        form = visit.form
        step, outcome = form.get("step", ""), form.get("as")
        if not re.fullmatch("[0-9]{1,9}", step) or outcome not in OUTCOMES:
            raise GatewayError("invalid_field", "The form has no step or no outcome: load the page again.", param="as")
        body: dict[str, Any] = {"step": int(step), "as": outcome}
        if outcome != "retry" and (result := form.get("result", "").strip()):
            body |= {"result": result.replace("\r\n", "\n"), "trusted": "trusted" in form}
        return await self._act_on_run(visit, "resume", body, "settled")

    async def _act_on_run(self, visit: Visit, action: str, body: Mapping[str, Any], done: str) -> web.Response:
        """Do something about the run, and show it again."""
        run_id = visit.match["id"]
        try:
            await visit.api.post("context", "runs", run_id, action, body=body)
        except ApiError as error:
            if error.status == 404:
                raise
            return await self._render_page(visit, status=error.status, problem=error.message, form=visit.form)
        return see_other("runs", run_id, done=done)


async def _get_run(visit: Visit) -> Json:
    return await visit.api.get("context", "runs", visit.match["id"])


async def _iterate_changes(visit: Visit) -> AsyncIterator[bytes]:
    """Yield a frame after each change of a run, and a last one when it has ended."""
    async with visit.api.stream_get("context", "runs", visit.match["id"], "events") as stream:
        while content := await stream.readany():
            if content.strip() != _SILENCE:
                yield CHANGED
                await asyncio.sleep(PAUSE_S)
    if (await _get_run(visit))["state"] in ENDED:
        yield CHANGED + OVER
