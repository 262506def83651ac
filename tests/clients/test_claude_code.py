"""Sessions of Claude Code in the context lane: what a person reads there, what it does, and what its model gets."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.clients.driving import ClaudeCode, Say
from tests.clients.lane import Lane
from tests.clients.person import asked_about, asking, decide, line, pending, read_until
from tests.clients.scripted import Reply, ScriptedModel, build_prompted_call

pytestmark = pytest.mark.clients

#: The result of an insertion, as the model gets it.
INSERTED: Final = '"changed":1'


class ClaudeCodeSession(ClaudeCode):
    """With tools that read and edit files, and with agents of its own."""

    command = "claude --model demo --allowedTools=Bash,Read,Edit,Agent"


def build_insertion(name: str, *, risk_level: str | None = None) -> str:
    """Return the model's call that inserts this name; without a level it waits for a person."""
    sql = f"INSERT INTO log VALUES ('{name}', 1)"
    return build_prompted_call("execute_sql", risk_level=risk_level, sql=sql)


@contextmanager
def session(folder: Path, model: ScriptedModel) -> Iterator[tuple[Lane, Path, Say]]:
    """Yield the lane, the home of the program, and its conversation; each reply of the model is due."""
    home = folder / "home"
    home.mkdir()
    with asking(model, folder, approvals={"mode": "turn"}) as lane:
        with ClaudeCodeSession(lane.root, home).talking() as say:
            yield lane, home, say
        assert not model.left and not model.unexpected


def test_session_edits_a_file_and_goes_on_behind_an_approval(tmp_path: Path) -> None:
    """Its own tools run where it is, the gateway's in the gateway; the line of the question decides."""
    notes = str(tmp_path / "home" / "notes.txt")
    change = {"file_path": notes, "old_string": "one lane", "new_string": "two lanes"}
    replies = (
        Reply("Mend the notes", "I read them.", (("Read", {"file_path": notes}),)),
        Reply("one lane", "I edit them.", (("Edit", change),)),
        Reply("updated", build_insertion("edited")),
        Reply(INSERTED, "All done."),
        Reply("And again?", "Nothing to do."),
    )
    with ScriptedModel(*replies) as model, session(tmp_path, model) as (lane, home, say):
        (home / "notes.txt").write_text("one lane\n")
        question = say("Mend the notes, then log it.")
        assert (home / "notes.txt").read_text() == "two lanes\n"
        approval = pending(lane, "edited")
        assert f"\n{line(approval)}\n" in question and "INSERT INTO log" in question
        assert say(line(approval)) == "All done." and lane.count("edited") == 1
        assert say("And again?") == "Nothing to do." and lane.count("edited") == 1
        last = model.asked[-1]["messages"]
    called = [call["function"]["name"] for message in last for call in message.get("tool_calls") or ()]
    assert called == ["Read", "Edit", "execute_sql"]
    assert re.findall(r"ap_[a-z2-7]{26}", str(last)) == []  # a model cannot repeat what decides


def test_next_message_brings_what_was_decided_in_the_console(tmp_path: Path) -> None:
    """The answer begins with it."""
    replies = (
        Reply("Log it", build_insertion("rested")),
        Reply(INSERTED, "All done."),
        Reply("What now?", "Go on then."),
    )
    with ScriptedModel(*replies) as model, session(tmp_path, model) as (lane, _, say):
        assert "waits for your approval" in say("Log it.")
        decide(lane, "rested", "approve")
        read_until(lambda: lane.count("rested"), lambda count: count == 1)
        assert say("What now?") == "It was decided meanwhile. What came of it:\n\nAll done.\n\nGo on then."
        assert lane.count("rested") == 1


def test_question_survives_compaction(tmp_path: Path) -> None:
    """Behind `/compact` the program sends what the command printed in front of the line that decides."""
    replies = (
        Reply("Hello", "Hi there."),
        Reply("Log it", build_insertion("compacted")),
        Reply("<summary>", "<summary>They want a log entry.</summary>"),
        Reply(INSERTED, "All done."),
    )
    with ScriptedModel(*replies) as model, session(tmp_path, model) as (lane, _, say):
        assert say("Hello") == "Hi there."
        question = say("Log it.")
        say("/compact")
        approval = pending(lane, "compacted")
        assert line(approval) in question
        assert say(line(approval)) == "All done." and lane.count("compacted") == 1
        summary = model.asked[2]
    assert "execute_sql" not in str(summary["messages"][0])  # a task of the program's: the model alone


def test_agent_uses_a_tool_of_the_gateway(tmp_path: Path) -> None:
    """In its own conversation; its answer is the result of the call that began it."""
    task = {"description": "log it", "prompt": "Write the entry", "subagent_type": "general-purpose"}
    replies = (
        Reply("Delegate it", "I delegate.", (("Agent", task),)),
        Reply("Write the entry", build_insertion("delegated", risk_level="low")),
        Reply(INSERTED, "The agent is done."),
        Reply("The agent is done.", "All done."),
    )
    with ScriptedModel(*replies) as model, session(tmp_path, model) as (lane, _, say):
        assert say("Delegate it.") == "All done." and lane.count("delegated") == 1


def test_question_to_an_agent_is_decided_in_the_main_conversation(tmp_path: Path) -> None:
    """The answer to the decision is that of the agent, which its own conversation never sees."""
    task = {"description": "log it", "prompt": "Write the entry", "subagent_type": "general-purpose"}
    replies = (
        Reply("Delegate it", "I delegate.", (("Agent", task),)),
        Reply("Write the entry", build_insertion("asked")),
        Reply("waits for your approval", "The agent waits for you."),
        Reply(INSERTED, "The agent is done."),
    )
    with ScriptedModel(*replies) as model, session(tmp_path, model) as (lane, _, say):
        assert say("Delegate it.") == "The agent waits for you." and lane.count("asked") == 0
        assert say(line(pending(lane, "asked"))) == "The agent is done." and lane.count("asked") == 1


@pytest.mark.parametrize("failure", [Reply(INSERTED, status=529), Reply(INSERTED, "All is d", cut=True)])
def test_failure_behind_a_call_repeats_nothing(tmp_path: Path, failure: Reply) -> None:
    """The program repeats its request without a mark, a stream that broke without `stream`: the same run goes on."""
    replies = (
        Reply("Log it", status=529),
        Reply("Log it", build_insertion("failed", risk_level="low")),
        failure,
        Reply(INSERTED, "All done."),
    )
    with ScriptedModel(*replies) as model, session(tmp_path, model) as (lane, _, say):
        assert say("Log it.").endswith("All done.") and lane.count("failed") == 1
        assert asked_about(lane, "failed") == []
