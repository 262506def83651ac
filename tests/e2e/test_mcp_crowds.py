"""Many calls of one MCP server at once, and many servers: every conversation gets its own answer, and no other's."""

import asyncio
import os

import pytest
from gateways import Usage

from .serving import SERVICES, asked_of, behaving, serving, told, until
from .talking import talking

#: The connections themselves are tested on both loops.
pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])

CALLS, SERVERS = 100, 8
MB = 1 << 20
#: A generous time for what is done at once; one after the other it would take longer, on any machine.
AT_ONCE_S = 45.0


async def test_hundred_concurrent_calls_of_one_server_get_their_answers() -> None:
    """No answer is lost and none is crossed, though half of them overtake the other half."""
    async with serving(servers={"box": behaving()}, upstreams=[]) as world:
        usage = Usage(os.getpid())
        usage.forget_peak()
        before_bytes = usage.rss_bytes
        slow = [told(world, "box.sleep", seconds=2) for _ in range(CALLS // 2)]
        texts = [f"text {number} " + "x" * number for number in range(CALLS // 2)]
        async with asyncio.timeout(AT_ONCE_S):
            answers = await asyncio.gather(*slow, *(told(world, "box.echo", text=text) for text in texts))
        assert answers == ["slept"] * len(slow) + texts
        assert await told(world, "box.calls") == str(CALLS + 1)
        assert usage.peak_bytes - before_bytes < 64 * MB


async def test_many_mcp_servers_run_concurrently() -> None:
    """They start beside each other, answer beside each other, and end beside each other."""
    servers = {f"box{number}": behaving("ignores-term") for number in range(SERVERS)}
    async with asyncio.timeout(None) as limit:
        async with serving(servers=servers, upstreams=[]) as world:
            asked = [(name, f"{name} {number}") for number in range(5) for name in servers]
            answers = await asyncio.gather(*(told(world, f"{name}.echo", text=text) for name, text in asked))
            assert answers == [text for _, text in asked]
            assert len(set(await asyncio.gather(*(told(world, f"{name}.pid") for name in servers)))) == SERVERS
            async with asyncio.timeout(AT_ONCE_S):
                slow = await asyncio.gather(*(told(world, f"{name}.sleep", seconds=3) for name in servers))
            assert slow == ["slept"] * SERVERS
            limit.reschedule(asyncio.get_running_loop().time() + AT_ONCE_S)


async def test_concurrent_operators_leave_one_consistent_service() -> None:
    """Of many who register one name one has it; however often a service is restarted and stopped, one runs at last."""
    async with talking(upstreams=[]) as world:
        registered = await asyncio.gather(*(asked_of(world, "", {"name": "box", **behaving()}) for _ in range(10)))
        assert sorted(answer.status for answer in registered) == [201] + 9 * [409]
        for what in ("restart", "stop", "start"):
            operated = await asyncio.gather(*(asked_of(world, f"/box/{what}") for _ in range(10)))
            assert {answer.status for answer in operated} == {200}
        await until(world, "box", restarts=0)
        assert await told(world, "box.echo", text="hello") == "hello"
        assert (await asked_of(world, "/box", method="DELETE")).json["deleted"]
        assert (await world.get(SERVICES)).json["data"] == []
        assert "there is no tool 'box.echo'" in await told(world, "box.echo", text="hello")
