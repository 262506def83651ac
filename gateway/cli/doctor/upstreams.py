"""Real probes of upstreams: a request for the models of each endpoint, as in a health check, and its clock."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gateway.cli.doctor.findings import Finding
from gateway.config import Settings
from gateway.contracts.errors import GatewayError
from gateway.http.response_head import ResponseHead
from gateway.http.retry_after import parse_http_date
from gateway.server.lanes.upstreams import build_groups
from gateway.telemetry.metrics import Metrics
from gateway.upstream.call import UpstreamCall
from gateway.upstream.endpoint_state import Member
from gateway.upstream.health import HealthRules, build_check_request

#: A clock that is further off makes tokens, keys with an end and traces wrong. `Date` has whole seconds.
_SKEW_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _ProbeResult:
    finding: Finding
    ahead_s: float | None = None  # how far this machine's clock is ahead of the server's


async def examine_upstreams(settings: Settings, *, timeout_s: float) -> AsyncIterator[Finding]:
    """Yield what each endpoint answered within `timeout_s`, and then how the clocks compare."""
    groups = build_groups(settings.upstreams, metrics=Metrics(), clock=time.monotonic)
    if not groups:
        yield Finding("ok", "upstreams", "none: the built-in demo model answers")
        return
    probes = [
        asyncio.create_task(_probe_endpoint(f"{group.name} {member.name}", member, timeout_s=timeout_s))
        for group in groups
        for member in group.members
    ]
    for probe in probes:
        yield (await probe).finding
    for group in groups:
        for member in group.members:
            member.pool.close()
    if skews := [ahead for probe in probes if (ahead := probe.result().ahead_s) is not None]:
        yield _check_clock(skews)


async def _probe_endpoint(about: str, member: Member, *, timeout_s: float) -> _ProbeResult:
    call, began_s = UpstreamCall(member.pool, method=b"GET"), time.monotonic()
    try:
        async with asyncio.timeout(timeout_s):
            head = await call.send(build_check_request(member.pool.endpoint, HealthRules().path))
    except TimeoutError:
        text = f"no answer within {timeout_s:g} s"
        return _ProbeResult(Finding("fail", about, text, "is it loading a model? Try again with --timeout 60"))
    except GatewayError as error:
        return _ProbeResult(Finding("fail", about, error.message))
    finally:
        call.close()
    took = f"in {(time.monotonic() - began_s) * 1000:.0f} ms"
    return _ProbeResult(
        _judge(about, head, took, has_key=member.pool.endpoint.api_key is not None), _measure_clock_skew_s(head)
    )


def _judge(about: str, head: ResponseHead, took: str, *, has_key: bool) -> Finding:
    """Return what the answer to `GET /models` shows about an endpoint."""
    status = head.status
    if status in (401, 402, 403) and has_key:
        advice = (
            "check its `api_key`" if status != 402 else "look whether its account has money, or set another `api_key`"
        )
        return Finding("fail", about, f"it refuses the gateway's own key ({status})", advice)
    if status in (401, 403):
        return Finding("ok", about, f"answered {took}, and wants a key ({status}), which its clients bring")
    if status in (404, 405):
        advice = "if requests fail: `base_url` ends where the API begins, mostly with /v1"
        return Finding("warn", about, f"answered {took}, and has no list of models ({status})", advice)
    if status >= 500:
        return Finding("fail", about, f"it fails with {status}", "look into its own log")
    if status >= 300:
        where = (head.find_value(b"location") or b"").decode("latin-1")
        advice = f"set its `base_url` to where it leads: {where}" if where else "look at its `base_url` and limits"
        return Finding("warn", about, f"it answered {status} in place of a list of models", advice)
    return Finding("ok", about, f"answered {status} {took}")


def _measure_clock_skew_s(head: ResponseHead) -> float | None:
    told = head.find_value(b"date")
    try:
        return None if told is None else time.time() - parse_http_date(told).timestamp()
    except (TypeError, ValueError):
        return None


def _check_clock(skews: Sequence[float]) -> Finding:
    """Return how this machine's clock compares with the servers' clocks: by the median, as one may be wrong."""
    ahead_s = median(skews)
    if abs(ahead_s) < _SKEW_S:
        return Finding("ok", "clock", f"within {abs(ahead_s):.0f} s of those of upstreams")
    side = "ahead of" if ahead_s > 0 else "behind"
    text = f"it is {abs(ahead_s):.0f} s {side} those of upstreams"
    return Finding("warn", "clock", text, "synchronize it (NTP): ends of keys, budgets and traces go by it")
