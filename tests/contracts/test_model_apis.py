"""The names of APIs that configuration and code share."""

from gateway.config.schema.upstreams import UpstreamSettings
from gateway.contracts.model_apis import API_LINES, KEY_HEADERS, MODEL_APIS


def test_configuration_takes_each_api_and_chat_is_the_default() -> None:
    for name in MODEL_APIS:
        assert UpstreamSettings.model_validate({"name": "up", "base_url": "http://up/v1", "api": name}).api == name
    assert UpstreamSettings.model_validate({"name": "up", "base_url": "http://up/v1"}).api == "chat"


def test_each_api_has_its_header_lines() -> None:
    assert API_LINES.keys() == KEY_HEADERS.keys() == set(MODEL_APIS)
    assert all(not lines or lines.endswith(b"\r\n") for lines in API_LINES.values())
