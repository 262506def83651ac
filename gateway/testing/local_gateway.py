"""A gateway in this process on a free loopback port: the real object graph and real sockets, no child process."""

import asyncio
import io
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.config import LoadedConfig, Settings
from gateway.contracts.plugin import Clock
from gateway.server.app import DATA, Gateway
from gateway.telemetry.logs import LogSink
from gateway.telemetry.metrics import Metrics


class LocalGateway:
    """`async with LocalGateway({"upstreams": [...]}) as gateway` serves on `gateway.port` of the running loop.

    `config` is the content of gateway.yaml as plain data; `reload` takes another one. `logged` is what was logged.
    A `config` that names no store has one in memory, so that no file of the current folder is read or written.
    `clock` takes the place of the system's, for runs and approvals.
    """

    host = "127.0.0.1"

    def __init__(self, config: Mapping[str, object], *, clock: Clock | None = None) -> None:
        self._clock = clock
        self._loaded = _load_config(config)
        self._log = io.StringIO()
        self.metrics = Metrics()
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        self._sink = LogSink(self._log, as_json=True, secrets=(), dropped=self.metrics.log_line_dropped)
        self.gateway = Gateway(
            self._loaded, load=lambda: self._loaded, sink=self._sink, metrics=self.metrics, clock=self._clock
        )
        await self.gateway.start()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.gateway.get_connection_factory(DATA), self.host, 0, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        await self.gateway.close()
        self._sink.close()

    async def reload(self, config: Mapping[str, object]) -> None:
        """Swap to another configuration, as SIGHUP does."""
        self._loaded = _load_config(config)
        await self.gateway.reload()

    def get_log(self) -> str:
        """Return the log until now, as JSON lines."""
        self._sink.flush()
        return self._log.getvalue()


def _load_config(config: Mapping[str, object]) -> LoadedConfig:
    folder = Path.cwd()
    settings = Settings.model_validate({"store": "sqlite:///:memory:", **config}, context={"folder": folder})
    return LoadedConfig(settings=settings, warnings=(), file=None, folder=folder)
