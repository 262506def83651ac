"""Calls that are held: asked about in the client, waited for, come back for; decided by each way, in both eras."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from gateways import samples, until, until_read
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestURLParams, ElicitResult, Implementation

from gateway.contracts.storage.store import Json
from tests.mcp_server.serving import NO_TLS, Era, World, both_eras, keys, server, services_of, texts, world

TEAM = keys(agent=["tools"], boss=["tools", "approve"], anna=["approve"])
ROOT = keys(root=["admin"])
PUBLIC = {"public_url": "http://localhost:1"}


class Asked:
    """The person in front of a client: what was asked, and the answer to each question."""

    def __init__(self, *answers: ElicitResult) -> None:
        self.questions: list[Any] = []
        self._answers = list(answers)

    async def __call__(self, ctx: object, params: Any) -> ElicitResult:
        self.questions.append(params)
        return self._answers.pop(0)


def says(decision: str, **content: str) -> ElicitResult:
    return ElicitResult(action="accept", content={"decision": decision, **content})


async def effects(made: World) -> int:
    """Return how many calls the server got, without this one."""
    async with made.client(key="boss", elicitation_callback=Asked(says("approve"))) as client:
        return int(texts(await client.call_tool("here__calls", {}))) - 1


@both_eras
async def test_elicitation_shows_the_exact_call_and_approval_runs_it_once(era: Era) -> None:
    """An approval runs it once, on record with who decided and by which way."""
    async with world(keys=TEAM) as made:
        person = Asked(says("approve"))
        async with made.client(era, key="boss", elicitation_callback=person) as client:
            result = await client.call_tool("here__echo", {"text": "hi\u200b"})
            assert (texts(result), result.is_error) == ("hi", False)
        (question,) = person.questions
        assert "here.echo" in question.message and "hi\\u{200b}" in question.message
        (decided,) = await made.approvals(key="anna", state="done")
        assert (decided["decided_by"], decided["via"], decided["asked_by"]) == ("boss", "mcp", "boss")
        assert await effects(made) == 1


class Typed(Asked):
    """A client as fastmcp is one: an answer has each field of the form, and is held to the form's schema."""

    async def __call__(self, ctx: object, params: Any) -> ElicitResult:
        answer = await super().__call__(ctx, params)
        fields = params.requested_schema["properties"].items()
        content = {name: field.get("default") for name, field in fields} | (answer.content or {})
        jsonschema_rs.validate(params.requested_schema, content)
        return ElicitResult(action="accept", content=content)


@both_eras
async def test_elicitation_form_returned_with_default_fields_approves(era: Era) -> None:
    """What the person leaves out has the value that the form gives it."""
    async with (
        world(keys=TEAM) as made,
        made.client(era, key="boss", elicitation_callback=Typed(says("approve"))) as client,
    ):
        assert texts(await client.call_tool("here__echo", {"text": "hi"})) == "hi"


@both_eras
async def test_client_name_is_reduced_to_one_visible_line(era: Era) -> None:
    """Nothing that it writes there passes for a further line, or hides; of a long name the beginning is on record."""
    info = Implementation(name="Code\r\nApproved by: \u202eboss\u200b\u2028now", version="1\t\x1b[2J" + "9" * 200)
    async with world({"wait": "0.05s"}, keys=TEAM) as made:
        async with made.client(era, key="agent", client_info=info) as client:
            await client.call_tool("here__echo", {"text": "hi"})
        (asked,) = await made.approvals(key="anna")
        run = await made.get(f"/context/runs/{asked['run_id']}", key="anna")
    for seen in (asked["client"], run["client"]):
        assert seen["name"] == "Code Approved by: boss now"
        assert seen["version"] == "1 [2J" + "9" * 94 + "…"


