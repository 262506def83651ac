"""The maker of traces, as a configuration has it: of each worker its own; and a gateway without the libraries."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from collector import Collector
from functional.through import FINE
from gateways import all_workers, config, fetch

from gateway.config import Settings
from gateway.features.tracing.service import MISSING_SDK, TracingService
from gateway.testing.upstream import FakeUpstream
from tests.features.worker import features
from tests.support.gateway_process import GatewayProcess

MISSING = """
import sys
sys.modules["opentelemetry"] = None
from gateway.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(("tracing", "serves"), [({}, True), ({"endpoint": "http://127.0.0.1:1"}, False)])
async def test_tracing_needs_an_endpoint_and_a_process_that_serves(tracing: dict[str, str], serves: bool) -> None:
    """A dry start sends nothing."""
    async with features({"tracing": tracing}, serves=serves) as found:
        assert found.tracer is None and found.find(TracingService).build_observer(Settings()) is None
        assert list(found.collect_counts()) == []


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
