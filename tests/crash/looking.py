"""What a person sees and decides on at a gateway that stops, restarts or reloads."""

import json
from pathlib import Path

from gateways import until

from tests.support.gateway_process import GatewayProcess

from .effects import ASKS, Json, stored
from .talk import CHAT, asking, post, session_with

#: A run whose worker froze is another one's within 7 s.
RECOVERS_S = 30.0


def line(run: str, n: int = ASKS) -> str:
    return f'tool ledger {{"run": "{run}", "n": {n}}}'


def dog(name: str) -> str:
    sql = f"INSERT INTO pets VALUES ('{name}', 4)"
    return f"tool execute_sql {json.dumps({'sql': sql})}"


def state_of(folder: Path, run: str) -> str:
    found = stored(folder / "gateway.db", run)
    return found[0].state if found else "absent"


async def until_state(folder: Path, run: str, *states: str) -> None:
    await until(lambda: state_of(folder, run) in states, timeout_s=RECOVERS_S)


def run_ids(folder: Path, run: str) -> str:
    (found,) = stored(folder / "gateway.db", run)
    return found.run_id


async def approved(gateway: GatewayProcess, approval_id: str, **more: object) -> tuple[int, Json]:
    async with session_with(gateway) as session:
        return await post(session, f"/context/approvals/{approval_id}", {"decision": "approve", **more})


async def page(gateway: GatewayProcess, path: str) -> Json:
    async with session_with(gateway) as session, session.get(path) as response:
        found: Json = await response.json()
        return found


async def pending(gateway: GatewayProcess) -> list[Json]:
    """Oldest first."""
    listed: list[Json] = (await page(gateway, "/context/approvals?status=pending"))["data"]
    return listed


async def asked(gateway: GatewayProcess, text: str) -> dict[str, str]:
    """The ids of what one request asks for, by tool."""
    async with session_with(gateway) as session:
        status, answer = await post(session, CHAT, asking(text))
    assert status == 200, answer
    return {one["tool"]: one["id"] for one in answer["context"]["approvals"]}
