"""Active health checks: a GET to each endpoint at intervals takes one out that fails, and brings it back.

They are driven by the sweep of the listener, so they end with the configuration that defines them. A request that fails
is the business of the breaker; a check sees an endpoint also when no client uses it.

A server may know no such page, and a key may have no right to it. So a 404, and a refusal of the gateway's own key,
fail a check only while another endpoint of the upstream answers its checks well.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from gateway.contracts.errors import GatewayError
from gateway.contracts.model_apis import API_LINES, KEY_HEADERS
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.endpoint_state import Member
from gateway.upstream.group import Group
from gateway.upstream.status_verdict import KEY_REFUSED

#: An answer below this is good whatever the others' answers.
WELL_BELOW: Final = 400
#: An answer from this on fails a check whatever the others' answers.
FAILS_FROM: Final = 500
#: How long the rest of an answer may take, so that its connection can be used again, in seconds.
REST_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """The checks of an endpoint: `path` below its URL; after `fall` failures it is out, after `rise` it is back.

    Times are seconds.
    """

    path: bytes = b"/models"
    interval_s: float = 10.0
    timeout_s: float = 2.0
    fall: int = 3
    rise: int = 2


class HealthChecks:
    """The checks of one group."""

    def __init__(self, group: Group, rules: HealthRules) -> None:
        self._group = group
        self._rules = rules
        self._due_s: dict[Member, float] = {}
        self._well: set[Member] = set()  # endpoints whose last answer was a good one by itself
        self._in_a_row: dict[Member, int] = dict.fromkeys(group.members, 0)  # against its present state
        self._checking: dict[Member, asyncio.Task[None]] = {}

    def sweep(self, now_s: float) -> None:
        """Begin the checks that are due; called twice a second. Each endpoint is first checked at once."""
        for member in self._group.members:
            if member not in self._checking and now_s >= self._due_s.get(member, now_s):
                self._due_s[member] = now_s + self._rules.interval_s
                self._checking[member] = asyncio.get_running_loop().create_task(self._run_check(member))

    def close(self) -> None:
        """End the checks under way. Idempotent."""
        for task in tuple(self._checking.values()):
            task.cancel()

    async def _run_check(self, member: Member) -> None:
        """Check an endpoint once, and take it out or back after enough equal results in a row."""
        try:
            cause = await self._check_member(member)
        finally:
            self._checking.pop(member)
        if (cause is None) is member.healthy:
            self._in_a_row[member] = 0
            return
        self._in_a_row[member] += 1
        if self._in_a_row[member] >= (self._rules.fall if member.healthy else self._rules.rise):
            self._in_a_row[member] = 0
            self._group.apply_health_check(member, failing=cause)

    async def _check_member(self, member: Member) -> str | None:
        """Send the check. Return the cause of its failure, or None if the endpoint passed."""
        endpoint, status, why = member.pool.endpoint, 0, ""
        call = UpstreamCall(member.pool, method=b"GET")
        try:
            async with asyncio.timeout(self._rules.timeout_s):
                status = (await call.send(build_check_request(endpoint, self._rules.path))).status
            call.leave(within_s=REST_S)
        except TimeoutError:
            why = f"no answer within {self._rules.timeout_s:g} s"
        except GatewayError as error:
            why = error.message
        finally:
            call.close()
        if 0 < status < WELL_BELOW:
            self._well.add(member)
        else:
            self._well.discard(member)
        if status >= FAILS_FROM or (self._well and _is_bad_status(status, endpoint)):
            why = f"it answered {status}"
        return why or None


def _is_bad_status(status: int, endpoint: Endpoint) -> bool:
    """Return whether a status shows a wrong path, or a key that the endpoint refuses."""
    return status == HTTPStatus.NOT_FOUND or (endpoint.api_key is not None and str(status) in KEY_REFUSED)


def build_check_request(endpoint: Endpoint, path: bytes) -> bytes:
    """Return the request of a check: a GET of `path` below the endpoint's URL, with its key if it has one."""
    api = endpoint.models.api
    lines = b"GET %b HTTP/1.1\r\nHost: %b\r\n" % (endpoint.build_path(path), endpoint.authority)
    return (
        lines + endpoint.build_credential_line(KEY_HEADERS[api]) + API_LINES[api] + b"Accept: application/json\r\n\r\n"
    )
