"""Another process locks the store longer than the gateway waits: no door reports a success or runs a call."""

import asyncio
import json
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

from aiohttp import web
from aiohttp.test_utils import TestServer
from crash.door_faults import configured
from crash.doors import ASKING, DECIDING, Client, Question, Told, asked, client_of
from crash.effects import Json, effects
from gateways import until

from gateway.testing.ports import free_port
from tests.support.gateway_process import GatewayProcess

from .test_store import locked

_SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@asynccontextmanager
async def mailed(folder: Path) -> AsyncIterator[tuple[GatewayProcess, dict[str, str]]]:
    """A gateway with every door, and the links that decide, by the approvals that they are for."""
    links: dict[str, str] = {}

    async def receive(request: web.Request) -> web.Response:
        notice = (await request.json())["data"]
        links[notice["id"]] = notice["decision_link"]
        return web.Response()

    app = web.Application()
    app.router.add_post("/", receive)
    async with TestServer(app) as server:
        config: Json = configured(folder)
        entry = {"webhook": str(server.make_url("/")), "secret": _SECRET, "links": {"as": "oncall"}}
        port = free_port("127.0.0.1")
        config |= {"approvals": {"notify": [entry]}, "public_url": f"http://127.0.0.1:{port}"}
        async with GatewayProcess(json.dumps(config), port=port) as gateway:
            yield gateway, links


def path_of(link: str) -> str:
    parts = urlsplit(link)
    return f"{parts.path}?{parts.query}"


async def by_link(client: Client, question: Question, link: str) -> Told:
    """The form of a page that was loaded before, so that only what it does meets the lock."""
    page = await client.send("GET", path_of(link))
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', page.text))
    form = urlencode({**fields, "decision": "approve"}).encode()
    kind = "application/x-www-form-urlencoded"
    told = await client.send(
        "POST", urlsplit(link).path, form, **{"Content-Type": kind, "Origin": client.gateway.base_url}
    )
    return Told(told.status, told.text, "store_full" if told.status in (503, 507) else f"link {told.status}")


def state_of(folder: Path, approval_id: str) -> str:
    with closing(sqlite3.connect(folder / "gateway.db")) as store:
        ((state,),) = store.execute("SELECT state FROM approvals WHERE id = ?", (approval_id,)).fetchall()
    return str(state)


async def test_locked_store_refuses_decisions_and_calls_on_every_route(tmp_path: Path) -> None:
    """Check that a refused call never ran, and that a call that waits still waits and can be decided."""
    async with mailed(tmp_path) as (gateway, links), AsyncExitStack() as stack:

        async def client() -> Client:
            return await stack.enter_async_context(client_of(gateway))

        first = await client()
        questions: list[Question] = []
        for number, door in enumerate((*DECIDING, "link")):
            questions.append(await asked(first, f"decided-{number}", door=door))
        by_mail = questions[-1]
        await until(lambda: by_mail.id in links)
        clients = [await client() for _ in (*questions, *ASKING)]
        assert (await first.send("GET", f"/console/approvals/{questions[0].id}")).is_done  # it makes a secret, once
        with locked(tmp_path / "gateway.db"):
            deciding = [DECIDING[door](clients[n], questions[n], "approve") for n, door in enumerate(DECIDING)]
            deciding.append(by_link(clients[len(DECIDING)], by_mail, links[by_mail.id]))
            asking = [ASKING[door](clients[-1 - n], f"asked-{n}") for n, door in enumerate(ASKING)]
            told: list[Told] = await asyncio.gather(*deciding, *asking)
        refusals = {
            door: (one.code, one.settled)
            for door, one in zip((*DECIDING, "link", *(f"asked: {door}" for door in ASKING)), told, strict=True)
        }
        assert refusals == dict.fromkeys(refusals, ("store_full", False)), told
        for question in questions:
            assert state_of(tmp_path, question.id) == "pending" and effects(tmp_path, question.name) == []
            assert (await DECIDING["REST"](first, question, "reject")).status == 200
        assert [effects(tmp_path, f"asked-{n}") for n in range(len(ASKING))] == [[]] * len(ASKING)
