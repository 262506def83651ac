"""The examination of a configuration and of what it stands on, in the order in which a person mends it."""

import time
from collections.abc import AsyncIterator

from gateway.cli.doctor.confinement import examine_confinement
from gateway.cli.doctor.findings import Finding
from gateway.cli.doctor.limit_sharing import examine_limit_sharing
from gateway.cli.doctor.machine import examine_machine
from gateway.cli.doctor.services import examine_services
from gateway.cli.doctor.store import examine_store
from gateway.cli.doctor.upstreams import examine_upstreams
from gateway.config import LoadedConfig
from gateway.server.dry_start import rehearse_start


async def examine(loaded: LoadedConfig, *, timeout_s: float) -> AsyncIterator[Finding]:
    """Yield all findings, each as soon as it is there. Raises ConfigError for what keeps a gateway from starting."""
    warnings = await rehearse_start(loaded)
    yield Finding("ok", "configuration", str(loaded.file or "defaults, no file"))
    for warning in (*loaded.warnings, *warnings):
        yield Finding("warn", "configuration", warning)
    for finding in examine_machine(loaded, now_s=time.time()):
        yield finding
    async for finding in examine_store(loaded):
        yield finding
    yield await examine_confinement()
    async for finding in examine_upstreams(loaded.settings, timeout_s=timeout_s):
        yield finding
    async for finding in examine_limit_sharing(loaded.settings):
        yield finding
    async for finding in examine_services(loaded.settings, timeout_s=timeout_s):
        yield finding
