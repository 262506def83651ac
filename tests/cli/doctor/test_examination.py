"""The order of an examination: what keeps all requests from working comes first."""

from pathlib import Path

import pytest

from gateway.config import ConfigError
from tests.cli.doctor.examined import examined


async def test_doctor_findings_come_in_repair_order(tmp_path: Path) -> None:
    found = [*(await examined("", folder=tmp_path))]
    assert found[0] == "configuration" and found.index("versions") < found.index("sandbox") < found.index("upstreams")


async def test_doctor_stops_at_an_invalid_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        await examined("tools: {http_request: {}, web: {use: http_request}}", folder=tmp_path)
