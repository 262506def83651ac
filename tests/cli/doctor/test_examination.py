"""The order of an examination: what keeps all requests from working comes first."""

from pathlib import Path

import pytest

from gateway.config import ConfigError
from tests.cli.doctor.examined import examined


async def test_the_order_is_that_of_mending(tmp_path: Path) -> None:
    found = [*(await examined("", folder=tmp_path))]
    assert found[0] == "configuration" and found.index("versions") < found.index("sandbox") < found.index("upstreams")


async def test_a_configuration_that_cannot_start_ends_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        await examined("tools: {http_request: {}, web: {use: http_request}}", folder=tmp_path)
