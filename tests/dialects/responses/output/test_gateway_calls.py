"""Calls of the gateway's tools as items: lists, calls and questions, each once."""

import orjson

from gateway.contracts.errors import GatewayError
from gateway.contracts.exchange import Chunk
from gateway.contracts.storage.store import Json
from gateway.dialects import chat_chunks as chunks
from gateway.dialects.responses.response_metadata import ResponseFacts
from tests.dialects.responses.accumulator import Accumulated
from tests.dialects.responses.scripts import FIELDS, HEX, SCRIPTS, Script, begun, done, listed, question, resumed


def output(*told: Chunk, **facts: object) -> list[Json]:
    """Return the output that chunks make, as its events tell it."""
    known = ResponseFacts(fields=FIELDS, **{"shows_calls": True, **facts})  # type: ignore[arg-type]
    items: list[Json] = Accumulated(Script(chunks=told, facts=known).events()).response["output"]
    return items


def test_tools_are_listed_once_by_label() -> None:
    """Under the names that services give them; those of no service have the label `gateway`."""
    found = output(listed(("notes", "notes.find"), (None, "clock"), ("notes", "notes.drop")), "Hi.")
    assert found[:2] == [
        {
            "id": f"mcpl_{HEX}0000",
            "type": "mcp_list_tools",
            "server_label": "notes",
            "tools": [
                {
                    "name": name,
                    "description": f"About notes.{name}.",
                    "input_schema": {"type": "object"},
                }
                for name in ("find", "drop")
            ],
        },
        {
            "id": f"mcpl_{HEX}0001",
            "type": "mcp_list_tools",
            "server_label": "gateway",
            "tools": [
                {
                    "name": "clock",
                    "description": "About clock.",
                    "input_schema": {"type": "object"},
                }
            ],
        },
    ]


def test_label_listed_earlier_in_the_conversation_is_not_listed_again() -> None:
    """Else each turn would repeat all schemas."""
    tools = listed(("notes", "notes.find"), (None, "clock"))
    found = output(tools, tools, "Hi.", listed=["notes"])
    assert [item.get("server_label") for item in found] == ["gateway", None]


def test_unavailable_service_is_listed_with_an_error() -> None:
    """Once in a response, also where an earlier one listed its tools."""
    failed = [{"service": "notes", "error": "It does not run."}]
    told = chunks.build_event({"type": "tools.listed", "tools": [], "failed": failed})
    first, message = output(told, told, "Hi.", listed=["notes"])
    fields = {"type": "mcp_list_tools", "server_label": "notes", "tools": [], "error": "It does not run."}
    assert first == {"id": f"mcpl_{HEX}0000", **fields} and message["type"] == "message"


def test_gateway_call_becomes_an_item_with_output_and_approval() -> None:
    """And the approval that it had."""
    (call,) = output(begun(0, approval="ap_1"), done(0, "found", approval="ap_1"))
    assert call == {
        "id": f"mcp_{HEX}0000",
        "type": "mcp_call",
        "status": "completed",
        "server_label": "notes",
        "name": "find",
        "arguments": '{"n":0}',
        "approval_request_id": "ap_1",
        "output": "found",
        "error": None,
    }


def test_call_that_never_began_has_a_failed_item() -> None:
    """A refused one, or one of a tool that does not exist."""
    (call,) = output(done(0, "no such tool", ok=False, tool="clock", service=None))
    assert (call["status"], call["server_label"], call["name"]) == ("failed", "gateway", "clock")
    assert call["error"]["content"] == [{"type": "text", "text": "no such tool"}]


def test_call_of_a_removed_service_keeps_its_full_tool_name() -> None:
    """Nothing else says which it was."""
    (call,) = output(done(0, tool="notes.find", service=None))
    assert (call["server_label"], call["name"]) == ("gateway", "notes.find")


def test_repeated_calls_after_a_resume_create_no_new_items() -> None:
    """A run that goes on after a crash tells its record from the start."""
    again = [begun(0), done(0), begun(1), done(1)]
    found = output(begun(0), done(0), begun(1), resumed(""), *again, resumed(""), *again, "Done.")
    assert [item["type"] for item in found] == ["mcp_call", "mcp_call", "message"]
    assert {item["status"] for item in found} == {"completed"}


def test_calls_end_in_any_order() -> None:
    """Their places stay those in which they began."""
    events = SCRIPTS["calls at once"].events()
    ended = [event["output_index"] for event in events if event["type"] == "response.mcp_call.completed"]
    assert ended == [1, 0]


def test_a_call_without_a_result_is_incomplete() -> None:
    """When the response ends before it."""
    assert output(begun(0))[0]["status"] == "incomplete"


def test_call_interrupted_by_a_failure_stays_open() -> None:
    """Its item has no end, and one that ended before it has."""
    failure = GatewayError("agent_timeout", "It took too long.")
    events = Script(chunks=[begun(0), done(0), begun(1)], error=failure).events()
    assert [item["status"] for item in Accumulated(events).response["output"]] == ["completed", "incomplete"]
    ended = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
    assert ended == [0]


def test_approval_request_item_uses_the_approval_id() -> None:
    """With the arguments as JSON, which the client may send back for comparison."""
    first, second = output(question("ap_1", "ap_2"), question("ap_2"))
    assert (first["id"], second["id"]) == ("ap_1", "ap_2")
    assert (first["type"], first["server_label"], first["name"]) == ("mcp_approval_request", "notes", "drop")
    assert orjson.loads(first["arguments"]) == {"id": 7}


def test_approval_question_completes_the_preceding_message() -> None:
    """What was said stands before the question, whole."""
    message, asked, *_ = output("I'd drop it.", question("ap_1"), "Dropped.")
    assert (message["status"], message["content"][0]["text"]) == ("completed", "I'd drop it.")
    assert asked["type"] == "mcp_approval_request"


def test_gateway_calls_are_hidden_from_clients_that_listed_none() -> None:
    """Even if it wants progress events, which say less."""
    brief = chunks.build_event({"type": "tool.started", "tool": "notes.find", "call_id": "c", "number": 0})
    told = [brief, listed((None, "clock")), begun(0), done(0), question("ap_1"), "Hi."]
    assert [item["type"] for item in output(*told, shows_calls=False)] == ["message"]


def test_other_progress_events_add_no_items() -> None:
    """Steps, and decisions that its own request or somebody else made."""
    told = [
        {"type": kind} for kind in ("run.started", "step.started", "step.finished", "approval.resolved", "run.finished")
    ]
    assert [item["type"] for item in output(*map(chunks.build_event, told), "Hi.")] == ["message"]
