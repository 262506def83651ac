"""The pages of responses: what each answers, to whom, and to which requests it answers nothing but an error."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import ClientTimeout

from gateway.contracts.storage.store import Json
from gateway.dialects.registry import build_paths
from tests.e2e.models import Answer, calls, says
from tests.e2e.talking import desk

from .answering import CONVERSATIONS, GATEWAY, KEYS, RESPONSES, answering, text_of

RUNS = calls("file_operations", operation="write", path="new.txt", content="x")
WRITE = calls("file_operations", operation="write", path="new.txt", content="x", risk_level=None)


def user(text: str) -> Json:
    return {"role": "user", "content": text}


@pytest.mark.parametrize("path", build_paths("responses"))
async def test_a_response_is_read_and_deleted_on_each_path(path: str) -> None:
    """As it was answered; then it is not there any more."""
    async with answering(says("one")) as client:
        client.world.session.headers["X-Context-Mode"] = "context"
        made = (await client.create(path=path)).json
        one = made["id"]
        assert (await client.get(one, path=path)).json == made
        assert (await client.get(one, "/input_items", path=path)).json["data"][0]["role"] == "user"
        assert (await client.delete(one, path=path)).json == {"id": one, "object": "response", "deleted": True}
        for answer in (
            await client.get(one, path=path),
            await client.get(one, "/input_items", path=path),
            await client.delete(one, path=path),
            await client.post(b"", f"{path}/{one}/cancel"),
        ):
            assert (answer.status, answer.error["code"]) == (404, "response_not_found")


async def test_input_items_list_only_the_requests_own_items_paginated() -> None:
    """In pages, the newest first unless the client wants another order; not those of earlier responses."""
    async with answering(says("one"), says("two")) as client:
        first = (await client.create("0")).json["id"]
        items = [user(str(number)) for number in range(1, 6)]
        second = (await client.create(items, previous_response_id=first, instructions="Be terse.")).json["id"]

        async def texts(query: str = "") -> list[str]:
            listed = (await client.get(second, f"/input_items{query}")).json
            ids = [item["id"] for item in listed["data"]]
            assert [listed["first_id"], listed["last_id"]] == [ids[0], ids[-1]] if ids else True
            return [item["content"][0]["text"] for item in listed["data"]]

        assert await texts() == await texts("?order=desc&include[]=reasoning.encrypted_content") == list("54321")
        assert await texts("?order=asc") == list("12345")
        page = (await client.get(second, "/input_items?order=asc&limit=2")).json
        assert page["has_more"] and await texts(f"?order=asc&after={page['last_id']}&limit=3") == list("345")
        assert await texts(f"?after={page['last_id']}") == ["1"]


@pytest.mark.parametrize(
    ("query", "code", "param"),
    [
        ("?limit=0", "invalid_field", "limit"),
        ("?order=up", "invalid_field", "order"),
        ("?after=msg_x", "invalid_field", "after"),
        ("?before=x", "unknown_field", "before"),
    ],
)
async def test_invalid_input_items_query_is_refused_with_its_name(query: str, code: str, param: str) -> None:
    """400, with its name."""
    async with answering(says("one")) as client:
        one = (await client.create()).json["id"]
        refused = await client.get(one, f"/input_items{query}")
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, code, param)


async def test_response_with_effects_remains_readable_after_disconnect(tmp_path: Path) -> None:
    """Its run had an effect: a GET tells what was done, and how it ended, once for all."""
    gate = asyncio.Event()
    async with answering(RUNS, says("one ", gate), tools=desk(tmp_path, write=True)) as client:
        async with client.streaming("1", tools=[GATEWAY]) as events:
            await events.until("response.output_text.delta")
            response_id = events.read[0]["response"]["id"]
            under_way = (await client.get(response_id)).json
            assert under_way["status"] == "in_progress"
        ended = await client.until(response_id, "failed", "completed")
        (call,) = [item for item in ended["output"] if item["type"] == "mcp_call"]
        assert call["status"] == "completed" and "new.txt" in call["output"]
        assert (await client.get(response_id)).json == ended
        (item,) = (await client.get(response_id, "/input_items")).json["data"]
        assert item["content"][0]["text"] == "1"


async def test_approval_request_remains_open_after_client_disconnect(tmp_path: Path) -> None:
    """A GET shows the request for an approval; a decision goes on from the response."""
    async with answering(WRITE, says("Written."), tools=desk(tmp_path, write=True)) as client:
        headers = {"X-Context-Approvals": "hold"}
        async with client.streaming("Write.", tools=[GATEWAY], headers=headers) as events:
            while (added := await events.until("response.output_item.added"))["item"]["type"] != "mcp_approval_request":
                pass
            response_id = events.read[0]["response"]["id"]
        asked = await client.until(response_id, "completed")
        assert asked["output"][-1]["id"] == added["item"]["id"]
        decision = {"type": "mcp_approval_response", "approval_request_id": added["item"]["id"], "approve": True}
        done = (await client.create([decision], previous_response_id=response_id, tools=[GATEWAY])).json
        assert text_of(done) == "Written." and (tmp_path / "work" / "new.txt").read_text() == "x"


async def test_response_still_being_read_is_not_rebuilt_from_its_run(tmp_path: Path) -> None:
    """The run may be over before a slow client has all of it; what the client gets is what is kept."""
    async with answering(RUNS, says("one"), tools=desk(tmp_path, write=True)) as client:
        made = (await client.create("1")).json
        runs = client.world.gateway.gateway._state.runs
        run = runs._runs["run_" + made["id"].removeprefix("resp_")]
        runs.join(run)
        await client.store.delete_response(made["id"], tenant="local")  # as if it were not stored yet
        assert (await client.get(made["id"])).json["status"] == "in_progress"
        runs.remove_client(run, whole=True)
        found = (await client.get(made["id"])).json
        assert (found["status"], text_of(found)) == ("completed", "one")


async def test_response_deleted_while_running_stays_deleted(tmp_path: Path) -> None:
    """Its run is cancelled, its stream ends, and it does not come back with that end."""
    gate = asyncio.Event()
    async with answering(RUNS, says("one ", gate, "two"), tools=desk(tmp_path, write=True)) as client:
        async with client.streaming("1") as events:
            await events.until("response.output_text.delta")
            response_id = events.read[0]["response"]["id"]
            assert (await client.delete(response_id)).json["deleted"] is True
            gate.set()
            await events.rest()
            assert events.kinds[-1] == "response.failed" and events.last["status"] in ("failed", "cancelled")
        assert (await client.get(response_id)).error["code"] == "response_not_found"


#: Each page with an id in its path: method, path below the collection's, body.
OF_RESPONSES: Sequence[tuple[str, str, bytes]] = (
    ("GET", "/{}", b""),
    ("GET", "/{}?stream=true", b""),
    ("GET", "/{}/input_items", b""),
    ("POST", "/{}/cancel", b""),
    ("DELETE", "/{}", b""),
)
OF_CONVERSATIONS: Sequence[tuple[str, str, bytes]] = (
    ("GET", "/{}", b""),
    ("POST", "/{}", b'{"metadata": {"stolen": "1"}}'),
    ("GET", "/{}/items", b""),
    ("POST", "/{}/items", b'{"items": [{"role": "user", "content": "x"}]}'),
    ("GET", "/{}/items/{item}", b""),
    ("DELETE", "/{}/items/{item}", b""),
    ("DELETE", "/{}", b""),
)


async def test_ids_of_another_tenant_return_not_found(tmp_path: Path) -> None:
    """T2: on each page, in each field: as ids that are not there, and nothing of them changes or reaches a model."""
    answers = (says("one"), WRITE, says("two"))
    async with answering(*answers, tools=desk(tmp_path, write=True), **KEYS) as client:
        ann, eve = client.of("ann"), client.of("eve")
        response = (await ann.create("1")).json
        asked = (await ann.create("Write.", tools=[GATEWAY])).json
        background = (await ann.stream("2", background=True)).last
        (own,) = (await ann.get(response["id"], "/input_items")).json["data"]
        conversation = (await ann.post({"items": [user("0")]}, CONVERSATIONS)).json
        (item,) = (await ann.get(conversation["id"], "/items", path=CONVERSATIONS)).json["data"]
        n_asked = len(client.world.model.asked)

        for foreign in (response["id"], asked["id"], background["id"]):
            for method, below, body in OF_RESPONSES:
                refused = await eve.post(body, RESPONSES + below.format(foreign), method=method)
                nowhere = await eve.post(body, RESPONSES + below.format("resp_" + "0" * 24), method=method)
                assert (refused.status, refused.error["code"]) == (404, "response_not_found"), (method, below)
                assert _bare(refused.error) == _bare(nowhere.error)
            refused = await eve.create(previous_response_id=foreign)
            assert refused.error["code"] == "previous_response_not_found"
        for method, below, body in OF_CONVERSATIONS:
            path = CONVERSATIONS + below.format(conversation["id"], item=item["id"])
            refused = await eve.post(body, path, method=method)
            assert (refused.status, refused.error["code"]) == (404, "conversation_not_found"), (method, below)
        assert (await eve.create(conversation=conversation["id"])).error["code"] == "conversation_not_found"
        question = asked["output"][-1]["id"]
        for item_id in (own["id"], response["output"][0]["id"], question, asked["output"][0]["id"]):
            reference = {"type": "item_reference", "id": item_id}
            assert (await eve.create([reference])).error["code"] == "item_not_found"
            assert (await eve.post({"items": [reference]}, CONVERSATIONS)).error["code"] == "item_not_found"
        decision = {"type": "mcp_approval_response", "approval_request_id": question, "approve": True}
        refused = await eve.create([decision], tools=[GATEWAY])
        assert (refused.status, refused.error["code"]) == (404, "approval_not_found")

        assert len(client.world.model.asked) == n_asked and not (tmp_path / "work" / "new.txt").exists()
        for one in (response, asked, background):
            assert (await ann.get(one["id"])).json == one
        assert (await ann.get(conversation["id"], path=CONVERSATIONS)).json == conversation
        listed = (await ann.get(conversation["id"], "/items", path=CONVERSATIONS)).json["data"]
        assert listed == [item]


def _bare(error: Json) -> Json:
    return {**error, "message": error["message"].partition(" (request id")[0]}


async def test_each_response_page_requires_a_key_with_its_scope() -> None:
    """401 and 403 before anything is looked up."""
    async with answering(**KEYS) as client:
        pages = [(RESPONSES, *page) for page in OF_RESPONSES] + [(CONVERSATIONS, *page) for page in OF_CONVERSATIONS]
        pages += [(RESPONSES, "POST", "", b"{}"), (RESPONSES, "POST", "/compact", b"{}")]
        pages += [(CONVERSATIONS, "POST", "", b"{}")]
        for collection, method, below, body in pages:
            path = collection + below.format("x", item="y")
            for name, status, code in (
                ("", 401, "missing_api_key"),
                ("nobody", 401, "invalid_api_key"),
                ("low", 403, "scope_missing"),
                ("con", 403, "scope_missing"),
            ):
                refused = await client.of(name).post(body, path, method=method)
                assert (refused.status, refused.error["code"]) == (status, code), (method, path, name)


LONG = "x" * (1 << 20)


@pytest.mark.parametrize(
    ("collection", "method", "below"),
    [(RESPONSES, method, below) for method, below, _ in OF_RESPONSES]
    + [(CONVERSATIONS, method, below) for method, below, _ in OF_CONVERSATIONS],
)
async def test_hostile_ids_in_paths_are_refused(collection: str, method: str, below: str) -> None:
    """A long one is refused by its length; others are not there."""
    async with answering() as client:
        for hostile in ("resp_" + "g" * 24, "..%2f..", "%00", "%ff", "'%20or%201=1", "a" * 5_000):
            path = collection + below.format(hostile, item=hostile)
            refused = await client.post(b"{}", path, method=method)
            assert refused.status in (400, 404), (method, path, refused.json)
        path = collection + below.format(LONG, item=LONG)
        request = client.world.session.request(method, path, timeout=ClientTimeout(total=60))
        async with request as response:
            assert response.status == 414


#: Bodies that no request for a response can be, with what their errors name.
HOSTILE: Sequence[tuple[bytes, str, str | None]] = (
    (b"", "invalid_json", None),
    (b"{", "invalid_json", None),
    (b"null", "invalid_json", None),
    (b"\xff\xfe", "invalid_json", None),
    (b"[" * 3000 + b"]" * 3000, "invalid_json", None),
    (b'{"model": 5, "input": "x"}', "invalid_field", "model"),
    (b'{"model": "m", "input": 5}', "invalid_field", "input"),
    (b'{"model": "m", "input": "x", "nope": 1}', "unknown_parameter", "nope"),
    (b'{"model": "m", "input": "x", "previous_response_id": "' + LONG.encode() + b'"}', "invalid_field",
     "previous_response_id"),
    (b'{"model": "m", "input": [{"type": "item_reference", "id": "' + LONG.encode() + b'"}]}', "invalid_field",
     "input[0].id"),
)  # fmt: skip


@pytest.mark.parametrize("below", ["", "/compact"])
@pytest.mark.parametrize(("body", "code", "param"), HOSTILE)
async def test_hostile_response_bodies_are_refused(below: str, body: bytes, code: str, param: str | None) -> None:
    """400 with the place; no model is asked."""
    async with answering() as client:
        refused = await client.post(body, RESPONSES + below)
        assert (refused.status, refused.error["code"], refused.error["param"]) == (400, code, param)


async def test_overlong_conversation_and_approval_ids_are_refused() -> None:
    """Refused by their places."""
    async with answering() as client:
        for fields, param in (
            ({"conversation": LONG}, "conversation"),
            ({"conversation": {"id": LONG}}, "conversation.id"),
            ({"metadata": {LONG: "x"}}, "metadata"),
            ({"prompt_cache_key": LONG}, "prompt_cache_key"),
        ):
            refused = await client.create(**fields)
            assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "invalid_field", param)
        decision = {"type": "mcp_approval_response", "approval_request_id": LONG, "approve": True}
        refused = await client.create([decision])
        assert refused.error["param"] == "input[0].approval_request_id"


async def test_response_bodies_have_size_value_and_type_limits() -> None:
    """413 for too many bytes or values, and 415 for another type."""
    async with answering(limits={"context_body": "20KiB", "context_values": 1000}) as client:
        for below in ("", "/compact"):
            for said in ("x" * 21_000, [1] * 1100):
                refused = await client.create(said, path=RESPONSES + below)
                assert (refused.status, refused.error["code"]) == (413, "request_too_large")
            refused = await client.post(b"x=1", RESPONSES + below, headers={"Content-Type": "text/plain"})
            assert (refused.status, refused.error["code"]) == (415, "unsupported_media_type")


async def test_unsupported_methods_get_405_with_an_allow_header() -> None:
    """405 on the pages that there are."""
    async with answering() as client:
        for method, path, allowed in (
            ("PUT", RESPONSES, "GET, POST"),
            ("PUT", f"{RESPONSES}/x", "DELETE, GET"),
            ("GET", f"{RESPONSES}/x/cancel", "POST"),
        ):
            refused = await client.post(b"{}", path, method=method)
            assert (refused.status, refused.error["code"]) == (405, "method_not_allowed")
            assert refused.headers["Allow"] == allowed
        refused = await client.get("x/nope")
        assert (refused.status, refused.error["code"]) == (404, "unknown_route")


async def test_unknown_query_parameter_is_refused_on_pages_without_a_query() -> None:
    """On pages that have none."""
    async with answering(says("one")) as client:
        one = (await client.create()).json["id"]
        for method, below in (("DELETE", ""), ("POST", "/cancel")):
            refused = await client.post(b"", f"{RESPONSES}/{one}{below}?force=1", method=method)
            assert (refused.status, refused.error["code"], refused.error["param"]) == (400, "unknown_field", "force")
        assert (await client.get(one)).status == 200


async def test_requests_without_context_header_are_relayed_to_the_upstream() -> None:
    """Byte for byte: the plain paths are passthrough."""
    answers = [Answer(content=b'{"id": "theirs"}')] * 3
    async with answering(*answers) as client:
        for method, path in (("POST", "/v1/responses"), ("GET", "/v1/responses/resp_1"), ("POST", "/v1/conversations")):
            async with client.world.session.request(method, path, data=b"not json") as response:
                assert await response.read() == b'{"id": "theirs"}'
        sent = [request.target for request in client.world.model.upstream.requests]
        assert sent == [b"/v1/responses", b"/v1/responses/resp_1", b"/v1/conversations"]


async def test_background_responses_count_as_requests() -> None:
    """Each is work: `limits.concurrent` bounds it with the requests, and says when to come again."""
    gate = asyncio.Event()
    answers = (says("one ", gate, "end"), says("two ", gate, "end"), says("three"))
    async with answering(*answers, limits={"concurrent": 2}) as client:
        made = [(await client.create(said, background=True)).json["id"] for said in ("1", "2")]
        await client.world.model.upstream.wait_requests(2)
        for fields in ({"background": True}, {}):
            refused = await client.create("3", **fields)
            assert (refused.status, refused.error["code"]) == (503, "overloaded") and refused.headers["Retry-After"]
        assert (await client.get(made[0])).json["status"] == "in_progress"
        gate.set()
        for response_id in made:
            await client.until(response_id, "completed")
        assert text_of((await client.create("3")).json) == "three"
