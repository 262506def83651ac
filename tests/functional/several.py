"""A gateway with one upstream of several scripted endpoints behind it, all in this process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import chain, repeat

from functional.through import HOSTS, NO_WORKFLOWS, PATIENT, listener_of, post

from gateway.testing.local_gateway import LocalGateway
from gateway.testing.upstream import FakeUpstream, Script
from gateway.upstream.group import Group

#: A request that may be sent twice, and one that may not.
CHAT, STORES = b"/v1/chat/completions", b"/v1/files"
BODY = b'{"model": "m", "messages": []}'


@dataclass
class Several:
    """A gateway before several endpoints, which are named a, b, c and so on."""

    gateway: LocalGateway
    endpoints: Sequence[FakeUpstream]

    @property
    def group(self) -> Group:
        return listener_of(self.gateway).router.groups[0]

    @property
    def counts(self) -> list[int]:
        """How many requests each endpoint has read."""
        return [len(endpoint.requests) for endpoint in self.endpoints]

    @property
    def inflight(self) -> list[int]:
        """How many places are taken at each."""
        return [member.inflight for member in self.group.members]


@asynccontextmanager
async def several(
    *scripts: Script | Sequence[Script],
    more: Sequence[dict[str, object]] = (),
    each: dict[str, object] | None = None,
    own: Sequence[dict[str, object]] = (),
    settings: dict[str, object] | None = None,
    **rules: object,
) -> AsyncIterator[Several]:
    """`rules` are those of the upstream, `each` is added to each endpoint, `own` to one after the other.

    `more` are further upstreams. `settings` are added to the configuration itself.
    """
    async with AsyncExitStack() as stack:
        endpoints = [
            await stack.enter_async_context(FakeUpstream(*(one if isinstance(one, Sequence) else (one,))))
            for one in scripts
        ]
        entries = [
            {"url": endpoint.base_url, "name": name, **(each or {}), **facts}
            for name, endpoint, facts in zip("abcdefgh", endpoints, chain(own, repeat({})), strict=False)
        ]
        upstream = {"name": "up", "endpoints": entries, "timeouts": PATIENT, **rules}
        config: dict[str, object] = {
            "upstreams": [upstream, *more],
            "allowed_hosts": HOSTS,
            "workflows": NO_WORKFLOWS,
        }
        config |= {"logging": {"access": True}, **(settings or {})}
        yield Several(await stack.enter_async_context(LocalGateway(config)), endpoints)


def chat(*lines: bytes) -> bytes:
    """A request that only computes."""
    return post(BODY, CHAT, *lines)
