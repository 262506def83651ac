"""Gateways of tests, forked where they may be: a start costs a tenth of the CPU time."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.testing import run
from gateway.testing.run import GATEWAY as GATEWAY
from gateway.testing.run import ProcessHandle, execute
from tests.support.forkserver import SOCKET, forked


async def fork_or_execute(command: Sequence[str], *, env: Mapping[str, str], stdout: int, stderr: int) -> ProcessHandle:
    """Start a gateway: a fork has the server's interpreter settings, which an environment of its own may change."""
    if SOCKET in os.environ and tuple(command[: len(GATEWAY)]) == GATEWAY and not env:
        return await forked(command[len(GATEWAY) :], stdout=stdout, stderr=stderr)
    return await execute(command, env=env, stdout=stdout, stderr=stderr)


class GatewayProcess(run.GatewayProcess):
    """A gateway that is forked where it may be."""

    def __init__(self, config: str, **given: Any) -> None:
        """Take the arguments of `gateway.testing.GatewayProcess`."""
        super().__init__(config, **{"starter": fork_or_execute, **given})