@both_eras
@pytest.mark.parametrize("answer", [says("reject", reason="not today"), ElicitResult(action="decline")])
async def test_rejected_call_does_not_run_and_reports_the_reason(era: Era, answer: ElicitResult) -> None:
    """Nothing runs, and the client reads why."""
    async with world(keys=TEAM) as made:
        async with made.client(era, key="boss", elicitation_callback=Asked(answer)) as client:
            result = await client.call_tool("here__echo", {"text": "hi"})
        assert result.is_error and "rejected" in texts(result)
        assert ("not today" in texts(result)) == (answer.action == "accept")
        assert await effects(made) == 0


@both_eras
async def test_cancelled_elicitation_leaves_the_call_waiting(era: Era) -> None:
    """The client is told how to go on; the same call joins the approval, and runs once."""
    async with world(keys=TEAM) as made:
        person = Asked(ElicitResult(action="cancel"), says("approve"))
        async with made.client(era, key="boss", elicitation_callback=person) as client:
            result = await client.call_tool("here__echo", {"text": "hi"})
            (pending,) = await made.approvals(key="anna")
            assert result.is_error and "has NOT run" in texts(result) and pending["id"] in texts(result)
            assert texts(await client.call_tool("here__echo", {"text": "hi"})) == "hi"
        assert await effects(made) == 1


@both_eras
async def test_client_without_decide_scope_gets_the_console_url(era: Era) -> None:
    """The client gets the address of the console, and another person decides there while it waits."""
    async with world(keys=TEAM, **PUBLIC) as made:
        person = Asked(ElicitResult(action="accept", content={"decision": "approve"}))
        async with made.client(era, key="agent", elicitation_callback=person) as client:
            calling = asyncio.create_task(client.call_tool("here__echo", {"text": "hi"}))
            await until_read(lambda: _questions(person))
            pending = await made.decide("approve", key="anna")
            assert texts(await calling) == "hi"
        (question,) = person.questions
        assert isinstance(question, ElicitRequestURLParams)
        assert question.url == f"http://localhost:1/console/approvals/{pending['id']}"
        assert await effects(made) == 1


async def _questions(person: Asked) -> int:
    return len(person.questions)


@both_eras
async def test_approval_response_without_the_scope_decides_nothing(era: Era) -> None:
    """A client that answers its own question with a form that it was not asked for."""
    async with world({"wait": "1s"}, keys=TEAM, **PUBLIC) as made:
        person = Asked(says("approve"))
        async with made.client(era, key="agent", elicitation_callback=person) as client:
            result = await client.call_tool("here__echo", {"text": "hi"})
            assert result.is_error and "has NOT run" in texts(result)
        assert len(await made.approvals(key="anna")) == 1 and await effects(made) == 0


@both_eras
async def test_client_without_elicitation_retries_the_call_for_its_result(era: Era) -> None:
    """The client hears of the progress; after the decision the same call runs once, and the next one asks anew."""
    async with world({"wait": "1s"}, keys=TEAM) as made:
        told: list[str | None] = []

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            told.append(message)

        async with made.client(era, key="agent") as client:
            first = await client.call_tool("here__echo", {"text": "hi"}, progress_callback=progressed)
            assert first.is_error and "has NOT run" in texts(first)
            assert told and "waits for the approval of a person" in (told[0] or "")
            await made.decide("approve", key="anna")
            assert texts(await client.call_tool("here__echo", {"text": "hi"})) == "hi"
            again = await client.call_tool("here__echo", {"text": "hi"})
            assert again.is_error and "has NOT run" in texts(again)
        assert await effects(made) == 1


@both_eras
async def test_server_progress_numbers_reach_the_client(era: Era, calm: dict[str, object]) -> None:
    """The progress of a call is the server's own."""
    async with world(**calm) as made, made.client(era) as client:
        told: list[float] = []

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            told.append(progress)

        arguments = {"steps": 3, "pause": 0.2}
        assert texts(await client.call_tool("here__progress", arguments, progress_callback=progressed)) == "done"
        assert told and set(told) <= {1.0, 2.0, 3.0}


