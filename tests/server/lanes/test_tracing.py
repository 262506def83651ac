"""The maker of traces, as a configuration has it: of each worker its own; and a gateway without the libraries."""

import asyncio
import io
import json
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from collector import Collector
from functional.through import FINE
from gateways import all_workers, config, fetch

from gateway.config import Settings
from gateway.server.lanes.tracing import MISSING_SDK, open_tracing
from gateway.telemetry.logs import LogSink
from gateway.telemetry.metrics import Metrics
from gateway.testing.upstream import FakeUpstream
from tests.support.gateway_process import GatewayProcess

MISSING = """
import sys
sys.modules["opentelemetry"] = None
from gateway.__main__ import main
sys.exit(main())
"""


async def test_tracing_is_disabled_without_an_endpoint() -> None:
    settings = Settings.model_validate({}, context={"folder": Path.cwd()})
    sink = LogSink(io.StringIO(), as_json=True, secrets=(), dropped=lambda: None)
    async with AsyncExitStack() as stack:
        assert open_tracing(settings, stack, metrics=Metrics(), sink=sink) is None


def test_missing_tracing_libraries_are_reported_with_the_install_command(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("tracing: {endpoint: 'http://127.0.0.1:4318'}")
    for command in (["check-config", "-c", str(file)], ["run", "-c", str(file), "--listen", "127.0.0.1:0"]):
        done = subprocess.run([sys.executable, "-c", MISSING, *command], capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert f"tracing.endpoint: {MISSING_SDK}" in done.stderr + done.stdout
        assert "Traceback" not in done.stderr


async def test_each_worker_sends_its_own_spans_and_its_last_ones_when_it_stops() -> None:
    async with Collector() as collector, FakeUpstream(FINE) as upstream:
        settings = json.loads(config(upstream.base_url, workers=2, tracing={"endpoint": collector.url}))
        async with GatewayProcess(json.dumps(settings)) as gateway:
            await all_workers(gateway)
            answers = await asyncio.gather(*(fetch(gateway) for _ in range(40)))
            assert {one.status for one in answers} == {200}
        spans = collector.spans  # not waited for: the gateway has drained
        assert sum(one.kind == "server" for one in spans) == 40
        assert len({one.resource["service.instance.id"] for one in spans}) == 2
        assert len({one.id for one in spans}) == len(spans) and len({one.trace for one in spans}) == 40
