"""`gateway check-config --probe`: which APIs the models of each upstream speak, found out by requests without a model.

A server answers an empty request to a path that it knows with an error about its fields, and to another path that there
is no such path. Nothing is computed. A server that answers all paths in the same way tells nothing.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

from gateway.cli.commands import CommandError
from gateway.config import Settings
from gateway.contracts.errors import GatewayError
from gateway.contracts.model_apis import API_LINES, API_PATHS, KEY_HEADERS, MODEL_APIS, ApiName
from gateway.server.lanes.upstreams import build_groups
from gateway.telemetry.metrics import Metrics
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint import Endpoint
from gateway.upstream.endpoint_state import Member
from gateway.upstream.pool import Pool

#: Longest wait for an answer.
WAIT_S: Final = 10.0
_NO_SUCH_PATH: Final = b"/no-such-path"
_UNKNOWN_PATH: Final = frozenset((HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED))


@dataclass(frozen=True, slots=True)
class ProbedEndpoint:
    """The APIs that an endpoint speaks, and the configured one. `trouble` is why that is not known, else ""."""

    about: str
    api: ApiName
    spoken: Sequence[ApiName] = ()
    trouble: str = ""


def describe_apis(settings: Settings) -> Iterator[str]:
    """Yield a line for each endpoint. Raises CommandError if one does not speak its configured API."""
    probed = asyncio.run(_probe_upstreams(settings))
    for one in probed:
        spoken = " and ".join(one.spoken)
        yield f"  probe       {one.about}: {one.trouble or f'speaks {spoken}'} (api: {one.api})"
    wrong = [one for one in probed if one.spoken and one.api not in one.spoken]
    if wrong:
        advice = "; ".join(f"{one.about}: write `api: {one.spoken[0]}`" for one in wrong)
        raise CommandError(f"upstreams: some do not speak the API that the configuration names for them: {advice}")


async def _probe_upstreams(settings: Settings) -> list[ProbedEndpoint]:
    groups = build_groups(settings.upstreams, metrics=Metrics(), clock=time.monotonic)
    members = [(group.name, member) for group in groups for member in group.members]
    return list(await asyncio.gather(*(_probe_member(name, member) for name, member in members)))


async def _probe_member(upstream: str, member: Member) -> ProbedEndpoint:
    endpoint = member.pool.endpoint
    about, api = f"{upstream} {member.name}", endpoint.models.api
    try:
        async with asyncio.timeout(WAIT_S):
            unknown = await _ask(endpoint, api, _NO_SUCH_PATH)
            statuses = {name: await _ask(endpoint, name, None) for name in MODEL_APIS}
    except TimeoutError:
        return ProbedEndpoint(about, api, trouble=f"no answer within {WAIT_S:g} s")
    except GatewayError as error:
        return ProbedEndpoint(about, api, trouble=error.message)
    spoken = [name for name, status in statuses.items() if status != unknown and status not in _UNKNOWN_PATH]
    if spoken:
        return ProbedEndpoint(about, api, spoken)
    if unknown in _UNKNOWN_PATH:
        return ProbedEndpoint(about, api, trouble="it knows neither of the paths: does its base_url end with /v1?")
    return ProbedEndpoint(
        about, api, trouble=f"not known, as it answers {unknown} to every path: has it the right key?"
    )


async def _ask(endpoint: Endpoint, name: ApiName, path: bytes | None) -> int:
    """Return the status of an empty request to the path of an API, or to another one. Raises GatewayError."""
    asked = replace(endpoint, models=replace(endpoint.models, api=name))
    pool = Pool(asked, clock=time.monotonic)
    call = UpstreamCall(pool)
    head = b"POST %b HTTP/1.1\r\nHost: %b\r\n" % (
        asked.build_path(path or API_PATHS[name]),
        asked.authority,
    )
    lines = asked.build_credential_line(KEY_HEADERS[name]) + API_LINES[name] + b"Content-Type: application/json\r\n"
    try:
        return (await call.send(head + lines + b"Content-Length: 2\r\n\r\n{}")).status
    finally:
        call.close()
        pool.close()