@both_eras
async def test_a_decision_elsewhere_ends_the_wait(era: Era) -> None:
    """The call that waits gets the result at once."""
    async with world(keys=TEAM) as made, made.client(era, key="agent") as client:
        calling = asyncio.create_task(client.call_tool("here__echo", {"text": "hi"}))
        await made.decide("approve", key="anna")
        assert texts(await calling) == "hi"


async def test_request_state_is_valid_for_its_call_and_caller_only() -> None:
    """Another call, another key, another end user, and a forged one are refused; nothing runs."""
    async with world(keys=TEAM) as made:
        async with made.client(key="agent") as agent, made.client(key="boss", user="bob") as bob:
            capable = made.client(key="boss", elicitation_callback=Asked())
            async with capable as asking:
                asked = await asking.session.call_tool("here__echo", {"text": "ho"}, allow_input_required=True)
                state = asked.request_state
                middle = len(state) // 2
                forged = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
                answers = {"approval": says("approve")}
                for client, text, token in (
                    (asking, "second", state),
                    (agent, "ho", state),
                    (bob, "ho", state),
                    (asking, "ho", forged),
                ):
                    with pytest.raises(MCPError, match="Invalid or expired requestState"):
                        await client.session.call_tool(
                            "here__echo", {"text": text}, input_responses=answers, request_state=token
                        )
        assert await effects(made) == 0


async def test_replayed_request_state_returns_the_stored_result() -> None:
    """The client gets the result that it had."""
    async with world(keys=TEAM) as made:
        async with made.client(key="boss", elicitation_callback=Asked()) as client:
            asked = await client.session.call_tool("here__echo", {"text": "hi"}, allow_input_required=True)
            for _ in range(2):
                result = await client.session.call_tool(
                    "here__echo",
                    {"text": "hi"},
                    input_responses={"approval": says("approve")},
                    request_state=asked.request_state,
                )
                assert texts(result) == "hi"
        assert await effects(made) == 1


@pytest.mark.parametrize(
    "change",
    [{"annotations": {"destructiveHint": True}}, {"title": "T"}, {"outputSchema": {"type": "object"}}],
    ids=["annotations", "title", "output schema"],
)
async def test_pending_approval_becomes_stale_when_the_tool_definition_changes(change: Json, tmp_path: Path) -> None:
    """The decision is refused, and the call is asked about anew, as after a change of the description."""
    listed = tmp_path / "tools.json"
    _define(listed)
    async with world(keys=[*TEAM, *ROOT], here=server("defined", str(listed))) as made, made.client(key="agent") as one:
        call = asyncio.create_task(one.call_tool("here__do", {}))
        (asked,) = await until_read(lambda: made.approvals(key="anna"), lambda found: len(found) == 1)
        _define(listed, **change)
        assert (await made.post("/mcp/services/here/restart", {}, key="root"))[0] < 300
        await until_read(lambda: made.get("/mcp/services/here", key="root"), lambda found: found["changed"] == ["do"])
        await _is_stale(made, asked)
        await made.decide("approve", key="anna")
        assert texts(await call).endswith("done")


async def test_approval_is_stale_when_the_configured_server_changes(tmp_path: Path) -> None:
    """Another program under the same name gets no call that was approved of the first one."""
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    _define(first)
    _define(second)
    here = server("defined", str(first))
    async with world(keys=TEAM, here=here) as made, made.client(key="agent") as client:
        call = asyncio.create_task(client.call_tool("here__do", {}))
        (asked,) = await until_read(lambda: made.approvals(key="anna"), lambda found: len(found) == 1)
        servers = {"here": server("defined", str(second))}
        await made.gateway.reload({**made.config, "mcp": {**made.config["mcp"], "servers": servers}})
        await until(lambda: all(service.running for service in services_of(made.gateway)), timeout_s=120)
        await _is_stale(made, asked)
        await made.decide("approve", key="anna")
        assert texts(await call) == "done"


