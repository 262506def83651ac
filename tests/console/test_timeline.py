"""One run as a page shows it: what stands in which order, and what is left out."""

from typing import Any

import pytest

from gateway.api.views import build_whole_run_view
from gateway.console.timeline import (
    ALL_ARGUMENTS_CHARS,
    ALL_CHARS,
    ALL_LINES,
    ARGUMENTS_CHARS,
    CHARS,
    LEAST_CHARS,
    LEAST_LINES,
    LINES,
    STEPS,
    Timeline,
    build_timeline,
    cut_excerpt,
    get_begin_s,
    hash_run,
    measure_duration_s,
)
from gateway.contracts.storage.journal import Approval, StoredStep
from gateway.contracts.views import dump_view
from tests.plugins.stores.records import approval, run, step

Json = dict[str, Any]


def viewed(
    *steps: StoredStep, approvals: tuple[Approval, ...] = (), models: list[Json] | None = None, **facts: Any
) -> Json:
    """The run as the API shows it."""
    view = build_whole_run_view(run(**facts), steps=steps, approvals=approvals)
    return {**dump_view(view), "model_calls": models or []}


def model(round_: int, started_s: float, spent_s: float = 1.0) -> Json:
    tokens = {"prompt_tokens": 10, "completion_tokens": 2}
    return {"round": round_, "started_at": started_s, "spent_s": spent_s, "model": "demo", **tokens}


def shown(view: Json, *, first: int | None = None, now_s: float = 200.0) -> Timeline:
    return build_timeline(view, first=first, now_s=now_s)


def bars(timeline: Timeline) -> list[list[tuple[str, float]]]:
    """The bars of each row, by kind, with what they stand for."""
    assert timeline.picture is not None
    return [[(bar.kind, bar.duration_s) for bar in row.bars] for row in timeline.picture.rows]


def test_timeline_orders_model_and_tool_calls_by_round() -> None:
    """A model is called, then what it asked for; calls of one round follow each other."""
    steps = (
        step(0, round=0, state="finished", started_s=102.0, finished_s=103.0),
        step(1, round=0, state="finished", started_s=101.5, finished_s=105.0),
        step(2, round=1, state="failed", started_s=107.0, finished_s=109.0),
    )
    view = viewed(
        *steps, models=[model(0, 100.5), model(1, 105.0), model(2, 109.0)], state="completed", updated_s=110.0
    )
    found = [(e.kind, e.round, None if e.step is None else e.step["number"]) for e in shown(view).entries]
    assert found == [
        ("model", 0, None),
        ("tool", 0, 0),
        ("tool", 0, 1),
        ("model", 1, None),
        ("tool", 1, 2),
        ("model", 2, None),
    ]
    assert bars(shown(view)) == [
        [("model", 1.0)],
        [("tool", 1.0)],
        [("tool", 3.5)],
        [("model", 1.0)],
        [("bad", 2.0)],
        [("model", 1.0)],
    ]


@pytest.mark.parametrize(
    ("facts", "now_s", "waited_s"),
    [
        ({"state": "pending"}, 160.0, 50.0),  # it waits
        ({"state": "pending"}, 5000.0, 890.0),  # nobody waits longer than until it expires
        ({"state": "done", "decided_s": 130.0}, 160.0, 20.0),
        ({"state": "expired"}, 5000.0, 890.0),
    ],
)
def test_timeline_shows_the_wait_for_approval(facts: Json, now_s: float, waited_s: float) -> None:
    asked = approval(created_s=110.0, expires_s=1000.0, **facts)
    view = viewed(step(1, approval_id="ap_1", state="requested"), approvals=(asked,))
    (entry,) = shown(view, now_s=now_s).entries
    assert (entry.waited_s, entry.at_s, entry.ran_s) == (waited_s, 110.0, None)
    assert bars(shown(view, now_s=now_s)) == [[("approval", waited_s)]]


def test_timeline_stops_waits_and_calls_when_the_run_ends() -> None:
    """A wait ends with the run that was cancelled, and so does a call."""
    asked = approval(created_s=110.0, state="cancelled")
    steps = (step(1, approval_id="ap_1", state="cancelled"), step(2, state="started", started_s=105.0))
    view = viewed(*steps, approvals=(asked,), state="cancelled", updated_s=125.0)
    assert [(entry.waited_s, entry.ran_s) for entry in shown(view, now_s=9000.0).entries] == [
        (15.0, None),
        (None, 20.0),
    ]


def test_timeline_step_of_unknown_outcome_has_no_duration() -> None:
    view = viewed(step(1, state="unknown", started_s=105.0), state="unknown")
    assert bars(shown(view, now_s=9000.0)) == [[("bad", 0.0)]]


