"""The official TypeScript clients of MCP: that of before the era of 2026-07-28, and the one of both eras."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.clients.gated import AGENT, ANNA, BOSS, LONG, SHORT, serving, url_of
from tests.clients.lane import Lane
from tests.clients.person import asked_about, decide, ended, pending, person, read_until
from tests.clients.provider import Provider
from tests.clients.worker import Worker, worker_of

pytestmark = pytest.mark.clients

Json = dict[str, Any]

#: The clients, and the protocol that they speak with a gateway.
PROTOCOLS: Final = {"sdk": "2025-11-25", "client legacy": "2025-11-25", "client modern": "2026-07-28"}
FORM: Final[Json] = {"form": {}}
URL: Final[Json] = {"url": {}}
REJECTED: Final = "The call of `execute_sql` was rejected{}. Nothing ran."
WHY: Final = ", because: `Not today`"
CHANGED: Final = '{"columns":[],"rows":[],"truncated":false,"changed":1}'

by_both_decisions = pytest.mark.parametrize("decision", ["approve", "reject"])


@pytest.fixture(scope="module")
def lane(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    with serving(provider, tmp_path_factory.mktemp("patient"), wait=LONG) as lane:
        yield lane


@pytest.fixture(scope="module")
def hasty(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A gateway that waits a second for people."""
    with serving(provider, tmp_path_factory.mktemp("hasty"), wait=SHORT) as lane:
        yield lane


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with worker_of("mcp") as worker:
        yield worker


class Visits:
    """Visits of one client."""

    def __init__(self, worker: Worker, name: str) -> None:
        self.name = name
        self._worker = worker

    def visit(self, lane: Lane, *calls: Json, key: str = AGENT, path: str = "", **user: Json) -> Json:
        """The findings and results of a client; `user` is whom it asks: `elicitation`, `answer`, `there`."""
        question = {"elicitation": None, "answer": None, "there": None, **user, "calls": calls}
        return self._worker.visit({"client": self.name, "url": url_of(lane) + path, "key": key, **question})

    def result(self, lane: Lane, call: Json, **more: Any) -> Json:
        """The result of its one call."""
        [outcome] = self.outcomes(lane, call, **more)
        return dict(outcome["result"])

    def outcomes(self, lane: Lane, *calls: Json, **more: Any) -> list[Json]:
        told = self.visit(lane, *calls, **more)
        assert told["failure"] is None, told
        return list(told["outcomes"])


@pytest.fixture(params=PROTOCOLS)
def client(request: pytest.FixtureRequest, worker: Worker) -> Visits:
    return Visits(worker, request.param)


def calling(name: str, *, cancel: bool = False, **arguments: object) -> Json:
    return {"name": name, "arguments": arguments, "cancel": cancel}


def insertion(name: str, *, cancel: bool = False) -> Json:
    """A call that needs a person."""
    return calling("execute_sql", sql=f"INSERT INTO log VALUES ('{name}', 1)", cancel=cancel)


def text(result: Json) -> str:
    [block] = result["content"]
    return str(block["text"])


def says(decision: str) -> Json:
    return {"action": "accept", "content": {"decision": decision}}


def test_mcp_client_lists_tools_with_full_definitions(client: Visits, lane: Lane) -> None:
    """The gateway's own and those of the service, with all that their definitions have, in the protocol of its era."""
    told = client.visit(lane)
    assert told["protocol"] == PROTOCOLS[client.name]
    tools = {tool["name"]: tool for tool in told["tools"]}
    assert {"execute_sql", "file_operations", "here__echo", "here__add"} <= set(tools)
    add = tools["here__add"]
    assert add["title"] == "Adder" and add["annotations"]["readOnlyHint"] is True
    assert add["outputSchema"]["properties"] == {"sum": {"type": "number"}}
    assert add["icons"] == [{"src": "https://example.com/add.png"}]
    assert "add" in {tool["name"] for tool in client.visit(lane, path="/here")["tools"]}


def test_mcp_call_result_keeps_all_content_types(client: Visits, lane: Lane) -> None:
    """Text, structured content that fits the schema, and a picture."""
    calls = calling("here__echo", text="two lanes"), calling("here__add", a=1, b=2), calling("here__image")
    echoed, added, pictured = [one["result"] for one in client.outcomes(lane, *calls)]
    assert text(echoed) == "two lanes" and not echoed.get("isError")
    assert added["structuredContent"] == {"sum": 3} and text(added) == "3"
    [picture] = [block for block in pictured["content"] if block["type"] == "image"]
    assert picture["mimeType"] == "image/png" and picture["data"].startswith("iVBOR")