def _define(listed: Path, **more: Any) -> None:
    tool = {"name": "do", "description": "Does it.", "inputSchema": {"type": "object"}, "result": "done", **more}
    listed.write_text(json.dumps([tool]))


async def _is_stale(made: World, asked: Json) -> None:
    status, refused = await made.post(f"/context/approvals/{asked['id']}", {"decision": "approve"}, key="anna")
    assert (status, refused["error"]["code"]) == (409, "approval_stale")
    (fresh,) = await made.approvals(key="anna")
    assert fresh["id"] != asked["id"] and fresh["id"] in refused["error"]["message"]


@both_eras
async def test_a_cancelled_call_withdraws_its_question(era: Era) -> None:
    """The call cannot be approved any more."""
    async with world(keys=TEAM) as made:
        async with made.client(era, key="agent") as client:
            calling = asyncio.create_task(client.call_tool("here__echo", {"text": "hi"}))
            await until_read(lambda: made.approvals(key="anna"))
            calling.cancel()
            await until_read(lambda: made.approvals(key="anna"), lambda found: not found)
            assert len(await made.approvals(key="anna", state="cancelled")) == 1
        assert await effects(made) == 0


@both_eras
async def test_approval_being_stored_is_withdrawn_when_its_call_is_cancelled(era: Era, tmp_path: Path) -> None:
    """The record knows of no run yet when the client cancels."""
    async with world(keys=TEAM, metrics={"public": True}, store=f"sqlite:///{tmp_path}/gateway.db") as made:
        store: Any = made.gateway.gateway._shared.store
        runs = made.gateway.gateway._shared.runs
        async with made.client(era, key="agent") as client:
            await client.list_tools()
            begun, held, before = threading.Event(), threading.Event(), await cancelled(made)
            holds = asyncio.ensure_future(store._write(lambda _: begun.set() or held.wait()))
            await until(begun.is_set)
            calling = asyncio.create_task(client.call_tool("here__echo", {"text": "hi"}))
            try:
                await until(lambda: runs._runs and store._writer._jobs.qsize() > 0)
                calling.cancel()
                await until_read(lambda: cancelled(made), lambda found: found > before)
            finally:
                held.set()
            await holds
            await until_read(lambda: made.approvals(key="anna", state="cancelled"))
            (run,) = (await made.get("/context/runs", key="anna"))["data"]
            assert run["state"] == "cancelled" and await made.approvals(key="anna") == []
        assert await effects(made) == 0


@both_eras
async def test_cancelling_one_of_two_equal_calls_leaves_the_other(era: Era) -> None:
    """Two clients of one key make the same call: the one that stays gets the result; the last one withdraws it."""
    async with world(keys=TEAM, metrics={"public": True}) as made:
        async with made.client(era, key="agent") as stays, made.client(era, key="agent") as leaves:
            for decision in ("approve", None):
                calls = [await waiting(client) for client in (stays, leaves)]
                before = await cancelled(made)
                calls[1].cancel()
                await until_read(lambda: cancelled(made), lambda found, before=before: found > before)
                if decision is None:
                    assert len(await made.approvals(key="anna")) == 1
                    calls[0].cancel()
                    await until_read(lambda: made.approvals(key="anna"), lambda found: not found)
                else:
                    await made.decide(decision, key="anna")
                    assert texts(await calls[0]) == "hi"
        assert await effects(made) == 1


@both_eras
async def test_equal_calls_of_different_end_users_are_separate(era: Era) -> None:
    """Nobody gets the result of another one's call, though it is the same."""
    async with world({"wait": "1s"}, keys=TEAM) as made:
        for user in ("ann", "bob"):
            async with made.client(era, key="agent", user=user) as client:
                assert "has NOT run" in texts(await client.call_tool("here__echo", {"text": "hi"}))
        assert {asked["user"] for asked in await made.approvals(key="anna")} == {"ann", "bob"}


