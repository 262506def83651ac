"""The configuration that the container starts with, and the key that the guide makes for it."""

import hashlib
import re
import subprocess

import pytest

from gateway.config import ConfigError, load

from .files import CONTAINER_CONFIG, DEPLOY, ENVIRON, settings


def test_the_container_listens_to_the_network_with_a_key() -> None:
    """The container's configuration is good: a key from the environment, and our own upstream credential."""
    found = settings()
    assert found.listen.host == "0.0.0.0"
    assert [key.sha256 for key in found.keys] == [hashlib.sha256(b"gw-test").hexdigest()]
    assert found.upstreams[0].api_key is not None
    assert found.upstreams[0].base_url == "https://api.openai.com/v1"
    assert settings(OPENAI_BASE_URL="http://model:8000/v1").upstreams[0].base_url == "http://model:8000/v1"


@pytest.mark.parametrize("missing", ["GATEWAY_KEY_SHA256", "OPENAI_API_KEY"])
def test_the_container_refuses_to_start_without_its_keys(missing: str) -> None:
    """A variable that is not set is named, with what it is for."""
    environ = {name: value for name, value in ENVIRON.items() if name != missing}
    with pytest.raises(ConfigError, match=rf"{missing} is not set: the .*key that"):
        load(CONTAINER_CONFIG, environ=environ, flags={})


def test_the_guide_makes_a_key_that_the_gateway_knows() -> None:
    """The recipe of deploy/README.md yields a key and its SHA-256, as `keys` wants it."""
    recipe = re.findall(r"```sh\n(.*?)```", (DEPLOY / "README.md").read_text(), flags=re.DOTALL)[0]
    script = f'{recipe}\nprintf "%s %s" "$GATEWAY_API_KEY" "$GATEWAY_KEY_SHA256"'
    made = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, timeout=120, check=True).stdout
    key, sha256 = made.split(" ")
    assert hashlib.sha256(key.encode()).hexdigest() == sha256
    assert settings(GATEWAY_KEY_SHA256=sha256).keys[0].sha256 == sha256
