"""The Valkey server in which gateways share limits, as the doctor sees it."""

from pathlib import Path

import pytest

from gateway.testing.ports import free_port
from tests.cli.doctor.examined import examined
from tests.valkey_servers import valkey_server

ABOUT = "limits.valkey"


async def test_server_that_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    """Without one in the configuration there is no finding. The password is not shown."""
    assert ABOUT not in await examined("", folder=tmp_path)
    text = f"limits: {{valkey: 'redis://gateway:topsecret@127.0.0.1:{free_port()}/0'}}\n"
    found = (await examined(text, folder=tmp_path))[ABOUT]
    assert found.level == "fail" and "Valkey: " in found.text and "topsecret" not in found.text


@pytest.mark.valkey
async def test_server_that_forgets_keys_is_a_warning(tmp_path: Path) -> None:
    with valkey_server() as server:
        text = f"limits: {{valkey: '{server.url}'}}\n"
        found = (await examined(text, folder=tmp_path))[ABOUT]
        assert found.level == "ok" and " answers after " in found.text
        server.send("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        found = (await examined(text, folder=tmp_path))[ABOUT]
        assert found.level == "warn" and "allkeys-lru" in found.text and found.advice is not None
