"""The question in one answer: told once, and again where it is another one."""

from dataclasses import replace

from gateway.agent.client_notifications import Questions, Speech
from gateway.agent.progress import RunProgress
from gateway.contracts.caller import Caller
from gateway.contracts.exchange import Chunk, Exchange, Pause
from gateway.dialects.usage import TurnUsage
from gateway.runs.recorder import RunRecorder
from tests.plugins.stores.records import approval

from .agent_bench import Bench

FIRST, SECOND = approval("ap_1"), approval("ap_2", step=2)
RUN = Exchange(
    id="run_1",
    body={"messages": [{"role": "user", "content": "Hi"}]},
    caller=Caller("ann", "acme", frozenset(("context", "approve"))),
    chain="main",
)


def record(bench: Bench) -> RunRecorder:
    """The recorder of a run that has done nothing so far."""
    parts = bench.parts
    return RunRecorder(
        store=parts.store, exchange=RUN, leases=parts.leases, clock=parts.clock, progress=dict, wrote=parts.feed.nudge
    )


async def held(questions: Questions, *pending: str) -> list[Chunk]:
    """Return the chunks for a client that is held for these approvals."""
    told: list[Chunk] = []

    async def say(chunk: Chunk) -> None:
        told.append(chunk)

    await questions.send_held_question([one for one in (FIRST, SECOND) if one.id in pending], say, held_s=120.0)
    return told


async def test_held_answer_repeats_its_question_only_for_other_calls() -> None:
    """An event each time that it waits; the question only where it is about other calls than the one that stands."""
    bench = Bench([])
    await bench.agents()
    questions = Questions(bench.parts, RUN, record(bench))
    assert [isinstance(chunk, str) for chunk in await held(questions, "ap_1", "ap_2")] == [True, False]
    assert [isinstance(chunk, str) for chunk in await held(questions, "ap_1", "ap_2")] == [False]
    assert questions.format_ending([FIRST, SECOND]).startswith("No person has decided so far")
    assert questions.format_ending([SECOND]).startswith("This call waits for your approval")
    assert [isinstance(chunk, str) for chunk in await held(questions, "ap_2")] == [True, False]
    await bench.close()


async def test_caller_without_approve_scope_gets_no_decision_instructions() -> None:
    """But told who may; what ends a held answer says when to come back."""
    bench = Bench([])
    await bench.agents()
    other = replace(RUN, caller=Caller("bob", "acme", frozenset(("context",))))
    questions = Questions(bench.parts, other, record(bench))
    (question, _) = await held(questions, "ap_1")
    assert isinstance(question, str) and "Your key may not decide" in question and "To answer" not in question
    assert "repeat your request" in questions.format_ending([FIRST])
    assert Questions(bench.parts, RUN, record(bench)).language == "en"
    await bench.close()


def speech() -> tuple[Speech, list[Chunk]]:
    """Return the client's side of a run, and the chunks that its client gets."""
    got: list[Chunk] = []

    def tell(chunk: Chunk) -> Pause | None:
        got.append(chunk)
        return None

    made = Speech(RunProgress(TurnUsage()))
    made.tell = tell
    return made, got


def test_text_of_a_later_round_begins_a_paragraph() -> None:
    made, _ = speech()
    assert [made.format_text("One."), made.format_text(" Two.")] == ["One.", " Two."]
    made.is_quiet = True
    assert [made.format_text("Three."), made.format_text(" Four.")] == ["\n\nThree.", " Four."]


async def test_round_text_after_an_answer_is_recorded_as_a_question() -> None:
    made, got = speech()
    assert made.text_before_question is None
    made.format_text("Look:")
    await made.emit_round("May I?")
    await made.emit_round({"waits": True})
    assert got == ["\n\nMay I?", {"waits": True}] and made.text_before_question == "Look:"


async def test_emit_waits_for_a_slow_client() -> None:
    made, waited = Speech(RunProgress(TurnUsage())), []

    async def pause() -> None:
        waited.append(True)

    made.tell = lambda chunk: pause
    await made.emit("text")
    made.mark_effects()  # which waits for no client
    assert waited == [True]