def test_mcp_client_reports_the_gateway_error_for_a_wrong_key(client: Visits, lane: Lane) -> None:
    """By the words of the gateway; one of the clients has its own."""
    failure = client.visit(lane, key="wrong")["failure"]
    assert "gateway key is not valid" in failure or "requires authorization (HTTP 401)" in failure


def test_mcp_client_receives_progress_notifications(client: Visits, lane: Lane) -> None:
    """The messages of the server reach the client while the call runs."""
    [outcome] = client.outcomes(lane, calling("here__progress", steps=3, pause=0.2))
    assert outcome["progress"] and "failure" not in outcome


def test_mcp_client_cancels_a_running_call(client: Visits, lane: Lane) -> None:
    """The server hears of it."""
    counting, stopping = calling("here__cancelled"), calling("here__progress", steps=1000, pause=0.1, cancel=True)
    before, stopped, _ = client.outcomes(lane, counting, stopping, counting)
    assert "enough" in stopped["failure"]
    read_until(lambda: int(text(client.result(lane, counting))), lambda count: count == int(text(before["result"])) + 1)


@by_both_decisions
def test_elicitation_form_decides_a_held_call(client: Visits, lane: Lane, client_id: str, decision: str) -> None:
    """With the key of somebody who may: the user is asked with exactly what would run."""
    call = insertion(client_id)
    told = client.visit(lane, call, key=BOSS, elicitation=FORM, answer=says(decision))
    [question], [outcome] = told["asked"], told["outcomes"]
    assert call["arguments"]["sql"] in question["message"] and "execute_sql" in question["message"]
    assert text(outcome["result"]) == (CHANGED if decision == "approve" else REJECTED.format(""))
    ended(lane, client_id, decision)
    [approval] = asked_about(lane, client_id)
    assert (approval["decided_by"], approval["via"]) == (BOSS, "mcp")
    assert (approval["client"]["name"], approval["client"]["protocol"]) == ("typescript-client", PROTOCOLS[client.name])


def test_elicitation_form_requires_the_approval_scope(client: Visits, hasty: Lane, client_id: str) -> None:
    """The form is not even shown."""
    user = {"elicitation": FORM, "answer": says("approve")}
    told = client.visit(hasty, insertion(client_id), **user)
    assert told["asked"] == [] and "has NOT run" in text(told["outcomes"][0]["result"])
    pending(hasty, client_id)


@by_both_decisions
def test_elicitation_link_leads_to_the_approval_page(client: Visits, lane: Lane, client_id: str, decision: str) -> None:
    """The user is sent to the page of the approval, and the call waits for whoever decides there."""
    there = {"key": ANNA, "decision": decision, **({"reason": "Not today"} if decision == "reject" else {})}
    told = client.visit(lane, insertion(client_id), elicitation=URL, answer={"action": "accept"}, there=there)
    [question], [outcome] = told["asked"], told["outcomes"]
    [approval] = asked_about(lane, client_id)
    assert question["mode"] == "url" and question["url"].endswith(f"/console/approvals/{approval['id']}")
    assert text(outcome["result"]) == (CHANGED if decision == "approve" else REJECTED.format(WHY))
    ended(lane, client_id, decision)


@by_both_decisions
def test_client_without_elicitation_waits_for_the_decision(
    client: Visits, lane: Lane, client_id: str, decision: str
) -> None:
    """The client hears that a person is waited for, and gets the result as soon as one has decided."""
    with person(lane, client_id, decision):
        result = client.result(lane, insertion(client_id))
    assert text(result) == (CHANGED if decision == "approve" else REJECTED.format(WHY))
    assert bool(result.get("isError")) == (decision == "reject")
    ended(lane, client_id, decision)


def test_undecided_call_returns_its_result_in_a_later_session(client: Visits, hasty: Lane, client_id: str) -> None:
    """Told that nothing has run, it sends the same call again in another session, and gets the one result."""
    [outcome] = client.outcomes(hasty, insertion(client_id))
    assert outcome["result"]["isError"] and "has NOT run" in text(outcome["result"])
    assert any("waits for the approval of a person" in message for message in outcome["progress"])
    decide(hasty, client_id, "approve")
    assert text(client.result(hasty, insertion(client_id))) == CHANGED
    ended(hasty, client_id, "approve")


def test_withdrawn_call_cancels_its_approval(client: Visits, lane: Lane, client_id: str) -> None:
    """The call cannot be approved any more."""
    outcome, _ = client.outcomes(lane, insertion(client_id, cancel=True), calling("here__echo", text="hi"))
    assert "enough" in outcome["failure"]
    read_until(lambda: [one["state"] for one in asked_about(lane, client_id)], lambda states: states == ["cancelled"])
    assert lane.count(client_id) == 0
