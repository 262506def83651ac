"""One run as a page shows it: its calls of the model and of tools in their order, and the picture of its time.

A run may have thousands of steps, and results of any length. So one page shows a bounded part of both, and states what
it leaves out.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson
from markupsafe import Markup

from gateway.console.charts import Lane, OverTime, TimeSpan, draw_timeline
from gateway.console.visible_text import render_exact_text
from gateway.contracts.canonical_json import write_canonical
from gateway.contracts.storage.journal import ENDED
from gateway.contracts.storage.store import Json

#: So many steps stand on one page.
STEPS: Final = 100
#: So much of one result or answer, of all results of a page, and of each result beyond that.
LINES, ALL_LINES, LEAST_LINES = 200, 4_000, 8
CHARS, ALL_CHARS, LEAST_CHARS = 20_000, 400_000, 400
#: Arguments of more than this are shown by their beginning: an approver sees the whole on the approval's page. So are
#: all of a page, once the ones before them have more than this together.
ARGUMENTS_CHARS, ALL_ARGUMENTS_CHARS = 8_000, 200_000
#: What changes while nothing happens to a run.
_UNSEEN: Final = frozenset(("lease_until", "updated_at"))
#: States of a step whose call did not succeed.
_BAD: Final = frozenset(("failed", "unknown", "cancelled"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlExcerpt:
    """The beginning of a text as HTML, and how much the text has. `whole`: nothing was left out."""

    body: Markup
    whole: bool
    shown: int
    lines: int
    chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """One call of the model, or one of a tool: its step, its approval if it needed one, and its times.

    `brief`: its arguments are too long to show here. `waited_s` is how long it has waited for a person.
    """

    kind: Literal["model", "tool"]
    round: int
    at_s: float | None
    model: Json | None = None
    step: Json | None = None
    approval: Json | None = None
    result: HtmlExcerpt | None = None
    brief: bool = False
    waited_s: float | None = None
    ran_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A part of a run, from step number `start` on.

    `earlier` and `later` are the numbers of the steps at which the parts beside it begin.
    """

    entries: Sequence[TimelineEntry]
    picture: OverTime | None
    start: int
    earlier: int | None
    later: int | None
    steps: int


def cut_excerpt(text: str, *, lines: int = LINES, chars: int = CHARS) -> HtmlExcerpt:
    """Return at most so many lines and characters of a text."""
    head = "\n".join(text[:chars].split("\n", lines)[:lines])
    count = text.count("\n") + 1
    return HtmlExcerpt(
        body=render_exact_text(head),
        whole=len(head) == len(text),
        shown=head.count("\n") + 1,
        lines=count,
        chars=len(text),
    )


def hash_run(run: Json) -> str:
    """Return a short text that changes when the run does."""
    facts = {name: value for name, value in run.items() if name not in _UNSEEN}
    return hashlib.sha256(orjson.dumps(facts)).hexdigest()[:16]


def get_begin_s(run: Json) -> float:
    """Return when a run began: a run is stored with its first effect, and the model was called before."""
    begins: list[float] = [run["created_at"], *(call["started_at"] for call in run["model_calls"])]
    return min(begins)


def measure_duration_s(run: Mapping[str, Any], begin_s: float, *, now_s: float) -> float:
    """Return how long a run took, or has taken so far."""
    end_s: float = run["updated_at"] if run["state"] in ENDED else now_s
    return max(end_s - begin_s, 0.0)


