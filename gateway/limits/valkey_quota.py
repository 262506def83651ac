"""The shares of limits in a Valkey or Redis server: the method of `QuotaStore`, as one script.

A server that was started again may have lost shares that gateways use. Until all of them have reported, and until what
a silent gateway may have used has left its window, it grants none beyond what gateways hold (valkey_shares.lua).
"""

import asyncio
import secrets
from collections.abc import Awaitable, Sequence
from hashlib import sha1
from importlib.resources import files
from operator import attrgetter
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
from valkey.asyncio import Valkey
from valkey.asyncio.retry import Retry
from valkey.backoff import NoBackoff
from valkey.exceptions import ConnectionError as LostConnection
from valkey.exceptions import NoScriptError, ReadOnlyError, ResponseError, ValkeyError
from valkey.exceptions import TimeoutError as LateAnswer

from gateway.contracts.storage.journal import ConflictError
from gateway.contracts.storage.quota import QUOTA_GONE_S, QuotaAnswer, ShareGrant, ShareRequest
from gateway.contracts.storage.store import StoreError

#: All keys begin so. The braces keep them on one server of a cluster.
PREFIX: Final = "{twolane-limits}:"
#: The rows of a gateway that was silent for so long are deleted. No share counts for longer.
FORGOTTEN_S: Final = 300
#: A call is sent so often, and may take so long each time: together less than its caller waits.
ATTEMPTS: Final = 2
ATTEMPT_S: Final = 0.9
SCRIPT: Final = files("gateway.limits").joinpath("valkey_shares.lua").read_text()
_FIELDS: Final = ("name", "limit", "base", "held", "used", "wanted", "needed", "lapse_s")
_get_values: Final = attrgetter(*_FIELDS)


class _Answer(msgspec.Struct, array_like=True):
    """The answer of the script. `unsettled_s` is for how long not even gateways at work are known."""

    epoch: str
    unsettled_s: float
    gateways: int
    grants: list[tuple[int, int, int, int]]
    lacking: list[str]


class ServerFacts(msgspec.Struct):
    """A server's facts for its operator."""

    name: str
    version: str
    eviction: str


class ValkeyQuota:
    """The shares of limits in a server. `script` is the text of the script that it runs."""

    def __init__(self, url: str, *, script: str = SCRIPT) -> None:
        self._client = connect_client(url)
        self._script = script
        self._digest = sha1(script.encode(), usedforsecurity=False).hexdigest()
        self._epoch = ""
        self._unsettled_s = 0.0

    async def share_quota(
        self, gateway: str, requests: Sequence[ShareRequest], *, turn: int, now_s: float
    ) -> QuotaAnswer:
        del now_s  # the clock of the server counts
        figures = [value for request in requests for value in _get_values(request)]
        identity = secrets.token_hex(8)  # by which a call that is sent again is found done
        values = [gateway, identity, turn, self._epoch, QUOTA_GONE_S, FORGOTTEN_S, *figures]
        answer = msgspec.msgpack.decode(await self._send(values), type=_Answer)
        self._epoch, self._unsettled_s = answer.epoch, answer.unsettled_s
        grants = [
            ShareGrant(name=request.name, share=share, free=free, used=used, spare=spare)
            for request, (share, free, used, spare) in zip(requests, answer.grants, strict=True)
        ]
        return QuotaAnswer(grants=grants, gateways=answer.gateways, lacking=answer.lacking)

    async def settle(self) -> None:
        """Wait until the gateways at work are known to a server that has just begun: a few seconds at most."""
        await asyncio.sleep(self._unsettled_s)

    async def close(self) -> None:
        await self._client.aclose()

    async def _send(self, values: Sequence[str | float]) -> bytes:
        """Return what the script answers. Raises ConflictError and StoreError."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._evaluate(values)
            except (LostConnection, LateAnswer, OSError) as error:
                if attempt == ATTEMPTS:
                    raise StoreError(f"Valkey: {error or type(error).__name__}") from error
            except ReadOnlyError as error:
                # It became a replica. The name of the server may lead to its successor by now.
                await self._client.connection_pool.disconnect()
                raise StoreError(f"Valkey: {error}") from error
            except ResponseError as error:
                if str(error).startswith("STALE "):
                    raise ConflictError(str(error).partition(" ")[2]) from None
                raise StoreError(f"Valkey: {error}") from error
            except ValkeyError as error:
                raise StoreError(f"Valkey: {error or type(error).__name__}") from error
        raise AssertionError("the last attempt returns or raises")

    async def _evaluate(self, values: Sequence[str | float]) -> bytes:
        words = [str(value) for value in values]
        try:
            answer = self._client.evalsha(self._digest, 1, PREFIX, *words)
            return await cast("Awaitable[bytes]", answer)
        except NoScriptError:  # the server was started again, or has never run it
            return await cast("Awaitable[bytes]", self._client.eval(self._script, 1, PREFIX, *words))


def connect_client(url: str) -> Valkey:
    """Return a client of a server, which connects with its first call and repeats none. The name in TLS is checked."""
    if urlsplit(url).scheme in {"valkeys", "rediss"} and "ssl_check_hostname" not in url:
        url += f"{'&' if '?' in url else '?'}ssl_check_hostname=true"
    client: Valkey = Valkey.from_url(
        url,
        socket_timeout=ATTEMPT_S,
        socket_connect_timeout=ATTEMPT_S,
        retry=Retry(NoBackoff(), 0),
        client_name="twolane",
    )
    return client


async def read_server_facts(url: str) -> ServerFacts:
    """Return what a server says of itself. Raises StoreError."""
    client = connect_client(url)
    try:
        facts = await client.info("server") | await client.info("memory")
    except (ValkeyError, OSError) as error:
        raise StoreError(f"Valkey: {error or type(error).__name__}") from error
    finally:
        await client.aclose()
    name, version = ("Valkey", facts["valkey_version"]) if "valkey_version" in facts else ("Redis", "")
    return ServerFacts(name, version or facts["redis_version"], facts.get("maxmemory_policy", "unknown"))