async def test_elicitation_response_of_another_end_user_decides_nothing() -> None:
    """In the session of a program that serves several people: its call waits on."""
    async with world({"wait": "1s"}, keys=TEAM) as made:
        fields = {"Authorization": "Bearer boss", "X-Context-User": "ann"}
        async with httpx2.AsyncClient(headers=fields, timeout=60, verify=NO_TLS) as http:

            async def answers(ctx: object, params: Any) -> ElicitResult:
                http.headers["X-Context-User"] = "bob"
                return says("approve")

            transport = streamable_http_client(made.url, http_client=http)
            async with Client(transport, mode="legacy", elicitation_callback=answers) as client:
                assert "has NOT run" in texts(await client.call_tool("here__echo", {"text": "hi"}))
        assert await effects(made) == 0


async def test_long_result_can_be_read_by_its_owner_only(calm: dict[str, object]) -> None:
    """Not by another key or another end user of the tenant, who learn its id."""
    async with world(**calm, keys=keys(agent=["tools"], second=["tools"])) as made:
        async with made.client(key="agent", user="ann") as client:
            cut = texts(await client.call_tool("here__big", {"bytes": 500_000}))
            name = cut.partition("; id ")[2].partition("]")[0]
            assert texts(await client.call_tool("read_result", {"id": name, "length": 5})) == "xxxxx"
        for key, user in (("agent", "bob"), ("agent", None), ("second", "ann")):
            async with made.client(key=key, user=user) as client:
                result = await client.call_tool("read_result", {"id": name})
                assert result.is_error and "There is no such result" in texts(result)


async def waiting(client: Client) -> "asyncio.Task[Any]":
    """A call that waits for a person, as its client was told."""
    told = asyncio.Event()

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        told.set()

    calling = asyncio.create_task(client.call_tool("here__echo", {"text": "hi"}, progress_callback=progressed))
    await told.wait()
    return calling


async def cancelled(made: World) -> float:
    """Return how many calls were cancelled."""
    counted = "gateway_mcp_server_operation_duration_seconds_count"
    page = samples(await made.gateway.gateway._process.exposition.build_page())
    return page.get(counted + '{error_type="cancelled",mcp_method_name="tools/call"}', 0.0)


@both_eras
async def test_call_with_an_idempotency_key_runs_once(era: Era, calm: dict[str, object]) -> None:
    """However often it is sent; another call with the word is refused, and so is a word that is none."""
    async with world(**calm) as made, made.client(era) as client:
        word: Any = {"twolane/idempotency-key": "k"}
        results = [await client.call_tool("here__echo", {"text": "hi"}, meta=word) for _ in range(2)]
        assert [texts(result) for result in results] == ["hi", "hi"]
        (run,) = (await made.get("/context/runs?kind=tool"))["data"]
        assert (run["tool"], run["state"]) == ("here.echo", "completed")
        for arguments, key in (({"text": "ho"}, "k"), ({"text": "hi"}, 5), ({"text": "hi"}, "")):
            meta: Any = {"twolane/idempotency-key": key}
            refused: Any = None
            try:
                refused = await client.call_tool("here__echo", arguments, meta=meta)
            except MCPError as error:
                refused = error
            assert isinstance(refused, MCPError) or refused.is_error


async def test_idempotency_key_is_scoped_to_the_end_user(calm: dict[str, object]) -> None:
    """Each of them has a call of its own, also if it is the same one."""
    async with world(**calm, keys=keys(agent=["tools"], anna=["context"])) as made:
        word: Any = {"twolane/idempotency-key": "k"}
        for user, text in (("ann", "hi"), ("bob", "hi"), ("cid", "ho"), (None, "hm"), ("ann", "hi")):
            async with made.client(key="agent", user=user) as client:
                assert texts(await client.call_tool("here__echo", {"text": text}, meta=word)) == text
        assert len((await made.get("/context/runs?kind=tool", key="anna"))["data"]) == 4