def build_timeline(run: Json, *, first: int | None, now_s: float) -> Timeline:
    """Return the part of a run that begins with step `first`; None: the last part."""
    if run["state"] in ENDED:
        now_s = run["updated_at"]  # nothing goes on after it, whatever its last steps say
    steps: Sequence[Json] = run["steps"]
    last_part = max(len(steps) - STEPS, 0)
    start = last_part if first is None else min(max(first, 0), last_part)
    chosen = steps[start : start + STEPS]
    end = start + len(chosen)
    rounds = (
        steps[start]["round"] if start else -1,
        steps[end]["round"] if end < len(steps) else float("inf"),
    )
    models = [call for call in run["model_calls"] if rounds[0] <= call["round"] < rounds[1]][-STEPS * 2 :]
    approvals = {approval["id"]: approval for approval in run["approvals"]}
    entries = [*map(_build_model_entry, models), *_iterate_tool_entries(chosen, approvals, now_s=now_s)]
    entries.sort(
        key=lambda entry: (entry.round, entry.kind == "tool", 0 if entry.step is None else entry.step["number"])
    )
    return Timeline(
        entries=entries,
        picture=draw_timeline([_build_lane(entry, now_s=now_s) for entry in entries]),
        start=start,
        earlier=max(start - STEPS, 0) if start else None,
        later=end if end < len(steps) else None,
        steps=len(steps),
    )


def _build_model_entry(call: Json) -> TimelineEntry:
    return TimelineEntry(kind="model", round=call["round"], at_s=call["started_at"], model=call, ran_s=call["spent_s"])


def _iterate_tool_entries(
    steps: Sequence[Json], approvals: Mapping[str, Json], *, now_s: float
) -> Iterator[TimelineEntry]:
    left, lines_left, arguments_left = ALL_CHARS, ALL_LINES, ALL_ARGUMENTS_CHARS
    for step in steps:
        approval = approvals.get(step["approval_id"] or "")
        result = None
        if step["result"] is not None:
            most = max(min(LINES, lines_left), LEAST_LINES)
            result = cut_excerpt(step["result"], lines=most, chars=max(min(CHARS, left), LEAST_CHARS))
            left -= min(CHARS, len(step["result"]))
            lines_left -= result.shown
        edited = None if approval is None else approval["edited_arguments"]
        arguments = step["arguments"] if edited is None else edited
        arguments_chars = len(write_canonical(arguments))
        arguments_left -= min(arguments_chars, ARGUMENTS_CHARS)
        yield TimelineEntry(
            kind="tool",
            round=step["round"],
            at_s=step["started_at"] if approval is None else approval["created_at"],
            step=step,
            approval=approval,
            result=result,
            brief=arguments_chars > ARGUMENTS_CHARS or arguments_left < 0,
            waited_s=None if approval is None else _find_wait_end(approval, now_s=now_s) - approval["created_at"],
            ran_s=None if step["started_at"] is None else _find_run_end(step, now_s=now_s) - step["started_at"],
        )


def _build_lane(entry: TimelineEntry, *, now_s: float) -> Lane:
    """Return the row of an entry: the waiting and the running of a call beside each other."""
    if entry.step is None:
        assert entry.model is not None  # an entry is one of both
        start_s = entry.model["started_at"]
        span = TimeSpan(kind="model", start_s=start_s, end_s=start_s + entry.model["spent_s"])
        return Lane(label="", number=entry.round, spans=[span])
    step, approval = entry.step, entry.approval
    spans = []
    if approval is not None:
        end_s = _find_wait_end(approval, now_s=now_s)
        spans.append(TimeSpan(kind="approval", start_s=approval["created_at"], end_s=end_s))
    if step["started_at"] is not None:
        kind = "bad" if step["state"] in _BAD else "tool"
        spans.append(TimeSpan(kind=kind, start_s=step["started_at"], end_s=_find_run_end(step, now_s=now_s)))
    return Lane(label=step["tool"], number=step["number"], spans=spans)


def _find_wait_end(approval: Json, *, now_s: float) -> float:
    """Return when the waiting for a person ended, or the present: at the latest when the approval expires."""
    begun_s: float = approval["created_at"]
    decided_s: float | None = approval["decided_at"]
    return max(begun_s, min(now_s, approval["expires_at"]) if decided_s is None else decided_s)


def _find_run_end(step: Json, *, now_s: float) -> float:
    """Return when a call ended, or the present; of a call with an unknown outcome no end is known."""
    begun_s: float = step["started_at"]
    if step["finished_at"] is not None:
        return max(begun_s, float(step["finished_at"]))
    return now_s if step["state"] == "started" else begun_s
