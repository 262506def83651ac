"""Messages that a server sends of itself over HTTP: in their order, whatever their form."""

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from mcp_types import RequestId

from gateway.contracts.storage.store import Json
from gateway.mcp.transport.messages import UnreadError
from gateway.mcp.transport.server_messages import ServerMessages


class Heard:
    """All that comes of a server's messages, in order."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self.messages = ServerMessages(send=self._sent, progress_of=self._progress_of)
        self.changed = asyncio.Event()

    async def _sent(self, content: bytes, headers: Mapping[str, str]) -> None:
        self.all.append(content.decode())
        self.changed.set()

    def _progress_of(self, request_id: RequestId) -> Any:
        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            self.all.append((request_id, progress, total, message))

        return progressed if request_id in (7, "listen-1") else None

    def intercept(self, method: str, params: Mapping[str, Any] | None) -> bool:
        self.all.append(method)
        return method == "taken"

    async def request(self, context: Any, method: str, params: Mapping[str, Any] | None) -> Json:
        return {"to": method}

    async def notified(self, context: Any, method: str, params: Mapping[str, Any] | None) -> None:
        self.all.append(f"session: {method}")
        self.changed.set()


def _progress(**params: Any) -> Json:
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


async def test_progress_is_delivered_to_its_token() -> None:
    """Before the next message is read, and only if it is a number. A token may be a text."""
    heard = Heard()
    for params in (
        {"progressToken": 7, "progress": 1, "total": 2, "message": "a"},
        {"progressToken": "7", "progress": 1.5, "total": True, "message": 1},
        {"progressToken": "listen-1", "progress": 2},
        {"progressToken": 8, "progress": 1},
        {"progressToken": True, "progress": 1},
        {"progressToken": [7], "progress": 1},
        {"progressToken": 7, "progress": "1"},
        {"progressToken": 7},
    ):
        await heard.messages.take(_progress(**params))
    heard.messages.close()
    assert [one for one in heard.all if isinstance(one, tuple)] == [
        (7, 1.0, 2.0, "a"),
        (7, 1.5, None, None),
        ("listen-1", 2.0, None, None),
    ]


async def test_server_messages_pass_the_intercept_before_the_session() -> None:
    """A request gets its answer; what the intercept takes reaches nobody else."""
    heard = Heard()
    async with anyio.create_task_group() as tasks:
        messages = heard.messages

        async def run(*, task_status: Any) -> None:
            await messages.run(heard.request, heard.notified, heard.intercept, task_status=task_status)

        await tasks.start(run)
        for method in ("taken", "other"):
            await messages.take({"jsonrpc": "2.0", "method": method})
        await messages.take({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        async with asyncio.timeout(60):
            while len(heard.all) < 4:
                heard.changed.clear()
                await heard.changed.wait()
        messages.close()
    assert heard.all[:2] == ["taken", "other"]
    assert set(heard.all[2:]) == {"session: other", '{"jsonrpc":"2.0","id":1,"result":{"to":"ping"}}'}
    await messages.take({"jsonrpc": "2.0", "method": "late"})  # it has ended: nobody hears it


@pytest.mark.parametrize("message", [7, [], {}, {"jsonrpc": "2.0"}, {"jsonrpc": "2.0", "method": 7}])
async def test_invalid_server_message_is_refused(message: Any) -> None:
    """With the reason."""
    heard = Heard()
    with pytest.raises(UnreadError, match="no message of JSON-RPC"):
        await heard.messages.take(message)
    heard.messages.close()