def test_timeline_abbreviates_long_arguments_by_the_ones_that_ran() -> None:
    """The edited arguments, where a person edited them."""
    long = '{"command":"%s"}' % ("x" * ARGUMENTS_CHARS)
    asked, edited = (
        step(0, arguments=long, approval_id="ap_1"),
        approval(step=0, state="done", decided_s=120.0, edited='{"command":"ls"}'),
    )
    found = shown(viewed(asked, step(1, arguments=long), approvals=(edited,))).entries
    assert [entry.brief for entry in found] == [False, True]


def test_timeline_arguments_share_a_size_budget() -> None:
    """Texts behind many others are shown by their beginning."""
    long = '{"command":"%s"}' % ("x" * (ARGUMENTS_CHARS - 100))
    view = viewed(*(step(number, arguments=long, round=number) for number in range(STEPS)))
    briefs = [entry.brief for entry in shown(view).entries]
    whole = ALL_ARGUMENTS_CHARS // len(long)
    assert briefs == [False] * whole + [True] * (STEPS - whole)


def test_long_tool_result_is_cut_in_the_timeline() -> None:
    """By lines, or by characters; what was left out is counted."""
    short, lines, line = cut_excerpt("a\nb"), cut_excerpt("x\n" * 10_000), cut_excerpt("y" * 1_000_000)
    assert (short.whole, short.shown, short.lines, short.chars) == (True, 2, 2, 3)
    assert (lines.whole, lines.shown, lines.lines, lines.chars) == (False, LINES, 10_001, 20_000)
    assert (line.whole, line.shown, line.lines, line.chars) == (False, 1, 1, 1_000_000)
    assert len(lines.body) < 10_000 and len(line.body) < CHARS + 100


def test_timeline_results_share_a_character_budget() -> None:
    """Many long ones are shown by less of each."""
    steps = [step(number, round=number, state="finished", result="z" * CHARS) for number in range(STEPS)]
    found = [entry.result for entry in shown(viewed(*steps)).entries]
    full = ALL_CHARS // CHARS
    assert all(one is not None and one.whole for one in found[:full])
    assert all(one is not None and len(one.body) < LEAST_CHARS + 100 for one in found[full:])


def test_timeline_results_share_a_line_budget() -> None:
    text = "\n".join("z" * LINES)
    steps = [step(number, round=number, state="finished", result=text) for number in range(STEPS)]
    found = [entry.result for entry in shown(viewed(*steps)).entries]
    full = ALL_LINES // LINES
    assert [None if one is None else one.shown for one in found] == [LINES] * full + [LEAST_LINES] * (STEPS - full)
    assert all(one is not None and one.lines == LINES for one in found)


@pytest.mark.parametrize(
    ("first", "numbers", "earlier", "later"),
    [
        (None, range(150, 250), 50, None),
        (0, range(100), None, 100),
        (50, range(50, 150), 0, 150),
        (99_999, range(150, 250), 50, None),
    ],
)
def test_timeline_of_a_long_run_is_paged(
    first: int | None, numbers: range, earlier: int | None, later: int | None
) -> None:
    """The last part first; each has the calls of the model that belong to it."""
    steps = [step(number, round=number) for number in range(250)]
    view = viewed(*steps, models=[model(number, 100.0 + number) for number in range(251)])
    found = shown(view, first=first)
    assert [entry.step["number"] for entry in found.entries if entry.step] == list(numbers)
    rounds = {entry.round for entry in found.entries if entry.model}
    assert rounds == {*numbers, *([250] if later is None else [])}
    assert (found.earlier, found.later, found.steps) == (earlier, later, 250)


def test_run_hash_ignores_lease_renewal() -> None:
    """But not by a lease that is renewed, which says nothing to a reader."""
    view = viewed(step(1))
    assert hash_run(view) == hash_run({**view, "lease_until": 500.0, "updated_at": 333.0})
    assert hash_run(view) != hash_run(viewed(step(1, state="started")))


def test_run_duration_starts_at_its_first_model_call() -> None:
    """To its end, or up to now: it is stored with its first effect, which comes later."""
    view = viewed(models=[model(0, 95.0), model(1, 99.0)], created_s=100.0, updated_s=110.0)
    assert get_begin_s(view) == 95.0
    assert measure_duration_s(view, 95.0, now_s=120.0) == 25.0
    assert measure_duration_s({**view, "state": "completed"}, 95.0, now_s=120.0) == 15.0
    assert get_begin_s(viewed(created_s=100.0)) == 100.0
