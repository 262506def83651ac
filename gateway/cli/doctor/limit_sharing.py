"""The Valkey server in which gateways share limits: whether it answers, its version, and whether it keeps its keys."""

import time
from collections.abc import AsyncIterator

from gateway.cli.doctor.findings import Finding
from gateway.config import Settings
from gateway.contracts.storage.store import StoreError

#: What a server does that is out of memory and forgets no keys.
_KEEPS = "noeviction"


async def examine_limit_sharing(settings: Settings) -> AsyncIterator[Finding]:
    """Yield the finding about the configured server, if there is one."""
    if settings.limits.valkey is None:
        return
    # Its client is an optional dependency.
    from gateway.limits.valkey_quota import read_server_facts

    began_s = time.monotonic()
    try:
        facts = await read_server_facts(settings.limits.valkey.reveal())
    except StoreError as error:
        yield Finding("fail", "limits.valkey", str(error), "requests with limits are refused until it answers")
        return
    text = f"{facts.name} {facts.version} answers after {1000 * (time.monotonic() - began_s):.0f} ms"
    if facts.eviction == _KEEPS:
        yield Finding("ok", "limits.valkey", text)
    else:
        advice = f"set maxmemory-policy to {_KEEPS}: a limit may be exceeded whose shares the server has removed"
        yield Finding("warn", "limits.valkey", f"{text}, and its maxmemory-policy is {facts.eviction}", advice)
