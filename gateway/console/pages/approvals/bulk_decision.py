"""Several calls that are decided at once, behind a second look: each text that differs stands there whole, once."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from aiohttp import web

from gateway.approvals.view import get_waiting_arguments
from gateway.console.api_client import Api, ApiError
from gateway.console.pages.approvals.approval import BASES, PAST
from gateway.console.pages.approvals.inbox import parse_filters
from gateway.console.request import Page, Visit, see_other
from gateway.console.visible_text import ShownArguments, render_exact_arguments
from gateway.contracts.api_bounds import BATCH_MOST, LIMIT_MOST
from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.errors import GatewayError
from gateway.contracts.storage.store import Json

#: So many calls are decided at once, with so many different texts of so many characters.
CALLS_MOST: Final = 1_000
DIFFERENT_MOST: Final = 50
CHARS_MOST: Final = 200_000
#: So many pages of the API are read for them: long calls fill a page early, and are held in memory together.
PAGES_MOST: Final = 10
#: So many values of a fact are named in the summary of equal calls.
NAMED: Final = 12
#: Facts that equal calls need not share.
_FACTS: Final = ("asked_by", "user", "conversation")


@dataclass(frozen=True, slots=True)
class EqualCalls:
    """Pending approvals of one call. `facts` counts the values of each of `_FACTS`, `reasons` why they wait."""

    approvals: Sequence[Json]
    shown_arguments: ShownArguments

    @property
    def first(self) -> Json:
        return self.approvals[0]

    @property
    def facts(self) -> Mapping[str, Sequence[tuple[str, int]]]:
        counts = {name: Counter(one[name] for one in self.approvals if one[name] is not None) for name in _FACTS}
        return {name: count.most_common() for name, count in counts.items()}

    @property
    def reasons(self) -> Sequence[tuple[Json, int]]:
        """Return one approval for each reason, with the number of approvals that have it."""
        keys = [(one["basis"], one["reason"], one["rule"], one["required_approvals"]) for one in self.approvals]
        firsts = dict(zip(reversed(keys), reversed(self.approvals), strict=True))
        return [(firsts[key], count) for key, count in Counter(keys).most_common()]


class Several:
    """The second look at several calls, and the decision on all of them. `now_s` returns the Unix time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s

    def list_pages(self) -> tuple[Page, ...]:
        deciding = ("approve",)
        return (
            Page("GET", "/approvals/several", self._show_matching, deciding),
            Page("POST", "/approvals/several", self._show_selected, deciding),
            Page("POST", "/approvals/batch", self._decide, deciding),
        )

    async def _show_matching(self, visit: Visit) -> web.Response:
        """Show the calls that fit the query, the most urgent ones first."""
        narrowed = parse_filters(visit.query, self._now_s())
        found: list[Json] = []
        after: str | None = None
        for _ in range(PAGES_MOST):
            listed = await visit.api.get(
                "context", "approvals", status="pending", order="urgency", limit=LIMIT_MOST, after=after, **narrowed
            )
            found += listed["data"]
            if (after := listed["next"]) is None or len(found) > CALLS_MOST:
                break
        return await self._render_page(visit, found, is_cut=after is not None)

    async def _show_selected(self, visit: Visit) -> web.Response:
        """Show the calls that the reader selected, as they are now."""
        ids = dict.fromkeys(entry.partition(" ")[0] for entry in visit.lists.get("approval", ()))
        if not ids:
            return see_other(done="nothing")
        found = await asyncio.gather(
            *(_find_approval(visit.api, approval_id) for approval_id in islice(ids, CALLS_MOST))
        )
        waiting = [one for one in found if one is not None and one["state"] == "pending"]
        return await self._render_page(visit, waiting, decided=len(found) - len(waiting))

    async def _render_page(
        self, visit: Visit, found: Sequence[Json], *, is_cut: bool = False, decided: int = 0
    ) -> web.Response:
        # In a thread: some of a million characters take seconds.
        calls = await asyncio.to_thread(lambda: list(_iterate_equal_calls(found, visit)))
        count = sum(len(one.approvals) for one in calls)
        return await visit.render_page(
            "several.html",
            title="Decide on several calls",
            calls=calls,
            count=count,
            left_out=len(found) - count,
            is_cut=is_cut,
            decided=decided,
            bases=BASES,
            named=NAMED,
        )

    async def _decide(self, visit: Visit) -> web.Response:
        decision = visit.form.get("decision", "")
        if decision not in PAST:
            raise GatewayError("invalid_field", "The form has no decision: load the page again.", param="decision")
        chosen = [entry.partition(" ") for entry in visit.lists.get("approval", ())]
        if not chosen:
            return see_other(done="nothing")
        if not all(sha256 for _, _, sha256 in chosen):  # the API would decide on whatever the calls are now
            raise GatewayError(
                "invalid_field", "The form does not name the calls: load the page again.", param="sha256"
            )
        reason = visit.form.get("reason", "").strip() if decision == "reject" else ""
        wanted = [{"id": approval_id, "sha256": sha256} for approval_id, _, sha256 in chosen]
        results: list[Json] = []
        for begin in range(0, len(wanted), BATCH_MOST):
            body: dict[str, Any] = {"decision": decision, "approvals": wanted[begin : begin + BATCH_MOST]}
            body |= {"reason": reason} if reason else {}
            results += (await visit.api.post("context", "approvals", "batch", body=body))["data"]
        failed = [result for result in results if result["status"] != 200]
        done = len(results) - len(failed)
        if failed:
            return await visit.render_page("batch.html", title="Decisions", status=409, failed=failed, count=done)
        is_open = any(result["approval"]["state"] == "pending" for result in results)
        past = "counted" if is_open else PAST[decision]
        runs = {result["approval"]["run_id"] for result in results}
        run = runs.pop() if len(runs) == 1 else None
        return see_other(done=past, run=run) if done == 1 else see_other(done=f"all_{past}", count=done, run=run)


async def _find_approval(api: Api, approval_id: str) -> Json | None:
    try:
        return await api.get("context", "approvals", approval_id)
    except ApiError as error:
        if error.status == 404:
            return None
        raise


def _iterate_equal_calls(found: Sequence[Json], visit: Visit) -> Iterator[EqualCalls]:
    """Yield the calls that are equal together, as many as one page holds; the others are left out."""
    together: dict[tuple[str, str], list[Json]] = {}
    for approval in found[:CALLS_MOST]:
        together.setdefault((approval["tool"], write_canonical(get_waiting_arguments(approval))), []).append(approval)
    chars = 0
    for number, ((_, text), approvals) in enumerate(together.items()):
        chars += len(text)
        if number and (number >= DIFFERENT_MOST or chars > CHARS_MOST):
            continue
        arguments = get_waiting_arguments(approvals[0])
        yield EqualCalls(approvals, render_exact_arguments(arguments, language=visit.language))
